//! `cargo test` and `cargo nextest run`.

use super::{GateTool, GuardedProject};

const LIB: (&str, &str) = (
    "src/lib.rs",
    "pub fn add(a: u32, b: u32) -> u32 {\n    a + b\n}\n\npub fn sub(_: u32, _: u32) -> u32 {\n    0\n}\n",
);

const TESTS: (&str, &str) = (
    "tests/sums.rs",
    "#[test]\nfn adds() {\n    assert_eq!(sums::add(1, 2), 3);\n}\n\n#[test]\nfn subs() {\n    assert_eq!(sums::sub(3, 2), 1);\n}\n",
);

const MANIFEST: (&str, &str) = (
    "Cargo.toml",
    "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
);

const FIX: &str = "sed -i 's/pub fn sub(_: u32, _: u32)/pub fn sub(a: u32, b: u32)/; s/^    0$/    a - b/' src/lib.rs";

pub(crate) const CARGO: GuardedProject = GuardedProject {
    kind: "cargo",
    guard: &["cargo", "test", "--offline"],
    tool: GateTool::System(&["cargo"]),
    files: &[
        (".gitignore", "target/\nCargo.lock\n"),
        MANIFEST,
        LIB,
        TESTS,
    ],
    fix: FIX,
    redefined: &[
        (
            "a runner of tests",
            "mkdir -p .cargo && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > .cargo/config.toml",
        ),
        (
            "another name of the same",
            "mkdir -p .cargo && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > .cargo/config",
        ),
        (
            "a link to a folder with a runner of tests",
            "mkdir -p dot && printf '[target.\"cfg(all())\"]\\nrunner = \"true\"\\n' > dot/config.toml && ln -s dot .cargo",
        ),
        (
            "another toolchain",
            "mkdir -p fake/bin && printf '#!/bin/sh\\n' > fake/bin/cargo && chmod +x fake/bin/cargo && printf '[toolchain]\\npath = \"%s/fake\"\\n' \"$PWD\" > rust-toolchain.toml",
        ),
        (
            "another toolchain by the older name",
            "mkdir -p fake/bin && printf '#!/bin/sh\\n' > fake/bin/cargo && chmod +x fake/bin/cargo && printf '[toolchain]\\npath = \"%s/fake\"\\n' \"$PWD\" > rust-toolchain",
        ),
        (
            "another compiler",
            "mkdir -p .cargo && printf '[build]\\nrustflags = [\"--cfg\", \"cheat\"]\\n' > .cargo/config.toml; \
             sed -i 's/^    0$/    if cfg!(cheat) { 1 } else { 0 }/' src/lib.rs",
        ),
        (
            "tests that are not found",
            "sed -i 's/^edition/autotests = false\\nedition/' Cargo.toml",
        ),
        (
            "a test that is none",
            "printf '[[test]]\\nname = \"sums\"\\ntest = false\\n' >> Cargo.toml",
        ),
        (
            "a test without a harness",
            "printf '[[test]]\\nname = \"sums\"\\nharness = false\\n' >> Cargo.toml; printf 'fn main() {}\\n' >> tests/sums.rs",
        ),
        (
            "a member of a workspace instead of the package",
            "mkdir -p other/src && printf '[package]\\nname = \"other\"\\nversion = \"0.1.0\"\\n' > other/Cargo.toml && : > other/src/lib.rs \
             && printf '[workspace]\\nmembers = [\"other\"]\\ndefault-members = [\"other\"]\\n' >> Cargo.toml",
        ),
    ],
    unproven: &[
        (
            "tests that are compiled away",
            "sed -i '1i #![cfg(any())]' tests/sums.rs",
        ),
        (
            "tests that are ignored",
            "sed -i 's/#.test./#[test]\\n#[ignore]/' tests/sums.rs",
        ),
        (
            "an exit before the tests",
            "printf '#[used]\\n#[link_section = \".init_array\"]\\nstatic EXIT: extern \"C\" fn() = { extern \"C\" fn exit() { std::process::exit(0) } exit };\\n' >> src/lib.rs; \
             sed -i 's/^    0$/    let _ = \\&EXIT;\\n    0/' src/lib.rs",
        ),
    ],
    told: &[
        (
            "a weakened test",
            "sed -i 's/sums::sub(3, 2), 1/sums::sub(3, 2), 0/' tests/sums.rs",
        ),
        (
            "a test that is ignored",
            "sed -i 's/^fn subs/#[ignore]\\nfn subs/' tests/sums.rs",
        ),
        (
            "a test that may panic",
            "sed -i 's/^fn subs/#[should_panic]\\nfn subs/' tests/sums.rs",
        ),
        ("a test that is gone", "sed -i '6,$d' tests/sums.rs"),
    ],
    honest: &[
        (
            "a dependency",
            "mkdir -p left/src && printf '[package]\\nname = \"left\"\\nversion = \"0.1.0\"\\n' > left/Cargo.toml \
             && : > left/src/lib.rs && printf '[dependencies]\\nleft = { path = \"left\" }\\n' >> Cargo.toml",
        ),
        (
            "a helper of tests",
            "mkdir -p tests/common && printf 'pub fn help() {}\\n' > tests/common/mod.rs",
        ),
        (
            "a feature",
            "printf '[features]\\nfast = []\\n' >> Cargo.toml",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/^fn adds/fn adds_numbers/' tests/sums.rs",
        ),
        (
            "a config of a new tool",
            "printf 'max_width = 100\\n' > rustfmt.toml",
        ),
        (
            "a manifest that is formatted",
            "printf '[package]\\nedition = \"2021\"\\nname = \"sums\"\\nversion = \"0.1.0\"\\n' > Cargo.toml",
        ),
        (
            "a new file of tests",
            "printf '#[test]\\nfn adds_nothing() {\\n    assert_eq!(sums::add(1, 0), 1);\\n}\\n' > tests/more.rs",
        ),
        (
            "an example",
            "mkdir examples; printf 'fn main() {}\\n' > examples/one.rs",
        ),
        (
            "a module with tests",
            "printf 'pub mod more;\\n' >> src/lib.rs; printf '#[test]\\nfn one() {}\\n' > src/more.rs",
        ),
        (
            "a description",
            "printf 'description = \"Sums\"\\nlicense = \"MIT\"\\n' >> Cargo.toml",
        ),
        (
            "a program",
            "mkdir src/bin; printf 'fn main() {}\\n' > src/bin/tool.rs",
        ),
        ("an ignore rule", "printf '*.out\\n' >> .gitignore"),
        (
            "a list of lints",
            "printf '[lints.rust]\\nunused = \"warn\"\\n' >> Cargo.toml",
        ),
        (
            "a config of another tool",
            "printf 'msrv = \"1.70\"\\n' > clippy.toml",
        ),
        (
            "a file of test data",
            "mkdir tests/data; echo 1 > tests/data/one.txt",
        ),
    ],
};

