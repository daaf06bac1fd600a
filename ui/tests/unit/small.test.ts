import { describe, expect, test } from 'vitest';
import type { ServerEvent } from '../../src/api/types';
import { barPitch, barShare, labelEvery } from '../../src/logic/bars';
import { partsOf } from '../../src/logic/refetch';
import { formatRoute, HOME, parseRoute } from '../../src/logic/route';
import { newestOf, newsSince, parseSeen } from '../../src/logic/seen';
import { row } from '../fixture/worlds';

describe('places in the page', () => {
  test('there and back', () => {
    const route = { run: 'run-1', node: 'a.b-c', iter: 12, tab: 'diff' as const, asOf: 3 };
    expect(parseRoute(formatRoute(route))).toEqual(route);
    expect(parseRoute(formatRoute(HOME))).toEqual(HOME);
  });

  test.each(['#iter=0', '#iter=-1', '#iter=1e9', '#iter=x', '#tab=evil', '#', '', '#as-of=9999999999'])('nonsense is home: %j', (hash) => {
    expect(parseRoute(hash)).toEqual(HOME);
  });
});

describe('what an event makes old', () => {
  const cases: [ServerEvent, string[]][] = [
    [{ event: 'tree_changed', data: { there: true } }, ['tree', 'run']],
    [{ event: 'run_state_changed', data: { there: true } }, ['run']],
    [{ event: 'iteration_added', data: { run_id: 'r', iter: 1 } }, ['iterations', 'run', 'detail']],
    [{ event: 'iteration_changed', data: { run_id: null, iter: null } }, ['iterations', 'run', 'detail']],
    [{ event: 'phase_changed', data: { state: 'running', phase: 'guard', iter: 1, node_id: 'a' } }, ['run', 'detail']],
    [{ event: 'project_changed', data: { there: false } }, ['run', 'tree', 'iterations', 'detail', 'server']],
    [{ event: 'stream', data: { run_id: 'r', iter: 1, offset: 0, line: '', next_offset: 1 } }, []],
  ];
  test.each(cases)('%j', (event, parts) => {
    expect(partsOf(event)).toEqual(parts);
  });
});

describe('bars', () => {
  test('are as high as their time, and never vanish for one long one', () => {
    expect(barShare(100, 100)).toBe(1);
    expect(barShare(1, 100)).toBeCloseTo(0.1);
    expect([barShare(null, 100), barShare(5, 0), barShare(200, 100)]).toEqual([0, 0, 1]);
  });

  test('are as wide as there is room', () => {
    expect([barPitch(10, 1000), barPitch(50, 1000), barPitch(1000, 1000), barPitch(0, 1000)]).toEqual([28, 20, 12, 28]);
    expect([labelEvery(28), labelEvery(20), labelEvery(12)]).toEqual([1, 2, 5]);
  });
});

describe('what is new', () => {
  const rows = [row(1), row(2), row(3, { guard: 'fail' }), row(4, { class: 'runner_error', guard: null }), row(5, { recorded: false })];

  test('is counted from the last look on', () => {
    expect(newsSince({ iter: 1, at: 0 }, rows, 3_600_000)).toEqual({ since: 0, iterations: 3, passed: 1, failed: 1, errors: 1 });
    expect(newestOf(rows)).toBe(4);
    expect(newestOf([])).toBe(0);
  });

  test('is nothing after a moment, or without a last look, or without an iteration', () => {
    expect(newsSince({ iter: 1, at: 3_500_000 }, rows, 3_600_000)).toBeNull();
    expect(newsSince(null, rows, 3_600_000)).toBeNull();
    expect(newsSince({ iter: 4, at: 0 }, rows, 3_600_000)).toBeNull();
  });

  test.each([[null], ['nonsense'], ['{}'], ['{"iter":"1","at":2}'], ['[]'], ['null']])('%j is no last look', (text) => {
    expect(parseSeen(text)).toBeNull();
  });

  test('a last look is kept and found', () => {
    expect(parseSeen('{"iter":3,"at":5}')).toEqual({ iter: 3, at: 5 });
  });
});
