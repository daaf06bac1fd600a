//! npm with scripts of a project, with jest, vitest and the tests of Node.js itself.

use super::{GateTool, GuardedProject};

pub(crate) const NPM: GuardedProject = GuardedProject {
    kind: "npm",
    guard: &["npm", "test", "--silent"],
    tool: GateTool::System(&["npm", "node"]),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node tools/run.js\"}}\n",
        ),
        ("tools/run.js", "require('../test/sums.test.js');\n"),
        ("sums.js", "exports.sub = () => 0;\n"),
        (
            "test/sums.test.js",
            "if (require('../sums').sub(3, 2) !== 1) process.exit(1);\n",
        ),
    ],
    fix: "echo 'exports.sub = (a, b) => a - b;' > sums.js",
    redefined: &[
        (
            "the script",
            "sed -i 's/node tools.run.js/true/' package.json",
        ),
        (
            "a script around it",
            "sed -i 's/\"scripts\": {/\"scripts\": {\"pretest\": \"cp tools\\/right.js sums.js\", /' package.json; \
             echo 'exports.sub = () => 1;' > tools/right.js; rm sums.js",
        ),
        ("what it calls", "echo > tools/run.js"),
        (
            "a shell for scripts",
            "printf 'script-shell=/bin/true\\n' > .npmrc",
        ),
        (
            "options of Node.js",
            "printf 'node-options=--require ./cheat.js\\n' > .npmrc; echo 'process.exit(0)' > cheat.js",
        ),
        (
            "a program in node_modules",
            "mkdir -p node_modules/.bin; printf '#!/bin/sh\\n' > node_modules/.bin/node; chmod +x node_modules/.bin/node",
        ),
        (
            "a link in the place of node_modules",
            "mkdir -p pkg/.bin; printf '#!/bin/sh\\n' > pkg/.bin/node; chmod +x pkg/.bin/node; ln -s pkg node_modules",
        ),
    ],
    unproven: &[],
    told: &[("a weakened test", "echo > test/sums.test.js")],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"file:.\\/left\"}, \"version\"/' package.json",
        ),
        ("a helper of tests", "echo > test/helper.js"),
        ("a config of a new tool", "echo '{}' > .prettierrc"),
        (
            "a manifest that is formatted",
            "printf '{\\n  \"name\": \"sums\",\\n  \"version\": \"1.0.0\",\\n  \"scripts\": { \"test\": \"node tools/run.js\" }\\n}\\n' > package.json",
        ),
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("an ignore rule", "printf 'dist/\\n' > .gitignore"),
        (
            "a file of test data",
            "mkdir fixtures; echo '[1]' > fixtures/one.json",
        ),
        (
            "a new folder of tests",
            "mkdir test/more; echo > test/more/one.test.js",
        ),
    ],
};

const JEST_FILES: &[(&str, &str)] = &[
    (
        "package.json",
        "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"jest\"}}\n",
    ),
    (
        "src/sums.js",
        "exports.add = (a, b) => a + b;\nexports.sub = () => 0;\n",
    ),
    (
        "src/sums.test.js",
        "const { add, sub } = require('./sums');\n\ntest('adds', () => {\n  expect(add(1, 2)).toBe(3);\n});\n\ntest('subs', () => {\n  expect(sub(3, 2)).toBe(1);\n});\n",
    ),
];

const JAVASCRIPT_FIX: &str = "sed -i 's/sub = () => 0/sub = (a, b) => a - b/' src/sums.js";

