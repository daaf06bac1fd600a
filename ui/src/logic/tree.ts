// The task tree as rows of a list: what is visible, in which state, and which part of it
// has to be drawn. Pure, and linear in the number of nodes.
import type { TreeNode } from '../api/types';

export type NodeState = 'passed' | 'open' | 'tried' | 'stuck' | 'current';

/** What is known of a node besides what it says of itself. */
export interface NodeInfo {
  node: TreeNode;
  parent: NodeInfo | null;
  depth: number;
  /** Its place among its siblings, from 0. */
  place: number;
  /** Leaves below it, itself included if it is one. */
  leaves: number;
  passed: number;
  stuck: number;
}

export interface TreeIndex {
  root: NodeInfo;
  byId: Map<string, NodeInfo>;
  /** All of them, parents before children, in the order of the tree. */
  order: NodeInfo[];
}

export interface Row {
  info: NodeInfo;
  expanded: boolean;
  hasChildren: boolean;
  /** Found by the search itself, not shown for its children's sake. */
  hit: boolean;
}

export function isStuck(node: TreeNode): boolean {
  return node.children.length === 0 && !node.passes && node.attempts >= node.max_attempts;
}

export function indexTree(root: TreeNode): TreeIndex {
  const byId = new Map<string, NodeInfo>();
  const order: NodeInfo[] = [];
  const rootInfo = infoOf(root, null, 0);
  // A stack of its own: an agent may have built a very deep tree.
  const stack: NodeInfo[] = [rootInfo];
  while (stack.length > 0) {
    const info = stack.pop() as NodeInfo;
    order.push(info);
    byId.set(info.node.id, info);
    const children = info.node.children;
    for (let place = children.length - 1; place >= 0; place -= 1) {
      stack.push(infoOf(children[place] as TreeNode, info, place));
    }
  }
  for (let at = order.length - 1; at >= 0; at -= 1) {
    const info = order[at] as NodeInfo;
    if (info.node.children.length === 0) {
      info.leaves = 1;
      info.passed = info.node.passes ? 1 : 0;
      info.stuck = isStuck(info.node) ? 1 : 0;
    }
    if (info.parent !== null) {
      info.parent.leaves += info.leaves;
      info.parent.passed += info.passed;
      info.parent.stuck += info.stuck;
    }
  }
  return { root: rootInfo, byId, order };
}

function infoOf(node: TreeNode, parent: NodeInfo | null, place: number): NodeInfo {
  return { node, parent, depth: parent === null ? 0 : parent.depth + 1, place, leaves: 0, passed: 0, stuck: 0 };
}

export function stateOf(info: NodeInfo, currentId: string | null): NodeState {
  const { node } = info;
  if (node.id === currentId && !node.passes) return 'current';
  if (node.passes) return 'passed';
  if (info.stuck > 0) return 'stuck';
  if (node.children.length === 0 && node.attempts > 0) return 'tried';
  return 'open';
}

/** The node and all above it, from the root on. */
export function pathTo(info: NodeInfo): NodeInfo[] {
  const path: NodeInfo[] = [];
  for (let at: NodeInfo | null = info; at !== null; at = at.parent) path.unshift(at);
  return path;
}

export function idsAbove(index: TreeIndex, id: string | null): Set<string> {
  const ids = new Set<string>();
  const info = id === null ? undefined : index.byId.get(id);
  for (let at = info?.parent ?? null; at !== null; at = at.parent) ids.add(at.node.id);
  return ids;
}

/** Up to this many nodes, everything that is not done is open at first. */
const SMALL_TREE = 300;

/** Whether a node is open before anybody touched it: what is done is folded away, and the
 * way to the current leaf is free. */
export function openAtFirst(index: TreeIndex, above: Set<string>, info: NodeInfo): boolean {
  if (info.depth === 0 || above.has(info.node.id)) return true;
  if (index.order.length > SMALL_TREE) return false;
  return !info.node.passes || index.order.length <= 40;
}

/** The visible rows. `touched` is what a person opened (true) or folded (false). */
export function visibleRows(
  index: TreeIndex,
  touched: ReadonlyMap<string, boolean>,
  currentId: string | null,
  query: string,
): Row[] {
  const wanted = query.trim().toLowerCase();
  if (wanted !== '') return foundRows(index, wanted);
  const above = idsAbove(index, currentId);
  const rows: Row[] = [];
  // Nodes deeper than this are inside a folded one.
  let limit = Infinity;
  for (const info of index.order) {
    if (info.depth > limit) continue;
    const hasChildren = info.node.children.length > 0;
    const expanded = hasChildren && (touched.get(info.node.id) ?? openAtFirst(index, above, info));
    limit = hasChildren && !expanded ? info.depth : Infinity;
    rows.push({ info, expanded, hasChildren, hit: false });
  }
  return rows;
}

/** The nodes that contain the text in id, title or goal, and all above them. */
function foundRows(index: TreeIndex, wanted: string): Row[] {
  const shown = new Set<NodeInfo>();
  const hits = new Set<NodeInfo>();
  for (const info of index.order) {
    const { id, title, goal } = info.node;
    if (![id, title, goal].some((text) => text.toLowerCase().includes(wanted))) continue;
    hits.add(info);
    for (let at: NodeInfo | null = info; at !== null && !shown.has(at); at = at.parent) shown.add(at);
  }
  return index.order
    .filter((info) => shown.has(info))
    .map((info) => {
      const hasChildren = info.node.children.length > 0;
      return { info, expanded: hasChildren && info.node.children.some((child) => shown.has(index.byId.get(child.id) as NodeInfo)), hasChildren, hit: hits.has(info) };
    });
}

/** Which of `total` equally high rows have to be drawn. */
export function windowOf(
  scroll: number,
  view: number,
  size: number,
  total: number,
  spare: number,
): { first: number; end: number } {
  const first = Math.max(0, Math.min(total, Math.floor(scroll / size) - spare));
  const end = Math.max(first, Math.min(total, Math.ceil((scroll + view) / size) + spare));
  return { first, end };
}

/** Where to scroll so that a row can be seen; unchanged if it can already. */
export function scrollTo(at: number, size: number, scroll: number, view: number): number {
  const top = at * size;
  if (top < scroll) return top;
  if (top + size > scroll + view) return top + size - view;
  return scroll;
}
