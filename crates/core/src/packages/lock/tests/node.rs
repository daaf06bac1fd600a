//! Lock files of yarn, pnpm and bun.

use super::{Change, NPM_MANIFEST, check};

#[test]
fn first_yarn() {
    let base = "# yarn lockfile v1\n\n\nis-number@^6.0.0:\n  version \"6.0.0\"\n  resolved \"https://registry.yarnpkg.com/is-number/-/is-number-6.0.0.tgz#e6d1\"\n  integrity sha512-six\n\nis-odd@3.0.1:\n  version \"3.0.1\"\n  resolved \"https://registry.yarnpkg.com/is-odd/-/is-odd-3.0.1.tgz#6510\"\n  integrity sha512-odd\n  dependencies:\n    is-number \"^6.0.0\"\n\nuvu@0.5.6:\n  version \"0.5.6\"\n  resolved \"https://registry.yarnpkg.com/uvu/-/uvu-0.5.6.tgz#2754\"\n  integrity sha512-uvu\n";
    let uvu = "https://registry.yarnpkg.com/uvu/-/uvu-0.5.6.tgz#2754";
    check(
        "yarn.lock",
        NPM_MANIFEST,
        base,
        &[
            Change {
                what: "a version that was there for another",
                edits: &[("is-number@^6.0.0:", "is-number@6.0.0, is-number@^6.0.0:")],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a package",
                edits: &[(
                    "is-number@^6",
                    "cowsay@1.6.0:\n  version \"1.6.0\"\n  resolved \"https://registry.yarnpkg.com/cowsay/-/cowsay-1.6.0.tgz#11\"\n  integrity sha512-cow\n\nis-number@^6",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "an archive of the project, with the old lines under a made-up header",
                edits: &[
                    (uvu, "file:./assets/u.tgz#1234"),
                    (
                        "uvu@0.5.6:",
                        "\"uvu@^0.5.0\":\n  version \"0.5.6\"\n  resolved \"https://registry.yarnpkg.com/uvu/-/uvu-0.5.6.tgz#2754\"\n  integrity sha512-uvu\n\nuvu@0.5.6:",
                    ),
                ],
                replaced: &["(uvu is file:./assets/u.tgz now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "another version for who asked, and the old one for nobody",
                edits: &[
                    (
                        "uvu@0.5.6:\n  version \"0.5.6\"",
                        "uvu@^9:\n  version \"0.5.6\"",
                    ),
                    (
                        "# yarn lockfile v1",
                        "# yarn lockfile v1\nuvu@0.5.6:\n  version \"0.5.0\"\n  resolved \"https://registry.yarnpkg.com/uvu/-/uvu-0.5.0.tgz#11\"\n",
                    ),
                ],
                replaced: &[],
                left_out: "uvu@0.5.6 is another version than on the branch",
            },
            Change {
                what: "a header twice",
                edits: &[(
                    "uvu@0.5.6:",
                    "uvu@0.5.6:\n  version \"0.5.6\"\n\nuvu@0.5.6:",
                )],
                replaced: &["(it cannot be read now)"],
                left_out: "its format is not read",
            },
        ],
    );
}

#[test]
fn later_yarns() {
    let base = "__metadata:\n  version: 8\n  cacheKey: 10c0\n\n\"demo@workspace:.\":\n  version: 0.0.0-use.local\n  resolution: \"demo@workspace:.\"\n  dependencies:\n    uvu: \"npm:0.5.6\"\n  languageName: unknown\n  linkType: soft\n\n\"uvu@npm:0.5.6\":\n  version: 0.5.6\n  resolution: \"uvu@npm:0.5.6\"\n  bin:\n    uvu: bin.js\n  checksum: 10c0/1234\n  languageName: node\n  linkType: hard\n";
    let added = |more: &str| {
        format!(
            "    uvu: \"npm:0.5.6\"\n    zod: \"npm:^3\"\n  languageName: unknown\n  linkType: soft\n\n{more}"
        )
    };
    let place = "    uvu: \"npm:0.5.6\"\n  languageName: unknown\n  linkType: soft\n";
    let zod = added(
        "\"zod@npm:^3\":\n  version: 3.0.0\n  resolution: \"zod@npm:3.0.0\"\n  checksum: 10c0/33\n  languageName: node\n  linkType: hard\n",
    );
    let typescript = added(
        "\"typescript@patch:typescript@npm%3A^5#optional!builtin<compat/typescript>\":\n  version: 5.4.5\n  resolution: \"typescript@patch:typescript@npm%3A5.4.5#optional!builtin<compat/typescript>::version=5.4.5&hash=5786d5\"\n  bin:\n    tsc: bin/tsc\n  checksum: 10c0/44\n  languageName: node\n  linkType: hard\n",
    );
    let thief = zod.replace(
        "  checksum: 10c0/33",
        "  bin:\n    uvu: zod.js\n  checksum: 10c0/33",
    );
    check(
        "yarn.lock",
        NPM_MANIFEST,
        base,
        &[
            Change {
                what: "a package",
                edits: &[(place, &zod)],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a package that yarn itself corrects",
                edits: &[(place, &typescript)],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "the program of another package",
                edits: &[(place, &thief)],
                replaced: &["(zod brings the program uvu of uvu now: add another package)"],
                left_out: "zod brings the program uvu of uvu",
            },
            Change {
                what: "a patch of the project",
                edits: &[(
                    "resolution: \"uvu@npm:0.5.6\"",
                    "resolution: \"uvu@patch:uvu@npm%3A0.5.6#./x.patch\"",
                )],
                replaced: &["(uvu is patch:uvu@npm%3A0.5.6#./x.patch now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "another archive",
                edits: &[("10c0/1234", "10c0/5678")],
                replaced: &["(uvu 0.5.6 has other files or programs now: the tool must write it)"],
                left_out: "uvu 0.5.6 is told differently",
            },
        ],
    );
}

#[test]
fn pnpm() {
    let base = "lockfileVersion: '9.0'\n\nsettings:\n  autoInstallPeers: true\n\nimporters:\n\n  .:\n    devDependencies:\n      uvu:\n        specifier: 0.5.6\n        version: 0.5.6\n\npackages:\n\n  uvu@0.5.6:\n    resolution: {integrity: sha512-uvu}\n    engines: {node: '>=8'}\n    hasBin: true\n\nsnapshots:\n\n  uvu@0.5.6: {}\n";
    let zod = (
        "packages:\n",
        "packages:\n\n  zod@3.0.0:\n    resolution: {integrity: sha512-zod}\n",
    );
    check(
        "pnpm-lock.yaml",
        NPM_MANIFEST,
        base,
        &[
            Change {
                what: "a package",
                edits: &[
                    zod,
                    (
                        "  .:\n",
                        "  .:\n    dependencies:\n      zod:\n        specifier: ^3\n        version: 3.0.0\n",
                    ),
                ],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "an archive of the project",
                edits: &[(
                    "{integrity: sha512-uvu}",
                    "{integrity: sha512-uvu, tarball: file:assets/u.tgz}",
                )],
                replaced: &["(uvu is file:assets/u.tgz now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "another archive",
                edits: &[("sha512-uvu", "sha512-zod")],
                replaced: &["(uvu 0.5.6 has other files or programs now: the tool must write it)"],
                left_out: "uvu 0.5.6 is told differently",
            },
            Change {
                what: "another version for the project, the old one for nobody",
                edits: &[zod, ("        version: 0.5.6", "        version: 0.5.0")],
                replaced: &[],
                left_out: "uvu for folder . is another version than on the branch",
            },
            Change {
                what: "a patch of the project",
                edits: &[
                    (
                        "        version: 0.5.6",
                        "        version: 0.5.6(patch_hash=11)",
                    ),
                    (
                        "importers:\n",
                        "patchedDependencies:\n  uvu@0.5.6:\n    hash: 11\n    path: x.patch\n\nimporters:\n",
                    ),
                ],
                replaced: &[],
                left_out: "it changes what counts for all packages",
            },
            Change {
                what: "what only YAML knows",
                edits: &[("{integrity: sha512-uvu}", "&x {integrity: sha512-uvu}")],
                replaced: &["(it cannot be read now)"],
                left_out: "its format is not read",
            },
        ],
    );
}

#[test]
fn bun() {
    let base = r#"{
  "lockfileVersion": 1,
  "workspaces": {
    "": {
      "name": "demo",
      "devDependencies": { "is-odd": "3.0.1", "uvu": "0.5.6", },
    },
  },
  "packages": {
    "is-number": ["is-number@6.0.0", "", {}, "sha512-six"],

    "is-odd": ["is-odd@3.0.1", "", { "dependencies": { "is-number": "^6.0.0" } }, "sha512-odd"],

    "uvu": ["uvu@0.5.6", "", { "bin": { "uvu": "bin.js" } }, "sha512-uvu"],
  }
}
"#;
    let first = "    \"is-number\": [\"is-number@6.0.0\", \"\", {}, \"sha512-six\"],\n";
    check(
        "bun.lock",
        NPM_MANIFEST,
        base,
        &[
            Change {
                what: "another version, for which the one that was there moves",
                edits: &[(
                    first,
                    "    \"is-number\": [\"is-number@7.0.0\", \"\", {}, \"sha512-seven\"],\n    \"is-odd/is-number\": [\"is-number@6.0.0\", \"\", {}, \"sha512-six\"],\n",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "the program of another package",
                edits: &[(
                    first,
                    "    \"cowsay\": [\"cowsay@1.6.0\", \"\", { \"bin\": { \"uvu\": \"cli.js\" } }, \"sha512-cow\"],\n    \"is-number\": [\"is-number@6.0.0\", \"\", {}, \"sha512-six\"],\n",
                )],
                replaced: &["(cowsay brings the program uvu of uvu now: add another package)"],
                left_out: "cowsay brings the program uvu of uvu",
            },
            Change {
                what: "an archive of the project",
                edits: &[("[\"uvu@0.5.6\", \"\",", "[\"uvu@./assets/u.tgz\",")],
                replaced: &["(uvu is ./assets/u.tgz now)"],
                left_out: "uvu 0.5.6 of the branch is gone",
            },
            Change {
                what: "an address",
                edits: &[(
                    "[\"uvu@0.5.6\", \"\",",
                    "[\"uvu@0.5.6\", \"https://example.com/u.tgz\",",
                )],
                replaced: &["(uvu is https://example.com/u.tgz now)"],
                left_out: "uvu 0.5.6 is told differently",
            },
        ],
    );
}