/// The manifest of a member says what a test is as well.
pub(crate) const CARGO_WORKSPACE: GuardedProject = GuardedProject {
    kind: "cargo",
    guard: &["cargo", "test", "--offline"],
    tool: GateTool::System(&["cargo"]),
    files: &[
        (".gitignore", "target/\nCargo.lock\n"),
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"add\", \"sub\"]\nresolver = \"2\"\n",
        ),
        (
            "add/Cargo.toml",
            "[package]\nname = \"add\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (
            "add/src/lib.rs",
            "#[test]\nfn adds() {\n    assert_eq!(1 + 2, 3);\n}\n",
        ),
        (
            "sub/Cargo.toml",
            "[package]\nname = \"sub\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (
            "sub/src/lib.rs",
            "pub fn sub(_a: u32, _b: u32) -> u32 {\n    0\n}\n\n#[test]\nfn subs() {\n    assert_eq!(sub(3, 2), 1);\n}\n",
        ),
    ],
    fix: "sed -i 's/^    0$/    _a - _b/' sub/src/lib.rs",
    redefined: &[
        (
            "a library without tests",
            "printf '[lib]\\ntest = false\\n' >> sub/Cargo.toml",
        ),
        (
            "another file in the place of the library",
            "printf '[lib]\\npath = \"src/other.rs\"\\n' >> sub/Cargo.toml; : > sub/src/other.rs",
        ),
        (
            "a member less",
            "sed -i 's/\"add\", \"sub\"/\"add\"/' Cargo.toml",
        ),
        (
            "members that are meant",
            "sed -i 's/^resolver/default-members = [\"add\"]\\nresolver/' Cargo.toml",
        ),
    ],
    unproven: &[],
    told: &[],
    honest: &[
        (
            "a dependency of a member",
            "printf '[dependencies]\\nadd = { path = \"../add\" }\\n' >> sub/Cargo.toml",
        ),
        (
            "metadata of a member",
            "sed -i 's/^edition/description = \"Subtracts\"\\nedition/' sub/Cargo.toml",
        ),
        (
            "a file of tests of a member",
            "mkdir add/tests; printf '#[test]\\nfn more() {}\\n' > add/tests/more.rs",
        ),
        (
            "a module of a member",
            "printf 'pub mod more;\\n' >> add/src/lib.rs; printf 'pub const ONE: u32 = 1;\\n' > add/src/more.rs",
        ),
        (
            "a config of a new tool",
            "printf 'max_width = 100\\n' > rustfmt.toml",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/fn adds/fn adds_numbers/' add/src/lib.rs",
        ),
    ],
};