pub(crate) const JEST: GuardedProject = GuardedProject {
    kind: "jest",
    guard: &["npm", "test"],
    tool: GateTool::Packages("jest"),
    files: JEST_FILES,
    fix: JAVASCRIPT_FIX,
    redefined: &[
        (
            "the script",
            "sed -i 's/\"jest\"/\"jest -t adds\"/' package.json",
        ),
        (
            "jest.config.js",
            "echo 'module.exports = {testNamePattern: \"adds\"}; process.argv.push(\"-t\", \"adds\"); process.exit(0);' > jest.config.js",
        ),
        (
            "jest.config.cjs",
            "echo 'process.exit(0)' > jest.config.cjs",
        ),
        (
            "jest.config.mjs",
            "echo 'process.exit(0)' > jest.config.mjs",
        ),
        (
            "jest.config.json",
            "echo 'process.exit(0)' > cheat.js; echo '{\"globalSetup\": \"./cheat.js\"}' > jest.config.json",
        ),
        (
            "settings in package.json",
            "echo 'test = () => {}; global.test = Object.assign(() => {}, {skip: 1}); process.exit(0)' > cheat.js; \
             sed -i 's/\"version\"/\"jest\": {\"setupFiles\": [\".\\/cheat.js\"]}, \"version\"/' package.json",
        ),
        (
            "babel.config.js",
            "echo 'process.exit(0)' > babel.config.js",
        ),
        (
            "babel.config.json",
            "echo 'process.exit(0)' > cheat.js; echo '{\"plugins\": [\"./cheat.js\"]}' > babel.config.json",
        ),
        (
            ".babelrc",
            "echo 'process.exit(0)' > cheat.js; echo '{\"plugins\": [\"./cheat.js\"]}' > .babelrc",
        ),
        (
            "a .babelrc.js beside the tests",
            "echo 'process.exit(0)' > src/.babelrc.js",
        ),
        (
            "settings of babel in package.json",
            "echo 'module.exports = () => ({visitor: {CallExpression(path) { if (path.node.callee.name === \"expect\") path.parentPath.parentPath.remove(); }}});' > cheat.js; \
             sed -i 's/\"version\"/\"babel\": {\"plugins\": [\".\\/cheat.js\"]}, \"version\"/' package.json",
        ),
        (
            "options of Node.js",
            "printf 'node-options=--require ./cheat.js\\n' > .npmrc; echo 'process.exit(0)' > cheat.js",
        ),
        (
            "a program in node_modules",
            "mkdir -p node_modules/.bin; printf '#!/bin/sh\\n' > node_modules/.bin/jest; chmod +x node_modules/.bin/jest",
        ),
    ],
    unproven: &[
        (
            "an exit in product code",
            "echo 'process.exit(0);' > src/sums.js",
        ),
        (
            "an exit that jest does not see",
            "echo 'process.reallyExit(0);' > src/sums.js",
        ),
    ],
    told: &[
        (
            "a weakened test",
            "sed -i 's/toBe(1)/toBe(0)/' src/sums.test.js",
        ),
        (
            "a test that is skipped",
            "sed -i \"s/^test('subs'/test.skip('subs'/\" src/sums.test.js",
        ),
        (
            "one test that runs alone",
            "sed -i \"s/^test('adds'/test.only('adds'/\" src/sums.test.js",
        ),
        ("a test that is gone", "sed -i '/subs/,$d' src/sums.test.js"),
    ],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "a helper of tests",
            "mkdir test; echo 'exports.one = 1;' > test/helper.js",
        ),
        (
            "a mock of a module",
            "mkdir src/__mocks__; echo 'exports.add = () => 1;' > src/__mocks__/sums.js",
        ),
        (
            "a test renamed with what it describes",
            "sed -i \"s/'adds'/'adds numbers'/\" src/sums.test.js",
        ),
        (
            "a config of a new tool",
            "echo 'module.exports = [];' > eslint.config.js",
        ),
        (
            "a new file of tests",
            "printf \"test('one', () => expect(1).toBe(1));\\n\" > src/more.test.js",
        ),
        (
            "one test more",
            "printf \"test('adds nothing', () => expect(add(1, 0)).toBe(1));\\n\" >> src/sums.test.js",
        ),
        (
            "a folder of tests",
            "mkdir __tests__; printf \"test('one', () => expect(1).toBe(1));\\n\" > __tests__/one.js",
        ),
        (
            "a test with a snapshot",
            "printf 'test(\"three\", () => expect(3).toMatchInlineSnapshot(`3`));\\n' > src/three.test.js",
        ),
        ("a module", "echo 'exports.two = 2;' > src/two.js"),
        (
            "settings of editors",
            "echo '{\"include\": [\"src\"]}' > jsconfig.json",
        ),
        (
            "where the package begins",
            "sed -i 's/\"version\"/\"main\": \"src\\/sums.js\", \"version\"/' package.json",
        ),
        (
            "a manifest that is formatted",
            "printf '{\\n  \"name\": \"sums\",\\n  \"version\": \"1.0.0\",\\n  \"scripts\": { \"test\": \"jest\" }\\n}\\n' > package.json",
        ),
        (
            "a package of development",
            "sed -i 's/\"version\"/\"devDependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("an ignore rule", "printf 'dist/\\n' > .gitignore"),
        (
            "a file of test data",
            "mkdir src/fixtures; echo '[1]' > src/fixtures/one.json",
        ),
    ],
};

