//! What sessions do to lock files, format by format: cheats, and the honest additions beside them.

mod node;
mod npm;
mod python;

use crate::packages::{BasePackages, PackageFile, PackageFiles, ReplacedPackage};

/// A change of a lock file.
struct Change<'t> {
    what: &'t str,
    /// Text of the branch's file, and what stands there now.
    edits: &'t [(&'t str, &'t str)],
    /// What is told of replaced packages in any iteration.
    replaced: &'t [&'t str],
    /// Why a landing does not take the file; empty: it does.
    left_out: &'t str,
}

fn check(name: &str, manifest: (&str, &str), base: &str, changes: &[Change<'_>]) {
    let file = PackageFile::of(name).unwrap();
    let files = |lock: &str| -> PackageFiles {
        [(name, lock), manifest]
            .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
            .into()
    };
    let before = files(base);
    let guard = ["npm".to_owned(), "test".to_owned()];
    let known = BasePackages::of(&before, &guard);
    assert_eq!(known.replaced_in(&before), [], "{name}");
    for change in changes {
        let mut now = base.to_owned();
        for (old, new) in change.edits {
            assert!(now.contains(old), "{name}: {}: {old}", change.what);
            now = now.replace(old, new);
        }
        let found = known.replaced_in(&files(&now));
        let words: Vec<String> = found.iter().map(ReplacedPackage::words).collect();
        let words: Vec<&str> = words
            .iter()
            .map(|it| it.trim_start_matches(name).trim_start())
            .collect();
        assert_eq!(words, change.replaced, "{name}: {}", change.what);
        let reason = file.reason_left_out(&known, now.as_bytes());
        let told = reason.as_deref().unwrap_or_default();
        assert_eq!(told, change.left_out, "{name}: {}", change.what);
        let bytes = file.with_additions(&known, Some(now.as_bytes()));
        let expected = if reason.is_some() { base } else { &now };
        let text = String::from_utf8(bytes.unwrap()).unwrap();
        assert_eq!(text, expected, "{name}: {}", change.what);
    }
}

const NPM_MANIFEST: (&str, &str) = (
    "package.json",
    r#"{"name": "demo", "scripts": {"test": "uvu test && checker all"}, "devDependencies": {"is-odd": "3.0.1", "uvu": "0.5.6"}}"#,
);

#[test]
fn cargo() {
    let base = "version = 4\n\n[[package]]\nname = \"demo\"\nversion = \"0.1.0\"\ndependencies = [\n \"log\",\n]\n\n[[package]]\nname = \"log\"\nversion = \"0.4.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"1234\"\n";
    let manifest = (
        "Cargo.toml",
        "[package]\nname = \"demo\"\n[dependencies]\nlog = \"0.4\"\n",
    );
    let added = |source: &str| {
        format!("{base}\n[[package]]\nname = \"zip\"\nversion = \"1.0.0\"\nsource = \"{source}\"\n")
    };
    let usual = added("registry+https://github.com/rust-lang/crates.io-index");
    let git = added("git+https://github.com/x/zip#12");
    let part = format!("{base}\n[[package]]\nname = \"part\"\nversion = \"0.1.0\"\n");
    let other = "(log 0.4.0 has other files or programs now: the tool must write it)";
    for (what, now, replaced, left_out) in [
        ("a package", &*usual, &[][..], ""),
        ("a part of the project", &*part, &[], ""),
        (
            "a repository",
            &*git,
            &[],
            "zip is git+https://github.com/x/zip",
        ),
        (
            "another archive",
            &*base.replace("1234", "5678"),
            &[other],
            "log 0.4.0 is told differently",
        ),
    ] {
        let change = Change {
            what,
            edits: &[(base, now)],
            replaced,
            left_out,
        };
        check("Cargo.lock", manifest, base, &[change]);
    }
}

#[test]
fn composer() {
    let base = r#"{"content-hash": "11", "packages": [], "packages-dev": [
{"name": "acme/tool", "version": "1.0.0", "source": {"type": "git", "url": "https://github.com/acme/tool.git", "reference": "aa"},
 "dist": {"type": "zip", "url": "https://api.github.com/repos/acme/tool/zipball/aa", "reference": "aa", "shasum": ""},
 "type": "library", "bin": ["bin/check"], "autoload": {"psr-4": {"Acme\\Tool\\": "src/"}}}], "aliases": []}"#;
    let manifest = ("composer.json", r#"{"require-dev": {"acme/tool": "^1"}}"#);
    let log = r#""packages": [{"name": "psr/log", "version": "3.0.0", "source": {"type": "git", "url": "https://github.com/php-fig/log.git", "reference": "bb"}, "dist": {"type": "zip", "url": "https://api.github.com/repos/php-fig/log/zipball/bb", "reference": "bb", "shasum": ""}, "type": "library", "autoload": {"psr-4": {"Psr\\Log\\": "src/"}}}]"#;
    let new = ("\"packages\": []", log);
    let archive = "https://api.github.com/repos/acme/tool/zipball/aa";
    let other = "(acme/tool 1.0.0 has other files or programs now: the tool must write it)";
    check(
        "composer.lock",
        manifest,
        base,
        &[
            Change {
                what: "a package, which changes the digest of all",
                edits: &[new, ("\"11\"", "\"12\"")],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "an archive of the project, with the old address elsewhere",
                edits: &[
                    (archive, "./assets/t.zip"),
                    (
                        "\"type\": \"library\", \"bin\"",
                        "\"extra\": {\"x\": {\"url\": \"https://api.github.com/repos/acme/tool/zipball/aa\"}}, \"type\": \"library\", \"bin\"",
                    ),
                ],
                replaced: &["(acme/tool is ./assets/t.zip now)"],
                left_out: "acme/tool 1.0.0 is told differently",
            },
            Change {
                what: "a mirror",
                edits: &[(
                    "\"shasum\": \"\"}",
                    "\"shasum\": \"\", \"mirrors\": [{\"url\": \"./assets/t.zip\", \"preferred\": true}]}",
                )],
                replaced: &["(acme/tool is ./assets/t.zip now)"],
                left_out: "acme/tool 1.0.0 is told differently",
            },
            Change {
                what: "another repository on the same host",
                edits: &[(archive, "https://api.github.com/repos/evil/tool/zipball/aa")],
                replaced: &[other],
                left_out: "acme/tool 1.0.0 is told differently",
            },
            Change {
                what: "another file as the program",
                edits: &[("\"bin/check\"", "\"tests/check\"")],
                replaced: &[other],
                left_out: "acme/tool 1.0.0 is told differently",
            },
            Change {
                what: "the program of another package",
                edits: &[
                    new,
                    (
                        "\"autoload\": {\"psr-4\": {\"Psr",
                        "\"bin\": [\"x/check\"], \"autoload\": {\"psr-4\": {\"Psr",
                    ),
                ],
                replaced: &[
                    "(psr/log brings the program check of acme/tool now: add another package)",
                ],
                left_out: "psr/log brings the program check of acme/tool",
            },
            Change {
                what: "code of the project under the name of a package",
                edits: &[
                    new,
                    (
                        "{\"psr-4\": {\"Psr\\\\Log\\\\\": \"src/\"}}",
                        "{\"files\": [\"../../../src/x.php\"]}",
                    ),
                ],
                replaced: &["(psr/log names files outside of its own folder now)"],
                left_out: "psr/log names files outside of its own folder",
            },
            Change {
                what: "a new package of the project",
                edits: &[
                    new,
                    (
                        "https://api.github.com/repos/php-fig/log/zipball/bb",
                        "file:///srv/x/log.zip",
                    ),
                ],
                replaced: &[],
                left_out: "psr/log is from file:///srv/x",
            },
        ],
    );
}

