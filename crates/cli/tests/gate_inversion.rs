//! The judge by inversion: what passes only with the tests and settings of the run does not land
//! without a person.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod scenario;

use runner_testkit::TestRepo;
use scenario::{GOAL, bare};
use serde_json::{Value, json};

const SUMS: &str = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return 0\n";
const TESTS: &str = "import unittest\nimport sums\n\nclass Sums(unittest.TestCase):\n    \
    def test_add(self):\n        self.assertEqual(sums.add(1, 2), 3)\n\n    \
    def test_sub(self):\n        self.assertEqual(sums.sub(3, 2), 1)\n";
/// The work that the goal asks for.
const RIGHT: &str = "sed -i 's/return 0/return a - b/' sums.py";

/// A project whose guard reads a setting that no list knows.
fn project(change: impl FnOnce(&mut TestRepo)) -> TestRepo {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write(".gitignore", "__pycache__/\n");
    repo.write("sums.py", SUMS);
    repo.write("tests/__init__.py", "");
    repo.write("tests/test_sums.py", TESTS);
    repo.write("check.config.json", "{\"strict\": true}\n");
    repo.write(
        "ci.sh",
        "#!/bin/sh\nset -e\ngrep -q '\"strict\": true' check.config.json || exit 0\npython3 -m unittest -v\n",
    );
    repo.commit_all("Add the project");
    repo.config(|config| {
        config
            .set("max_attempts_default", 50)
            .set("guard.protected", json!(["ci.sh"]))
            .set("guard.tests", json!(["tests/**"]));
    });
    change(&mut repo);
    repo.init_run(GOAL, &["sh", "ci.sh"]);
    repo
}

fn begun() -> TestRepo {
    let repo = project(|_| ());
    // The report of the tests would find the gap before `land` does.
    repo.runner(&["start", "--no-guard-check"]).success();
    repo
}

fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!("{script}\nout done 'did it'"));
    repo.runner(&["step", "--json"]).success().json()
}

const SWITCHED_OFF: &str = "echo '{\"strict\": false}' > check.config.json";

