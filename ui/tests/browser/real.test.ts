// The page beside real runs: the real runner with a scripted agent, the real server. Needs
// RUNNER_BIN, the binary with the page built in.
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { huge } from '../fixture/worlds';
import { Chromium, expectAccessible, shoot } from './browser';
import { eventually, Project, RUNNER_BIN } from './project';

describe.skipIf(RUNNER_BIN === null)('beside a real run', () => {
  let chromium: Chromium;
  let project: Project;
  let page: Page;
  let complaints: string[];

  beforeAll(async () => {
    chromium = await Chromium.start();
  });
  afterAll(() => chromium.stop());
  beforeEach(async () => {
    project = new Project();
    ({ page, complaints } = await chromium.page());
  });
  afterEach(async () => {
    await page.close();
    await project.stop();
  });

  const node = (id: string, state: string) => page.locator(`[data-id="${id}"][data-state="${state}"]`);
  const bar = (iter: number, outcome: string) => page.locator(`[data-iter="${iter}"][data-outcome="${outcome}"]`);
  const state = (word: string) => page.getByTestId('state').getByText(word, { exact: true });
  const needs = (kind: string) => page.locator(`[data-testid=needs-you][data-kind="${kind}"]`);

  test('from an empty folder to a complete tree, with a server that is started again', async () => {
    let server = await project.serve();
    await page.goto(server.url);
    await page.getByTestId('empty').waitFor();

    project.init();
    await needs('not_started').waitFor();
    project.run('start');
    await page.getByRole('heading', { name: 'A small goal' }).waitFor();

    project.order('hold');
    project.order('refuse-alpha');
    const loop = project.start('loop');
    await state('running').waitFor();
    await bar(1, 'running').waitFor();
    await node('root', 'current').waitFor();
    // The agent, live.
    await page.getByTestId('timeline').focus();
    await bar(1, 'running').click();
    await page.getByRole('tab', { name: 'Agent' }).click();
    await page.getByTestId('stream').getByText('I work on root.').waitFor();
    await page.getByTestId('stream').getByText('look --turn 3', { exact: true }).waitFor();
    await shoot(page, 'real-running');

    // The server ends in the middle of it; the loop does not notice.
    await project.end(server.child);
    await page.getByTestId('disconnected').waitFor();
    project.recall('hold');
    await eventually('the first two iterations', () => project.attempt('log', '--json').stdout.includes('"fail"'));
    server = await project.serve(server.port);
    await page.getByTestId('disconnected').waitFor({ state: 'detached' });

    // It catches up: nodes turned, the timeline grew.
    await bar(1, 'planned').waitFor();
    await bar(2, 'failed').waitFor();
    await bar(3, 'passed').waitFor();
    for (const id of ['alpha', 'beta', 'gamma', 'root']) await node(id, 'passed').waitFor();
    await state('complete').waitFor();
    await new Promise((done) => (loop.exitCode === null ? loop.once('exit', done) : done(0)));
    expect(loop.exitCode).toBe(0);
    expect(await page.title()).toBe('✓ 3/3 A small goal');

    // What the guard said, with its colours, and what was changed.
    await bar(2, 'failed').click();
    await page.getByRole('tab', { name: 'Guard log' }).click();
    await page.locator('[data-testid=log] .f1').getByText('error:').waitFor();
    await page.getByRole('tab', { name: 'Diff' }).click();
    await page.locator('[data-testid=diff] tr.add').getByText('This is alpha.').waitFor();
    await page.locator('[data-iter="1"]').first().click();
    await page.getByRole('tab', { name: 'Plan' }).click();
    await page.getByTestId('plan').getByText('The second part', { exact: true }).waitFor();
    await page.getByTestId('as-of').click();
    await node('alpha', 'open').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await node('alpha', 'passed').waitFor();
    await page.getByTestId('questions').getByText('Is three parts enough?').waitFor();
    await expectAccessible(page, 'a complete run');
    await shoot(page, 'real-complete');
    expect(complaints.filter((each) => !each.includes('ERR_CONNECTION'))).toEqual([]);

    // A second run in the same project.
    project.goal('# Another goal\n');
    project.run('start');
    await page.getByRole('heading', { name: 'Another goal' }).waitFor();
    await page.getByTestId('run-picker').locator('option').nth(1).waitFor({ state: 'attached' });
    const old = await page.getByTestId('run-picker').locator('option').nth(1).getAttribute('value');
    await page.getByTestId('run-picker').selectOption(old);
    await bar(5, 'passed').waitFor();
    await node('gamma', 'passed').waitFor();
  });

  test('a run that is stuck', async () => {
    project.init();
    project.run('start');
    project.order('retry');
    expect(project.attempt('loop').status).not.toBe(0);
    const { url } = await project.serve();
    await page.goto(url);
    await state('stuck').waitFor();
    await needs('stuck').waitFor();
    await node('root', 'stuck').waitFor();
    await bar(3, 'retry').waitFor();
    await expectAccessible(page, 'a stuck run');
    await shoot(page, 'real-stuck');
    expect(complaints).toEqual([]);
  });

  test('a wait for the quota', async () => {
    project.init();
    project.run('start');
    const { url } = await project.serve();
    await page.goto(url);
    project.order('quota', String(Math.floor(Date.now() / 1000) + 3600));
    const loop = project.start('loop', '--wait-quota');
    await page.getByTestId('waiting').getByText('Waiting for the quota').waitFor();
    await state('quota').waitFor();
    await bar(1, 'error').waitFor();
    expect(await page.locator('link[rel=icon]').getAttribute('href')).toBe('/favicon-quota.svg');
    await shoot(page, 'real-quota');
    await project.end(loop, 'SIGINT');
    await page.getByTestId('waiting').waitFor({ state: 'detached' });
    expect(complaints).toEqual([]);
  });

  test('a runner that was killed', async () => {
    project.init();
    project.run('start');
    const { url } = await project.serve();
    await page.goto(url);
    project.order('hold');
    const loop = project.start('loop');
    await node('root', 'current').waitFor();
    await project.end(loop, 'SIGKILL');
    await needs('cut_off').waitFor();
    await page.getByTestId('since').getByText('not running since').waitFor();
    await bar(1, 'cut_off').waitFor();
    await shoot(page, 'real-killed');
    // It is settled by the next one, and the page follows.
    project.recall('hold');
    project.start('loop');
    await state('complete').waitFor();
    expect(complaints).toEqual([]);
  });

  test('an invalid tree until it is repaired', async () => {
    project.init();
    project.run('start');
    const { url } = await project.serve();
    await page.goto(url);
    // The tree is good until the page has shown it: it keeps what it has seen, not what there was.
    project.order('break-beta', 'wait');
    project.start('loop');
    await node('alpha', 'passed').waitFor();
    project.order('break-beta', 'now');
    await page.getByTestId('invalid-tree').waitFor();
    await node('alpha', 'passed').waitFor();
    await shoot(page, 'real-invalid-tree');
    project.recall('hold');
    await page.getByTestId('invalid-tree').waitFor({ state: 'detached' });
    await state('complete').waitFor();
    expect(complaints).toEqual([]);
  });

  test('ten thousand nodes, and a guard log of a hundred megabytes', async () => {
    project.init();
    project.run('start');
    project.run('step');
    project.run('step');
    const runId = /"run_id": *"([^"]+)"/.exec(project.read('.runner/state/run_state.json'))?.[1] ?? '';
    const log = join(project.dir, '.runner/iterations', runId, '2/guard.log');
    const block = Buffer.from(Array.from({ length: 10_000 }, (_, at) => `line ${at} of a guard that never ends, and says the same again and again, ${at}\n`).join(''));
    for (let size = 0; size < 100 * 1024 * 1024; size += block.length) appendFileSync(log, block);
    appendFileSync(log, 'the very last line\n');
    writeFileSync(join(project.dir, '.runner/state/tree.json'), JSON.stringify(huge(0).tree));
    // What no commit has is not the run's.
    project.git('commit', '--quiet', '--all', '--message', 'A larger plan');

    const { url } = await project.serve();
    await page.goto(url);
    await page.locator('[data-testid=tree] [role=treeitem]').nth(20).waitFor();
    const times = await page.evaluate(() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, shown: performance.now(), bytes: (performance.getEntriesByName(`${location.origin}/api/tree`)[0] as PerformanceResourceTiming | undefined)?.encodedBodySize ?? 0 }));
    console.info(`10,000 nodes from the real server: first paint ${times.paint.toFixed(0)} ms, tree shown ${times.shown.toFixed(0)} ms, ${times.bytes} bytes sent`);
    await page.goto(`${url}#iter=2&tab=guard`);
    const view = page.getByTestId('log');
    await view.getByText('the very last line').waitFor();
    await view.getByText('100.', { exact: false }).first().waitFor();
    await view.getByRole('searchbox').fill('very last');
    await page.keyboard.press('Enter');
    await view.locator('.line.marked').getByText('the very last line').waitFor();
    expect(await view.locator('.line').count()).toBeLessThan(5000);
    expect(complaints).toEqual([]);
  });
});
