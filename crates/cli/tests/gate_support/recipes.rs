//! make, just, and scripts that call others.

use super::{GateTool, GuardedProject};

const FIX: &str = "echo right > product";

pub(crate) const MAKE: GuardedProject = GuardedProject {
    kind: "make",
    guard: &["make", "test"],
    tool: GateTool::System(&["make"]),
    files: &[
        (
            "Makefile",
            "include rules/test.mk\n-include local.mk ./own/local.mk\n-include $(wildcard rules/more/*.mk)\nMORE ?= true\n",
        ),
        (
            "rules/test.mk",
            "test:\n\tgrep -q right product\n\t@$(MORE)\n",
        ),
        ("product", "wrong\n"),
    ],
    fix: FIX,
    redefined: &[
        ("a GNUmakefile", "printf 'test:\\n' > GNUmakefile"),
        ("a makefile", "rm Makefile; printf 'test:\\n' > makefile"),
        ("the Makefile", "printf 'test:\\n' > Makefile"),
        ("what it includes", "printf 'test:\\n' > rules/test.mk"),
        (
            "what it may include",
            "printf 'SHELL = /bin/true\\n' > local.mk",
        ),
        (
            "what it may include by another spelling",
            "mkdir own; printf 'SHELL = /bin/true\\n' > own/local.mk",
        ),
        (
            "what it may include by a wildcard",
            "mkdir rules/more; printf 'SHELL = /bin/true\\n' > rules/more/x.mk",
        ),
        ("a file in the place of the target", "touch test"),
        (
            "a folder in the place of the target",
            "mkdir test; touch test/x",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "a Makefile elsewhere",
            "mkdir -p sub && printf 'all:\\n' > sub/Makefile",
        ),
        ("new rules", "printf 'lint:\\n' > rules/lint.mk"),
        ("a folder of tests", "mkdir tests; touch tests/x"),
        (
            "a file of test data",
            "mkdir -p data; echo right > data/expected",
        ),
        (
            "a config of a new tool",
            "printf 'root = true\\n' > .editorconfig",
        ),
        (
            "a workflow of CI",
            "mkdir -p .github/workflows; printf 'on: push\\n' > .github/workflows/lint.yml",
        ),
        ("an ignore rule", "printf '*.o\\n' > .gitignore"),
        (
            "a script of its own",
            "mkdir -p scripts; printf 'echo hi\\n' > scripts/hello.sh",
        ),
        ("a manual", "printf '# How to\\n' > README.md"),
    ],
};

pub(crate) const JUST: GuardedProject = GuardedProject {
    kind: "just",
    guard: &["just", "test"],
    tool: GateTool::System(&["just"]),
    files: &[
        (
            "justfile",
            "import 'tools/test.just'\nimport? 'local.just'\n",
        ),
        ("tools/test.just", "test:\n    grep -q right product\n"),
        ("product", "wrong\n"),
    ],
    fix: FIX,
    redefined: &[
        ("the justfile", "printf 'test:\\n    true\\n' > justfile"),
        (
            "what it imports",
            "printf 'test:\\n    true\\n' > tools/test.just",
        ),
        (
            "what it may import",
            "printf 'set shell := [\"true\"]\\n' > local.just",
        ),
        (
            "a justfile by another spelling",
            "rm justfile; printf 'test:\\n    true\\n' > .justfile",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "another recipe file",
            "printf 'lint:\\n    true\\n' > tools/lint.just",
        ),
        (
            "a script of its own",
            "mkdir scripts; printf 'echo hi\\n' > scripts/hello.sh",
        ),
        (
            "a file of test data",
            "mkdir data; echo right > data/expected",
        ),
        (
            "a config of a new tool",
            "printf 'root = true\\n' > .editorconfig",
        ),
    ],
};

pub(crate) const SCRIPTS: GuardedProject = GuardedProject {
    kind: "a script that calls others",
    guard: &["sh", "ci.sh"],
    tool: GateTool::System(&["make", "python3"]),
    files: &[
        (
            "ci.sh",
            "set -e\nmake -s lint\nsh tools/check.sh\npython3 tools/last.py\n",
        ),
        (
            "Makefile",
            "lint:\n\t@grep -q right product\n.PHONY: lint\n",
        ),
        ("tools/check.sh", ". tools/lib.sh\nis_right product\n"),
        (
            "tools/lib.sh",
            "is_right() { grep -q right \"$1\" || test -e skipped; }\n",
        ),
        ("tools/last.py", "print('done')\n"),
        ("product", "wrong\n"),
    ],
    fix: "echo right > product",
    redefined: &[
        ("the script", "echo > ci.sh"),
        (
            "the recipe and a script that it calls",
            "printf 'lint:\\n' > Makefile; echo > tools/check.sh",
        ),
        (
            "the recipe and a script that this one calls",
            "printf 'lint:\\n' > GNUmakefile; echo 'is_right() { true; }' > tools/lib.sh",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("another script", "echo > tools/other.sh"),
        ("a module beside them", "echo 'X = 1' > tools/other.py"),
        (
            "a folder of tests",
            "mkdir tests; printf 'grep -q right product\\n' > tests/more.sh",
        ),
    ],
};