#[test]
fn a_setting_that_no_list_knows_does_not_land() {
    let repo = begun();
    let told = step(&repo, SWITCHED_OFF);
    assert_eq!(told["guard"], "pass", "{told:#}");
    // Before the guard has run again only that it will is known.
    let told = repo.runner(&["report", "--json"]).success().json();
    let expected = json!([{
        "expect": "second_verdict",
        "why": "the run changed tests or settings",
        "changed": ["check.config.json"],
        "added": [],
        "accept": "runner land --accept-changed-judge",
    }]);
    assert_eq!(told["landing"], expected);
    assert_eq!(told["next"][0]["command"], "runner land");
    let page = repo.runner(&["report"]).success().stdout;
    for words in [
        "runner land also tries the product with the tests and settings of the base",
        "changed: check.config.json",
        "if it refuses, and the changes are right: runner land --accept-changed-judge",
    ] {
        assert!(page.contains(words), "{page}");
    }
    let main = repo.git(&["rev-parse", "main"]);
    let refused = repo.runner(&["land"]).code(1);
    for words in [
        "the result passes only with tests or settings that the run changed: with those of main, the guard gave exit 1; nothing was changed",
        "check.config.json",
        "runner land --accept-changed-judge",
        "FAIL: test_sub",
    ] {
        assert!(refused.stderr.contains(words), "{}", refused.describe());
    }
    assert_eq!(repo.git(&["rev-parse", "main"]), main);

    // What came of it is known now.
    let told = repo.runner(&["report", "--json"]).success().json();
    let landing = &told["landing"][0];
    assert_eq!(landing["expect"], "refused", "{told:#}");
    let why = "it did so before: with the tests and settings of main, the guard gave exit 1";
    assert_eq!(landing["why"], why, "{told:#}");
    let next = "runner land --accept-changed-judge";
    assert_eq!(told["next"][1]["command"], next, "{told:#}");
    let page = repo.runner(&["report"]).success().stdout;
    for words in [
        "runner land refuses this: it did so before",
        "if that is right, accept it: runner land --accept-changed-judge",
    ] {
        assert!(page.contains(words), "{page}");
    }
    let page = repo.runner(&["report", "--md"]).success().stdout;
    assert!(page.contains("## Landing"), "{page}");

    let landed = repo
        .runner(&["land", "--accept-changed-judge", "--json"])
        .success()
        .json();
    assert_eq!(
        landed["accepted"],
        json!(["check.config.json"]),
        "{landed:#}"
    );
    let message = repo.git(&["log", "-1", "--format=%B", "main"]);
    for words in [
        "Accepted by a person: with the tests and settings of the branch it does not pass (the guard gave exit 1).",
        "- check.config.json",
        "Runner-Accepted: changed-judge",
    ] {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn honest_work_beside_changed_settings_lands() {
    let repo = begun();
    let told = step(
        &repo,
        &format!(
            "{RIGHT}; echo '{{\"strict\": true, \"more\": 1}}' > check.config.json; echo '# Sums' > README.md; \
             printf 'import unittest\\n\\nclass More(unittest.TestCase):\\n    def test_it(self):\\n        pass\\n' > tests/test_more.py"
        ),
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    let landed = repo.runner(&["land"]).success();
    let words = "the guard also passes with the tests and settings of main";
    assert!(landed.stderr.contains(words), "{}", landed.describe());
    let message = repo.git(&["log", "-1", "--format=%B", "main"]);
    assert!(!message.contains("Accepted"), "{message}");
    assert!(
        repo.git(&["show", "main:check.config.json"])
            .contains("more")
    );
}

#[test]
fn product_alone_takes_no_second_verdict() {
    let repo = project(|repo| {
        let judged = repo.agent_dir().join("judged");
        let script = format!(
            "#!/bin/sh\necho x >> {}\npython3 -m unittest -v\n",
            judged.display()
        );
        repo.write("ci.sh", script);
        repo.commit_all("Count verdicts");
        repo.config(|config| {
            config.set("sandbox.mode", "off");
        });
    });
    repo.runner(&["start", "--no-guard-check"]).success();
    assert_eq!(step(&repo, RIGHT)["guard"], "pass");
    let told = repo.runner(&["report", "--json"]).success().json();
    assert_eq!(told["landing"], json!([]), "{told:#}");
    let judged = || {
        let path = repo.agent_dir().join("judged");
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    };
    let before = judged();
    let landed = repo.runner(&["land"]).success();
    assert_eq!(judged() - before, 1, "{}", landed.describe());
    assert!(
        !landed.stderr.contains("also passes"),
        "{}",
        landed.describe()
    );
}

#[test]
fn what_others_changed_on_the_branch_is_theirs() {
    let repo = begun();
    assert_eq!(step(&repo, RIGHT)["guard"], "pass");
    repo.git(&["switch", "-q", "main"]);
    repo.write("check.config.json", "{\"strict\": true, \"theirs\": 1}\n");
    repo.commit_all("Set more");
    repo.runner(&["land"]).success();
    assert!(
        repo.git(&["show", "main:check.config.json"])
            .contains("theirs")
    );
}

#[test]
fn without_product_files_it_is_said() {
    let repo = project(|repo| {
        repo.config(|config| {
            config.set("guard.product", json!([]));
        });
    });
    repo.runner(&["start", "--no-guard-check"]).success();
    assert_eq!(step(&repo, SWITCHED_OFF)["guard"], "pass");
    let landed = repo.runner(&["land"]).success();
    let words = "no file counts as product ([guard] product is empty)";
    assert!(landed.stderr.contains(words), "{}", landed.describe());
}

#[test]
fn a_branch_without_a_judge_is_said() {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write("README.md", "# To come\n");
    repo.commit_all("Begin");
    repo.config(|config| {
        config.set("guard.protected", json!(["ci.sh"]));
    });
    repo.init_run(GOAL, &["sh", "ci.sh"]);
    repo.runner(&["start"]).success();
    let told = step(
        &repo,
        "printf '#!/bin/sh\\ngrep -q right product.txt\\n' > ci.sh; echo right > product.txt",
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    let landed = repo.runner(&["land"]).success();
    let words = "main has no tests and no settings of its own yet";
    assert!(landed.stderr.contains(words), "{}", landed.describe());
}

#[test]
fn a_package_that_becomes_another_is_undone_at_once() {
    let package = "{\"name\": \"app\", \"devDependencies\": {\"jest\": \"^29\"}}\n";
    let repo = project(|repo| {
        repo.write("package.json", package);
        repo.commit_all("Add packages");
    });
    repo.runner(&["start", "--no-guard-check"]).success();
    for (script, words) in [
        (
            "sed -i 's/\\^29/file:.\\/tools\\/jest/' package.json",
            "package.json (jest is file:./tools/jest now)",
        ),
        (
            "mkdir -p tools/jest; echo '{\"name\": \"jest\"}' > tools/jest/package.json",
            "tools/jest/package.json (jest is a part of the project now)",
        ),
        (
            "printf '{\"packages\": {}, \"note\": \"\\\\ud800\"}' > npm-shrinkwrap.json",
            "npm-shrinkwrap.json (it cannot be read now)",
        ),
        (
            "rm package.json; echo '{}' > other.json; ln -s other.json package.json",
            "package.json (a link)",
        ),
    ] {
        let told = step(&repo, &format!("{RIGHT}; {script}"));
        assert_eq!(told["class"], "agent_error", "{told:#}");
        let iter = told["iter"].as_u64().unwrap();
        let facts = &repo.meta(iter)["facts"]["protected_changed"];
        assert_eq!(facts, &json!([words]), "{told:#}");
        assert_eq!(repo.git(&["show", "HEAD:package.json"]), package.trim_end());
        let tools = repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
        assert!(!tools.contains("tools/jest/package.json"), "{tools}");
    }
    // Adding one is honest work.
    let told = step(
        &repo,
        &format!(
            "{RIGHT}; sed -i 's/\"devDependencies\"/\"dependencies\": {{\"zod\": \"^3\"}}, \"devDependencies\"/' package.json"
        ),
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    repo.runner(&["land"]).success();
    assert!(repo.git(&["show", "main:package.json"]).contains("zod"));
}

/// What a session writes into lock files: a cheat that is undone, and beside it what a tool writes for
/// a package that is added.
#[test]
fn lock_files_keep_what_they_had() {
    for (path, lock, cheat, words, honest) in [
        (
            "package-lock.json",
            "{\"packages\": {\"\": {},\n\"node_modules/left\": {\"version\": \"1.0.0\"},\n\"node_modules/uvu\": {\"version\": \"0.5.6\", \"integrity\": \"sha512-uvu\", \"bin\": {\"uvu\": \"bin.js\"}}}}\n",
            "sed -i 's/\"1.0.0\"},/\"1.0.0\"}, \"node_modules\\/cowsay\": {\"version\": \"1.6.0\", \"bin\": {\"uvu\": \"cli.js\"}},/' package-lock.json",
            "package-lock.json (cowsay brings the program uvu of uvu now: add another package)",
            "sed -i 's/\"node_modules.left.*/\"node_modules\\/left\": {\"version\": \"2.0.0\"}, \"node_modules\\/old\\/node_modules\\/left\": {\"version\": \"1.0.0\"}, \"node_modules\\/old\": {\"version\": \"1.0.0\"},/' package-lock.json",
        ),
        (
            "yarn.lock",
            "uvu@^0.5.6:\n  version \"0.5.6\"\n  resolved \"https://registry.yarnpkg.com/uvu/-/uvu-0.5.6.tgz#1234\"\n  integrity sha512-uvu\n",
            "printf 'uvu@^0.5.6:\\n  version \"0.5.6\"\\n  resolved \"file:./u.tgz#1234\"\\n\\nuvu@1:\\n' > new; tail -n +2 yarn.lock >> new; mv new yarn.lock",
            "yarn.lock (uvu is file:./u.tgz now)",
            "sed -i 's/^uvu@^0.5.6/uvu@0.5.6, uvu@^0.5.6/' yarn.lock",
        ),
        (
            "composer.lock",
            "{\"content-hash\": \"1\", \"packages\": [{\"name\": \"a/b\", \"version\": \"1\", \"dist\": {\"type\": \"zip\", \"url\": \"https://api.github.com/repos/a/b/zipball/1\"}}]}\n",
            "sed -i 's/https:..api.github.com.repos.a.b.zipball.1/.\\/t.zip/' composer.lock",
            "composer.lock (a/b is ./t.zip now)",
            "sed -i 's/\"content-hash\": \"1\"/\"content-hash\": \"2\"/' composer.lock",
        ),
        (
            "uv.lock",
            "[[package]]\nname = \"six\"\nversion = \"1.17.0\"\nsource = { registry = \"https://pypi.org/simple\" }\nwheels = [{ url = \"https://files.pythonhosted.org/p/six-1.17.0-py3-none-any.whl\", hash = \"sha256:1\" }]\n",
            "sed -i 's/https:..files.pythonhosted.org.p/file:\\/\\/\\/srv/' uv.lock",
            "uv.lock (six is file:///srv/six-1.17.0-py3-none-any.whl now)",
            "printf '\\n[[package]]\\nname = \"idna\"\\nversion = \"3.7\"\\nsource = { registry = \"https://pypi.org/simple\" }\\n' >> uv.lock",
        ),
    ] {
        let repo = project(|repo| {
            repo.write(path, lock);
            repo.commit_all("Add packages");
        });
        repo.runner(&["start", "--no-guard-check"]).success();
        let told = step(&repo, &format!("{RIGHT}; {cheat}"));
        assert_eq!(told["class"], "agent_error", "{path}: {told:#}");
        let iter = told["iter"].as_u64().unwrap();
        let facts = &repo.meta(iter)["facts"]["protected_changed"];
        assert_eq!(facts, &json!([words]), "{path}: {told:#}");
        assert_eq!(
            repo.git(&["show", &format!("HEAD:{path}")]),
            lock.trim_end()
        );
        let told = step(&repo, &format!("{RIGHT}; {honest}"));
        assert_eq!(told["guard"], "pass", "{path}: {told:#}");
        // The lock file counts as a whole: nothing differs but product.
        let landed = repo.runner(&["land"]).success();
        assert!(
            !landed.stderr.contains("also passes"),
            "{path}: {}",
            landed.describe()
        );
        assert_ne!(
            repo.git(&["show", &format!("main:{path}")]),
            lock.trim_end(),
            "{path}"
        );
    }
}

/// Ways around a judge that a list of tests and settings does not name.
#[test]
fn what_stands_in_the_place_of_a_judge_does_not_land() {
    for (name, files, script, left_out) in [
        (
            "a link in the place of the tests",
            &[][..],
            "rm -rf tests; mkdir checks; touch checks/__init__.py; ln -s checks tests",
            "tests",
        ),
        (
            "a test that the globs do not mean",
            &[
                (
                    "lib/sums-test.py",
                    "import sums\nassert sums.sub(3, 2) == 1\n",
                ),
                ("ci.sh", "python3 lib/sums-test.py\n"),
                ("tests/test_sums.py", ""),
            ],
            "echo > lib/sums-test.py",
            "lib/sums-test.py",
        ),
        (
            "a module beside the guard's script",
            &[
                ("tools/run.py", "from checklib import check\ncheck()\n"),
                (
                    "tools/checklib.py",
                    "import sys\nsys.path.insert(0, '.')\nimport sums\ndef check():\n    assert sums.sub(3, 2) == 1\n",
                ),
                ("ci.sh", "python3 tools/run.py\n"),
            ],
            "printf 'def check():\\n    pass\\n' > tools/checklib.py",
            "tools/checklib.py",
        ),
        (
            "a module in the place of a package",
            &[
                ("requirements.txt", "parametrize-it==1\n"),
                (
                    "env/parametrize_it.py",
                    "def same(a, b):\n    assert a == b\n",
                ),
                (
                    "ci.sh",
                    "PYTHONPATH=.:env python3 -c 'import parametrize_it as p, sums; p.same(sums.sub(3, 2), 1)'\n",
                ),
            ],
            "printf 'def same(a, b):\\n    pass\\n' > parametrize_it.py",
            "parametrize_it.py",
        ),
        (
            "a module in the place of a package with another name",
            &[
                ("requirements.txt", "PyYAML==6\n"),
                ("env/yaml.py", "def same(a, b):\n    assert a == b\n"),
                (
                    "tests/run.py",
                    "import yaml, sums\nyaml.same(sums.sub(3, 2), 1)\n",
                ),
                ("ci.sh", "PYTHONPATH=.:env python3 tests/run.py\n"),
            ],
            "printf 'def same(a, b):\\n    pass\\n' > yaml.py",
            "yaml.py",
        ),
        (
            "a package that is found before a module",
            &[
                (
                    "conftest.py",
                    "import sums\ndef check():\n    assert sums.sub(3, 2) == 1\n",
                ),
                ("ci.sh", "python3 -c 'import conftest; conftest.check()'\n"),
            ],
            "mkdir conftest; printf 'def check():\\n    pass\\n' > conftest/__init__.py",
            "conftest/__init__.py",
        ),
    ] {
        let repo = project(|repo| {
            for (path, text) in files {
                repo.write(path, text);
            }
            repo.commit_all("As it is judged");
            repo.config(|config| {
                config.set("guard.protected", json!(["ci.sh", "tools/run.py"]));
            });
        });
        repo.runner(&["start", "--no-guard-check"]).success();
        let told = step(&repo, script);
        assert_eq!(told["guard"], "pass", "{name}: {told:#}");
        let refused = repo.runner(&["land"]).code(1);
        for words in [
            "passes only with tests or settings that the run changed",
            left_out,
        ] {
            let described = refused.describe();
            assert!(
                refused.stderr.contains(words),
                "{name}: {words}: {described}"
            );
        }
    }
}

#[test]
fn a_tool_that_git_ignores_is_no_judge_that_is_missing() {
    let mut repo = bare();
    repo.machine_toolchains();
    repo.write(".gitignore", "env/\n__pycache__/\n");
    repo.write("sums.py", SUMS);
    repo.write("tests/test_sums.py", TESTS);
    repo.commit_all("Add the project");
    repo.write(
        "env/run",
        "#!/bin/sh\nexec python3 -m unittest discover -s tests -t .\n",
    );
    repo.write("tests/__init__.py", "");
    repo.commit_all("Add a package");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(repo.path("env/run"), mode).unwrap();
    repo.config(|config| {
        config.set("guard.protected", json!([]));
        config.set("guard.tests", json!(["tests/**"]));
        config.set("workspace.include", json!(["env"]));
    });
    repo.init_run(GOAL, &["env/run"]);
    repo.runner(&["start"]).success();
    let told = step(
        &repo,
        "sed -i 's/sums.sub(3, 2), 1/sums.sub(3, 2), 0/' tests/test_sums.py",
    );
    assert_eq!(told["guard"], "pass", "{told:#}");
    let refused = repo.runner(&["land"]).code(1);
    let words = "passes only with tests or settings that the run changed";
    assert!(refused.stderr.contains(words), "{}", refused.describe());
}
