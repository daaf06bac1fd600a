import { describe, expect, test } from 'vitest';
import { addPage, appendLine, EMPTY_CHAIN, endOf, MAX_PAGES, pageOf, startOf, type LogChain } from '../../src/logic/pages';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('pages of a log', () => {
  test('lines with their places in bytes', () => {
    const page = pageOf(bytes('aä\nb\n\nc'), 100);
    expect(page.lines).toEqual([
      { offset: 100, text: 'aä' },
      { offset: 104, text: 'b' },
      { offset: 106, text: '' },
      { offset: 107, text: 'c' },
    ]);
    expect(page.end).toBe(108);
  });

  test('a page from the middle begins with a whole line', () => {
    expect(pageOf(bytes('est\nwhole\n'), 50, true)).toMatchObject({ offset: 54, end: 60, lines: [{ offset: 54, text: 'whole' }] });
    expect(pageOf(bytes('first\n'), 0, true).lines).toHaveLength(1);
    expect(pageOf(bytes('one endless line'), 50, true).lines).toHaveLength(1);
  });

  test('pages join at both ends, know their repeats, and begin anew elsewhere', () => {
    let chain = addPage(EMPTY_CHAIN, pageOf(bytes('b\n'), 10), 100);
    chain = addPage(chain, pageOf(bytes('c\n'), 12), 100);
    chain = addPage(chain, pageOf(bytes('a\n'), 8), 100);
    expect([startOf(chain), endOf(chain), chain.pages.length]).toEqual([8, 14, 3]);
    expect(addPage(chain, pageOf(bytes('b\n'), 10), 120)).toMatchObject({ size: 120, pages: chain.pages });
    expect(addPage(chain, pageOf(bytes(''), 14), 130).size).toBe(130);
    expect(startOf(addPage(chain, pageOf(bytes('z\n'), 90), 100))).toBe(90);
  });

  test('only so many pages are kept', () => {
    let chain: LogChain = EMPTY_CHAIN;
    for (let at = 0; at < 20; at += 1) chain = addPage(chain, pageOf(bytes('x\n'), at * 2), 100);
    expect(chain.pages).toHaveLength(MAX_PAGES);
    expect(endOf(chain)).toBe(40);
    expect(startOf(addPage(chain, pageOf(bytes('y\n'), startOf(chain) - 2), 100))).toBe(40 - MAX_PAGES * 2 - 2);
  });

  test('lines that come by themselves', () => {
    const chain = addPage(EMPTY_CHAIN, pageOf(bytes('a\n'), 0), 2);
    const next = appendLine(chain, { offset: 2, text: 'b' }, 4);
    expect(next.kind === 'added' && next.chain).toMatchObject({ size: 4, pages: [{ end: 4, lines: [{ text: 'a' }, { text: 'b' }] }] });
    expect(appendLine(chain, { offset: 0, text: 'a' }, 2).kind).toBe('known');
    expect(appendLine(chain, { offset: 9, text: 'z' }, 11).kind).toBe('gap');
    expect(appendLine(EMPTY_CHAIN, { offset: 0, text: 'a' }, 2).kind).toBe('added');
  });
});