pub(crate) const NEXTEST: GuardedProject = GuardedProject {
    kind: "nextest",
    guard: &["cargo", "nextest", "run", "--offline"],
    tool: GateTool::System(&["cargo", "cargo-nextest"]),
    files: &[
        (".gitignore", "target/\nCargo.lock\n"),
        MANIFEST,
        LIB,
        TESTS,
    ],
    fix: FIX,
    redefined: &[
        (
            "a filter",
            "mkdir -p .config && printf '[profile.default]\\ndefault-filter = \"test(adds)\"\\n' > .config/nextest.toml",
        ),
        (
            "a runner of tests",
            "mkdir .cargo; printf '[target.\"cfg(all())\"]\\nrunner = \"./run.sh\"\\n' > .cargo/config.toml; \
             printf '#!/bin/sh\\ncase \"$*\" in *--list*) exec \"$@\";; esac\\n' > run.sh; chmod +x run.sh",
        ),
        (
            "tests that are not found",
            "sed -i 's/^edition/autotests = false\\nedition/' Cargo.toml; printf '#[test]\\nfn one() {}\\n' >> src/lib.rs",
        ),
    ],
    unproven: &[],
    told: &[
        (
            "a weakened test",
            "sed -i 's/sums::sub(3, 2), 1/sums::sub(3, 2), 0/' tests/sums.rs",
        ),
        (
            "a test that is ignored",
            "sed -i 's/^fn subs/#[ignore]\\nfn subs/' tests/sums.rs",
        ),
    ],
    honest: &[
        (
            "a dependency",
            "mkdir -p left/src && printf '[package]\\nname = \"left\"\\nversion = \"0.1.0\"\\n' > left/Cargo.toml \
             && : > left/src/lib.rs && printf '[dependencies]\\nleft = { path = \"left\" }\\n' >> Cargo.toml",
        ),
        (
            "a test renamed with what it describes",
            "sed -i 's/^fn adds/fn adds_numbers/' tests/sums.rs",
        ),
        (
            "a helper of tests",
            "mkdir -p tests/common && printf 'pub fn help() {}\\n' > tests/common/mod.rs",
        ),
        (
            "a new file of tests",
            "printf '#[test]\\nfn adds_nothing() {\\n    assert_eq!(sums::add(1, 0), 1);\\n}\\n' > tests/more.rs",
        ),
        (
            "a config of a new tool",
            "printf 'max_width = 100\\n' > rustfmt.toml",
        ),
    ],
};