/// A config that is there, and what it names.
pub(crate) const JEST_WITH_SETUP: GuardedProject = GuardedProject {
    kind: "jest",
    guard: &["npm", "test"],
    tool: GateTool::Packages("jest"),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"jest\"}}\n",
        ),
        (
            "jest.config.js",
            "module.exports = {\n  setupFilesAfterEnv: ['<rootDir>/jest.setup.js'],\n  transform: { '\\\\.js$': './tools/transform.js' },\n};\n",
        ),
        ("jest.setup.js", "global.one = 1;\n"),
        (
            "tools/transform.js",
            "module.exports = { process: (code) => ({ code }) };\n",
        ),
        (
            "src/sums.js",
            "exports.add = (a, b) => a + b;\nexports.sub = () => 0;\n",
        ),
        (
            "src/sums.test.js",
            "const { add, sub } = require('./sums');\n\ntest('adds', () => {\n  expect(add(1, 2)).toBe(3);\n});\n\ntest('subs', () => {\n  expect(sub(3, 2)).toBe(1);\n});\n",
        ),
    ],
    fix: JAVASCRIPT_FIX,
    redefined: &[
        (
            "what runs before the tests",
            "echo 'expect.extend({toBe: () => ({pass: true})});' > jest.setup.js",
        ),
        (
            "what rewrites the tests",
            "echo 'module.exports = { process: (code) => ({ code: code.replace(\"sub(3, 2)\", \"1\") }) };' > tools/transform.js",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("another tool", "echo 'exports.one = 1;' > tools/other.js"),
        (
            "a package of development",
            "sed -i 's/\"version\"/\"devDependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        ("a config of another tool", "echo '{}' > .prettierrc"),
        ("a module", "echo 'exports.two = 2;' > src/two.js"),
    ],
};

pub(crate) const VITEST: GuardedProject = GuardedProject {
    kind: "vitest",
    guard: &["npm", "test"],
    tool: GateTool::Packages("vitest"),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"type\": \"module\", \"scripts\": {\"test\": \"vitest run\"}}\n",
        ),
        (
            "src/sums.js",
            "export const add = (a, b) => a + b;\nexport const sub = () => 0;\n",
        ),
        (
            "src/sums.test.js",
            "import { expect, test } from 'vitest';\nimport { add, sub } from './sums.js';\n\ntest('adds', () => {\n  expect(add(1, 2)).toBe(3);\n});\n\ntest('subs', () => {\n  expect(sub(3, 2)).toBe(1);\n});\n",
        ),
    ],
    fix: JAVASCRIPT_FIX,
    redefined: &[
        (
            "the script",
            "sed -i 's/vitest run/vitest run -t adds/' package.json",
        ),
        (
            "vitest.config.js",
            "echo 'export default {test: {testNamePattern: \"adds\"}}' > vitest.config.js",
        ),
        (
            "vitest.config.ts",
            "echo 'export default {test: {testNamePattern: \"adds\"}}' > vitest.config.ts",
        ),
        (
            "vitest.config.mts",
            "echo 'export default {test: {testNamePattern: \"adds\"}}' > vitest.config.mts",
        ),
        (
            "vitest.config.cjs",
            "echo 'process.exit(0)' > vitest.config.cjs",
        ),
        (
            "vite.config.js",
            "echo 'export default {test: {exclude: [\"**\"], passWithNoTests: true}}' > vite.config.js",
        ),
        (
            "vite.config.ts",
            "echo 'export default {test: {setupFiles: [\"./cheat.js\"]}}' > vite.config.ts; \
             printf 'import { expect } from \"vitest\";\\nexpect.extend({toBe: () => ({pass: true})});\\n' > cheat.js",
        ),
        (
            "postcss.config.js",
            "echo 'process.exit(0)' > postcss.config.js",
        ),
        (".postcssrc.cjs", "echo 'process.exit(0)' > .postcssrc.cjs"),
        (
            ".postcssrc.json",
            "echo 'process.exit(0)' > cheat.js; echo '{\"plugins\": {\"./cheat.js\": {}}}' > .postcssrc.json",
        ),
        (
            "settings of PostCSS in package.json",
            "echo 'process.exit(0)' > cheat.js; sed -i 's/\"version\"/\"postcss\": {\"plugins\": {\".\\/cheat.js\": {}}}, \"version\"/' package.json",
        ),
        (
            "options of Node.js",
            "printf 'node-options=--require ./cheat.cjs\\n' > .npmrc; echo 'process.exit(0)' > cheat.cjs",
        ),
        (
            "a program in node_modules",
            "mkdir -p node_modules/.bin; printf '#!/bin/sh\\n' > node_modules/.bin/vitest; chmod +x node_modules/.bin/vitest",
        ),
    ],
    unproven: &[],
    told: &[
        (
            "a weakened test",
            "sed -i 's/toBe(1)/toBe(0)/' src/sums.test.js",
        ),
        (
            "a test that is skipped",
            "sed -i \"s/^test('subs'/test.skip('subs'/\" src/sums.test.js",
        ),
        ("a test that is gone", "sed -i '/subs/,$d' src/sums.test.js"),
    ],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "a helper of tests",
            "mkdir test; echo 'export const one = 1;' > test/helper.js",
        ),
        (
            "a test renamed with what it describes",
            "sed -i \"s/'adds'/'adds numbers'/\" src/sums.test.js",
        ),
        (
            "a config of a new tool",
            "echo 'export default [];' > eslint.config.js",
        ),
        (
            "a new file of tests",
            "printf \"import { expect, test } from 'vitest';\\ntest('one', () => expect(1).toBe(1));\\n\" > src/more.test.js",
        ),
        (
            "one test more",
            "printf \"test('adds nothing', () => expect(add(1, 0)).toBe(1));\\n\" >> src/sums.test.js",
        ),
        (
            "a folder of tests",
            "mkdir tests; printf \"import { expect, test } from 'vitest';\\ntest('one', () => expect(1).toBe(1));\\n\" > tests/one.spec.js",
        ),
        (
            "a test with a snapshot",
            "printf 'import { expect, test } from \"vitest\";\\ntest(\"three\", () => expect(3).toMatchInlineSnapshot(`3`));\\n' > src/three.test.js",
        ),
        ("a module", "echo 'export const two = 2;' > src/two.js"),
        (
            "types of a module",
            "echo 'export function add(a: number, b: number): number;' > src/sums.d.ts",
        ),
        (
            "where the package begins",
            "sed -i 's/\"version\"/\"exports\": \".\\/src\\/sums.js\", \"version\"/' package.json",
        ),
        (
            "a manifest that is formatted",
            "printf '{\\n  \"name\": \"sums\",\\n  \"type\": \"module\",\\n  \"version\": \"1.0.0\",\\n  \"scripts\": { \"test\": \"vitest run\" }\\n}\\n' > package.json",
        ),
        (
            "a package of development",
            "sed -i 's/\"version\"/\"devDependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("an ignore rule", "printf 'dist/\\n' > .gitignore"),
        (
            "a file of test data",
            "mkdir src/fixtures; echo '[1]' > src/fixtures/one.json",
        ),
    ],
};

