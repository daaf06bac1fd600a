// The page against the stand-in: what one can do with it, and states that a real run is
// hardly ever in.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Page } from 'playwright-core';
import type { Run, TreeNode } from '../../src/api/types';
import { Fixture } from '../fixture/server';
import * as worlds from '../fixture/worlds';
import { Chromium, expectAccessible, expectNoSidewaysScroll } from './browser';

let chromium: Chromium;
let fixture: Fixture;
let page: Page;
let complaints: string[];

beforeAll(async () => {
  chromium = await Chromium.start();
  await chromium.context.grantPermissions(['clipboard-read', 'clipboard-write']);
});
afterAll(() => chromium.stop());
beforeEach(async () => {
  fixture = await Fixture.start(worlds.running(Date.now()));
  ({ page, complaints } = await chromium.page());
});
afterEach(async () => {
  await page.close();
  await fixture.stop();
});

async function open(hash = ''): Promise<void> {
  await page.goto(fixture.url + hash);
  await page.getByTestId('tree').waitFor();
}

const node = (id: string) => page.locator(`[data-id="${id}"]`);
const favicon = () => page.locator('link[rel=icon]').getAttribute('href');

describe('keyboard only', () => {
  test('tree: move, fold, open, search, help', async () => {
    await open();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    expect(await node('core').getAttribute('class')).toContain('cursor');
    await page.keyboard.press('ArrowLeft');
    await node('count-words').waitFor({ state: 'detached' });
    expect(await node('core').getAttribute('aria-expanded')).toBe('false');
    await page.keyboard.press('ArrowRight');
    await node('count-words').waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByTestId('node-detail').getByText('tests/count-words.sh is green').waitFor();
    expect(page.url()).toContain('node=count-words');
    await page.keyboard.press('k');
    expect(await node('core').getAttribute('class')).toContain('cursor');
    await page.keyboard.press('c');
    expect(await node('errors').getAttribute('class')).toContain('cursor');

    await page.keyboard.press('/');
    await page.keyboard.type('manual');
    await node('options').waitFor({ state: 'detached' });
    await page.keyboard.press('Enter');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByTestId('node-detail').getByText('tests/manual.sh is green').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.press('Escape');
    await node('options').waitFor();
    await page.keyboard.press('Escape');
    await page.getByTestId('overview').waitFor();

    await page.keyboard.press('?');
    await page.getByTestId('help').getByText('search the tree').waitFor();
    await expectAccessible(page, 'help');
    await page.keyboard.press('Escape');
    await page.getByTestId('help').waitFor({ state: 'hidden' });
    expect(complaints).toEqual([]);
  });

  test('timeline and tabs', async () => {
    await open();
    await page.getByTestId('timeline').focus();
    await page.keyboard.press('End');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await page.locator('[data-testid=iteration-detail][data-iter="12"]').waitFor();
    await page.keyboard.press('2');
    await page.getByTestId('log').getByText('tests/errors.sh:14').waitFor();
    await page.keyboard.press('3');
    await page.getByTestId('diff').getByText('S_ISDIR').waitFor();
    await page.keyboard.press('[');
    await page.locator('[data-testid=iteration-detail][data-iter="11"]').waitFor();
    await page.getByRole('tab', { name: 'Diff' }).focus();
    await page.keyboard.press('ArrowRight');
    expect(await page.getByRole('tab', { name: 'Agent' }).getAttribute('aria-selected')).toBe('true');
    expect(complaints).toEqual([]);
  });
});

