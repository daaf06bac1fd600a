//! pytest and unittest.

use super::{GateTool, GuardedProject};

const PYTEST_FILES: &[(&str, &str)] = &[
    (".gitignore", "__pycache__/\n.pytest_cache/\n"),
    (
        "sums.py",
        "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return 0\n",
    ),
    (
        "tests/test_sums.py",
        "import sums\n\n\ndef test_adds():\n    assert sums.add(1, 2) == 3\n\n\ndef test_subs():\n    assert sums.sub(3, 2) == 1\n",
    ),
    (
        "pyproject.toml",
        "[project]\nname = 'sums'\nversion = '1'\n",
    ),
];

const FIX: &str = "sed -i 's/return 0/return a - b/' sums.py";

pub(crate) const PYTEST: GuardedProject = GuardedProject {
    kind: "pytest",
    guard: &["python3", "-m", "pytest"],
    tool: GateTool::Environment("pytest"),
    files: PYTEST_FILES,
    fix: FIX,
    redefined: &[
        (
            "pytest.ini",
            "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini",
        ),
        (
            ".pytest.ini",
            "printf '[pytest]\\naddopts = --collect-only\\n' > .pytest.ini",
        ),
        (
            "pytest.toml",
            "printf '[pytest]\\naddopts = [\"-k adds\"]\\n' > pytest.toml",
        ),
        (
            ".pytest.toml",
            "printf '[pytest]\\naddopts = [\"-k adds\"]\\n' > .pytest.toml",
        ),
        (
            "tox.ini",
            "printf '[pytest]\\naddopts = --deselect tests/test_sums.py::test_subs\\n' > tox.ini",
        ),
        (
            "setup.cfg",
            "rm pyproject.toml; printf '[tool:pytest]\\naddopts = -k adds\\n' > setup.cfg",
        ),
        (
            "options in pyproject.toml",
            "printf '[tool.pytest.ini_options]\\naddopts = \"-k adds\"\\n' >> pyproject.toml",
        ),
        (
            "options in pyproject.toml by their new name",
            "printf '[tool.pytest]\\naddopts = [\"-k\", \"adds\"]\\n' >> pyproject.toml",
        ),
        (
            "a hook in conftest.py",
            "printf 'def pytest_sessionfinish(session):\\n    session.exitstatus = 0\\n' > conftest.py",
        ),
        (
            "a module in the place of pytest",
            "printf 'import os\\nos._exit(0)\\n' > pytest.py",
        ),
        (
            "a package in the place of pytest",
            "mkdir pytest; printf 'import os\\nos._exit(0)\\n' > pytest/__init__.py",
        ),
        (
            "a module that pytest needs",
            "printf 'import os\\nos._exit(0)\\n' > pluggy.py",
        ),
        (
            "a module of Python that pytest needs",
            "printf 'import os\\nos._exit(0)\\n' > argparse.py",
        ),
        (
            "a module that all modules of pytest begin with",
            "printf 'import os\\nos._exit(0)\\n' > __future__.py",
        ),
        (
            "a package that colours what pytest prints",
            "mkdir pygments; printf 'import os\\nos._exit(0)\\n' > pygments/__init__.py",
        ),
        (
            "a link in the place of a package",
            "mkdir pkg; printf 'import os\\nos._exit(0)\\n' > pkg/__init__.py; ln -s pkg pygments",
        ),
        (
            "an entry point of a package that looks installed",
            "mkdir sums.egg-info; printf '[pytest11]\\nx = cheat\\n' > sums.egg-info/entry_points.txt; \
             printf 'Metadata-Version: 2.1\\nName: sums\\nVersion: 1\\n' > sums.egg-info/PKG-INFO; \
             printf 'import os\\nos._exit(0)\\n' > cheat.py",
        ),
    ],
    unproven: &[
        (
            "an exit in product code",
            "printf 'import os\\nos._exit(0)\\n' > sums.py",
        ),
        (
            "an exit when Python ends",
            "printf 'import atexit, os\\natexit.register(os._exit, 0)\\ndef add(a, b):\\n    os._exit(0)\\n' > sums.py",
        ),
    ],
    told: &[
        (
            "a weakened test",
            "sed -i 's/sums.sub(3, 2) == 1/sums.sub(3, 2) == 0/' tests/test_sums.py",
        ),
        (
            "a test that is skipped",
            "sed -i 's/^def test_subs/import pytest\\n\\n\\n@pytest.mark.skip\\ndef test_subs/' tests/test_sums.py",
        ),
        (
            "product code that skips its test",
            "printf 'import pytest\\ndef add(a, b):\\n    return a + b\\ndef sub(a, b):\\n    pytest.skip()\\n' > sums.py",
        ),
        (
            "a test that is gone",
            "sed -i '/^def test_subs/,$d' tests/test_sums.py",
        ),
        (
            "hooks in a conftest.py of the tests",
            "printf 'def pytest_collection_modifyitems(items):\\n    items[:] = items[:1]\\n' > tests/conftest.py",
        ),
        (
            "a module beside the tests in the place of the product",
            "printf 'def add(a, b):\\n    return 3\\ndef sub(a, b):\\n    return 1\\n' > tests/sums.py; rm tests/test_sums.py; \
             printf 'import sums\\ndef test_adds():\\n    assert sums.add(1, 2) == 3\\n' > tests/test_sum.py",
        ),
    ],
    honest: &[
        (
            "a dependency",
            "sed -i \"s/^version.*/version = '1'\\ndependencies = ['left']/\" pyproject.toml",
        ),
        ("a helper of tests", "printf 'ONE = 1\\n' > tests/helper.py"),
        (
            "a fixture of the tests",
            "printf 'import pytest\\n@pytest.fixture\\ndef one():\\n    return 1\\n' > tests/conftest.py",
        ),
        (
            "a config of a new tool",
            "printf '[tool.ruff]\\nline-length = 100\\n' >> pyproject.toml",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/test_adds/test_adds_numbers/' tests/test_sums.py",
        ),
        (
            "a folder of pages",
            "mkdir html; echo '<p>' > html/index.html",
        ),
        ("a module", "printf 'X = 1\\n' > more.py"),
        (
            "a new file of tests",
            "printf 'def test_more():\\n    assert True\\n' > tests/test_more.py",
        ),
        (
            "one test more",
            "printf '\\n\\ndef test_adds_nothing():\\n    assert sums.add(1, 0) == 1\\n' >> tests/test_sums.py",
        ),
        (
            "a test that goes through a table",
            "sed -i 's/^import sums/import pytest\\n\\nimport sums/; s/^def test_adds():/@pytest.mark.parametrize(\"one\", [1, 1])\\ndef test_adds(one):/; s/add(1, 2)/add(one, 2)/' tests/test_sums.py",
        ),
        (
            "a package",
            "mkdir shapes; printf 'SIDES = 4\\n' > shapes/__init__.py",
        ),
        (
            "a file of test data",
            "mkdir tests/data; echo '[1]' > tests/data/one.json",
        ),
        (
            "packages of development",
            "printf '[dependency-groups]\\ndev = [\"left\"]\\n' >> pyproject.toml",
        ),
        (
            "packages that somebody may want",
            "printf '[project.optional-dependencies]\\nfast = [\"left\"]\\n' >> pyproject.toml",
        ),
        (
            "a program",
            "printf '[project.scripts]\\nsums = \"sums:add\"\\n' >> pyproject.toml",
        ),
        (
            "entry points of its own",
            "printf '[project.entry-points.\"sums.plugins\"]\\nadd = \"sums:add\"\\n' >> pyproject.toml",
        ),
        (
            "a description",
            "sed -i \"s/^version.*/version = '1'\\ndescription = 'Sums'/\" pyproject.toml",
        ),
        (
            "settings of a checker of types",
            "printf '[tool.mypy]\\nstrict = true\\n' >> pyproject.toml",
        ),
        (
            "a manifest that is formatted",
            "printf '[project]\\nversion = \"1\"\\nname = \"sums\"\\n' > pyproject.toml",
        ),
        ("an ignore rule", "printf 'dist/\\n' >> .gitignore"),
        ("a manual", "printf '# Sums\\n' > README.md"),
        (
            "a list of packages",
            "printf 'left==1.0\\n' > requirements-dev.txt",
        ),
        (
            "types of a module",
            "printf 'def add(a: int, b: int) -> int: ...\\ndef sub(a: int, b: int) -> int: ...\\n' > sums.pyi",
        ),
    ],
};

