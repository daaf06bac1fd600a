// Where in the page one is: all of it is in the address, so that it can be kept and sent on.

export type Tab = 'summary' | 'guard' | 'diff' | 'agent' | 'plan' | 'files';
export const TABS: readonly Tab[] = ['summary', 'guard', 'diff', 'agent', 'plan', 'files'];

export interface Route {
  /** The run that is looked at; null is the current one. */
  run: string | null;
  /** The open node. */
  node: string | null;
  /** The open iteration; it comes before the node. */
  iter: number | null;
  tab: Tab;
  /** The tree is shown as it was after this iteration. */
  asOf: number | null;
}

export const HOME: Route = { run: null, node: null, iter: null, tab: 'summary', asOf: null };

export function parseRoute(hash: string): Route {
  const words = new URLSearchParams(hash.replace(/^#/, ''));
  const tab = words.get('tab') as Tab | null;
  return {
    run: words.get('run') || null,
    node: words.get('node') || null,
    iter: number(words.get('iter')),
    tab: tab !== null && TABS.includes(tab) ? tab : 'summary',
    asOf: number(words.get('as-of')),
  };
}

export function formatRoute(route: Route): string {
  const words = new URLSearchParams();
  if (route.run !== null) words.set('run', route.run);
  if (route.node !== null) words.set('node', route.node);
  if (route.iter !== null) words.set('iter', String(route.iter));
  if (route.iter !== null && route.tab !== 'summary') words.set('tab', route.tab);
  if (route.asOf !== null) words.set('as-of', String(route.asOf));
  return `#${words.toString()}`;
}

function number(word: string | null): number | null {
  return word !== null && /^[1-9]\d{0,8}$/.test(word) ? Number(word) : null;
}
