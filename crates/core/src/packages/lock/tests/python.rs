//! Lock files of Python.

use super::{Change, check};

#[test]
fn uv() {
    let base = "version = 1\nrevision = 3\nrequires-python = \">=3.9\"\n\n[[package]]\nname = \"demo\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [\n    { name = \"pytest\" },\n]\n\n[[package]]\nname = \"pytest\"\nversion = \"8.2.0\"\nsource = { registry = \"https://pypi.org/simple\" }\nsdist = { url = \"https://files.pythonhosted.org/packages/09/pytest-8.2.0.tar.gz\", hash = \"sha256:d5\", size = 1 }\nwheels = [\n    { url = \"https://files.pythonhosted.org/packages/c4/pytest-8.2.0-py3-none-any.whl\", hash = \"sha256:17\", size = 1 },\n]\n";
    let manifest = ("pyproject.toml", "[project]\ndependencies = [\"pytest\"]\n");
    let wheel = "https://files.pythonhosted.org/packages/c4/pytest-8.2.0-py3-none-any.whl";
    let own = "[[package]]\nname = \"demo\"";
    let six = "[[package]]\nname = \"six\"\nversion = \"1.17.0\"\nsource = { registry = \"https://pypi.org/simple\" }\nwheels = [\n    { url = \"https://files.pythonhosted.org/packages/b7/six-1.17.0-py3-none-any.whl\", hash = \"sha256:47\" },\n]\n\n[[package]]\nname = \"demo\"";
    let asked = (
        "    { name = \"pytest\" },\n",
        "    { name = \"pytest\" },\n    { name = \"six\" },\n",
    );
    check(
        "uv.lock",
        manifest,
        base,
        &[
            Change {
                what: "a package",
                edits: &[(own, six), asked],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a wheel for another machine, and times",
                edits: &[(
                    "\", hash = \"sha256:17\", size = 1 },\n",
                    "\", hash = \"sha256:17\", size = 1, upload-time = \"2024-01-01T00:00:00Z\" },\n    { url = \"https://files.pythonhosted.org/packages/c5/pytest-8.2.0-cp313-none-any.whl\", hash = \"sha256:18\" },\n",
                )],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "a file instead of the wheel",
                edits: &[
                    (wheel, "file:///srv/x/pytest-8.2.0-py3-none-any.whl"),
                    ("sha256:17", "sha256:18"),
                ],
                replaced: &["(pytest is file:///srv/x/pytest-8.2.0-py3-none-any.whl now)"],
                left_out: "pytest 8.2.0 is told differently",
            },
            Change {
                what: "a path instead of the wheel",
                edits: &[(
                    "{ url = \"https://files.pythonhosted.org/packages/c4/pytest-8.2.0-py3-none-any.whl\"",
                    "{ path = \"assets/pytest-8.2.0-py3-none-any.whl\"",
                )],
                replaced: &["(pytest is assets/pytest-8.2.0-py3-none-any.whl now)"],
                left_out: "pytest 8.2.0 is told differently",
            },
            Change {
                what: "another wheel of the same name",
                edits: &[("/c4/", "/aa/"), ("sha256:17", "sha256:18")],
                replaced: &[
                    "(pytest 8.2.0 has other files or programs now: the tool must write it)",
                ],
                left_out: "pytest 8.2.0 is told differently",
            },
            Change {
                what: "the wheel of another package",
                edits: &[(
                    wheel,
                    "https://files.pythonhosted.org/packages/aa/evil-1.0-py3-none-any.whl",
                )],
                replaced: &[
                    "(pytest is https://files.pythonhosted.org/packages/aa/evil-1.0-py3-none-any.whl now)",
                ],
                left_out: "pytest 8.2.0 is told differently",
            },
            Change {
                what: "a package of a folder",
                edits: &[
                    (own, six),
                    (
                        "source = { registry = \"https://pypi.org/simple\" }\nwheels = [\n    { url = \"https://files.pythonhosted.org/packages/b7",
                        "source = { path = \"six\" }\nwheels = [\n    { url = \"https://files.pythonhosted.org/packages/b7",
                    ),
                ],
                replaced: &[],
                left_out: "six is {\"path\":\"six\"}",
            },
            Change {
                what: "another version beside the one that was there",
                edits: &[
                    (own, six),
                    ("name = \"six\"\nversion", "name = \"pytest\"\nversion"),
                    ("six-1.17.0", "pytest-1.17.0"),
                ],
                replaced: &[],
                left_out: "pytest 1.17.0 comes beside that of the branch",
            },
        ],
    );
}