describe('what is shown', () => {
  test('the head, the questions, the title and the favicon', async () => {
    await open();
    await page.getByTestId('state').getByText('agent at work').waitFor();
    await page.getByTestId('questions').getByText('exit code 1, or 2').waitFor();
    await page.getByTestId('assumptions').getByText('Input is UTF-8').waitFor();
    expect(await page.title()).toBe('▶ 5/12 A word counter for the command line');
    expect(await favicon()).toBe('/favicon-running.svg');
    expect(await node('errors').getAttribute('aria-current')).toBe('step');
    expect(complaints).toEqual([]);
  });

  test('what is new since the last look', async () => {
    const seen = JSON.stringify({ iter: 9, at: Date.now() - 8 * 3_600_000 });
    await page.addInitScript(([key, value]) => localStorage.setItem(key ?? '', value ?? ''), [`runner-seen-${worlds.RUN_ID}`, seen]);
    await open();
    await page.getByTestId('news').getByText('Since you last looked (8 h ago): 3 new iterations, 1 with a green guard, 1 with a red one.').waitFor();
    expect(complaints).toEqual([]);
  });

  test('an iteration: report, watched files, plan, files', async () => {
    await open('#iter=8');
    await page.getByTestId('iteration-detail').getByText('justfile', { exact: true }).waitFor();
    await open('#iter=12&tab=plan');
    await page.getByTestId('plan').getByText('Say which file, and count the others.').waitFor();
    await expectAccessible(page, 'plan');
    await page.getByRole('tab', { name: 'Files' }).click();
    await page.getByRole('button', { name: 'guard.log' }).click();
    await page.getByTestId('log').getByText('tests/errors.sh:14').waitFor();
    await expectAccessible(page, 'files');
    await open('#iter=12');
    await page.getByTestId('report').getByText('A directory is told apart with fstat').waitFor();
    await page.getByTestId('guard-tail').getByText('exit code 1, and nothing printed').waitFor();
    await expectAccessible(page, 'summary');
    expect(complaints).toEqual([]);
  });

  test('the tree as of an iteration, and back', async () => {
    await open('#iter=2');
    expect(await node('unicode').getAttribute('data-state')).toBe('passed');
    await page.getByTestId('as-of').click();
    await page.getByTestId('as-of-note').waitFor();
    await page.locator('[data-id=unicode][data-state=open]').waitFor();
    await page.getByRole('button', { name: 'Back to now' }).click();
    await page.locator('[data-id=unicode][data-state=passed]').waitFor();
    expect(complaints).toEqual([]);
  });

  test('an older run, and back', async () => {
    await open();
    await page.getByTestId('run-picker').selectOption(worlds.OLD_RUN_ID);
    await page.locator('[data-testid=timeline][data-bars="3"]').waitFor();
    await page.getByRole('heading', { name: 'A first try' }).waitFor();
    await page.getByTestId('run-picker').selectOption(worlds.RUN_ID);
    await page.locator('[data-testid=timeline][data-bars="13"]').waitFor();
    expect(complaints).toEqual([]);
  });

  test('the command to copy', async () => {
    fixture.world = worlds.stuck(Date.now());
    await open();
    await page.getByTestId('needs-you').getByRole('button').click();
    await page.getByTestId('needs-you').getByText('Copied').first().waitFor();
    expect(await page.evaluate(() => navigator.clipboard.readText())).toBe('runner -C /srv/word-counter retry errors');
    expect(await favicon()).toBe('/favicon-stuck.svg');
    expect(complaints).toEqual([]);
  });

  test('what an agent wrote is text, whatever it says', async () => {
    const tree = fixture.world.tree as TreeNode;
    tree.title = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    fixture.world.files.set(`${worlds.RUN_ID}/12/guard.log`, '<b>bold</b>\u001b]8;;javascript:alert(1)\u0007link\u001b]8;;\u0007\n');
    await open('#iter=12&tab=guard');
    await page.getByTestId('log').getByText('<b>bold</b>link').waitFor();
    await node('root').getByText('<img src=x').waitFor();
    expect(await page.locator('.page img, .page script, .page a[href^=javascript]').count()).toBe(0);
    expect(complaints).toEqual([]);
  });
});