#[test]
fn bundler() {
    let base = "GEM\n  remote: https://rubygems.org/\n  specs:\n    rspec (3.13.0)\n      rspec-core (~> 3.13.0)\n    rspec-core (3.13.0)\n\nPLATFORMS\n  ruby\n\nDEPENDENCIES\n  rspec\n\nBUNDLED WITH\n   2.5.0\n";
    let manifest = (
        "Gemfile",
        "source \"https://rubygems.org\"\ngem \"rspec\"\n",
    );
    check(
        "Gemfile.lock",
        manifest,
        base,
        &[
            Change {
                what: "a package",
                edits: &[
                    ("    rspec (3", "    rack (3.0.0)\n    rspec (3"),
                    ("  rspec\n\n", "  rack\n  rspec\n\n"),
                ],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a folder, with the old lines elsewhere",
                edits: &[
                    ("    rspec (3.13.0)\n      rspec-core (~> 3.13.0)\n", ""),
                    (
                        "GEM\n",
                        "PATH\n  remote: tools/rspec\n  specs:\n    rspec (3.13.0)\n      rspec-core (~> 3.13.0)\n\nGEM\n",
                    ),
                ],
                replaced: &["(rspec is tools/rspec now)"],
                left_out: "rspec 3.13.0 is told differently",
            },
            Change {
                what: "a second remote",
                edits: &[("  specs:", "  remote: https://example.com/\n  specs:")],
                replaced: &[
                    "(rspec is from https://example.com now)",
                    "(rspec-core is from https://example.com now)",
                ],
                left_out: "rspec 3.13.0 is told differently",
            },
            Change {
                what: "a package of another registry",
                edits: &[(
                    "PLATFORMS",
                    "GEM\n  remote: https://example.com/\n  specs:\n    rack (3.0.0)\n\nPLATFORMS",
                )],
                replaced: &[],
                left_out: "rack is from https://example.com",
            },
        ],
    );
}

