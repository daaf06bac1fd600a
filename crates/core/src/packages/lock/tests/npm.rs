//! package-lock.json and package.json.

use super::{Change, NPM_MANIFEST, check};
use crate::packages::{BasePackages, PackageFiles, ReplacedPackage};

const NPM: &str = r#"{
  "name": "demo", "lockfileVersion": 3,
  "packages": {
    "": {"name": "demo", "devDependencies": {"is-odd": "3.0.1", "uvu": "0.5.6"}},
    "node_modules/is-number": {"version": "6.0.0", "resolved": "https://registry.npmjs.org/is-number/-/is-number-6.0.0.tgz", "integrity": "sha512-six", "dev": true},
    "node_modules/is-odd": {"version": "3.0.1", "resolved": "https://registry.npmjs.org/is-odd/-/is-odd-3.0.1.tgz", "integrity": "sha512-odd", "dev": true, "dependencies": {"is-number": "^6.0.0"}},
    "node_modules/uvu": {"version": "0.5.6", "resolved": "https://registry.npmjs.org/uvu/-/uvu-0.5.6.tgz", "integrity": "sha512-uvu", "dev": true, "bin": {"uvu": "bin.js"}}
  }
}
"#;

const NPM_FIRST: &str = "    \"node_modules/is-number\": {\"version\": \"6.0.0\"";

const NPM_COWSAY: &str = "    \"node_modules/cowsay\": {\"version\": \"1.6.0\", \"resolved\": \"https://registry.npmjs.org/cowsay/-/cowsay-1.6.0.tgz\", \"integrity\": \"sha512-cow\", \"bin\": {\"cowsay\": \"cli.js\"}},\n    \"node_modules/is-number\": {\"version\": \"6.0.0\"";

