// A real Chromium for the tests, and waiting for what shall be seen.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';
import { expect } from 'vitest';

/** Debian's; another one by CHROMIUM. */
const PROGRAM = process.env['CHROMIUM'] ?? '/usr/bin/chromium';
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export interface Look {
  name: string;
  scheme: 'light' | 'dark';
  width: number;
  height: number;
}

export const LIGHT: Look = { name: 'light', scheme: 'light', width: 1280, height: 800 };
export const DARK: Look = { name: 'dark', scheme: 'dark', width: 1280, height: 800 };
export const NARROW: Look = { name: '380', scheme: 'light', width: 380, height: 780 };

/** A browser with a profile of its own that is gone afterwards. */
export class Chromium {
  readonly context: BrowserContext;
  #profile: string;

  private constructor(context: BrowserContext, profile: string) {
    this.context = context;
    this.#profile = profile;
  }

  static async start(look: Look = LIGHT): Promise<Chromium> {
    const profile = mkdtempSync(join(tmpdir(), 'runner-ui-chromium-'));
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: PROGRAM,
      args: FLAGS,
      headless: true,
      colorScheme: look.scheme,
      viewport: { width: look.width, height: look.height },
      reducedMotion: 'reduce',
    });
    context.setDefaultTimeout(30_000);
    return new Chromium(context, profile);
  }

  get browser(): Browser | null {
    return this.context.browser();
  }

  /** A page that must not complain: errors of scripts and of the policy are gathered. */
  async page(): Promise<{ page: Page; complaints: string[] }> {
    const page = await this.context.newPage();
    const complaints: string[] = [];
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('console', (message) => {
      // A server that is down or says 404 is told by the browser itself, and belongs to some tests.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) complaints.push(message.text());
    });
    return { page, complaints };
  }

  async stop(): Promise<void> {
    await this.context.close();
    rmSync(this.#profile, { recursive: true, force: true });
  }
}

const PICTURES = resolve(import.meta.dirname, '../../screenshots');

/** A picture for people, in ui/screenshots. */
export async function shoot(page: Page, name: string): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`) });
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Fails with every rule of accessibility that the page breaks. */
export async function expectAccessible(page: Page, where: string): Promise<void> {
  // Evaluated by the browser's debugger, which the page's policy does not bind.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run(context: Document, options: object): Promise<{ violations: { id: string; nodes: { target: string[]; failureSummary: string }[] }[] }> } };
    const result = await axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] });
    return result.violations.map((each) => `${each.id}: ${each.nodes.slice(0, 4).map((node) => `${node.target.join(' ')} (${node.failureSummary.split('\n').slice(1, 3).join(';').trim()})`).join(' | ')}`);
  });
  expect(found, `accessibility of ${where}`).toEqual([]);
}

/** Nothing sticks out to the right; if something does, it is named. */
export async function expectNoSidewaysScroll(page: Page, where: string): Promise<void> {
  const wide = await page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return [];
    const outside = [...document.querySelectorAll('body *')].filter((each) => each.getBoundingClientRect().right > room + 0.5);
    return outside.map((each) => `${each.tagName} ${each.getAttribute('class') ?? ''}`).slice(0, 8);
  });
  expect(wide, `${where} scrolls sideways`).toEqual([]);
}
