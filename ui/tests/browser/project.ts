// A real project in a temporary folder, the real runner in it, and the real server on it.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

/** The binary under test. */
export const RUNNER_BIN = process.env['RUNNER_BIN'] === undefined ? null : resolve(process.env['RUNNER_BIN']);

/** Longer than anything takes, even on a machine that is busy with other things. */
const DEADLINE_MS = 60_000;

export class Project {
  readonly root = mkdtempSync(join(tmpdir(), 'runner-ui-test-'));
  readonly dir = join(this.root, 'project');
  #children = new Set<ChildProcess>();

  constructor() {
    for (const folder of ['home', 'project', 'orders', 'tmp']) mkdirSync(join(this.root, folder));
    writeFileSync(join(this.root, 'home/.gitconfig'), '[user]\n\tname = Test Author\n\temail = author@example.test\n[init]\n\tdefaultBranch = main\n');
  }

  /** A repository with a goal, ready for `runner start`. */
  init(config = ''): void {
    this.git('init', '--quiet');
    writeFileSync(join(this.dir, 'README.md'), '# A project\n');
    this.git('add', '--all');
    this.git('commit', '--quiet', '--message', 'Begin');
    this.run('init', '--backend', 'command');
    const script = (name: string): string => JSON.stringify([process.execPath, join(import.meta.dirname, name), join(this.root, 'orders')]);
    writeFileSync(
      join(this.dir, '.runner/state/config.toml'),
      `[guard]\ncommand = ${script('guard.cjs')}\nprotected = []\n[executor]\nbackend = "command"\ncommand = ${script('agent.cjs')}\n[sandbox]\nmode = "off"\n${config}`,
    );
    this.goal('# A small goal\n\nThree parts are written down.\n');
  }

  goal(text: string): void {
    writeFileSync(join(this.dir, '.runner/GOAL.md'), text);
  }

  /** Tells the agent or the guard to do something. */
  order(name: string, text = ''): void {
    writeFileSync(join(this.root, 'orders', name), text);
  }

  recall(name: string): void {
    rmSync(join(this.root, 'orders', name), { force: true });
  }

  hasOrder(name: string): boolean {
    return existsSync(join(this.root, 'orders', name));
  }

  read(path: string): string {
    return readFileSync(join(this.dir, path), 'utf8');
  }

  git(...words: string[]): void {
    const { status, stderr } = spawnSync('git', words, { cwd: this.dir, env: this.#env(), encoding: 'utf8' });
    if (status !== 0) throw new Error(`git ${words.join(' ')}: ${stderr}`);
  }

  /** Runs a command of the runner to its end, which has to be a good one; returns its stdout. */
  run(...words: string[]): string {
    const { status, said, stdout } = this.attempt(...words);
    if (status !== 0) throw new Error(`runner ${words.join(' ')} ended with ${status}: ${said}`);
    return stdout;
  }

  /** The same for one that may end otherwise. */
  attempt(...words: string[]): { status: number | null; stdout: string; said: string } {
    const { status, stdout, stderr } = spawnSync(RUNNER_BIN ?? '', words, { cwd: this.dir, env: this.#env(), encoding: 'utf8', timeout: DEADLINE_MS });
    return { status, stdout, said: stdout + stderr };
  }

  /** Starts one and leaves it running. */
  start(...words: string[]): ChildProcess {
    const child = spawn(RUNNER_BIN ?? '', words, { cwd: this.dir, env: this.#env(), stdio: ['ignore', 'pipe', 'pipe'] });
    child.stderr?.resume();
    this.#children.add(child);
    child.once('exit', () => this.#children.delete(child));
    return child;
  }

  /** `runner ui`; the address is its first line. */
  async serve(port = 0): Promise<{ url: string; port: number; child: ChildProcess }> {
    const child = this.start('ui', '--project-dir', this.dir, '--port', String(port));
    if (child.stdout === null) throw new Error('runner ui has no stdout');
    for await (const line of createInterface({ input: child.stdout })) {
      return { url: line.endsWith('/') ? line : `${line}/`, port: Number(new URL(line).port), child };
    }
    throw new Error('runner ui said nothing');
  }

  async end(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    await gone;
  }

  async stop(): Promise<void> {
    this.recall('hold');
    await Promise.all([...this.#children].map((child) => this.end(child, 'SIGKILL')));
    // The supervisor ends what a killed runner left, a moment later.
    rmSync(this.root, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
  }

  #env(): NodeJS.ProcessEnv {
    return { PATH: process.env['PATH'] ?? '', HOME: join(this.root, 'home'), TMPDIR: join(this.root, 'tmp'), LANG: 'C.UTF-8', TZ: 'UTC', RUNNER_RETRY_DELAYS_SECS: '0,0,0' };
  }
}

/** Waits until something holds. */
export async function eventually(what: string, holds: () => boolean): Promise<void> {
  const deadline = Date.now() + DEADLINE_MS;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`it did not come about: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}
