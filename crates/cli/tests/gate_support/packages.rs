//! Test tools and package managers of Node.js whose reports are not read: what their settings are
//! worth.

use super::{GateTool, GuardedProject};

pub(crate) const MOCHA: GuardedProject = GuardedProject {
    kind: "mocha",
    guard: &["npm", "test"],
    tool: GateTool::Packages("mocha"),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"mocha\"}}
",
        ),
        (
            "src/sums.js",
            "exports.add = (a, b) => a + b;
exports.sub = () => 0;
",
        ),
        (
            "test/sums.js",
            "const assert = require('node:assert');
const { add, sub } = require('../src/sums');

it('adds', () => assert.strictEqual(add(1, 2), 3));
it('subs', () => assert.strictEqual(sub(3, 2), 1));
",
        ),
    ],
    fix: "sed -i 's/sub = () => 0/sub = (a, b) => a - b/' src/sums.js",
    redefined: &[
        (
            "the script",
            "sed -i 's/\"mocha\"/\"mocha -g adds\"/' package.json",
        ),
        (
            ".mocharc.js",
            "echo \"module.exports = {grep: 'adds'};\" > .mocharc.js",
        ),
        (
            ".mocharc.cjs",
            "echo \"module.exports = {grep: 'adds'};\" > .mocharc.cjs",
        ),
        (
            ".mocharc.json",
            "echo '{\"grep\": \"adds\"}' > .mocharc.json",
        ),
        (
            ".mocharc.jsonc",
            "echo '{\"grep\": \"adds\"} // ours' > .mocharc.jsonc",
        ),
        (".mocharc.yml", "echo 'grep: adds' > .mocharc.yml"),
        (".mocharc.yaml", "echo 'grep: adds' > .mocharc.yaml"),
        (
            "settings in package.json",
            "sed -i 's/\"version\"/\"mocha\": {\"grep\": \"adds\"}, \"version\"/' package.json",
        ),
    ],
    unproven: &[],
    told: &[(
        "a weakened test",
        "sed -i 's/sub(3, 2), 1/sub(3, 2), 0/' test/sums.js",
    )],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
        (
            "a file of test data",
            "mkdir fixtures; echo '[1]' > fixtures/one.json",
        ),
        ("an ignore rule", "printf 'dist/\\n' > .gitignore"),
        ("a manual", "printf '# Sums\\n' > README.md"),
        (
            "a test renamed with what it describes",
            "sed -i \"s/'adds'/'adds numbers'/\" test/sums.js",
        ),
        (
            "a new file of tests",
            "printf \"it('one', () => {});\\n\" > test/more.js",
        ),
        (
            "a helper of tests",
            "mkdir test/helpers; echo 'exports.one = 1;' > test/helpers/one.js",
        ),
    ],
};

