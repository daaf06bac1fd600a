import { describe, expect, test } from 'vitest';
import { ago, bytes, clock, count, dollars, duration, moment, plural, timeOf } from '../../src/logic/format';

describe('what people read', () => {
  test.each([[0, '0:00'], [-5, '0:00'], [61_500, '1:01'], [3_599_999, '59:59'], [3_600_000, '1:00:00'], [90_061_000, '25:01:01']])('clock(%i)', (ms, words) => {
    expect(clock(ms)).toBe(words);
  });

  test.each([[0, '0 ms'], [999, '999 ms'], [1000, '1.0 s'], [9_949, '9.9 s'], [9_960, '10 s'], [59_499, '59 s'], [59_600, '1 m 00 s'], [3_599_400, '59 m 59 s'], [3_600_000, '1 h 00 m'], [97_200_000, '1 d 3 h'], [Number.NaN, '–'], [-1, '–']])('duration(%d)', (ms, words) => {
    expect(duration(ms)).toBe(words);
  });

  test.each([[0, 'just now'], [42_000, '42 s ago'], [300_000, '5 m ago'], [3 * 3_600_000, '3 h ago'], [72 * 3_600_000, '3 d ago']])('ago(%i)', (ms, words) => {
    expect(ago(1_000_000_000_000 - ms, 1_000_000_000_000)).toBe(words);
  });

  test('a moment has its day only if that is another', () => {
    const now = new Date(2026, 10, 15, 16, 40).getTime();
    expect(moment(new Date(2026, 10, 15, 3, 7).getTime(), now)).toBe('03:07');
    expect(moment(new Date(2026, 10, 14, 23, 0).getTime(), now)).toBe('11-14 23:00');
    expect(moment(new Date(2025, 0, 2, 3, 4).getTime(), now)).toBe('2025-01-02 03:04');
  });

  test.each([[999, '999'], [1000, '1k'], [12_345, '12.3k'], [123_456, '123k'], [999_960, '1M'], [4_100_000, '4.1M']])('count(%i)', (value, words) => {
    expect(count(value)).toBe(words);
  });

  test('money, sizes, numbers, times', () => {
    expect([dollars(0), dollars(0.004), dollars(12.3)]).toEqual(['$0.00', '$0.004', '$12.30']);
    expect([bytes(512), bytes(5120), bytes(1_300_000), bytes(104_857_600)]).toEqual(['512 B', '5.0 KiB', '1.2 MiB', '100.0 MiB']);
    expect([plural(1, 'leaf', 'leaves'), plural(2000, 'leaf', 'leaves')]).toEqual(['1 leaf', '2,000 leaves']);
    expect([timeOf(null), timeOf('nonsense'), timeOf('1970-01-01T00:00:01Z')]).toEqual([null, null, 1000]);
  });
});
