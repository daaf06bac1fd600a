// The stream of changes: one connection for the whole page, because a browser has only six to a
// server, for all tabs together. It comes back by itself, with the id of the last event; only where
// the browser gives up (the server refused) a new one is made here.
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
/** How long the agent's lines go on to come when nobody reads them: one may be going to another tab. */
const LINGER_MS = 1000;

export interface Listener {
  /** Connected, for the first time or again. */
  opened(): void;
  /** Not connected any more; it will be tried again. */
  lost(): void;
  changed(event: ChangeEvent): void;
}

interface Reader {
  /** From now on lines come; what was before is in the file. */
  opened(): void;
  line(line: StreamLine): void;
}

class Connection {
  #source: EventSource | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #listener: Listener | null = null;
  #readers = new Set<Reader>();
  /** Whether the agent's lines come on it. */
  #withLines = false;

  listen(listener: Listener): () => void {
    this.#listener = listener;
    this.#open();
    return () => {
      this.#listener = null;
      this.#close();
    };
  }

  read(reader: Reader): () => void {
    this.#readers.add(reader);
    if (!this.#withLines) this.#open();
    else if (this.#source?.readyState === EventSource.OPEN) reader.opened();
    return () => {
      this.#readers.delete(reader);
      setTimeout(() => {
        if (this.#readers.size === 0 && this.#withLines) this.#open();
      }, LINGER_MS);
    };
  }

  #open(): void {
    this.#close();
    if (this.#listener === null) return;
    this.#withLines = this.#readers.size > 0;
    const source = new EventSource(this.#withLines ? '/events?stream=1' : '/events');
    this.#source = source;
    source.onopen = () => {
      this.#listener?.opened();
      if (this.#withLines) for (const reader of this.#readers) reader.opened();
    };
    source.onerror = () => {
      this.#listener?.lost();
      if (source.readyState === EventSource.CLOSED) this.#timer = setTimeout(() => this.#open(), RETRY_MS);
    };
    for (const name of CHANGES) {
      source.addEventListener(name, (message: MessageEvent<string>) => {
        const data = parse(message.data);
        if (data !== null) this.#listener?.changed({ event: name, data } as ChangeEvent);
      });
    }
    source.addEventListener('stream', (message: MessageEvent<string>) => {
      const data = parse(message.data);
      if (data !== null) for (const reader of this.#readers) reader.line(data as StreamLine);
    });
  }

  #close(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }
}

const connection = new Connection();

/** Listens to changes until the returned function is called. */
export function listen(listener: Listener): () => void {
  return connection.listen(listener);
}

/** Reads the lines of the agent that is at work. */
export function listenToStream(opened: () => void, line: (line: StreamLine) => void): () => void {
  return connection.read({ opened, line });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
