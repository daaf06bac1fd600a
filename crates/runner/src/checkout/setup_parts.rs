//! Setup in two parts where it is given a token: what fetches runs no code of packages, and what
//! runs their code has neither the token nor a network. Decided from the config alone.

use runner_core::config::{ChildKind, Config, NetworkRule};

/// Options of package managers that say nothing about where they work or what they run.
const HARMLESS: &[&str] = &[
    "--frozen-lockfile",
    "--immutable",
    "--legacy-peer-deps",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--prod",
    "--production",
    "--silent",
    "--strict-peer-deps",
];

/// The project's own scripts that an install runs, in their order.
const OWN_SCRIPTS: &str = "preinstall install postinstall prepare";

/// The two parts of a setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetupParts {
    /// What has the token: it runs no code of packages.
    pub(crate) fetch: Vec<String>,
    /// What runs their code; `None` where there is nothing left to do.
    pub(crate) build: Option<Vec<String>>,
}

/// What gives setup a token: paths that only a config opens, and variables with such names.
pub(crate) fn tokens(config: &Config, looks_secret: impl Fn(&str) -> bool) -> Vec<String> {
    let opened = config.sandbox.readable_for(ChildKind::Setup);
    let variables = config.workspace.env.iter();
    let mut tokens: Vec<String> = opened.cloned().collect();
    tokens.extend(variables.filter(|name| looks_secret(name)).cloned());
    tokens
}

/// The config of the part that runs code of packages.
pub(crate) fn without_tokens(config: &Config, tokens: &[String]) -> Config {
    let mut config = config.clone();
    config.sandbox.readable.clear();
    config.sandbox.setup.readable.clear();
    config.sandbox.network.setup = NetworkRule::Off;
    config.workspace.env.retain(|name| !tokens.contains(name));
    config
}

/// The parts of a setup, where its tool has them.
pub(crate) fn parts(setup: &[String]) -> Option<SetupParts> {
    let words: Vec<&str> = setup.iter().map(String::as_str).collect();
    let (program, rest) = words.split_first()?;
    let plain = |options: &[&str]| options.iter().all(|it| HARMLESS.contains(it));
    let with = |option: &str| [setup, &[option.to_owned()]].concat();
    let fetch_only = || SetupParts {
        fetch: setup.to_owned(),
        build: None,
    };
    match (*program, rest) {
        ("cargo", ["fetch", ..]) | ("go", ["mod", "download", ..]) => Some(fetch_only()),
        ("npm" | "pnpm", ["ci" | "install" | "i" | "clean-install", options @ ..])
            if plain(options) =>
        {
            Some(SetupParts {
                fetch: with("--ignore-scripts"),
                build: Some(rebuild(program)),
            })
        }
        ("yarn", ["install", options @ ..])
            if plain(options) && options.contains(&"--immutable") =>
        {
            Some(SetupParts {
                fetch: with("--mode=skip-build"),
                build: Some(setup.to_owned()),
            })
        }
        _ => None,
    }
}

