import { describe, expect, test } from 'vitest';
import { parseDiff } from '../../src/logic/diff';

const TWO = `diff --git a/a.txt b/a.txt
index 1..2 100644
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@ heading
 one
-two
--- not a header
+zwei
+++ nor this
@@ -10 +10,2 @@
 ten
+eleven
\\ No newline at end of file
diff --git a/new file.txt b/new file.txt
new file mode 100644
--- /dev/null
+++ b/new file.txt\t
@@ -0,0 +1 @@
+x
`;

describe('a unified diff', () => {
  test('files, hunks and numbered lines', () => {
    const [first, second] = parseDiff(TWO);
    expect(first).toMatchObject({ path: 'a.txt', change: 'changed', added: 3, removed: 2 });
    expect(first?.hunks.map((hunk) => hunk.header)).toEqual(['heading', '']);
    expect(first?.hunks[0]?.lines.map((line) => [line.kind, line.before, line.after, line.text])).toEqual([
      ['context', 1, 1, 'one'],
      ['del', 2, null, 'two'],
      ['del', 3, null, '-- not a header'],
      ['add', null, 2, 'zwei'],
      ['add', null, 3, '++ nor this'],
    ]);
    expect(first?.hunks[1]?.lines.at(-1)).toMatchObject({ kind: 'note', text: 'No newline at end of file' });
    expect(second).toMatchObject({ path: 'new file.txt', change: 'added', added: 1, removed: 0 });
  });

  test.each([
    ['diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n', { path: 'x', change: 'deleted', removed: 1 }],
    ['diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n', { path: 'y', from: 'x', change: 'renamed' }],
    ['diff --git a/p.png b/p.png\nindex 1..2\nBinary files a/p.png and b/p.png differ\n', { path: 'p.png', binary: true }],
    ['diff --git "a/\\303\\244.txt" "b/\\303\\244.txt"\n--- "a/\\303\\244.txt"\n+++ "b/\\303\\244.txt"\n@@ -1 +1 @@\n-a\n+b\n', { path: 'ä.txt' }],
    ['diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n', { path: 'mode', change: 'changed', hunks: [] }],
  ])('kinds of changes: %#', (text, expected) => {
    expect(parseDiff(text)[0]).toMatchObject(expected);
  });

  test('nonsense and pieces are survived', () => {
    expect(parseDiff('')).toEqual([]);
    expect(parseDiff('hello\nworld')).toEqual([]);
    const cut = TWO.slice(0, 120);
    expect(parseDiff(cut)).toHaveLength(1);
  });
});
