// The stream of changes. A browser comes back by itself, with the id of the last event; only
// where it gives up (the server refused) a new connection is made here.
import type { ServerEvent, StreamLine } from './types';

type ChangeEvent = Exclude<ServerEvent, { event: 'stream' }>;

const CHANGES: readonly ChangeEvent['event'][] = [
  'tree_changed',
  'run_state_changed',
  'iteration_added',
  'iteration_changed',
  'phase_changed',
  'project_changed',
];

/** How long to wait before a new connection where the browser gave up. */
const RETRY_MS = 2000;

export interface Listener {
  /** Connected, for the first time or again. */
  opened(): void;
  /** Not connected any more; it will be tried again. */
  lost(): void;
  changed(event: ChangeEvent): void;
}

/** Listens to changes until the returned function is called. */
export function listen(listener: Listener): () => void {
  return connect('/events', listener, (source) => {
    for (const name of CHANGES) {
      source.addEventListener(name, (message: MessageEvent<string>) => {
        const data = parse(message.data);
        if (data !== null) listener.changed({ event: name, data } as ChangeEvent);
      });
    }
  });
}

/** Listens to the lines of the agent that is at work. */
export function listenToStream(opened: () => void, line: (line: StreamLine) => void): () => void {
  return connect('/events?stream=1', { opened, lost: () => {} }, (source) => {
    source.addEventListener('stream', (message: MessageEvent<string>) => {
      const data = parse(message.data);
      if (data !== null) line(data as StreamLine);
    });
  });
}

function connect(url: string, listener: Pick<Listener, 'opened' | 'lost'>, subscribe: (source: EventSource) => void): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const open = (): void => {
    const next = new EventSource(url);
    source = next;
    next.onopen = () => listener.opened();
    next.onerror = () => {
      listener.lost();
      if (next.readyState === EventSource.CLOSED) {
        clearTimeout(timer);
        timer = setTimeout(open, RETRY_MS);
      }
    };
    subscribe(next);
  };
  open();
  return () => {
    clearTimeout(timer);
    source?.close();
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
