// Where in the page one is, and what one opened, folded and looks for.
import { formatRoute, HOME, parseRoute, type Route } from '../logic/route';

class View {
  route = $state.raw<Route>(HOME);
  /** Nodes that a person opened (true) or folded (false). */
  touched = $state.raw<ReadonlyMap<string, boolean>>(new Map());
  /** The row of the tree that keys act on. */
  cursor = $state<string | null>(null);
  query = $state('');
  help = $state(false);
  /** The tree scrolls along with the work. */
  follow = $state(true);

  start(): () => void {
    const read = (): void => {
      this.route = parseRoute(location.hash);
    };
    read();
    window.addEventListener('hashchange', read);
    return () => window.removeEventListener('hashchange', read);
  }

  /** Goes to a place that differs in these from the current one. */
  go(change: Partial<Route>): void {
    this.route = { ...this.route, ...change };
    const hash = formatRoute(this.route);
    if (hash !== (location.hash || '#')) history.pushState(null, '', hash);
  }

  href(change: Partial<Route>): string {
    return formatRoute({ ...this.route, ...change });
  }

  openNode(id: string): void {
    this.cursor = id;
    this.go({ node: id, iter: null });
  }

  openIteration(iter: number, tab: Route['tab'] = this.route.tab): void {
    this.go({ iter, tab });
  }

  close(): void {
    this.go({ node: null, iter: null, tab: 'summary' });
  }

  fold(id: string, open: boolean): void {
    this.touched = new Map(this.touched).set(id, open);
  }
}

export const view = new View();
