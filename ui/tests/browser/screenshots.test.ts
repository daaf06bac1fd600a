// Eight states in light, dark and 380 px: pictures for people, and each of them is checked for
// accessibility and for staying within its width.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fixture, type World } from '../fixture/server';
import * as worlds from '../fixture/worlds';
import { Chromium, DARK, expectAccessible, expectNoSidewaysScroll, LIGHT, NARROW, shoot } from './browser';

interface State {
  name: string;
  world: (now: number) => World;
  hash?: string;
  ready: string;
  then?: (page: Page, fixture: Fixture) => Promise<void>;
}

const STATES: State[] = [
  { name: 'running', world: worlds.running, ready: '[data-testid=overview] .entries' },
  { name: 'complete', world: worlds.complete, ready: '[data-testid=overview]' },
  { name: 'stuck', world: worlds.stuck, hash: '#node=errors', ready: '[data-testid=node-detail]' },
  { name: 'quota', world: worlds.quota, ready: '[data-testid=waiting]' },
  { name: 'not-running', world: worlds.killed, ready: '[data-testid=needs-you]' },
  { name: 'guard-failed', world: worlds.running, hash: '#iter=12&tab=guard', ready: '[data-testid=log] .line' },
  { name: 'diff', world: worlds.running, hash: '#iter=12&tab=diff', ready: '[data-testid=diff] tr.add' },
  { name: 'empty', world: worlds.empty, ready: '[data-testid=empty]' },
];

describe.each([LIGHT, DARK, NARROW])('screenshots, $name', (look) => {
  let chromium: Chromium;
  beforeAll(async () => {
    chromium = await Chromium.start(look);
  });
  afterAll(() => chromium.stop());

  test.each(STATES)('$name', async ({ name, world, hash, ready, then }) => {
    const fixture = await Fixture.start(world(Date.now()));
    const { page, complaints } = await chromium.page();
    await page.goto(fixture.url + (hash ?? ''));
    await page.locator(ready).first().waitFor();
    await then?.(page, fixture);
    await shoot(page, `${name}-${look.name}`);
    await expectAccessible(page, `${name}, ${look.name}`);
    await expectNoSidewaysScroll(page, `${name}, ${look.name}`);
    expect(complaints).toEqual([]);
    await page.close();
    await fixture.stop();
  });
});