#[test]
fn go() {
    check(
        "go.sum",
        ("go.mod", "module a\nrequire x.io/a v1.0.0\n"),
        "x.io/a v1.0.0 h1:a\nx.io/a v1.0.0/go.mod h1:b\n",
        &[
            Change {
                what: "a package",
                edits: &[(
                    "x.io/a v1.0.0 h1:a\n",
                    "x.io/a v1.0.0 h1:a\nx.io/c v1.0.0 h1:c\n",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "another archive",
                edits: &[("h1:a", "h1:c")],
                replaced: &[
                    "(x.io/a v1.0.0 has other files or programs now: the tool must write it)",
                ],
                left_out: "x.io/a v1.0.0 is told differently",
            },
        ],
    );
}

#[test]
fn yaml_that_lock_files_are_written_in() {
    let read = |text: &str| super::yaml::parse(text).map(|it| it.to_string());
    for (text, expected) in [
        (
            "a: 1\n'b c':\n  d: \"e: f\"\n",
            Some(r#"{"a":"1","b c":{"d":"e: f"}}"#),
        ),
        (
            "a: {b: 'it''s', c: [d, e]}\n",
            Some(r#"{"a":{"b":"it's","c":["d","e"]}}"#),
        ),
        (
            "a:\n- b\n- c\nd: {node: 6.* || >= 10.*}\n",
            Some(r#"{"a":["b","c"],"d":{"node":"6.* || >= 10.*"}}"#),
        ),
        (
            "a: {t: https://x/y.tgz}\nb: |-\n  one\n  two\nc:\n",
            Some(r#"{"a":{"t":"https://x/y.tgz"},"b":"one\ntwo\n","c":null}"#),
        ),
        ("a: 1\na: 2\n", None),
        ("a: {b: 1, b: 2}\n", None),
        ("a: &x 1\nb: *x\n", None),
        ("a: !t 1\n", None),
        ("? a\n: b\n", None),
        ("a: 1\n---\nb: 1\n", None),
        ("a: 1\n  b: 2\n", None),
        ("\ta: 1\n", None),
        ("<<: {a: 1}\n", None),
    ] {
        assert_eq!(read(text).as_deref(), expected, "{text:?}");
    }
}

proptest::proptest! {
    #[test]
    fn nothing_panics(name in "(package-lock[.]json|(yarn|bun|Gemfile|composer|uv)[.]lock|pnpm-lock[.]yaml|go[.]sum)", text in "([a-z@:/., {}\\[\\]\"'|>#*&!?\\\\é-]{0,30}\n){0,6}") {
        let file = PackageFile::of(&name).unwrap();
        super::parse(&file, text.as_bytes());
        super::yaml::parse(&text);
    }
}
