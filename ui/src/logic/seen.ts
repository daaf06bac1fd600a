// What is new since somebody last looked: the first thing that one wants to know in the morning.
import type { IterationRow } from '../api/types';

/** What was the newest, and when that was seen. */
export interface Seen {
  iter: number;
  at: number;
}

export interface News {
  since: number;
  iterations: number;
  passed: number;
  failed: number;
  errors: number;
}

/** Shorter absences are none. */
const ABSENCE_MS = 10 * 60_000;

export function newsSince(seen: Seen | null, rows: readonly IterationRow[], now: number): News | null {
  if (seen === null || now - seen.at < ABSENCE_MS) return null;
  const fresh = rows.filter((row) => row.recorded && row.iter > seen.iter);
  if (fresh.length === 0) return null;
  const count = (holds: (row: IterationRow) => boolean): number => fresh.filter(holds).length;
  return {
    since: seen.at,
    iterations: fresh.length,
    passed: count((row) => row.class === 'ok' && row.guard === 'pass'),
    failed: count((row) => row.guard === 'fail'),
    errors: count((row) => row.class === 'runner_error'),
  };
}

export function newestOf(rows: readonly IterationRow[]): number {
  return rows.findLast((row) => row.recorded)?.iter ?? 0;
}

/** What was kept of an earlier visit; anything else than that is nothing. */
export function parseSeen(text: string | null): Seen | null {
  try {
    const value: unknown = JSON.parse(text ?? 'null');
    if (typeof value !== 'object' || value === null) return null;
    const { iter, at } = value as Record<string, unknown>;
    return typeof iter === 'number' && typeof at === 'number' ? { iter, at } : null;
  } catch {
    return null;
  }
}
