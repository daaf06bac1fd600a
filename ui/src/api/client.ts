// The only place that asks the server. Answers are kept with their ETag: what did not
// change is neither sent nor parsed again.
import type {
  Diff,
  Finding,
  IterationDetail,
  Iterations,
  LogMatches,
  Plan,
  Problem,
  ProblemBody,
  Run,
  ServerInfo,
  TreeNode,
} from './types';

/** The server answered, and the answer is no. */
export class Refused extends Error {
  readonly status: number;
  readonly problem: Problem;
  readonly findings: Finding[];

  constructor(status: number, body: ProblemBody) {
    super(body.error.message);
    this.status = status;
    this.problem = body.error;
    this.findings = body.findings;
  }
}

/** There was no answer. */
export class Unreachable extends Error {}

interface Kept {
  etag: string;
  value: unknown;
}

/** Answers about one iteration are as many as one looks at: only the last are kept. */
const MAX_KEPT = 64;
const kept = new Map<string, Kept>();

/** How far the server's clock is ahead of ours, in milliseconds. */
let clockAhead = 0;

/** Now, by the server's clock: what is shown as elapsed is measured with its times. */
export function serverNow(): number {
  return Date.now() + clockAhead;
}

async function ask(path: string, headers: HeadersInit = {}): Promise<Response> {
  let response: Response;
  try {
    // The browser's own cache stays out of it: the ETags are handled here.
    response = await fetch(path, { headers, cache: 'no-store', credentials: 'same-origin' });
  } catch (error) {
    throw new Unreachable(error instanceof Error ? error.message : 'no answer');
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  // The header has whole seconds: a smaller difference is none.
  if (!Number.isNaN(date)) clockAhead = Math.abs(date - Date.now()) < 1500 ? 0 : date - Date.now();
  return response;
}

async function refusal(response: Response): Promise<Refused> {
  try {
    return new Refused(response.status, (await response.json()) as ProblemBody);
  } catch {
    const error = { code: 'unknown', message: `the server answered ${response.status}`, hint: null };
    return new Refused(response.status, { error, findings: [] });
  }
}

/** The same object as last time if nothing changed. */
async function get<T>(path: string): Promise<T> {
  const before = kept.get(path);
  const response = await ask(path, before === undefined ? {} : { 'If-None-Match': before.etag });
  const same = response.status === 304 && before !== undefined;
  if (!same && !response.ok) throw await refusal(response);
  const value = same ? (before.value as T) : ((await response.json()) as T);
  const etag = same ? before.etag : response.headers.get('ETag');
  // The last used are at the end.
  kept.delete(path);
  if (etag !== null) kept.set(path, { etag, value });
  for (const oldest of kept.keys()) {
    if (kept.size <= MAX_KEPT) break;
    kept.delete(oldest);
  }
  return value;
}

function ofIteration(run: string, iter: number, rest = ''): string {
  return `/api/iterations/${encodeURIComponent(run)}/${iter}${rest}`;
}

export interface LogAnswer {
  bytes: Uint8Array;
  offset: number;
  /** Where the next page begins; null at the end. */
  next: number | null;
  size: number;
}

export const api = {
  run: (): Promise<Run> => get('/api/run'),
  tree: (): Promise<TreeNode> => get('/api/tree'),
  iterations: (): Promise<Iterations> => get('/api/iterations'),
  server: (): Promise<ServerInfo> => get('/api/server'),
  iteration: (run: string, iter: number): Promise<IterationDetail> => get(ofIteration(run, iter)),
  treeAt: (run: string, iter: number): Promise<TreeNode> => get(ofIteration(run, iter, '/tree')),
  plan: (run: string, iter: number): Promise<Plan> => get(ofIteration(run, iter, '/plan')),
  diff: (run: string, iter: number): Promise<Diff> => get(ofIteration(run, iter, '/diff')),

  /** A page of a log file; a negative offset counts from its end. */
  async log(run: string, iter: number, file: string, offset: number, limit: number): Promise<LogAnswer> {
    const response = await ask(ofIteration(run, iter, `/${encodeURIComponent(file)}?offset=${offset}&limit=${limit}`));
    if (!response.ok) throw await refusal(response);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const header = (name: string): number | null => {
      const value = response.headers.get(name);
      return value === null ? null : Number(value);
    };
    return { bytes, offset: header('X-Log-Offset') ?? 0, next: header('X-Log-Next'), size: header('X-Log-Size') ?? bytes.length };
  },

  /** The lines of a log file that contain a text. */
  async find(run: string, iter: number, file: string, words: string, offset: number): Promise<LogMatches> {
    const query = `find=${encodeURIComponent(words)}&offset=${offset}`;
    const response = await ask(ofIteration(run, iter, `/${encodeURIComponent(file)}?${query}`));
    if (!response.ok) throw await refusal(response);
    return (await response.json()) as LogMatches;
  },
};
