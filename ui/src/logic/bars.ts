// Measures of the timeline: how high a bar is, how wide, and where the numbers stand.

/** The part of the full height that a duration has. Square roots, so that one long session
 * does not make all others vanish. */
export function barShare(ms: number | null, longest: number): number {
  if (ms === null || ms <= 0 || longest <= 0) return 0;
  return Math.sqrt(Math.min(1, ms / longest));
}

/** The width of a bar with its gap: as wide as there is room, within reason. */
export function barPitch(count: number, width: number): number {
  if (count <= 0) return 28;
  return Math.max(12, Math.min(28, Math.floor(width / count)));
}

/** Every how many bars a number stands: often enough to count, far enough to read. */
export function labelEvery(pitch: number): number {
  return [1, 2, 5, 10, 20].find((every) => every * pitch >= 26) ?? 20;
}
