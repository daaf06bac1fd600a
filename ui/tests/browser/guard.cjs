// The guard of the tests: says no once where a file `refuse-NODE` lies in its folder (argv[2]).
const fs = require('node:fs');
const path = require('node:path');

const refuse = path.join(process.argv[2], `refuse-${process.env.RUNNER_NODE_ID}`);
console.log('\u001b[1mlooking at the files\u001b[0m');
if (fs.existsSync(refuse)) {
  fs.rmSync(refuse);
  console.log('\u001b[31merror:\u001b[0m this is not good enough');
  process.exit(1);
}
console.log('\u001b[32mall is well\u001b[0m');
