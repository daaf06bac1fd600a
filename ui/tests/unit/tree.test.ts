import { describe, expect, test } from 'vitest';
import type { TreeNode } from '../../src/api/types';
import { idsAbove, indexTree, pathTo, scrollTo, stateOf, visibleRows, windowOf, type TreeIndex } from '../../src/logic/tree';
import { huge, leaf } from '../fixture/worlds';

function small(): TreeNode {
  return leaf('root', 0, 'Root', {
    children: [
      leaf('a', 1, 'A', { passes: true, children: [leaf('a1', 1, 'A one', { passes: true }), leaf('a2', 2, 'A two', { passes: true })] }),
      leaf('b', 2, 'B', { children: [leaf('b1', 1, 'B one', { attempts: 3 }), leaf('b2', 2, 'B two', { attempts: 1 }), leaf('b3', 3, 'B three')] }),
    ],
  });
}

function ids(index: TreeIndex, touched: [string, boolean][] = [], current: string | null = null, query = ''): string[] {
  return visibleRows(index, new Map(touched), current, query).map((row) => row.info.node.id);
}

describe('the tree', () => {
  const index = indexTree(small());

  test('counts leaves from below', () => {
    expect(index.root).toMatchObject({ leaves: 5, passed: 2, stuck: 1 });
    expect(index.byId.get('a')).toMatchObject({ leaves: 2, passed: 2, depth: 1, place: 0 });
    expect(index.order.map((info) => info.node.id)).toEqual(['root', 'a', 'a1', 'a2', 'b', 'b1', 'b2', 'b3']);
  });

  test.each([['a1', 'passed'], ['b', 'stuck'], ['b1', 'stuck'], ['b2', 'tried'], ['b3', 'current'], ['root', 'stuck']])('state of %s', (id, state) => {
    const info = index.byId.get(id);
    expect(info && stateOf(info, 'b3')).toBe(state);
  });

  test('the path and what is above', () => {
    const info = index.byId.get('b2');
    expect(info && pathTo(info).map((each) => each.node.id)).toEqual(['root', 'b', 'b2']);
    expect([...idsAbove(index, 'b2')]).toEqual(['b', 'root']);
    expect(idsAbove(index, 'nowhere').size).toBe(0);
  });

  test('folding and opening', () => {
    expect(ids(index)).toHaveLength(8);
    expect(ids(index, [['b', false]])).toEqual(['root', 'a', 'a1', 'a2', 'b']);
    expect(ids(index, [['root', false]])).toEqual(['root']);
  });

  test('a search shows what was found and the way to it', () => {
    expect(ids(index, [['b', false]], null, ' B TWO ')).toEqual(['root', 'b', 'b2']);
    const hits = visibleRows(index, new Map(), null, 'b two').filter((row) => row.hit);
    expect(hits.map((row) => row.info.node.id)).toEqual(['b2']);
    expect(ids(index, [], null, 'zzz')).toEqual([]);
  });

  test('a large tree is folded but for the way to the current leaf', () => {
    const large = indexTree(huge(0).tree as TreeNode);
    expect(large.order).toHaveLength(10_001);
    expect(ids(large)).toHaveLength(101);
    expect(ids(large, [], 'leaf-40-3')).toHaveLength(101 + 99);
  });

  test('a very deep tree does not end the page', () => {
    let node = leaf('n0', 0, 'deepest');
    for (let at = 1; at < 20_000; at += 1) node = leaf(`n${at}`, 0, 'deep', { children: [node] });
    expect(indexTree(node).root.leaves).toBe(1);
  });
});

describe('what is drawn', () => {
  test.each([
    [0, 100, 28, 1000, 2, 0, 6],
    [2800, 100, 28, 1000, 2, 98, 106],
    [27_900, 100, 28, 1000, 2, 994, 1000],
    [99_999, 100, 28, 10, 2, 10, 10],
    [0, 100, 28, 0, 2, 0, 0],
  ])('window at %i', (scroll, view, size, total, spare, first, end) => {
    expect(windowOf(scroll, view, size, total, spare)).toEqual({ first, end });
  });

  test.each([[0, 0], [50, 50 * 28 + 28 - 100], [10, 250]])('scrolling to row %i', (at, to) => {
    expect(scrollTo(at, 28, 250, 100)).toBe(to);
  });
});