describe('live', () => {
  test('an event is seen without a reload, and only what changed is sent again', async () => {
    await open();
    fixture.answered = [];
    const run = fixture.world.run as Run;
    fixture.world.run = { ...run, phase: 'guard', phase_started_at: new Date().toISOString() };
    fixture.send({ event: 'phase_changed', data: { state: 'running', phase: 'guard', iter: 13, node_id: 'errors' } });
    await page.getByTestId('state').getByText('guard running').waitFor();
    expect(fixture.answered).toContain('200 /api/run');
    expect(fixture.answered).not.toContain('200 /api/tree');
    expect(complaints).toEqual([]);
  });

  test('lines of the agent arrive', async () => {
    await open('#iter=13&tab=agent');
    const key = `${worlds.RUN_ID}/13/stream.jsonl`;
    const before = Buffer.byteLength(fixture.world.files.get(key) ?? '');
    await page.getByTestId('stream').getByText('make && sh tests/errors.sh').waitFor();
    const line = JSON.stringify({ event: 'message', text: 'All green now.' });
    fixture.send({ event: 'stream', data: { run_id: worlds.RUN_ID, iter: 13, offset: before, line, next_offset: before + line.length + 1 } });
    await page.getByTestId('stream').getByText('All green now.').waitFor();
    // A browser has six connections to a server, for all its tabs: this page takes one.
    await expect.poll(() => fixture.listeners).toBe(1);
    await expectAccessible(page, 'agent');
    expect(complaints).toEqual([]);
  });

  test('a server that goes away and comes back', async () => {
    await open();
    const port = fixture.port;
    await fixture.stop();
    await page.getByTestId('disconnected').waitFor();
    expect(await favicon()).toBe('/favicon-off.svg');
    expect(await page.title()).toContain('⌀');
    await expectAccessible(page, 'disconnected');
    fixture = await Fixture.start(worlds.complete(Date.now()), port);
    await page.getByTestId('disconnected').waitFor({ state: 'detached' });
    await page.getByTestId('state').getByText('complete').waitFor();
    expect(await favicon()).toBe('/favicon-complete.svg');
  });

  test('a server that was started again with another token', async () => {
    await open();
    const port = fixture.port;
    await fixture.stop();
    await page.getByTestId('disconnected').getByText('tries again by itself').waitFor();
    fixture = await Fixture.start(worlds.running(Date.now()), port);
    fixture.denied = true;
    await page.getByTestId('disconnected').getByText('wants its new token').waitFor();
    await node('errors').waitFor();
    fixture.denied = false;
    await page.getByTestId('disconnected').waitFor({ state: 'detached' });
  });

  test('without a connection no clock goes on', async () => {
    await page.addInitScript(() => {
      const real = Date.now;
      Date.now = () => real() + Number(document.documentElement.dataset['ahead'] ?? 0);
    });
    await open();
    await page.getByTestId('state').getByText('running', { exact: true }).waitFor();
    await fixture.stop();
    await page.getByTestId('disconnected').waitFor();
    const said = await page.getByTestId('state').innerText();
    await page.evaluate(() => (document.documentElement.dataset['ahead'] = '120000'));
    await page.getByTestId('disconnected').getByText('2 m ago').waitFor();
    expect(await page.getByTestId('state').innerText()).toBe(said);
  });

  test('a tab out of sight gives its connection back, and takes it again', async () => {
    const sight = (state: string): Promise<void> =>
      page.evaluate((value) => {
        Object.defineProperty(document, 'visibilityState', { value, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      }, state);
    // What is to happen after many seconds happens soon.
    await page.addInitScript(() => {
      const [later, again] = [window.setTimeout.bind(window), window.setInterval.bind(window)];
      const soon = (ms = 0): number => (ms < 10_000 ? ms : ms / 100);
      window.setTimeout = ((act: () => void, ms?: number) => later(act, soon(ms))) as typeof window.setTimeout;
      window.setInterval = ((act: () => void, ms?: number) => again(act, soon(ms))) as typeof window.setInterval;
    });
    await open();
    await expect.poll(() => fixture.listeners).toBe(1);
    await sight('hidden');
    await expect.poll(() => fixture.listeners).toBe(0);
    // Its title and icon follow, a little later.
    fixture.world.run = worlds.complete(Date.now()).run;
    await expect.poll(favicon).toBe('/favicon-complete.svg');
    await sight('visible');
    await expect.poll(() => fixture.listeners).toBe(1);
    expect(await page.getByTestId('disconnected').count()).toBe(0);
  });

  test('where the checkout stands, and that the run has landed', async () => {
    const checkout = page.getByTestId('checkout');
    await open();
    expect(await checkout.count()).toBe(0);
    const show = (more: Partial<Run>): void => {
      fixture.world.run = { ...(fixture.world.run as Run), ...more };
      fixture.send({ event: 'phase_changed', data: { state: 'complete', phase: 'idle', iter: 12, node_id: null } });
    };
    show({ checkout: 'your checkout is 2 iterations behind; `runner follow` brings it along' });
    await checkout.getByText('2 iterations behind').waitFor();
    expect(await checkout.locator('code').innerText()).toBe('runner follow');
    await expectAccessible(page, 'behind');
    show({ ...(worlds.complete(Date.now()).run as Run), needs_you: null, checkout: 'landed on main (0123456789ab)' });
    await checkout.getByText('landed on main (0123456789ab)').waitFor();
    expect(await page.getByTestId('needs-you').count()).toBe(0);
  });

  test('a title without a space, and one that turns the writing around, stay in their place', async () => {
    const run = fixture.world.iterations.runs[0];
    for (const row of run?.iterations ?? []) row.title = `\u202e${'long'.repeat(80)}`;
    await page.setViewportSize({ width: 380, height: 780 });
    for (const hash of ['', '#iter=2']) {
      await page.goto(fixture.url + hash);
      await page.reload();
      await page.locator(hash === '' ? '[data-testid=overview]' : '[data-testid=iteration-detail]').waitFor();
      await expectNoSidewaysScroll(page, `a long title ${hash}`);
    }
  });

  test('an invalid tree: the last good one stays', async () => {
    await open();
    const good = fixture.world.tree;
    fixture.world.tree = worlds.invalidTree(Date.now()).tree;
    fixture.send({ event: 'tree_changed', data: { there: true } });
    await page.getByTestId('invalid-tree').waitFor();
    await node('errors').waitFor();
    await page.getByText('What is wrong').click();
    await page.getByText('the id is used twice').waitFor();
    await expectAccessible(page, 'invalid tree');
    fixture.world.tree = good;
    fixture.send({ event: 'tree_changed', data: { there: true } });
    await page.getByTestId('invalid-tree').waitFor({ state: 'detached' });
  });

  test('a project that vanishes and comes back', async () => {
    await open();
    const there = fixture.world;
    fixture.world = worlds.empty(Date.now());
    fixture.send({ event: 'project_changed', data: { there: false } });
    await page.getByTestId('empty').waitFor();
    fixture.world = there;
    fixture.send({ event: 'project_changed', data: { there: true } });
    await page.getByTestId('tree').waitFor();
  });
});

describe('much', () => {
  test('a long log is paged, and searched by the server', async () => {
    const lines = Array.from({ length: 400_000 }, (_, at) => `line ${at} of a guard that says a great deal`);
    lines[123_456] = 'the needle is here';
    fixture.world.files.set(`${worlds.RUN_ID}/12/guard.log`, `${lines.join('\n')}\n`);
    await open('#iter=12&tab=guard');
    const log = page.getByTestId('log');
    await log.getByText('line 399999 of').waitFor();
    expect(await log.locator('.line').count()).toBeLessThan(5000);
    await log.getByRole('button', { name: /Earlier/ }).click();
    await log.getByText('line 398000 of').waitFor();
    await log.getByRole('button', { name: 'To the beginning' }).click();
    await log.getByText('line 0 of').waitFor();
    await log.getByRole('searchbox').fill('NEEDLE');
    await page.keyboard.press('Enter');
    await log.locator('.line.marked mark').getByText('needle').waitFor();
    await log.getByText('line 123455 of').waitFor();
    await log.getByTestId('matches').getByText('1 of 1').waitFor();
    expect(complaints).toEqual([]);
  });

  test('ten thousand nodes and a thousand iterations', async () => {
    fixture.world = worlds.huge(Date.now());
    await page.goto(fixture.url);
    await node('leaf-40-3').waitFor();
    const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0);
    const shown = await page.evaluate(() => performance.now());
    await page.locator('[data-testid=timeline][data-bars="1001"]').waitFor();
    await page.locator('[data-id=root]').waitFor({ state: 'detached' });
    // Opened everywhere, one row after the other is scrolled by.
    for (const id of ['part-41', 'part-42', 'part-99']) await page.evaluate((each) => document.querySelector<HTMLElement>(`[data-id="${each}"] .twist`)?.click(), id);
    const frames = await page.evaluate(async () => {
      const box = document.querySelector('[data-testid=tree]') as HTMLElement;
      box.scrollTop = 0;
      const times: number[] = [];
      let last = performance.now();
      for (let at = 0; at < 90; at += 1) {
        box.scrollTop += 60;
        await new Promise((done) => requestAnimationFrame(done));
        const now = performance.now();
        times.push(now - last);
        last = now;
      }
      times.sort((a, b) => a - b);
      return { median: times[45] ?? 0, worst: times[89] ?? 0, rows: document.querySelectorAll('[role=treeitem]').length, bars: document.querySelectorAll('[role=option]').length };
    });
    // Figures depend on the machine: they are told, not judged. What is drawn does not.
    console.info(`10,000 nodes: first paint ${paint.toFixed(0)} ms, tree shown ${shown.toFixed(0)} ms; scrolling: frame median ${frames.median.toFixed(1)} ms, worst ${frames.worst.toFixed(1)} ms; ${frames.rows} rows and ${frames.bars} bars drawn`);
    expect(frames.rows).toBeLessThan(100);
    expect(frames.bars).toBeLessThan(250);
    await page.getByTestId('tree').focus();
    await page.keyboard.press('End');
    await node('part-99').or(node('leaf-99-98')).first().waitFor();
    await page.getByTestId('tree-search').fill('module 77.42 ');
    await node('leaf-77-42').waitFor();
    expect(await page.getByTestId('tree').getAttribute('data-rows')).toBe('3');
    expect(complaints).toEqual([]);
  });
});
