//! Packages that become others, manifests and lock files of which only additions are taken over.

use super::*;

fn files(list: &[(&str, &str)]) -> PackageFiles {
    let one = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
    list.iter().map(one).collect()
}

fn replaced(before: &[(&str, &str)], now: &[(&str, &str)]) -> Vec<ReplacedPackage> {
    BasePackages::of(&files(before), &[]).replaced_in(&files(now))
}

fn check_replaced(before: &[(&str, &str)], now: &[(&str, &str)], expected: &[&str]) {
    let found = replaced(before, now);
    let words: Vec<String> = found.iter().map(ReplacedPackage::words).collect();
    assert_eq!(words, expected, "{now:?}");
}

#[test]
fn packages_of_npm_that_become_others() {
    let before = &[(
        "package.json",
        r#"{"name": "app", "dependencies": {"left": "^1"}, "devDependencies": {"jest": "^29", "@scope/a": "1"}}"#,
    )];
    let with = |text: &str| vec![("package.json", text.to_owned())];
    for (now, expected) in [
        (
            with(r#"{"devDependencies": {"jest": "^30", "zod": "^3"}}"#),
            vec![],
        ),
        (
            with(r#"{"devDependencies": {"mine": "file:./mine"}}"#),
            vec![],
        ),
        (with(r#"{"dependencies": {"jest": "npm:jest@29"}}"#), vec![]),
        (
            with(r#"{"devDependencies": {"jest": "file:./tools/jest"}}"#),
            vec!["package.json (jest is file:./tools/jest now)"],
        ),
        (
            with(r#"{"dependencies": {"jest": "./tools/jest"}}"#),
            vec!["package.json (jest is ./tools/jest now)"],
        ),
        (
            with(r#"{"optionalDependencies": {"jest": "npm:evil@1"}}"#),
            vec!["package.json (jest is npm:evil@1 now)"],
        ),
        (
            with(r#"{"devDependencies": {"@scope/a": "someone/repo"}}"#),
            vec!["package.json (@scope/a is someone/repo now)"],
        ),
        (
            with(r#"{"name": "jest"}"#),
            vec!["package.json (jest is a part of the project now)"],
        ),
    ] {
        let now: Vec<(&str, &str)> = now
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        check_replaced(before, &now, &expected);
    }
    check_replaced(
        before,
        &[
            before[0],
            ("tools/jest/package.json", r#"{"name": "jest"}"#),
        ],
        &["tools/jest/package.json (jest is a part of the project now)"],
    );
    check_replaced(
        before,
        &[
            before[0],
            (
                "tools/own/package.json",
                r#"{"name": "own", "dependencies": {"jest": "^29"}}"#,
            ),
        ],
        &[],
    );
    let replaced = "module a\nreplace x.io/left => ./left\n";
    let required = "module a\nrequire x.io/left v0.0.0\nreplace x.io/left => ./left\n";
    check_replaced(&[("go.mod", replaced)], &[("go.mod", required)], &[]);
    // Names of another package manager say nothing.
    check_replaced(
        before,
        &[before[0], ("Cargo.toml", "[package]\nname = \"jest\"\n")],
        &[],
    );
}

#[test]
fn lock_files_that_lead_elsewhere() {
    let lock =
        |entry: &str| format!(r#"{{"packages": {{"": {{}}, "node_modules/jest": {entry}}}}}"#);
    let usual =
        lock(r#"{"version": "1.0.0", "resolved": "https://r.example/jest/-/jest-1.0.0.tgz"}"#);
    let newer =
        lock(r#"{"version": "1.1.0", "resolved": "https://r.example/jest/-/jest-1.1.0.tgz"}"#);
    let other =
        lock(r#"{"version": "1.0.0", "resolved": "https://r.example/evil/-/evil-1.0.0.tgz"}"#);
    let place =
        lock(r#"{"version": "1.0.0", "resolved": "https://e.example/jest/-/jest-1.0.0.tgz"}"#);
    let linked = lock(r#"{"resolved": "tools/jest", "link": true}"#);
    let bare = lock(r#"{"version": "1.0.0"}"#);
    let path = "package-lock.json";
    check_replaced(&[(path, &usual)], &[(path, &newer)], &[]);
    check_replaced(&[(path, &usual)], &[(path, &bare)], &[]);
    check_replaced(&[(path, &bare)], &[(path, &usual)], &[]);
    check_replaced(
        &[(path, &usual)],
        &[(path, &other)],
        &["package-lock.json (jest is https://r.example/evil/-/evil-1.0.0.tgz now)"],
    );
    check_replaced(
        &[(path, &usual)],
        &[(path, &place)],
        &["package-lock.json (jest is from https://e.example now)"],
    );
    check_replaced(
        &[(path, &usual)],
        &[(path, &linked)],
        &["package-lock.json (jest is tools/jest now)"],
    );
    let cargo =
        |source: &str| format!("[[package]]\nname = \"proptest\"\nversion = \"1.0.0\"\n{source}");
    let usual = cargo("source = \"registry+https://r.example/index\"\n");
    check_replaced(
        &[("Cargo.lock", &usual)],
        &[("Cargo.lock", &cargo(""))],
        &["Cargo.lock (proptest is a folder of the project now)"],
    );
    let yarn = "jest@^29, jest@~29:\n  version \"29\"\n";
    check_replaced(
        &[("yarn.lock", yarn)],
        &[(
            "yarn.lock",
            "\"jest@file:tools/jest\":\n  version \"29\"\n\"jest@npm:^29\":\n",
        )],
        &["yarn.lock (jest is file:tools/jest now)"],
    );
    let gems =
        "GEM\n  remote: https://g.example/\n  specs:\n    rspec (3.0)\n      rspec-core (3)\n";
    check_replaced(
        &[("Gemfile.lock", gems)],
        &[(
            "Gemfile.lock",
            "PATH\n  remote: tools/rspec\n  specs:\n    rspec (3.0)\n",
        )],
        &["Gemfile.lock (rspec is tools/rspec now)"],
    );
}

#[test]
fn other_managers() {
    let table = [
        (
            "Cargo.toml",
            "[dev-dependencies]\nproptest = \"1\"\n",
            "[dev-dependencies]\nproptest = { path = \"mine\" }\n",
            "Cargo.toml (proptest is path mine now)",
        ),
        (
            "Cargo.toml",
            "[dependencies]\nserde_json = \"1\"\n",
            "[target.'cfg(unix)'.dependencies]\nserde-json = { package = \"evil\", version = \"1\" }\n",
            "Cargo.toml (serde-json is package evil now)",
        ),
        (
            "pyproject.toml",
            "[project]\ndependencies = [\"Py_Test>=7\"]\n",
            "[project]\ndependencies = [\"py-test[extra] @ file:///x\"]\n",
            "pyproject.toml (py-test is file:///x now)",
        ),
        (
            "pyproject.toml",
            "[dependency-groups]\ndev = [\"pytest\"]\n",
            "[dependency-groups]\ndev = [\"pytest\"]\n[tool.uv.sources]\npytest = { path = \"tools/pytest\" }\n",
            "pyproject.toml (pytest is path tools/pytest now)",
        ),
        (
            "requirements-dev.txt",
            "pytest==7 # tests\n",
            "-e ./tools/pytest\n",
            "requirements-dev.txt (pytest is ./tools/pytest now)",
        ),
        (
            "go.mod",
            "module a\nrequire (\n\tgithub.com/x/assert v1.0.0\n)\n",
            "module a\nrequire github.com/x/assert v1.0.0\nreplace github.com/x/assert => ./assert\n",
            "go.mod (github.com/x/assert is ./assert now)",
        ),
        (
            "composer.json",
            "{\"require-dev\": {\"phpunit/phpunit\": \"^10\"}}",
            "{\"name\": \"PHPUnit/phpunit\"}",
            "",
        ),
        (
            "Gemfile",
            "gem \"rspec\", \"~> 3\"\n",
            "gem 'rspec', path: 'tools/rspec'\n",
            "Gemfile (rspec is path: 'tools/rspec' now)",
        ),
    ];
    for (path, before, now, expected) in table {
        let found = replaced(&[(path, before)], &[(path, now)]);
        let words = found.first().map(ReplacedPackage::words);
        if expected.is_empty() {
            assert!(words.is_some(), "{path}");
        } else {
            assert_eq!(words.as_deref(), Some(expected));
        }
        assert_eq!(replaced(&[(path, now)], &[(path, now)]), []);
        assert_eq!(replaced(&[], &[(path, now)]), []);
    }
}

fn added(path: &str, base: Option<&str>, now: Option<&str>) -> Option<Vec<u8>> {
    let file = PackageFile::of(path).unwrap();
    let base: Vec<(&str, &str)> = base.map(|text| (path, text)).into_iter().collect();
    let base = files(&base);
    file.with_additions(&BasePackages::of(&base, &[]), now.map(str::as_bytes))
}

fn merged(path: &str, base: &str, now: &str) -> String {
    let bytes = added(path, Some(base), Some(now));
    String::from_utf8(bytes.unwrap()).unwrap()
}

#[test]
fn only_additions_are_taken_over() {
    let base = r#"{"scripts": {"test": "jest"}, "devDependencies": {"jest": "^29"}}"#;
    let more = r#"{"scripts": {"test": "jest"}, "dependencies": {"zod": "^3"}, "devDependencies": {"jest": "^29"}}"#;
    assert_eq!(
        merged("package.json", base, more),
        more,
        "as it was written"
    );
    assert_eq!(merged("package.json", base, base), base);
    let cheat = r#"{"scripts": {"test": "true"}, "dependencies": {"zod": "^3"}, "devDependencies": {"jest": "1"}}"#;
    let text = merged("package.json", base, cheat);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        serde_json::from_str::<serde_json::Value>(more).unwrap()
    );
    assert_eq!(merged("package.json", base, "{broken"), base);
    let path = "new/package.json";
    assert_eq!(added(path, None, Some("{}")).as_deref(), Some(&b"{}"[..]));
    assert_eq!(added(path, Some("{}"), None).as_deref(), Some(&b"{}"[..]));

    let base = "[package]\nname = \"a\"\n\n[dependencies]\nserde = \"1\"\n";
    let now = "[package]\nname = \"a\"\nautotests = false\n\n[dependencies]\nserde = \"2\"\nlog = \"0.4\"\n[dev-dependencies]\nx = \"1\"\n";
    let value: toml::Table = merged("Cargo.toml", base, now).parse().unwrap();
    let expected = "[package]\nname = \"a\"\n[dependencies]\nserde = \"1\"\nlog = \"0.4\"\n[dev-dependencies]\nx = \"1\"\n";
    assert_eq!(value, expected.parse().unwrap());

    let base = "[project]\ndependencies = [\"a>=1\"]\n[tool.pytest.ini_options]\naddopts = \"\"\n";
    let now = "[project]\ndependencies = [\"a>=2\", \"b\"]\n[tool.pytest.ini_options]\naddopts = \"-k x\"\n";
    let value: toml::Table = merged("pyproject.toml", base, now).parse().unwrap();
    assert_eq!(
        value["project"]["dependencies"].to_string(),
        "[\"a>=1\", \"b\"]"
    );
    assert_eq!(
        value["tool"]["pytest"]["ini_options"]["addopts"].as_str(),
        Some("")
    );
}

#[test]
fn what_is_installed_from_the_project_is_not_added() {
    let base = r#"{"dependencies": {"a": "1"}}"#;
    let cheat = r#"{"dependencies": {"a": "1", "zzz": "file:./tools/zzz"}}"#;
    assert_eq!(merged("package.json", base, cheat), base);
    let local = "a\n./tools/nicelib\n-e ./x\n";
    assert_eq!(merged("requirements.txt", "a\n", local), "a\n");
    let base = "[project]\ndependencies = [\"a\"]\n";
    let cheat = "[project]\ndependencies = [\"a\", \"b @ file:./b\"]\n";
    assert_eq!(merged("pyproject.toml", base, cheat), base);
    let base = r#"{"packages": {"node_modules/a": {"version": "1"}}}"#;
    let cheat = r#"{"packages": {"node_modules/a": {"version": "1"}, "node_modules/z": {"resolved": "tools/z", "link": true}}}"#;
    assert_eq!(merged("package-lock.json", base, cheat), base);
    let cheat = "a: 1\nz: file:tools/z\n";
    assert_eq!(merged("pnpm-lock.yaml", "a: 1\n", cheat), "a: 1\n");
    // A part of a workspace is product like any other code.
    let base = "[dependencies]\na = \"1\"\n";
    let more = "[dependencies]\na = \"1\"\nb = { path = \"b\" }\n";
    assert_eq!(merged("Cargo.toml", base, more), more);
}

#[test]
fn what_cannot_be_read_replaces_what_could() {
    let package = r#"{"devDependencies": {"mocha": "1"}}"#;
    let odd = "{\"note\": \"\\ud800\", \"packages\": {}}";
    let before = [("package.json", package)];
    check_replaced(
        &before,
        &[before[0], ("npm-shrinkwrap.json", odd)],
        &["npm-shrinkwrap.json (it cannot be read now)"],
    );
    check_replaced(
        &before,
        &[("package.json", "{oops")],
        &["package.json (it cannot be read now)"],
    );
    // A fixture of tests.
    check_replaced(
        &before,
        &[before[0], ("tests/broken/package.json", "{oops")],
        &[],
    );
    let text = "{\"packages\": {}}";
    assert_eq!(added("npm-shrinkwrap.json", None, Some(text)), None);
}

#[test]
fn added_lines() {
    let base = "module a\n\ngo 1.20\n\nrequire x.io/a v1.0.0\n";
    let now = "module a\n\ngo 1.20\n\nrequire x.io/a v1.0.0\n\nrequire (\n\tx.io/b v1.0.0\n)\n";
    assert_eq!(merged("go.mod", base, now), now);
    let other =
        "module a\n\ngo 1.9\n\nrequire (\n\tx.io/a v2.0.0\n\tx.io/b v1.0.0 // indirect\n)\n";
    assert_eq!(
        merged("go.mod", base, other),
        format!("{base}require x.io/b v1.0.0\n")
    );
    assert_eq!(merged("requirements.txt", "a==1", "a==2\nb\n"), "a==1\nb\n");
    assert_eq!(
        merged("requirements.txt", "a==1\n", "a==1\n--index-url x\n"),
        "a==1\n"
    );
    assert_eq!(
        merged("Gemfile", "gem 'a'\n", "gem 'a'\ngem 'b'\n"),
        "gem 'a'\ngem 'b'\n"
    );
}

#[test]
fn lock_files_that_keep_what_they_had() {
    for (path, base, more, other) in [
        (
            "package-lock.json",
            r#"{"packages": {"": {"name": "a"}, "node_modules/x": {"version": "1"}}}"#,
            r#"{"packages": {"": {"name": "b"}, "node_modules/x": {"version": "1"}, "node_modules/y": {"version": "1"}}}"#,
            r#"{"packages": {"node_modules/x": {"version": "2"}}}"#,
        ),
        (
            "Cargo.lock",
            "[[package]]\nname = \"a\"\nversion = \"1\"\n",
            "[[package]]\nname = \"a\"\nversion = \"1\"\ndependencies = [\"b\"]\n[[package]]\nname = \"b\"\nversion = \"1\"\n",
            "[[package]]\nname = \"a\"\nversion = \"2\"\n",
        ),
        (
            "go.sum",
            "a v1 h1:x\n",
            "a v1 h1:x\nb v1 h1:y\n",
            "a v1 h1:z\n",
        ),
        (
            "pnpm-lock.yaml",
            "lockfileVersion: '9.0'\npackages:\n  a@1.0.0:\n    resolution: {integrity: sha512-x}\n",
            "lockfileVersion: '9.0'\npackages:\n  a@1.0.0:\n    resolution: {integrity: sha512-x}\n  b@1.0.0:\n    resolution: {integrity: sha512-y}\n",
            "lockfileVersion: '9.0'\npackages:\n  a@1.0.0:\n    resolution: {integrity: sha512-z}\n",
        ),
    ] {
        assert_eq!(merged(path, base, more), more, "{path}");
        assert_eq!(merged(path, base, other), base, "{path}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_panics(path in "(package|go|Cargo|Gemfile|yarn|requirements|composer|poetry)[.](json|mod|toml|lock|txt|sum)", text in "\\PC{0,80}", other in "[a-z@:/.,=>{}\\[\\]\" \n]{0,80}") {
        if PackageFile::of(&path).is_some() {
            added(&path, Some(&text), Some(&other));
            replaced(&[(&path, &text)], &[(&path, &other)]);
        }
    }
}