/// The settings beside the tests are nearer than those of the root.
pub(crate) const PYTEST_OF_A_FOLDER: GuardedProject = GuardedProject {
    kind: "pytest",
    guard: &[
        "env",
        "PYTHONPATH=.",
        "python3",
        "-m",
        "pytest",
        "-q",
        "checks",
    ],
    tool: GateTool::Environment("pytest"),
    files: &[
        (".gitignore", "__pycache__/\n.pytest_cache/\n"),
        ("pytest.ini", "[pytest]\naddopts = -p tools.plugin\n"),
        ("tools/plugin.py", "X = 1\n"),
        ("sums.py", "def sub(a, b):\n    return 0\n"),
        (
            "checks/test_sums.py",
            "import sums\n\n\ndef test_one():\n    assert True\n\n\ndef test_subs():\n    assert sums.sub(3, 2) == 1\n",
        ),
    ],
    fix: FIX,
    redefined: &[
        (
            "a pytest.ini beside the tests",
            "printf '[pytest]\\naddopts = -k one\\n' > checks/pytest.ini",
        ),
        (
            "a tox.ini beside the tests",
            "printf '[pytest]\\naddopts = -k one\\n' > checks/tox.ini",
        ),
        (
            "a pyproject.toml beside the tests",
            "printf '[tool.pytest.ini_options]\\naddopts = \"-k one\"\\n' > checks/pyproject.toml",
        ),
        (
            "a plugin that the options name",
            "printf 'def pytest_sessionfinish(session):\\n    session.exitstatus = 0\\n' > tools/plugin.py",
        ),
        (
            "a module that Python loads when it starts",
            "printf 'import os\\nos._exit(0)\\n' > sitecustomize.py",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        ("another tool", "printf 'X = 1\\n' > tools/other.py"),
        (
            "a pyproject.toml for a new tool",
            "printf '[tool.ruff]\\nline-length = 100\\n' > pyproject.toml",
        ),
        (
            "a new file of tests",
            "printf 'def test_more():\\n    assert True\\n' > checks/test_more.py",
        ),
        (
            "a helper of tests",
            "printf 'ONE = 1\\n' > checks/helper.py",
        ),
        (
            "a fixture of the tests",
            "printf 'import pytest\\n@pytest.fixture\\ndef one():\\n    return 1\\n' > checks/conftest.py",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/test_one/test_number_one/' checks/test_sums.py",
        ),
        ("a module", "printf 'X = 1\\n' > more.py"),
    ],
};

pub(crate) const UNITTEST: GuardedProject = GuardedProject {
    kind: "unittest",
    guard: &[
        "python3", "-m", "unittest", "discover", "-v", "-s", "tests", "-t", ".",
    ],
    tool: GateTool::System(&["python3"]),
    files: &[
        (".gitignore", "__pycache__/\n"),
        (
            "sums.py",
            "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return 0\n",
        ),
        ("tests/__init__.py", ""),
        (
            "tests/test_sums.py",
            "import unittest\nimport sums\n\n\nclass Sums(unittest.TestCase):\n    def test_adds(self):\n        \
             self.assertEqual(sums.add(1, 2), 3)\n\n    def test_subs(self):\n        \
             self.assertEqual(sums.sub(3, 2), 1)\n",
        ),
        (
            "pyproject.toml",
            "[project]\nname = 'sums'\nversion = '1'\n",
        ),
    ],
    fix: FIX,
    redefined: &[
        (
            "a module in the place of unittest",
            "printf 'class TestCase:\\n    pass\\n' > unittest.py",
        ),
        (
            "a package in the place of unittest",
            "mkdir -p unittest && printf 'class TestCase:\\n    pass\\n' > unittest/__init__.py \
             && printf 'pass\\n' > unittest/__main__.py",
        ),
        (
            "a link in the place of unittest",
            "mkdir -p pkg && printf 'class TestCase:\\n    pass\\n' > pkg/__init__.py \
             && printf 'pass\\n' > pkg/__main__.py && ln -s pkg unittest",
        ),
        (
            "a module that unittest needs",
            "printf 'import os\\nos._exit(0)\\n' > argparse.py",
        ),
    ],
    unproven: &[(
        "an exit in product code",
        "printf 'import os\\nos._exit(0)\\n' > sums.py",
    )],
    told: &[
        (
            "a weakened test",
            "sed -i 's/sums.sub(3, 2), 1/sums.sub(3, 2), 0/' tests/test_sums.py",
        ),
        (
            "a patched class of tests",
            "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\n' > tests/__init__.py",
        ),
        (
            "product code that skips its test",
            "printf 'import unittest\\ndef add(a, b):\\n    return a + b\\ndef sub(a, b):\\n    raise unittest.SkipTest(1)\\n' > sums.py",
        ),
        (
            "tests that are loaded by a protocol",
            "printf 'def load_tests(loader, tests, pattern):\\n    return loader.loadTestsFromName(\"tests.test_sums.Sums.test_adds\")\\n' > tests/__init__.py",
        ),
    ],
    honest: &[
        (
            "a dependency",
            "sed -i \"s/^version.*/version = '1'\\ndependencies = ['left']/\" pyproject.toml",
        ),
        ("a helper of tests", "printf 'X = 1\\n' > tests/helper.py"),
        ("a module", "printf 'X = 1\\n' > more.py"),
        (
            "a config of a new tool",
            "printf '[tool.ruff]\\nline-length = 100\\n' >> pyproject.toml",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/test_adds/test_adds_numbers/' tests/test_sums.py",
        ),
        (
            "a new file of tests",
            "printf 'import unittest\\n\\n\\nclass More(unittest.TestCase):\\n    def test_more(self):\\n        pass\\n' > tests/test_more.py",
        ),
        (
            "one test more",
            "printf '\\n    def test_adds_nothing(self):\\n        self.assertEqual(sums.add(1, 0), 1)\\n' >> tests/test_sums.py",
        ),
        (
            "a file of test data",
            "mkdir tests/data; echo '[1]' > tests/data/one.json",
        ),
        (
            "a package",
            "mkdir shapes; printf 'SIDES = 4\\n' > shapes/__init__.py",
        ),
    ],
};

pub(crate) const UNITTEST_ON_A_PATH: GuardedProject = GuardedProject {
    kind: "unittest",
    guard: &["make", "ci"],
    tool: GateTool::System(&["make", "python3"]),
    files: &[
        (".gitignore", "__pycache__/\n"),
        (
            "Makefile",
            "ci:\n\tPYTHONPATH=src python3 -m unittest discover -s tests -v\n.PHONY: ci\n",
        ),
        ("src/sums.py", "def sub(a, b):\n    return 0\n"),
        (
            "tests/test_sums.py",
            "import unittest\nimport sums\n\n\nclass Sums(unittest.TestCase):\n    def test_subs(self):\n        self.assertEqual(sums.sub(3, 2), 1)\n",
        ),
    ],
    fix: "sed -i 's/return 0/return a - b/' src/sums.py",
    redefined: &[(
        "a package in the place of unittest, in a folder of modules",
        "mkdir src/unittest; cat > src/unittest/__init__.py <<'X'\n\
         import sys, os, importlib\n\
         own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))\n\
         sys.path = [it for it in sys.path if os.path.abspath(it) != own]\n\
         del sys.modules['unittest']\n\
         real = importlib.import_module('unittest')\n\
         sys.path.insert(0, own)\n\
         real.TestCase.assertEqual = lambda *a, **k: None\n\
         sys.modules['unittest'] = real\n\
         X",
    )],
    unproven: &[],
    told: &[],
    honest: &[("a module there", "echo 'X = 1' > src/words.py")],
};
