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
            "include rules/test.mk\n-include local.mk ./own/local.mk\n-include $(wildcard rules/more/*.mk)\nOBJS := src/a.o\n-include $(OBJS:.o=.d)\nMORE ?= true\n",
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
        (
            "what it may include by a variable",
            "mkdir src; printf 'SHELL = /bin/true\\n' > src/a.d",
        ),
        (
            "a file from which make makes what it includes",
            "printf 'SHELL = /bin/true\\n' > local.mk.sh",
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
        ("a source file", "mkdir src; printf 'int a;\\n' > src/a.c"),
        ("a script beside it", "printf 'echo hi\\n' > local.sh"),
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

pub(crate) const PROGRAMS: GuardedProject = GuardedProject {
    kind: "programs of the project",
    guard: &["bash", "bin/ci"],
    tool: GateTool::System(&["bash"]),
    files: &[
        (
            "bin/ci",
            "export PATH=\"$PWD/tools:$PATH\"\ngrep -q right product\n",
        ),
        ("tools/keep", ""),
        ("product", "wrong\n"),
    ],
    fix: FIX,
    redefined: &[
        ("the program", "echo true > bin/ci"),
        (
            "a program with the name of one that it calls",
            "printf '#!/bin/sh\\n' > tools/grep; chmod +x tools/grep",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("a program beside it", "echo true > bin/other"),
        ("a script elsewhere", "mkdir lib; echo true > lib/grep"),
    ],
};

pub(crate) const LOOPS: GuardedProject = GuardedProject {
    kind: "programs of the project",
    guard: &["sh", "ci.sh"],
    tool: GateTool::System(&["awk"]),
    files: &[
        (
            "ci.sh",
            "for f in checks/*.sh; do sh \"$f\" || exit 1; done\nfor f in data/*; do test -s \"$f\" || exit 1; done\n",
        ),
        ("checks/one.sh", "awk -f right.awk product\n"),
        ("right.awk", "/right/ { ok = 1 }\nEND { exit !ok }\n"),
        ("data/one", "1\n"),
        ("product", "wrong\n"),
    ],
    fix: FIX,
    redefined: &[
        ("what a loop runs", "echo true > checks/one.sh"),
        ("settings of a tool", "echo 'BEGIN { exit 0 }' > right.awk"),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "what a loop looks at",
            "echo 2 > data/one; echo 3 > data/two",
        ),
        (
            "rules of another kind",
            "echo 'BEGIN { print }' > print.awk",
        ),
    ],
};

pub(crate) const MODULES: GuardedProject = GuardedProject {
    kind: "programs of the project",
    guard: &["python3", "-m", "gate.run"],
    tool: GateTool::System(&["python3"]),
    files: &[
        (".gitignore", "__pycache__/\n"),
        (
            "gate/run.py",
            "import json\nimport sys\nimport app\nfrom gate import rules\nsys.exit(not rules.is_right(app.TEXT))\n",
        ),
        (
            "gate/rules.py",
            "def is_right(text):\n    return 'right' in text\n",
        ),
        ("app.py", "TEXT = open('product').read()\n"),
        ("product", "wrong\n"),
    ],
    fix: FIX,
    redefined: &[
        ("the module", "echo > gate/run.py"),
        (
            "what it imports",
            "printf 'def is_right(text):\\n    return True\\n' > gate/rules.py",
        ),
        (
            "its package",
            "printf 'import os\\nos._exit(0)\\n' > gate/__init__.py",
        ),
        (
            "a package that is found first",
            "mkdir gate/rules; printf 'def is_right(text):\\n    return True\\n' > gate/rules/__init__.py",
        ),
        (
            "a link to a package that is found first",
            "mkdir lib; printf 'def is_right(text):\\n    return True\\n' > lib/__init__.py; ln -s ../lib gate/rules",
        ),
        (
            "a module of Python's own",
            "printf 'import os\\nos._exit(0)\\n' > json.py",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "a module of the product",
            "printf 'from words import TEXT\\n' > app.py; printf \"TEXT = open('product').read()\\n\" > words.py",
        ),
        (
            "a package of the product",
            "rm app.py; mkdir app; printf \"TEXT = open('product').read()\\n\" > app/__init__.py",
        ),
        ("another check", "echo 'X = 1' > gate/more.py"),
        (
            "a package elsewhere",
            "mkdir -p lib/rules; echo > lib/rules/__init__.py",
        ),
        (
            "a module with a name like it",
            "mkdir lib; echo > lib/json.py",
        ),
        ("a file of data", "echo '{}' > gate.json"),
    ],
};
