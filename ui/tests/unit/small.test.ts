import { describe, expect, test } from 'vitest';
import type { ServerEvent } from '../../src/api/types';
import { barPitch, barShare, labelEvery } from '../../src/logic/bars';
import { partsOf } from '../../src/logic/refetch';
import { formatRoute, HOME, parseRoute } from '../../src/logic/route';

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
