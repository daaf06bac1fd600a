import { describe, expect, test } from 'vitest';
import { parseAnsiLine, PLAIN, stripAnsi } from '../../src/logic/ansi';

const ESC = '\u001b';

describe('colours of a terminal', () => {
  test('plain text is one span', () => {
    expect(parseAnsiLine('hello').spans).toEqual([{ text: 'hello', style: PLAIN }]);
    expect(parseAnsiLine('').spans).toEqual([]);
  });

  test('colours, weights and their ends', () => {
    const { spans, end } = parseAnsiLine(`${ESC}[1;31merror:${ESC}[0m no ${ESC}[92mfine${ESC}[39m.`);
    expect(spans.map((span) => [span.text, span.style.fg, span.style.bold])).toEqual([
      ['error:', 1, true],
      [' no ', null, false],
      ['fine', 10, false],
      ['.', null, false],
    ]);
    expect(end).toEqual(PLAIN);
  });

  test('a style goes on in the next line', () => {
    const first = parseAnsiLine(`${ESC}[33mwarning`);
    const second = parseAnsiLine('still', first.end);
    expect(second.spans[0]?.style.fg).toBe(3);
  });

  test.each([
    [`${ESC}[38;5;196mx`, '#ff0000'],
    [`${ESC}[38;5;9mx`, 9],
    [`${ESC}[38;5;244mx`, '#808080'],
    [`${ESC}[38;2;1;2;300mx`, '#0102ff'],
    [`${ESC}[38:5:196mx`, '#ff0000'],
  ])('256 and true colours: %j', (line, fg) => {
    expect(parseAnsiLine(line).spans[0]?.style.fg).toBe(fg);
  });

  test.each([
    [`a${ESC}[2Kb`, 'ab'],
    [`${ESC}]8;;http://x${ESC}\\link${ESC}]8;;${ESC}\\`, 'link'],
    [`${ESC}]0;title\u0007text`, 'text'],
    [`${ESC}(Bx${ESC}=y`, 'xy'],
    ['bell\u0007 and \u0000nul', 'bell and nul'],
    ['10 %\r50 %\r100 %\r', '100 %'],
    ['windows\r', 'windows'],
    [`cut off ${ESC}[3`, 'cut off '],
    [`${ESC}[38;5mx`, 'x'],
    ['tab\tstays', 'tab\tstays'],
  ])('what is for terminals only goes away: %j', (line, text) => {
    expect(stripAnsi(line)).toBe(text);
  });
});