pub(crate) const AVA: GuardedProject = GuardedProject {
    kind: "ava",
    guard: &["npm", "test"],
    tool: GateTool::Packages("ava"),
    files: &[
        ("package.json", "{\"name\": \"sums\", \"version\": \"1.0.0\", \"type\": \"module\", \"scripts\": {\"test\": \"ava\"}}
"),
        ("src/sums.js", "export const add = (a, b) => a + b;
export const sub = () => 0;
"),
        ("test/sums.js", "import test from 'ava';
import { add, sub } from '../src/sums.js';

test('adds', (t) => t.is(add(1, 2), 3));
test('subs', (t) => t.is(sub(3, 2), 1));
"),
    ],
    fix: "sed -i 's/sub = () => 0/sub = (a, b) => a - b/' src/sums.js",
    redefined: &[
        ("the script", "sed -i 's/\"ava\"/\"ava --match=adds\"/' package.json"),
        ("ava.config.js", "echo \"export default {match: ['adds']};\" > ava.config.js"),
        ("ava.config.mjs", "echo \"export default {match: ['adds']};\" > ava.config.mjs"),
        ("ava.config.cjs", "echo \"module.exports = {match: ['adds']};\" > ava.config.cjs"),
        ("settings in package.json", "sed -i 's/\"version\"/\"ava\": {\"match\": [\"adds\"]}, \"version\"/' package.json"),
    ],
    unproven: &[],
    told: &[
        ("a weakened test", "sed -i 's/sub(3, 2), 1/sub(3, 2), 0/' test/sums.js"),
],
    honest: &[
        ("a dependency", "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json"),
        ("words about the package", "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json"),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
        ("a test renamed with what it describes", "sed -i \"s/'adds'/'adds numbers'/\" test/sums.js"),
        ("a new file of tests", "printf \"import test from 'ava';\\ntest('one', (t) => t.pass());\\n\" > test/more.js"),
        ("a helper of tests", "mkdir test/helpers; echo 'export const one = 1;' > test/helpers/one.js"),
    ],
};

pub(crate) const TYPESCRIPT: GuardedProject = GuardedProject {
    kind: "tsc",
    guard: &["npm", "test"],
    tool: GateTool::Packages("typescript"),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"tsc\"}}
",
        ),
        (
            "tsconfig.json",
            "{\"extends\": \"./tsconfig.base.json\", \"include\": [\"src\"]}
",
        ),
        (
            "tsconfig.base.json",
            "{\"compilerOptions\": {\"strict\": true, \"noEmit\": true, \"types\": []}}
",
        ),
        (
            "src/sums.ts",
            "export const add = (a: number, b: number): number => a + b;
export const sub = (): number => \"wrong\";
",
        ),
    ],
    fix: "sed -i 's/sub = (): number => .*/sub = (a: number, b: number): number => a - b;/' src/sums.ts",
    redefined: &[
        (
            "the script",
            "sed -i 's/\"tsc\"/\"tsc --noCheck\"/' package.json",
        ),
        (
            "what is checked",
            "echo 'export {};' > src/one.ts; sed -i 's/\"include\": .\"src\"./\"files\": [\"src\\/one.ts\"]/' tsconfig.json",
        ),
        (
            "a check that is off",
            "sed -i 's/\"include\"/\"compilerOptions\": {\"noCheck\": true}, \"include\"/' tsconfig.json",
        ),
        (
            "what the settings extend",
            "sed -i 's/\"strict\"/\"noCheck\": true, \"strict\"/' tsconfig.base.json",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
        (
            "a module",
            "echo 'export const two: number = 2;' > src/two.ts",
        ),
        (
            "types of a module",
            "echo 'declare module \"left\";' > src/left.d.ts",
        ),
    ],
};

pub(crate) const PNPM: GuardedProject = GuardedProject {
    kind: "pnpm",
    guard: &["pnpm", "test"],
    tool: GateTool::Manager("pnpm"),
    files: &[
        ("package.json", "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node tools/run.js\"}}
"),
        ("tools/run.js", "require('../test/sums.test.js');
"),
        ("sums.js", "exports.sub = () => 0;
"),
        ("test/sums.test.js", "if (require('../sums').sub(3, 2) !== 1) process.exit(1);
"),
    ],
    fix: "echo 'exports.sub = (a, b) => a - b;' > sums.js",
    redefined: &[
        ("a shell for scripts", "printf 'scriptShell: /bin/true\\n' > pnpm-workspace.yaml"),
        ("the script", "sed -i 's/node tools.run.js/true/' package.json"),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("words about the package", "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json"),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
        ("a file of test data", "mkdir fixtures; echo '[1]' > fixtures/one.json"),
    ],
};

pub(crate) const YARN_CLASSIC: GuardedProject = GuardedProject {
    kind: "yarn, the first version",
    guard: &["yarn", "test"],
    tool: GateTool::Manager("yarn-classic"),
    files: &[
        ("package.json", "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node tools/run.js\"}}
"),
        ("tools/run.js", "require('../test/sums.test.js');
"),
        ("sums.js", "exports.sub = () => 0;
"),
        ("test/sums.test.js", "if (require('../sums').sub(3, 2) !== 1) process.exit(1);
"),
    ],
    fix: "echo 'exports.sub = (a, b) => a - b;' > sums.js",
    redefined: &[
        ("another yarn by .yarnrc", "echo 'process.exit(0)' > cheat.js; printf 'yarn-path \"./cheat.js\"\\n' > .yarnrc"),
        ("a shell for scripts", "printf 'script-shell \"/bin/true\"\\n' > .yarnrc"),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("words about the package", "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json"),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
    ],
};

pub(crate) const BUN: GuardedProject = GuardedProject {
    kind: "bun",
    guard: &["bun", "test"],
    tool: GateTool::Manager("bun"),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\"}
",
        ),
        (
            "src/sums.js",
            "exports.sub = () => 0;
",
        ),
        (
            "src/sums.test.js",
            "import { expect, test } from 'bun:test';
import { sub } from './sums.js';

test('subs', () => expect(sub(3, 2)).toBe(1));
",
        ),
    ],
    fix: "sed -i 's/sub = () => 0/sub = (a, b) => a - b/' src/sums.js",
    redefined: &[(
        "code that runs before the tests",
        "echo 'process.exit(0)' > cheat.js; printf '[test]\\npreload = [\"./cheat.js\"]\\n' > bunfig.toml",
    )],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
    ],
};
