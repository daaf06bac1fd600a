// What became of an iteration, and of the run as a whole, in one word each: the word
// chooses the colour, the shape and what a screen reader says.
import type { ErrorKind, IterationRow, Phase, Run } from '../api/types';
import { clock, duration, plural, timeOf } from './format';

export type Outcome =
  | 'passed'
  | 'failed'
  | 'retry'
  | 'planned'
  | 'refused'
  | 'repaired'
  | 'error'
  | 'running'
  | 'cut_off';

const OUTCOME_WORDS: Record<Outcome, string> = {
  passed: 'passed',
  failed: 'guard failed',
  retry: 'not finished',
  planned: 'split into parts',
  refused: 'not accepted',
  repaired: 'tree repaired',
  error: 'error',
  running: 'running',
  cut_off: 'cut off',
};

const ERROR_WORDS: Record<ErrorKind, string> = {
  spawn: 'the agent could not be started',
  timeout: 'out of time',
  idle: 'the agent fell silent',
  no_output: 'no report',
  malformed_output: 'malformed report',
  guard_spawn: 'the guard could not be started',
  guard_timeout: 'the guard ran out of time',
  setup: 'setup failed',
  branch: 'wrong branch',
  git: 'git failed',
  io: 'a file could not be read or written',
  disk: 'the disk is full',
  interrupted: 'interrupted',
  quota: 'quota used up',
  rate_limit: 'rate limit',
  auth: 'not logged in',
  context_full: 'context full',
  network: 'no network',
  overloaded: 'service overloaded',
  agent: 'the agent failed',
  budget: 'budget used up',
  resources: 'limits passed',
};

/** `live` is the iteration that a runner is at right now. */
export function outcomeOf(row: IterationRow, live: number | null): Outcome {
  if (!row.recorded) return row.iter === live ? 'running' : 'cut_off';
  switch (row.class) {
    case 'runner_error':
      return 'error';
    case 'agent_error':
    case 'invalid_tree':
    case 'repair_refused':
      return 'refused';
    case 'repaired':
    case 'repair_restored':
      return 'repaired';
    default:
  }
  if (row.guard === 'fail') return 'failed';
  if (row.status === 'decomposed') return 'planned';
  if (row.status === 'retry') return 'retry';
  if (row.guard === 'pass' || row.passes === true) return 'passed';
  return row.status === 'done' ? 'passed' : 'retry';
}

export function outcomeWords(outcome: Outcome, row?: IterationRow): string {
  if (outcome === 'error' && row?.error_kind != null) return ERROR_WORDS[row.error_kind] ?? 'error';
  if (outcome === 'refused' && row?.class === 'invalid_tree') return 'invalid tree';
  return OUTCOME_WORDS[outcome];
}

const PHASE_WORDS: Record<Phase, string> = {
  idle: 'no runner at work',
  starting: 'starting',
  preparing: 'preparing',
  agent: 'agent at work',
  checking: 'checking what it did',
  guard: 'guard running',
  deciding: 'deciding',
  committing: 'committing',
  between: 'between iterations',
  waiting: 'waiting',
  working: 'at work',
};

export function phaseWords(phase: Phase): string {
  return PHASE_WORDS[phase];
}

/** How the run is, for colour, shape, title and favicon. */
export type Tone = 'running' | 'idle' | 'stuck' | 'complete' | 'error' | 'quota' | 'off';

export interface Headline {
  tone: Tone;
  word: string;
  /** A few words more: the phase, since when, until when. */
  detail: string;
}

/** The one line that tells whether to worry. */
export function headline(run: Run, now: number): Headline {
  const since = timeOf(run.not_running_since);
  const stopped = since === null || now - since < 1000 ? '' : `for ${duration(Math.max(0, now - since))}`;
  switch (run.state) {
    case 'running': {
      const started = timeOf(run.phase_started_at);
      const elapsed = started === null ? '' : ` ${clock(now - started)}`;
      if (run.waiting !== null) return { tone: 'running', word: 'waiting', detail: waitWords(run, now) };
      return { tone: 'running', word: 'running', detail: phaseWords(run.phase) + elapsed };
    }
    case 'quota':
      return { tone: 'quota', word: 'quota', detail: run.pid_alive ? waitWords(run, now) : `not running ${stopped}`.trim() };
    case 'complete':
      return { tone: 'complete', word: 'complete', detail: run.leaves === null ? '' : `${plural(run.leaves, 'leaf', 'leaves')} passed` };
    case 'stuck':
      return { tone: 'stuck', word: 'stuck', detail: run.next?.path ?? '' };
    case 'error':
      return { tone: 'error', word: 'error', detail: stopped === '' ? '' : `not running ${stopped}` };
    case 'idle':
      if (run.run_id === null) return { tone: 'idle', word: 'not started', detail: '' };
      return { tone: 'idle', word: 'not running', detail: stopped };
  }
}

function waitWords(run: Run, now: number): string {
  const until = timeOf(run.waiting?.until);
  if (until === null) return phaseWords(run.phase);
  return until <= now ? 'trying again now' : `tries again in ${clock(until - now)}`;
}

const TONE_SIGNS: Record<Tone, string> = {
  running: '▶',
  idle: '⏸',
  stuck: '◆',
  complete: '✓',
  error: '✕',
  quota: '◷',
  off: '⌀',
};

/** The title of the window: a sign of the state first, because tabs are narrow. */
export function windowTitle(run: Run | null, connected: boolean): string {
  if (run === null) return connected ? 'runner' : `${TONE_SIGNS.off} runner`;
  const tone = connected ? run.state : 'off';
  const progress = run.leaves === null ? '' : ` ${run.passed ?? 0}/${run.leaves}`;
  const goal = run.goal.title === '' ? 'runner' : run.goal.title;
  return `${TONE_SIGNS[tone]}${progress} ${goal}`;
}

/** Sums over rows, for runs that are not the current one. */
export interface Sums {
  iterations: number;
  errors: number;
  durationMs: number;
  tokens: number | null;
  costUsd: number | null;
}

export function sumRows(rows: readonly IterationRow[]): Sums {
  const sums: Sums = { iterations: 0, errors: 0, durationMs: 0, tokens: null, costUsd: null };
  for (const row of rows) {
    if (!row.recorded) continue;
    sums.iterations += 1;
    if (row.class === 'runner_error') sums.errors += 1;
    sums.durationMs += row.duration_ms ?? 0;
    if (row.input_tokens !== null || row.output_tokens !== null) {
      sums.tokens = (sums.tokens ?? 0) + (row.input_tokens ?? 0) + (row.output_tokens ?? 0);
    }
    if (row.cost_usd !== null) sums.costUsd = (sums.costUsd ?? 0) + row.cost_usd;
  }
  return sums;
}
