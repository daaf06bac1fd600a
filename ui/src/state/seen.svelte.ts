// When somebody last looked at a run. Kept in this browser only; without a place for it, nothing
// is kept and nothing is missed.
import { newestOf, parseSeen, type Seen } from '../logic/seen';
import { project } from './project.svelte';

class LastLook {
  /** As it was when the page was opened, or came to sight again. */
  seen = $state.raw<Seen | null>(null);
  #run: string | null = null;

  /** Of this run from now on. */
  follow(run: string | null): void {
    if (run === this.#run) return;
    this.#run = run;
    this.#read();
  }

  start(): () => void {
    const changed = (): void => {
      if (document.visibilityState === 'hidden') this.#write();
      else this.#read();
    };
    document.addEventListener('visibilitychange', changed);
    return () => document.removeEventListener('visibilitychange', changed);
  }

  #read(): void {
    try {
      this.seen = this.#run === null ? null : parseSeen(localStorage.getItem(`runner-seen-${this.#run}`));
    } catch {
      this.seen = null;
    }
  }

  #write(): void {
    const rows = project.currentRun?.iterations ?? [];
    if (this.#run === null || rows.length === 0) return;
    try {
      localStorage.setItem(`runner-seen-${this.#run}`, JSON.stringify({ iter: newestOf(rows), at: project.now }));
    } catch {
      // A browser that keeps nothing.
    }
  }
}

export const lastLook = new LastLook();
