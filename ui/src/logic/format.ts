// Times, sizes and numbers as people read them. Everything takes "now" as an argument.

/** `0:42`, `12:05`, `3:07:09`: for something that is counting. */
export function clock(ms: number): string {
  const total = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, '0');
  const hours = Math.floor(total / 3600);
  const minutes = Math.floor(total / 60) % 60;
  const seconds = total % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
}

/** `850 ms`, `4.2 s`, `42 s`, `3 m 05 s`, `2 h 10 m`, `3 d 4 h`: for something that is over. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const two = (value: number): string => String(value).padStart(2, '0');
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** `just now`, `42 s ago`, `5 m ago`, `3 h ago`, `2 d ago`. */
export function ago(then: number, now: number): string {
  const seconds = Math.floor((now - then) / 1000);
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** `16:40`, or with the day in front if that is not today: in the reader's own time zone. */
export function moment(then: number, now: number): string {
  const date = new Date(then);
  const today = new Date(now);
  const two = (value: number): string => String(value).padStart(2, '0');
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (date.toDateString() === today.toDateString()) return time;
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return date.getFullYear() === today.getFullYear() ? `${day.slice(5)} ${time}` : `${day} ${time}`;
}

/** `950`, `12.3k`, `4.1M`. */
export function count(value: number): string {
  if (value < 1000) return String(value);
  if (value < 999_950) return `${trim(value / 1000)}k`;
  if (value < 999_950_000) return `${trim(value / 1_000_000)}M`;
  return `${trim(value / 1_000_000_000)}G`;
}

/** `$0.42`, `$12.30`, `$0.004`. */
export function dollars(value: number): string {
  if (value > 0 && value < 0.01) return `$${value.toFixed(3)}`;
  return `$${value.toFixed(2)}`;
}

/** `512 B`, `5.0 KiB`, `1.2 MiB`. */
export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  const units = ['KiB', 'MiB', 'GiB'];
  let size = value / 1024;
  let unit = 0;
  while (size >= 1023.95 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size.toFixed(1)} ${units[unit]}`;
}

/** `1 iteration`, `2 iterations`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

/** Milliseconds of an RFC 3339 time; null for none. */
export function timeOf(text: string | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const value = Date.parse(text);
  return Number.isNaN(value) ? null : value;
}

function trim(value: number): string {
  return value < 100 ? value.toFixed(1).replace(/\.0$/, '') : String(Math.round(value));
}
