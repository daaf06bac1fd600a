// Colours of a terminal in a log: the SGR sequences become spans, everything else that is
// meant for a terminal (cursor moves, titles, links) goes away.

/** How a piece of text looks. Numbers are the 16 colours; strings are `#rrggbb`. */
export interface Style {
  fg: number | string | null;
  bg: number | string | null;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

export interface Span {
  text: string;
  style: Style;
}

export const PLAIN: Style = Object.freeze({
  fg: null,
  bg: null,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
});

// CSI … final byte; OSC … BEL or ST; other two-byte escapes; stray controls.
const ESCAPE = /\x1b\[([0-?]*)[ -/]*([@-~]|$)|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]/g;

/** The spans of one line, and the style that the next line begins with. */
export function parseAnsiLine(line: string, start: Style = PLAIN): { spans: Span[]; end: Style } {
  const text = lastOverwrite(line);
  if (!/[\x00-\x1f\x7f]/.test(text)) {
    return { spans: text === '' ? [] : [{ text, style: start }], end: start };
  }
  const spans: Span[] = [];
  let style = start;
  let from = 0;
  const push = (piece: string): void => {
    if (piece === '') return;
    const last = spans[spans.length - 1];
    if (last !== undefined && last.style === style) last.text += piece;
    else spans.push({ text: piece, style });
  };
  for (const match of text.matchAll(ESCAPE)) {
    push(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === 'm') style = applySgr(style, match[1] ?? '');
  }
  push(text.slice(from));
  return { spans, end: style };
}

/** The text without any sequence. */
export function stripAnsi(line: string): string {
  return parseAnsiLine(line).spans.map((span) => span.text).join('');
}

/** A progress bar writes over its own line with carriage returns: the last writing is seen. */
function lastOverwrite(line: string): string {
  if (!line.includes('\r')) return line;
  const parts = line.split('\r').filter((part) => part !== '');
  return parts[parts.length - 1] ?? '';
}

function applySgr(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map((word) => (word === '' ? 0 : Number(word)));
  let style: Style = { ...before };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) style = { ...PLAIN };
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 90 && code <= 97) style.fg = code - 90 + 8;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 100 && code <= 107) style.bg = code - 100 + 8;
    else if (code === 39) style.fg = null;
    else if (code === 49) style.bg = null;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(at + 1));
      at += used;
      if (colour !== undefined) {
        if (code === 38) style.fg = colour;
        else style.bg = colour;
      }
    }
  }
  return style;
}

/** `5;N` or `2;R;G;B`: the colour and how many codes it took. */
function extended(codes: number[]): [number | string | undefined, number] {
  if (codes[0] === 5) {
    const n = codes[1];
    return [n === undefined ? undefined : colour256(n), 2];
  }
  if (codes[0] === 2) {
    const [r, g, b] = [codes[1], codes[2], codes[3]];
    if (r === undefined || g === undefined || b === undefined) return [undefined, codes.length];
    return [hex(r, g, b), 4];
  }
  return [undefined, codes.length];
}

function colour256(n: number): number | string | undefined {
  if (!Number.isInteger(n) || n < 0 || n > 255) return undefined;
  if (n < 16) return n;
  if (n >= 232) {
    const grey = 8 + (n - 232) * 10;
    return hex(grey, grey, grey);
  }
  const step = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = n - 16;
  return hex(step(Math.floor(cube / 36)), step(Math.floor(cube / 6) % 6), step(cube % 6));
}

function hex(r: number, g: number, b: number): string {
  const two = (value: number): string =>
    Math.max(0, Math.min(255, Math.trunc(value) || 0)).toString(16).padStart(2, '0');
  return `#${two(r)}${two(g)}${two(b)}`;
}
