import { describe, expect, test } from 'vitest';
import type { IterationRow, Run } from '../../src/api/types';
import { headline, outcomeOf, outcomeWords, sumRows, windowTitle } from '../../src/logic/outcome';
import { complete, killed, quota, row, running, stuck } from '../fixture/worlds';

const NOW = Date.parse('2026-11-15T12:00:00Z');

describe('an iteration in one word', () => {
  const cases: [Partial<IterationRow>, string][] = [
    [{}, 'passed'],
    [{ guard: 'fail', passes: false }, 'failed'],
    [{ status: 'retry', guard: 'skipped', passes: false }, 'retry'],
    [{ status: 'decomposed', guard: 'skipped', passes: false }, 'planned'],
    [{ class: 'agent_error', guard: null, passes: false }, 'refused'],
    [{ class: 'invalid_tree', guard: null, passes: false }, 'refused'],
    [{ class: 'repaired', guard: null, passes: null }, 'repaired'],
    [{ class: 'repair_restored', guard: null, passes: null }, 'repaired'],
    [{ class: 'repair_refused', guard: null, passes: null }, 'refused'],
    [{ class: 'runner_error', error_kind: 'timeout' }, 'error'],
    [{ recorded: false, iter: 7 }, 'running'],
    [{ recorded: false, iter: 6 }, 'cut_off'],
  ];
  test.each(cases)('%j', (more, expected) => {
    expect(outcomeOf(row(1, more), 7)).toBe(expected);
  });

  test('an error says which', () => {
    expect(outcomeWords('error', row(1, { error_kind: 'quota' }))).toBe('quota used up');
    expect(outcomeWords('error')).toBe('error');
  });
});

describe('a run in one line', () => {
  test.each([
    ['running', running, 'running', 'agent at work 2:36'],
    ['complete', complete, 'complete', '12 leaves passed'],
    ['stuck', stuck, 'stuck', 'root/cli/errors'],
    ['quota', quota, 'quota', 'tries again in 42:00'],
    ['killed', killed, 'not running', 'for 3 h 07 m'],
  ])('%s', (_, world, word, detail) => {
    expect(headline(world(NOW).run as Run, NOW)).toMatchObject({ word, detail });
  });

  test('before `runner start`', () => {
    const run = { ...(killed(NOW).run as Run), run_id: null, not_running_since: null };
    expect(headline(run, NOW).word).toBe('not started');
  });

  test('the window says it first', () => {
    const run = running(NOW).run as Run;
    expect(windowTitle(run, true)).toBe('▶ 5/12 A word counter for the command line');
    expect(windowTitle(run, false)).toBe('⌀ 5/12 A word counter for the command line');
    expect(windowTitle(null, true)).toBe('runner');
  });

  test('sums over rows know what is unknown', () => {
    const rows = [row(1), row(2, { input_tokens: null, output_tokens: null, cost_usd: null, class: 'runner_error' }), row(3, { recorded: false })];
    expect(sumRows(rows)).toEqual({ iterations: 2, errors: 1, durationMs: 180_000, tokens: 51_100, costUsd: 0.11 });
    expect(sumRows([]).tokens).toBeNull();
  });
});