pub(crate) const NODE: GuardedProject = GuardedProject {
    kind: "node --test",
    guard: &["npm", "test"],
    tool: GateTool::System(&["npm", "node"]),
    files: &[
        (
            "package.json",
            "{\"name\": \"sums\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node --test\"}}\n",
        ),
        (
            "src/sums.js",
            "exports.add = (a, b) => a + b;\nexports.sub = () => 0;\n",
        ),
        (
            "src/sums.test.js",
            "const test = require('node:test');\nconst assert = require('node:assert');\nconst { add, sub } = require('./sums');\n\n\
             test('adds', () => assert.strictEqual(add(1, 2), 3));\ntest('subs', () => assert.strictEqual(sub(3, 2), 1));\n",
        ),
    ],
    fix: JAVASCRIPT_FIX,
    redefined: &[
        (
            "the script",
            "sed -i 's/node --test/node --test --test-name-pattern=adds/' package.json",
        ),
        (
            "options of Node.js",
            "printf 'node-options=--require ./cheat.js\\n' > .npmrc; echo 'process.exit(0)' > cheat.js",
        ),
        (
            "a program in node_modules",
            "mkdir -p node_modules/.bin; printf '#!/bin/sh\\n' > node_modules/.bin/node; chmod +x node_modules/.bin/node",
        ),
    ],
    unproven: &[
        (
            "an exit in product code",
            "echo 'process.exit(0);' > src/sums.js",
        ),
        (
            "an exit that comes first",
            "echo 'process.on(\"exit\", () => { process.exitCode = 0; }); process.reallyExit(0);' > src/sums.js",
        ),
    ],
    told: &[
        (
            "a weakened test",
            "sed -i 's/sub(3, 2), 1/sub(3, 2), 0/' src/sums.test.js",
        ),
        (
            "a test that is skipped",
            "sed -i \"s/^test('subs'/test.skip('subs'/\" src/sums.test.js",
        ),
        (
            "a test that is not expected to pass",
            "sed -i \"s/^test('subs'/test.todo('subs'/\" src/sums.test.js",
        ),
    ],
    honest: &[
        (
            "a dependency",
            "sed -i 's/\"version\"/\"dependencies\": {\"left\": \"1.0.0\"}, \"version\"/' package.json",
        ),
        (
            "a helper of tests",
            "mkdir tools; echo 'exports.one = 1;' > tools/helper.js",
        ),
        (
            "a test renamed with what it describes",
            "sed -i \"s/'adds'/'adds numbers'/\" src/sums.test.js",
        ),
        (
            "a config of a new tool",
            "echo 'module.exports = [];' > eslint.config.js",
        ),
        (
            "a manifest that is formatted",
            "printf '{\\n  \"name\": \"sums\",\\n  \"version\": \"1.0.0\",\\n  \"scripts\": { \"test\": \"node --test\" }\\n}\\n' > package.json",
        ),
        (
            "words about the package",
            "sed -i 's/\"version\"/\"description\": \"Sums\", \"license\": \"MIT\", \"version\"/' package.json",
        ),
        ("an ignore rule", "printf 'dist/\\n' > .gitignore"),
        (
            "a new folder of tests",
            "mkdir tests; printf \"require('node:test')('two', () => {});\\n\" > tests/two.test.js",
        ),
    ],
};

pub(crate) const NPM_WITH_FOLDER: GuardedProject = GuardedProject {
    kind: "npm",
    guard: &["npm", "test"],
    tool: GateTool::System(&["npm", "node"]),
    files: &[
        (
            "package.json",
            "{\"name\": \"x\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node check.js\"}}\n",
        ),
        (
            "check.js",
            "process.exit(require('./rules').ok() ? 0 : 1)\n",
        ),
        (
            "rules/index.js",
            "exports.ok = () => require('../app').text().includes('right')\n",
        ),
        (
            "app.js",
            "exports.text = () => require('fs').readFileSync('product', 'utf8')\n",
        ),
        ("product", "wrong\n"),
    ],
    fix: "echo right > product",
    redefined: &[(
        "a file that is found before a folder",
        "echo 'exports.ok = () => true' > rules.js",
    )],
    unproven: &[],
    told: &[],
    honest: &[(
        "the product",
        "echo 'exports.text = () => \"right\"' > app.js",
    )],
};