/// Files of a project in which a tool finds code that it runs while it only fetches, or where that
/// code is. They count where they lie in the folder that setup runs in.
pub(crate) fn code_files(setup: &[String]) -> &'static [&'static str] {
    match setup.first().map(String::as_str) {
        Some("cargo") => &[
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
        Some("npm") => &[".npmrc"],
        Some("pnpm") => &[
            ".npmrc",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            "pnpmfile.js",
            "pnpm-workspace.yaml",
        ],
        Some("yarn") => &[".yarnrc.yml", ".yarnrc"],
        _ => &[],
    }
}

/// Whether such a file is or names code that runs, by its text.
pub(crate) fn names_code(path: &str, text: &str) -> bool {
    const WORDS: &[&str] = &[
        "rustc",
        "credential-provider",
        "credential-alias",
        "path",
        "pnpmfile",
        "configdependencies",
        "plugins",
        "yarnpath",
        "yarn-path",
        "script-shell",
        "ignore-scripts",
        "node-options",
        "git",
    ];
    if path.contains("pnpmfile") {
        return true;
    }
    let keys = text.lines().filter_map(|line| {
        let line = line.trim().to_ascii_lowercase();
        let end = line.find(['=', ':'])?;
        Some(line[..end].trim().to_owned())
    });
    // A table is a key, too.
    let tables = text.lines().map(|line| line.trim().to_ascii_lowercase());
    let tables = tables.filter(|line| line.starts_with('['));
    keys.chain(tables).any(|key| {
        // `nodeLinker` of package managers is another matter.
        let is_linker = key.split('.').any(|part| part == "linker");
        is_linker || WORDS.iter().any(|word| key.contains(word))
    })
}

/// Runs the scripts of packages, then the project's own.
fn rebuild(program: &str) -> Vec<String> {
    let script = format!(
        "{program} rebuild && for script in {OWN_SCRIPTS}; do \
         {program} run --if-present --ignore-scripts \"$script\" || exit; done"
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn which_tools_have_parts() {
        for (setup, fetch, build) in [
            ("npm ci", "npm ci --ignore-scripts", Some("npm rebuild")),
            (
                "npm ci --no-audit",
                "npm ci --no-audit --ignore-scripts",
                Some("npm rebuild"),
            ),
            (
                "pnpm install --frozen-lockfile",
                "pnpm install --frozen-lockfile --ignore-scripts",
                Some("pnpm rebuild"),
            ),
            (
                "yarn install --immutable",
                "yarn install --immutable --mode=skip-build",
                Some("yarn install --immutable"),
            ),
            ("cargo fetch --locked", "cargo fetch --locked", None),
            ("go mod download", "go mod download", None),
        ] {
            let found = parts(&words(setup)).unwrap();
            assert_eq!(found.fetch, words(fetch));
            let shown = found.build.map(|it| it.join(" "));
            let begins = |build: &&str| shown.as_deref().is_some_and(|it| it.contains(build));
            assert_eq!(shown.is_some(), build.is_some());
            assert!(build.as_ref().is_none_or(begins), "{shown:?}");
        }
        for setup in [
            "npm ci --prefix web",
            "npm run setup",
            "yarn install --frozen-lockfile",
            "pip install -r requirements.txt",
            "bundle install",
            "make deps",
        ] {
            assert_eq!(parts(&words(setup)), None, "{setup}");
        }
        let shell = ["sh", "-c", "npm ci"].map(str::to_owned);
        assert_eq!(parts(&shell), None);
    }

    #[test]
    fn files_in_which_a_tool_finds_code() {
        for (setup, path, text, expected) in [
            (
                "cargo fetch",
                ".cargo/config.toml",
                "[build]\nrustc-wrapper = \"./x\"\n",
                true,
            ),
            (
                "cargo fetch",
                ".cargo/config.toml",
                "[registry]\nglobal-credential-providers = [\"./x\"]\n",
                true,
            ),
            (
                "cargo fetch",
                ".cargo/config.toml",
                "[term]\ncolor = \"never\"\n",
                false,
            ),
            (
                "cargo fetch",
                "rust-toolchain.toml",
                "[toolchain]\npath = \"./x\"\n",
                true,
            ),
            (
                "cargo fetch",
                "rust-toolchain.toml",
                "[toolchain]\nchannel = \"1.90\"\n",
                false,
            ),
            ("npm ci", ".npmrc", "script-shell=./x\n", true),
            ("npm ci", ".npmrc", "save-exact=true\n", false),
            ("pnpm install", ".pnpmfile.cjs", "", true),
            (
                "pnpm install",
                "pnpm-workspace.yaml",
                "packages:\n  - a\n",
                false,
            ),
            (
                "yarn install --immutable",
                ".yarnrc.yml",
                "yarnPath: x.cjs\n",
                true,
            ),
            (
                "yarn install --immutable",
                ".yarnrc.yml",
                "plugins:\n  - x.cjs\n",
                true,
            ),
            (
                "yarn install --immutable",
                ".yarnrc.yml",
                "nodeLinker: node-modules\n",
                false,
            ),
        ] {
            assert!(code_files(&words(setup)).contains(&path), "{setup} {path}");
            assert_eq!(names_code(path, text), expected, "{path} {text}");
        }
        assert!(code_files(&words("go mod download")).is_empty());
    }

    #[test]
    fn what_gives_a_token_and_what_is_left_without() {
        let text = "[workspace]\nenv = [\"NPM_TOKEN\", \"LEVEL\"]\n[sandbox]\nreadable = [\"~/.config/gh\"]\n\
                    [sandbox.setup]\nreadable = [\"~/.npmrc\"]\n[sandbox.guard]\nreadable = [\"~/x\"]\n";
        let config = Config::parse(text).unwrap();
        let found = tokens(&config, |name| name.contains("TOKEN"));
        assert_eq!(found, ["~/.config/gh", "~/.npmrc", "NPM_TOKEN"]);
        let left = without_tokens(&config, &found);
        assert_eq!(left.workspace.env, ["LEVEL"]);
        assert_eq!(left.sandbox.readable_for(ChildKind::Setup).count(), 0);
        assert_eq!(left.sandbox.network.setup, NetworkRule::Off);
        assert!(tokens(&Config::default(), |_| true).is_empty());
    }
}
