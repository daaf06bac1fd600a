//! The tools that guards run tests with, each with every file that says how it does so.

use runner_core::paths::PYTHON_MODULES;

use super::detect::MAKEFILES;

pub(super) const JUSTFILES: &[&str] =
    &["justfile", "Justfile", "JUSTFILE", ".justfile", ".Justfile"];

/// What package managers of Node.js install.
pub(super) const PACKAGES: &str = "**/node_modules/**";

/// A tool that a guard runs tests with, and what says how.
pub(super) struct GuardTool {
    /// Words that give it away.
    pub(super) words: &'static [&'static str],
    /// Globs of files.
    pub(super) protected: &'static [&'static str],
    /// Values inside files.
    pub(super) values: &'static [&'static str],
}

pub(super) const TOOLS: &[GuardTool] = &[
    GuardTool {
        words: &["cargo", "nextest"],
        protected: &[
            ".cargo/config",
            ".cargo/config.toml",
            "rust-toolchain",
            "rust-toolchain.toml",
            ".config/nextest.toml",
        ],
        // Members of a workspace have manifests of their own, and each says what a test is.
        values: &[
            "**/Cargo.toml:/profile",
            "**/Cargo.toml:/lib/test",
            "**/Cargo.toml:/lib/doctest",
            "**/Cargo.toml:/lib/harness",
            "**/Cargo.toml:/lib/path",
            "**/Cargo.toml:/bin/*/test",
            "**/Cargo.toml:/bin/*/harness",
            "**/Cargo.toml:/test",
            "**/Cargo.toml:/package/autotests",
            "**/Cargo.toml:/package/build",
            "**/Cargo.toml:/workspace/members",
            "**/Cargo.toml:/workspace/default-members",
            "**/Cargo.toml:/workspace/exclude",
            "**/Cargo.toml:/patch",
            "**/Cargo.toml:/replace",
        ],
    },
    GuardTool {
        words: &["pytest", "py.test", "unittest", "tox", "nox"],
        protected: &[
            // The nearest one above the tests that a command names is taken.
            "**/pytest.ini",
            "**/.pytest.ini",
            "**/pytest.toml",
            "**/.pytest.toml",
            "tox.ini",
            "noxfile.py",
            "setup.cfg",
            "conftest.py",
            "sitecustomize.py",
            "usercustomize.py",
            // Pytest loads what packages on its path name there.
            "**/*.egg-info/entry_points.txt",
            "**/*.dist-info/entry_points.txt",
            PYTHON_MODULES,
        ],
        values: &[
            "pyproject.toml:/tool/pytest",
            "pyproject.toml:/tool/tox",
            "pyproject.toml:/project/entry-points/pytest11",
            "pyproject.toml:/tool/poetry/plugins/pytest11",
        ],
    },
    GuardTool {
        words: &["coverage", "--cov", "--cov-fail-under"],
        protected: &[".coveragerc", ".coveragerc.toml"],
        values: &["pyproject.toml:/tool/coverage"],
    },
    GuardTool {
        words: &["npm", "pnpm", "yarn", "bun", "npx"],
        protected: &[
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pnpmfile.cjs",
            "pnpm-workspace.yaml",
            "bunfig.toml",
            // Programs are looked up there first, and only setup fills it.
            PACKAGES,
        ],
        values: &[
            "**/package.json:/scripts",
            "package.json:/config",
            "package.json:/workspaces",
            "package.json:/overrides",
            "package.json:/resolutions",
            "package.json:/pnpm",
            "package.json:/packageManager",
        ],
    },
    GuardTool {
        words: &["jest"],
        protected: &[
            "**/jest.config.*",
            "babel.config.*",
            "**/.babelrc",
            "**/.babelrc.*",
        ],
        values: &["**/package.json:/jest", "**/package.json:/babel"],
    },
    GuardTool {
        words: &["vitest"],
        protected: &[
            "**/vitest.config.*",
            "**/vitest.workspace.*",
            "**/vite.config.*",
            // Vite loads it whether there are styles or not.
            "**/postcss.config.*",
            "**/.postcssrc",
            "**/.postcssrc.*",
        ],
        values: &["**/package.json:/postcss"],
    },
    GuardTool {
        words: &["mocha"],
        protected: &["**/.mocharc.*"],
        values: &["package.json:/mocha"],
    },
    GuardTool {
        words: &["ava"],
        protected: &["ava.config.*"],
        values: &["package.json:/ava"],
    },
    GuardTool {
        words: &["tsc", "ts-node", "tsx", "ts-jest", "vue-tsc"],
        protected: &["tsconfig.json", "tsconfig.*.json"],
        values: &[],
    },
    GuardTool {
        words: &["turbo"],
        protected: &["turbo.json"],
        values: &[],
    },
    GuardTool {
        words: &["nx"],
        protected: &["nx.json"],
        values: &[],
    },
    GuardTool {
        words: &["go"],
        protected: &["go.work", "vendor/**"],
        values: &["**/go.mod:/replace", "**/go.mod:/ignore"],
    },
    GuardTool {
        words: &["make", "gmake", "MAKE"],
        protected: &MAKEFILES,
        values: &[],
    },
    GuardTool {
        words: &["just"],
        protected: JUSTFILES,
        values: &[],
    },
    GuardTool {
        words: &["mvn", "mvnw"],
        protected: &["mvnw", ".mvn/**"],
        values: &[],
    },
    GuardTool {
        words: &["gradle", "gradlew"],
        protected: &["gradlew", "gradle/wrapper/**", "gradle.properties"],
        values: &[],
    },
    GuardTool {
        words: &["rspec", "rake", "rails", "bundle"],
        protected: &[".rspec", "Rakefile", ".bundle/config"],
        values: &[],
    },
    GuardTool {
        words: &["phpunit", "composer"],
        protected: &["phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml"],
        values: &["composer.json:/scripts"],
    },
];