#[test]
fn npm() {
    let cow = (NPM_FIRST, NPM_COWSAY);
    let bin = "\"bin\": {\"cowsay\": \"cli.js\"}";
    let address = "https://registry.npmjs.org/cowsay/-/cowsay-1.6.0.tgz";
    check(
        "package-lock.json",
        NPM_MANIFEST,
        NPM,
        &[
            Change {
                what: "a package",
                edits: &[cow],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a package without its address, and others that count for more now",
                edits: &[
                    cow,
                    (
                        "\"resolved\": \"https://registry.npmjs.org/cowsay/-/cowsay-1.6.0.tgz\", ",
                        "",
                    ),
                    ("\"sha512-six\", \"dev\": true", "\"sha512-six\""),
                ],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "no address of what was there, as some machines write it",
                edits: &[(
                    "\"resolved\": \"https://registry.npmjs.org/uvu/-/uvu-0.5.6.tgz\", ",
                    "",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "another version, for which the one that was there moves",
                edits: &[
                    (
                        NPM_FIRST,
                        "    \"node_modules/is-number\": {\"version\": \"7.0.0\", \"resolved\": \"https://registry.npmjs.org/is-number/-/is-number-7.0.0.tgz\", \"integrity\": \"sha512-seven\"},\n    \"node_modules/is-odd/node_modules/is-number\": {\"version\": \"6.0.0\"",
                    ),
                    (
                        "\"devDependencies\": {\"is-odd\"",
                        "\"dependencies\": {\"is-number\": \"^7.0.0\"}, \"devDependencies\": {\"is-odd\"",
                    ),
                ],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a newer version of a package that brings its own program",
                edits: &[(
                    "    \"node_modules/uvu\": {",
                    "    \"node_modules/cow/node_modules/uvu\": {\"version\": \"0.5.7\", \"bin\": {\"uvu\": \"bin.js\"}},\n    \"node_modules/uvu\": {",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "another version instead",
                edits: &[
                    ("\"0.5.6\", \"resolved\"", "\"0.5.7\", \"resolved\""),
                    ("uvu-0.5.6", "uvu-0.5.7"),
                    ("sha512-uvu", "sha512-new"),
                ],
                replaced: &[],
                left_out: "uvu 0.5.6 of the branch is gone",
            },
            Change {
                what: "the program of another package",
                edits: &[cow, (bin, "\"bin\": {\"uvu\": \"cli.js\"}")],
                replaced: &["(cowsay brings the program uvu of uvu now: add another package)"],
                left_out: "cowsay brings the program uvu of uvu",
            },
            Change {
                what: "the name of another package as a program",
                edits: &[cow, (bin, "\"bin\": {\"is-odd\": \"cli.js\"}")],
                replaced: &[
                    "(cowsay brings the program is-odd of is-odd now: add another package)",
                ],
                left_out: "cowsay brings the program is-odd of is-odd",
            },
            Change {
                what: "a program of the guard's command",
                edits: &[cow, (bin, "\"bin\": {\"npm\": \"cli.js\"}")],
                replaced: &[
                    "(cowsay brings the program npm of the guard's command now: add another package)",
                ],
                left_out: "cowsay brings the program npm of the guard's command",
            },
            Change {
                what: "a program of every machine",
                edits: &[cow, (bin, "\"bin\": {\"node\": \"cli.js\"}")],
                replaced: &[
                    "(cowsay brings the program node of the system now: add another package)",
                ],
                left_out: "cowsay brings the program node of the system",
            },
            Change {
                what: "a program that a script calls: perhaps it was missing",
                edits: &[cow, (bin, "\"bin\": {\"checker\": \"cli.js\"}")],
                replaced: &[],
                left_out: "cowsay brings the program checker, which the branch's scripts call",
            },
            Change {
                what: "a program outside of the package",
                edits: &[cow, (bin, "\"bin\": {\"cowsay\": \"../../src/cow.js\"}")],
                replaced: &["(cowsay names files outside of its own folder now)"],
                left_out: "cowsay names files outside of its own folder",
            },
            Change {
                what: "scripts, which npm would run",
                edits: &[
                    cow,
                    (
                        bin,
                        "\"hasInstallScript\": true, \"scripts\": {\"install\": \"sh x\"}",
                    ),
                ],
                replaced: &["(cowsay has scripts in the lock file now)"],
                left_out: "cowsay has scripts in the lock file",
            },
            Change {
                what: "another file of the same package as its program",
                edits: &[("\"bin.js\"", "\"parse/index.js\"")],
                replaced: &["(uvu 0.5.6 has other files or programs now: the tool must write it)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "the archive of another package by its digest",
                edits: &[("sha512-uvu", "sha512-odd")],
                replaced: &["(uvu 0.5.6 has other files or programs now: the tool must write it)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "the archive of another version",
                edits: &[("uvu-0.5.6.tgz", "uvu-0.0.1.tgz")],
                replaced: &["(uvu is https://registry.npmjs.org/uvu/-/uvu-0.0.1.tgz now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "another version for who asked before",
                edits: &[(
                    "    \"node_modules/is-odd\": {",
                    "    \"node_modules/is-odd/node_modules/is-number\": {\"version\": \"3.0.0\", \"integrity\": \"sha512-three\"},\n    \"node_modules/is-odd\": {",
                )],
                replaced: &[],
                left_out: "is-number for is-odd 3.0.1 is another version than on the branch",
            },
            Change {
                what: "an archive of the project",
                edits: &[cow, (address, "file:assets/cow.tgz")],
                replaced: &[],
                left_out: "cowsay is file:assets/cow.tgz",
            },
            Change {
                what: "an archive of some address",
                edits: &[
                    cow,
                    (address, "https://example.com/cowsay/-/cowsay-1.6.0.tgz"),
                ],
                replaced: &[],
                left_out: "cowsay is from https://example.com",
            },
            Change {
                what: "an address that leads to another package",
                edits: &[
                    cow,
                    (
                        address,
                        "https://registry.npmjs.org/cowsay/-/../../evil/-/evil-1.0.0.tgz",
                    ),
                ],
                replaced: &[],
                left_out: "cowsay is https://registry.npmjs.org/cowsay/-/../../evil/-/evil-1.0.0.tgz",
            },
            Change {
                what: "a repository",
                edits: &[cow, (address, "git+ssh://git@github.com/x/cowsay.git#1234")],
                replaced: &[],
                left_out: "cowsay is git+ssh://git@github.com/x/cowsay.git#1234",
            },
            Change {
                what: "a folder of the project",
                edits: &[(
                    NPM_FIRST,
                    "    \"mine\": {\"version\": \"1.0.0\"},\n    \"node_modules/mine\": {\"resolved\": \"mine\", \"link\": true},\n    \"node_modules/is-number\": {\"version\": \"6.0.0\"",
                )],
                replaced: &[],
                left_out: "./mine is mine",
            },
            Change {
                what: "a folder of the project that brings the program of a package",
                edits: &[(
                    NPM_FIRST,
                    "    \"mine\": {\"version\": \"1.0.0\", \"bin\": {\"uvu\": \"x.js\"}},\n    \"node_modules/mine\": {\"resolved\": \"mine\", \"link\": true},\n    \"node_modules/is-number\": {\"version\": \"6.0.0\"",
                )],
                replaced: &["(./mine brings the program uvu of uvu now: add another package)"],
                left_out: "./mine is mine",
            },
            Change {
                what: "not JSON",
                edits: &[("\"packages\": {", "\"packages\": {{")],
                replaced: &["(it cannot be read now)"],
                left_out: "its format is not read",
            },
        ],
    );
}

#[test]
fn npm_of_both_versions() {
    let more = "  },\n  \"dependencies\": {\"uvu\": {\"version\": \"0.5.6\", \"integrity\": \"sha512-uvu\"}}\n}\n";
    let base = NPM.replace("  }\n}\n", more);
    check(
        "package-lock.json",
        NPM_MANIFEST,
        &base,
        &[
            Change {
                what: "the tree for older versions of npm alone",
                edits: &[(
                    "\"version\": \"0.5.6\", \"integrity\": \"sha512-uvu\"",
                    "\"version\": \"0.5.6\", \"integrity\": \"sha512-odd\"",
                )],
                replaced: &["(uvu 0.5.6 has other files or programs now: the tool must write it)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "a folder in it",
                edits: &[(
                    "{\"uvu\": {\"version\": \"0.5.6\"",
                    "{\"uvu\": {\"version\": \"file:mine\"",
                )],
                replaced: &["(uvu is file:mine now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
        ],
    );
}

#[test]
fn programs_of_the_projects_own_manifests() {
    let files = |part: &str| -> PackageFiles {
        [
            ("package-lock.json", NPM),
            NPM_MANIFEST,
            ("mine/package.json", part),
        ]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
        .into()
    };
    let before = files(r#"{"name": "mine"}"#);
    let known = BasePackages::of(&before, &[]);
    for (part, expected) in [
        (r#"{"name": "mine", "bin": {"mine": "x.js"}}"#, &[][..]),
        (
            r#"{"name": "mine", "bin": {"uvu": "x.js"}}"#,
            &["mine/package.json (mine brings the program uvu of uvu now: add another package)"],
        ),
    ] {
        let found = known.replaced_in(&files(part));
        let words: Vec<String> = found.iter().map(ReplacedPackage::words).collect();
        assert_eq!(words, expected);
    }
}