#[test]
fn poetry() {
    let base = "[[package]]\nname = \"idna\"\nversion = \"3.7\"\noptional = false\nfiles = [\n    {file = \"idna-3.7-py3-none-any.whl\", hash = \"sha256:82\"},\n]\n\n[metadata]\ncontent-hash = \"11\"\n";
    let manifest = (
        "pyproject.toml",
        "[tool.poetry.dependencies]\nidna = \"3.7\"\n",
    );
    let six = "[[package]]\nname = \"six\"\nversion = \"1.17.0\"\nfiles = [\n    {file = \"six-1.17.0-py3-none-any.whl\", hash = \"sha256:47\"},\n]\n\n[metadata]";
    check(
        "poetry.lock",
        manifest,
        base,
        &[
            Change {
                what: "a package",
                edits: &[("[metadata]", six), ("\"11\"", "\"12\"")],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "another archive",
                edits: &[("sha256:82", "sha256:83")],
                replaced: &["(idna 3.7 has other files or programs now: the tool must write it)"],
                left_out: "idna 3.7 is told differently",
            },
            Change {
                what: "a folder",
                edits: &[(
                    "\n[metadata]",
                    "\n[package.source]\ntype = \"directory\"\nurl = \"x\"\n\n[metadata]",
                )],
                replaced: &["(idna is {\"type\":\"directory\",\"url\":\"x\"} now)"],
                left_out: "idna 3.7 is told differently",
            },
        ],
    );
}

#[test]
fn pipenv() {
    let base = r#"{"_meta": {"hash": {"sha256": "7c"}, "sources": [{"name": "pypi", "url": "https://pypi.org/simple", "verify_ssl": true}]},
"default": {"idna": {"hashes": ["sha256:02", "sha256:82"], "index": "pypi", "version": "==3.7"}},
"develop": {"pytest": {"hashes": ["sha256:17"], "version": "==8.2.0"}}}"#;
    let manifest = ("Pipfile", "[packages]\nidna = \"==3.7\"\n");
    let elsewhere = &[
        "(idna is from https://example.com/simple now)",
        "(pytest is from https://example.com/simple now)",
    ];
    check(
        "Pipfile.lock",
        manifest,
        base,
        &[
            Change {
                what: "a package, which changes the digest of all",
                edits: &[
                    ("\"7c\"", "\"8d\""),
                    (
                        "\"default\": {",
                        "\"default\": {\"six\": {\"hashes\": [\"sha256:47\"], \"version\": \"==1.17.0\"}, ",
                    ),
                ],
                replaced: &[],
                left_out: "",
            },
            Change {
                what: "another index under the same name",
                edits: &[("https://pypi.org/simple", "https://example.com/simple")],
                replaced: elsewhere,
                left_out: "idna ==3.7 is told differently",
            },
            Change {
                what: "an index in front",
                edits: &[(
                    "\"sources\": [",
                    "\"sources\": [{\"name\": \"x\", \"url\": \"file:///x\"}, ",
                )],
                replaced: &["(pytest is file:///x now)"],
                left_out: "pytest ==8.2.0 is told differently",
            },
            Change {
                what: "a file",
                edits: &[(
                    "\"version\": \"==8.2.0\"",
                    "\"file\": \"./x.whl\", \"version\": \"==8.2.0\"",
                )],
                replaced: &["(pytest is ./x.whl now)"],
                left_out: "pytest ==8.2.0 is told differently",
            },
        ],
    );
}
