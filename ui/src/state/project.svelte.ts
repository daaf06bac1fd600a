// What the server says about the project, kept fresh by its events.
import { api, Refused, serverNow } from '../api/client';
import { listen } from '../api/events';
import type { IterationRow, Run, RunIterations, ServerInfo, TreeNode } from '../api/types';
import { ALL_PARTS, partsOf, type Part } from '../logic/refetch';

export type Connection = 'connecting' | 'live' | 'lost';

/** After a fetch that failed while the events still come. */
const RETRY_MS = 2000;

class Project {
  // Raw: these are large, and replaced as a whole.
  run = $state.raw<Run | null>(null);
  /** The last tree that was valid. */
  tree = $state.raw<TreeNode | null>(null);
  runs = $state.raw<readonly RunIterations[]>([]);
  server = $state.raw<ServerInfo | null>(null);
  /** Why there is no run to show. */
  problem = $state.raw<Refused | null>(null);
  /** Why the tree of now is not shown. */
  treeProblem = $state.raw<Refused | null>(null);
  connection = $state<Connection>('connecting');
  lostAt = $state<number | null>(null);
  /** Everything was asked for once. */
  loaded = $state(false);
  /** Rises when an open iteration may have changed. */
  revision = $state(0);
  /** The server's clock, once a second. */
  now = $state(serverNow());

  #wanted = new Set<Part>();
  #busy = false;

  /** By its id: that is fresher than the list. */
  currentRun = $derived(this.runs.find((run) => run.run_id === this.run?.run_id) ?? null);

  /** The number of the iteration that a runner is at right now. */
  live = $derived.by(() => {
    const run = this.run;
    if (run === null || !run.pid_alive || run.iter === null) return null;
    const row = this.currentRun?.iterations.findLast((each) => each.iter === run.iter);
    return row?.recorded === true ? null : run.iter;
  });

  /** Begins to listen; the returned function ends it. */
  start(): () => void {
    const stop = listen({
      opened: () => {
        this.connection = 'live';
        this.lostAt = null;
        // Something may have happened between the last event and this connection.
        this.refresh(ALL_PARTS);
      },
      lost: () => {
        if (this.connection !== 'lost') this.lostAt = serverNow();
        this.connection = 'lost';
      },
      changed: (event) => this.refresh(partsOf(event)),
    });
    // Not only when connected: the first sight shall not wait for the events.
    this.refresh(ALL_PARTS);
    const timer = setInterval(() => {
      this.now = serverNow();
    }, 1000);
    // After a machine slept, a connection may be dead without anybody having noticed.
    const awake = (): void => {
      if (document.visibilityState === 'visible') this.refresh(ALL_PARTS);
    };
    document.addEventListener('visibilitychange', awake);
    return () => {
      stop();
      document.removeEventListener('visibilitychange', awake);
      clearInterval(timer);
    };
  }

  refresh(parts: readonly Part[]): void {
    for (const part of parts) this.#wanted.add(part);
    if (!this.#busy) void this.#work();
  }

  /** Fetches what is wanted, one round at a time: a hundred events make no hundred fetches. */
  async #work(): Promise<void> {
    this.#busy = true;
    while (this.#wanted.size > 0) {
      const round = [...this.#wanted];
      this.#wanted.clear();
      const done = await Promise.all(round.map((part) => this.#fetch(part)));
      this.loaded = this.loaded || done.every(Boolean);
      const failed = round.filter((_, at) => done[at] === false);
      if (failed.length > 0) {
        setTimeout(() => {
          if (this.connection !== 'lost') this.refresh(failed);
        }, RETRY_MS);
      }
    }
    this.#busy = false;
  }

  /** False if there was no answer at all. */
  async #fetch(part: Part): Promise<boolean> {
    try {
      switch (part) {
        case 'run':
          this.run = await api.run();
          this.problem = null;
          break;
        case 'tree':
          this.tree = await api.tree();
          this.treeProblem = null;
          break;
        case 'iterations':
          this.runs = (await api.iterations()).runs;
          break;
        case 'server':
          this.server = await api.server();
          break;
        case 'detail':
          this.revision += 1;
      }
    } catch (error) {
      if (!(error instanceof Refused)) return false;
      this.#refused(part, error);
    }
    return true;
  }

  #refused(part: Part, error: Refused): void {
    if (part === 'run') {
      this.run = null;
      this.problem = error;
    } else if (part === 'tree') {
      this.treeProblem = error;
      // An invalid tree is perhaps being written: the last good one stays. One that is gone is gone.
      if (error.status === 404) this.tree = null;
    } else if (part === 'iterations' && error.status === 404) this.runs = [];
  }

  rowsOf(runId: string | null): readonly IterationRow[] {
    const run = runId === null ? this.currentRun : this.runs.find((each) => each.run_id === runId);
    return run?.iterations ?? [];
  }
}

export const project = new Project();
