// A long log as a chain of pages without gaps. Only so much of it is kept; what is far from
// where one reads is dropped and can be fetched again. Offsets are bytes of the file.

export interface LogLine {
  /** Where it begins. */
  offset: number;
  text: string;
}

export interface LogPage {
  offset: number;
  /** Where the next page begins. */
  end: number;
  lines: LogLine[];
}

export interface LogChain {
  pages: LogPage[];
  /** The size of the file when it was last looked at. */
  size: number;
}

export const EMPTY_CHAIN: LogChain = { pages: [], size: 0 };

/** How many pages are kept, and how many lines a page that grows line by line has. */
export const MAX_PAGES = 8;
const MAX_LINES = 500;

const NEWLINE = 10;

/** A page from what the server sent. With `whole` the piece of a line in front is left out:
 * for a page that was asked for from some byte in the middle. */
export function pageOf(bytes: Uint8Array, offset: number, whole = false): LogPage {
  let from = 0;
  if (whole && offset > 0) {
    const first = bytes.indexOf(NEWLINE);
    if (first >= 0 && first + 1 < bytes.length) from = first + 1;
  }
  const decoder = new TextDecoder();
  const lines: LogLine[] = [];
  for (let at = from; at < bytes.length; ) {
    const found = bytes.indexOf(NEWLINE, at);
    const end = found < 0 ? bytes.length : found;
    lines.push({ offset: offset + at, text: decoder.decode(bytes.subarray(at, end)) });
    at = end + 1;
  }
  return { offset: offset + from, end: offset + bytes.length, lines };
}

export function startOf(chain: LogChain): number {
  return chain.pages[0]?.offset ?? 0;
}

export function endOf(chain: LogChain): number {
  return chain.pages[chain.pages.length - 1]?.end ?? 0;
}

/** Adds a page at the end that it fits to; one that fits to neither begins a new chain. */
export function addPage(chain: LogChain, page: LogPage, size: number): LogChain {
  if (page.end <= page.offset) return { ...chain, size };
  if (chain.pages.length === 0) return { pages: [page], size };
  if (page.offset === endOf(chain)) return { pages: [...chain.pages, page].slice(-MAX_PAGES), size };
  if (page.end === startOf(chain)) return { pages: [page, ...chain.pages].slice(0, MAX_PAGES), size };
  if (page.offset >= startOf(chain) && page.end <= endOf(chain)) return { ...chain, size };
  return { pages: [page], size };
}

/** What to do with a line that came by itself. */
export type Appended = { kind: 'added'; chain: LogChain } | { kind: 'known' } | { kind: 'gap' };

/** Adds a line that was just written, if it follows what is there. */
export function appendLine(chain: LogChain, line: LogLine, end: number): Appended {
  const here = endOf(chain);
  if (end <= here) return { kind: 'known' };
  if (line.offset !== here) return { kind: 'gap' };
  const size = Math.max(chain.size, end);
  const last = chain.pages[chain.pages.length - 1];
  if (last === undefined || last.lines.length >= MAX_LINES) {
    return { kind: 'added', chain: addPage(chain, { offset: line.offset, end, lines: [line] }, size) };
  }
  const grown = { ...last, end, lines: [...last.lines, line] };
  return { kind: 'added', chain: { pages: [...chain.pages.slice(0, -1), grown], size } };
}
