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
/** After this long out of sight a tab gives its connection back: six of them would leave none for the seventh, nor for any fetch. */
const REST_MS = 30_000;
/** How often such a tab looks, for its title and its icon. */
const GLANCE_MS = 20_000;

export interface Listener {
  /** Connected, for the first time or again. */
  opened(): void;
  /** Not connected any more; it will be tried again. Refused: there was an answer, and it was no. */
  lost(refused: boolean): void;
  /** Time to look without being told. */
  glance(): void;
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
  /** Out of sight for a while, and so without a connection. */
  #resting = false;
  #rest: ReturnType<typeof setTimeout> | undefined;
  #glances: ReturnType<typeof setInterval> | undefined;

  listen(listener: Listener): () => void {
    this.#listener = listener;
    this.#open();
    const sight = (): void => this.#sight();
    document.addEventListener('visibilitychange', sight);
    sight();
    return () => {
      document.removeEventListener('visibilitychange', sight);
      clearTimeout(this.#rest);
      clearInterval(this.#glances);
      this.#listener = null;
      this.#close();
    };
  }

  #sight(): void {
    clearTimeout(this.#rest);
    if (document.visibilityState === 'hidden') {
      if (!this.#resting) this.#rest = setTimeout(() => this.#fallAsleep(), REST_MS);
    } else if (this.#resting) {
      clearInterval(this.#glances);
      this.#resting = false;
      this.#open();
    }
  }

  #fallAsleep(): void {
    this.#resting = true;
    this.#close();
    this.#glances = setInterval(() => this.#listener?.glance(), GLANCE_MS);
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
    if (this.#listener === null || this.#resting) return;
    this.#withLines = this.#readers.size > 0;
    const source = new EventSource(this.#withLines ? '/events?stream=1' : '/events');
    this.#source = source;
    source.onopen = () => {
      this.#listener?.opened();
      if (this.#withLines) for (const reader of this.#readers) reader.opened();
    };
    source.onerror = () => {
      const refused = source.readyState === EventSource.CLOSED;
      this.#listener?.lost(refused);
      if (refused) this.#timer = setTimeout(() => this.#open(), RETRY_MS);
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
