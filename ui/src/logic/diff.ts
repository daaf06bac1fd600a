// A unified diff as git prints it, taken apart into files, hunks and numbered lines.

export type LineKind = 'add' | 'del' | 'context' | 'note';

export interface DiffLine {
  kind: LineKind;
  /** Without the sign in front. */
  text: string;
  before: number | null;
  after: number | null;
}

export interface Hunk {
  header: string;
  lines: DiffLine[];
}

export type FileChange = 'added' | 'deleted' | 'renamed' | 'changed';

export interface DiffFile {
  path: string;
  /** Where it was before, if that is another place. */
  from: string | null;
  change: FileChange;
  binary: boolean;
  added: number;
  removed: number;
  hunks: Hunk[];
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$/;

/** The files of a diff, in its order. What cannot be read is left out, never thrown about. */
export function parseDiff(text: string): DiffFile[] {
  const files: DiffFile[] = [];
  let file: DiffFile | null = null;
  let hunk: Hunk | null = null;
  let before = 0;
  let after = 0;
  // How many lines of the hunk are still to come: so that a removed line "-- x" is no header.
  let beforeLeft = 0;
  let afterLeft = 0;
  const lines = text.split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  for (const line of lines) {
    if (hunk !== null && file !== null && (beforeLeft > 0 || afterLeft > 0)) {
      const sign = line[0];
      if (sign === '+') {
        hunk.lines.push({ kind: 'add', text: line.slice(1), before: null, after });
        file.added += 1;
        after += 1;
        afterLeft -= 1;
        continue;
      }
      if (sign === '-') {
        hunk.lines.push({ kind: 'del', text: line.slice(1), before, after: null });
        file.removed += 1;
        before += 1;
        beforeLeft -= 1;
        continue;
      }
      if (sign === ' ' || sign === undefined) {
        hunk.lines.push({ kind: 'context', text: line.slice(1), before, after });
        before += 1;
        after += 1;
        beforeLeft -= 1;
        afterLeft -= 1;
        continue;
      }
    }
    if (line.startsWith('\\') && hunk !== null) {
      hunk.lines.push({ kind: 'note', text: line.slice(1).trim(), before: null, after: null });
      continue;
    }
    if (line.startsWith('diff --git ')) {
      file = { path: pathOfHeader(line), from: null, change: 'changed', binary: false, added: 0, removed: 0, hunks: [] };
      files.push(file);
      hunk = null;
      continue;
    }
    if (file === null) continue;
    const found = HUNK.exec(line);
    if (found !== null) {
      before = Number(found[1]);
      after = Number(found[3]);
      beforeLeft = found[2] === undefined ? 1 : Number(found[2]);
      afterLeft = found[4] === undefined ? 1 : Number(found[4]);
      hunk = { header: (found[5] ?? '').trim(), lines: [] };
      file.hunks.push(hunk);
    } else if (line.startsWith('new file mode')) file.change = 'added';
    else if (line.startsWith('deleted file mode')) file.change = 'deleted';
    else if (line.startsWith('rename from ')) {
      file.change = 'renamed';
      file.from = unquote(line.slice('rename from '.length));
    } else if (line.startsWith('rename to ')) file.path = unquote(line.slice('rename to '.length));
    else if (line.startsWith('Binary files ') || line.startsWith('GIT binary patch')) file.binary = true;
    else if (line.startsWith('+++ ')) {
      const path = unquote(line.slice(4).replace(/\t$/, ''));
      if (path !== '/dev/null') file.path = path.replace(/^b\//, '');
    } else if (line.startsWith('--- ')) {
      const path = unquote(line.slice(4).replace(/\t$/, ''));
      if (path !== '/dev/null' && file.change === 'deleted') file.path = path.replace(/^a\//, '');
    }
  }
  return files;
}

/** `diff --git a/X b/X`: X, as long as both are the same; what follows mends the rest. */
function pathOfHeader(line: string): string {
  const rest = line.slice('diff --git '.length);
  if (rest.startsWith('"')) {
    const end = rest.indexOf('" ', 1);
    return unquote(end < 0 ? rest : rest.slice(0, end + 1)).replace(/^a\//, '');
  }
  const half = (rest.length - 1) / 2;
  return rest.slice(2, Math.ceil(half));
}

/** Git quotes unusual names as C does, bytes in octal. */
function unquote(name: string): string {
  if (!name.startsWith('"') || !name.endsWith('"') || name.length < 2) return name;
  const inner = name.slice(1, -1);
  const bytes: number[] = [];
  const encoder = new TextEncoder();
  const simple: Record<string, number> = { n: 10, t: 9, r: 13, a: 7, b: 8, f: 12, v: 11 };
  for (let at = 0; at < inner.length; ) {
    if (inner[at] !== '\\') {
      const point = String.fromCodePoint(inner.codePointAt(at) ?? 0);
      bytes.push(...encoder.encode(point));
      at += point.length;
      continue;
    }
    const octal = /^[0-3][0-7]{2}/.exec(inner.slice(at + 1));
    if (octal !== null) {
      bytes.push(parseInt(octal[0], 8));
      at += 4;
    } else {
      const letter = inner[at + 1] ?? '\\';
      bytes.push(simple[letter] ?? letter.charCodeAt(0));
      at += 2;
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}
