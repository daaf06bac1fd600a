// The scripted agent of the tests. It does what the files in its folder say (argv[2]):
//   hold           while it is there, the session goes on
//   retry          reports `retry`
//   quota          fails as an agent does whose quota is used up until the time in the file
//   break-NODE     leaves an invalid tree for that node, once; not as long as it says `wait`
// Otherwise it splits the root into parts and finishes each leaf with a file of its own.
const fs = require('node:fs');
const path = require('node:path');

const orders = process.argv[2];
const node = process.env.RUNNER_NODE_ID;
const tree = '.runner/state/tree.json';

const order = (name) => {
  try {
    return fs.readFileSync(path.join(orders, name), 'utf8');
  } catch {
    return null;
  }
};
const say = (event) => fs.writeSync(1, `${JSON.stringify(event)}\n`);
const report = (status, summary) => fs.writeFileSync(process.env.RUNNER_OUTPUT_PATH, JSON.stringify({ status, summary }));
const wait = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

function leaf(id, order, title) {
  return { id, order, title, goal: `${title} is written down.`, acceptance: [`${id}.txt is there`], passes: false, attempts: 0, max_attempts: 3, children: [] };
}

function find(at, id) {
  if (at.id === id) return at;
  for (const child of at.children) {
    const found = find(child, id);
    if (found) return found;
  }
  return null;
}

say({ event: 'message', text: `I work on ${node}.` });
const until = order('quota');
if (until !== null) {
  say({ event: 'error', message: `{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":${until.trim()}}}`, fatal: true });
  process.exit(1);
}
for (let turn = 1; order('hold') !== null; turn += 1) {
  say({ event: 'command', command: `look --turn ${turn}`, exit_code: 0, running: false });
  wait(200);
}
if (order('retry') !== null) {
  report('retry', 'It does not work yet.');
} else if (order(`break-${node}`) !== null) {
  while (order(`break-${node}`) === 'wait') wait(100);
  fs.rmSync(path.join(orders, `break-${node}`));
  fs.writeFileSync(tree, '{"id": "root"');
  // The next session, which is to repair it, waits until the test has seen it.
  fs.writeFileSync(path.join(orders, 'hold'), '');
  report('done', 'The tree got lost.');
} else if (node === 'root') {
  const root = JSON.parse(fs.readFileSync(tree, 'utf8'));
  root.children = [leaf('alpha', 1, 'The first part'), leaf('beta', 2, 'The second part'), leaf('gamma', 3, 'The third part')];
  fs.writeFileSync(tree, `${JSON.stringify(root, null, 2)}\n`);
  fs.appendFileSync('.runner/state/questions.md', '- Is three parts enough?\n');
  report('decomposed', 'Three parts are easier than one.');
} else if (node === 'repair-tree') {
  report('done', 'There is nothing to mend by hand.');
} else {
  fs.writeFileSync(`${node}.txt`, `This is ${node}.\n`);
  say({ event: 'file_change', path: `${node}.txt`, kind: 'add' });
  report('done', `Wrote ${node}.txt.`);
}
