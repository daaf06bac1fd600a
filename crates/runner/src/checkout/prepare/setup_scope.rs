//! Which files setup reads, as far as its command tells: the manifests of package managers, or
//! everything where it installs or compiles the project itself. Decided from text alone.

/// What a change must touch for setup to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputScope {
    /// Lock files and manifests.
    Manifests,
    /// Any file.
    WholeTree,
}

/// Lock files and manifests, in whichever folder.
const MANIFESTS: &[&str] = &[
    "package.json",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    ".pnpmfile.cjs",
    "yarn.lock",
    ".yarnrc",
    ".yarnrc.yml",
    ".npmrc",
    ".nvmrc",
    ".node-version",
    "bun.lock",
    "bun.lockb",
    "bunfig.toml",
    "lerna.json",
    "pyproject.toml",
    "uv.lock",
    "uv.toml",
    "poetry.lock",
    "poetry.toml",
    "pdm.lock",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "Pipfile.lock",
    "pip.conf",
    ".python-version",
    "environment.yml",
    "Gemfile",
    "Gemfile.lock",
    "gems.rb",
    "gems.locked",
    ".ruby-version",
    "go.mod",
    "go.sum",
    "go.work",
    "go.work.sum",
    "composer.json",
    "composer.lock",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain",
    "rust-toolchain.toml",
    "mix.exs",
    "mix.lock",
    "pubspec.yaml",
    "pubspec.lock",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "gradle.lockfile",
    "gradle.properties",
    ".tool-versions",
    "mise.toml",
];

/// Whether a package manager reads this file.
pub(super) fn is_manifest(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_list = name.strip_suffix(".txt").is_some_and(|stem| {
        let in_folder = folder.rsplit('/').next() == Some("requirements");
        in_folder || stem.contains("requirements") || stem.starts_with("constraints")
    });
    MANIFESTS.contains(&name)
        || is_list
        || name.strip_suffix(".gemspec").is_some()
        // Patches that package managers apply, and plugins of theirs.
        || path.contains(".yarn/patches/")
        || path.contains(".yarn/plugins/")
        || path.contains(".yarn/releases/")
        || folder.split('/').any(|part| part == "patches")
}

/// Programs that only prepare for what comes after them.
const NEUTRAL: &[&str] = &[
    "cd", "true", ":", "echo", "export", "set", "mkdir", "test", "[", "corepack", "umask", "ulimit",
];

/// What the command of setup reads; a program that is not known may read anything.
pub(super) fn scope_of(setup: &[String]) -> InputScope {
    match commands(setup) {
        Some(commands) if commands.iter().all(|words| reads_manifests(words)) => {
            InputScope::Manifests
        }
        _ => InputScope::WholeTree,
    }
}

fn reads_manifests(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str).filter(|word| {
        // `A=b program`, `env A=b program`.
        *word != "env" && *word != "exec" && !is_assignment(word)
    });
    let Some(program) = words.next() else {
        return true;
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    let words: Vec<&str> = words.collect();
    let has = |wanted: &str| words.contains(&wanted);
    let verb = words.iter().find(|word| !word.starts_with('-')).copied();
    if NEUTRAL.contains(&program) {
        return true;
    }
    match name {
        "npm" => matches!(verb, Some("ci" | "install" | "i" | "clean-install")),
        "pnpm" | "bun" => matches!(verb, Some("install" | "i" | "ci")),
        "yarn" => matches!(verb, None | Some("install")),
        "bundle" | "bundler" => matches!(verb, None | Some("install" | "config")),
        "go" => words.starts_with(&["mod", "download"]),
        "cargo" => matches!(verb, Some("fetch")),
        "composer" => matches!(verb, Some("install")),
        "uv" => match verb {
            Some("sync") => has("--no-install-project") || has("--no-install-workspace"),
            Some("venv") => true,
            Some("pip") => is_plain_pip(&words[1..]),
            _ => false,
        },
        "poetry" => verb == Some("install") && has("--no-root"),
        "pipenv" => matches!(verb, Some("install" | "sync")) && !installs_local(&words),
        _ if is_python(name) => match words.as_slice() {
            ["-m", "venv" | "virtualenv" | "ensurepip", ..] => true,
            ["-m", "pip", rest @ ..] => is_plain_pip(rest),
            _ => false,
        },
        "virtualenv" => true,
        _ if name.starts_with("pip") => is_plain_pip(&words),
        _ => false,
    }
}

/// Whether pip, or what takes its words, installs packages that others made.
fn is_plain_pip(words: &[&str]) -> bool {
    let verb = words.iter().find(|word| !word.starts_with('-')).copied();
    matches!(verb, Some("install" | "sync" | "download")) && !installs_local(words)
}

/// Whether something of the project itself is installed: `-e .`, `.`, `./lib`, `.[dev]`.
fn installs_local(words: &[&str]) -> bool {
    let mut is_file_name = false;
    for word in words {
        // What follows these is a list of requirements, which is a manifest.
        let named = std::mem::replace(
            &mut is_file_name,
            matches!(*word, "-r" | "--requirement" | "-c" | "--constraint"),
        );
        let is_local = word.starts_with('.') || word.starts_with('/') || word.contains("file:");
        if *word == "-e" || word.starts_with("--editable") || (is_local && !named) {
            return true;
        }
    }
    false
}

fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python");
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(is_name)
    })
}

/// The commands of a setup, each as words; `None` where a shell would have to be asked.
fn commands(setup: &[String]) -> Option<Vec<Vec<String>>> {
    let [shell, option, script] = setup else {
        return Some(vec![setup.to_vec()]);
    };
    let is_shell = matches!(shell.as_str(), "sh" | "bash" | "/bin/sh" | "/bin/bash");
    if !is_shell || !option.starts_with('-') || !option.ends_with('c') {
        return Some(vec![setup.to_vec()]);
    }
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in script.chars() {
        match (quote, c) {
            (_, '$' | '`' | '(' | ')' | '\\' | '{' | '<') => return None,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '&' | '|' | ';' | '\n') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain(|words| !words.is_empty());
    quote.is_none().then_some(all)
}

/// Scripts of a package that run when its dependencies are installed.
const INSTALL_HOOKS: &[&str] = &[
    "preinstall",
    "install",
    "postinstall",
    "prepublish",
    "preprepare",
    "prepare",
    "postprepare",
];

/// Whether this manifest makes an install of packages run code of the project, or read it.
pub(super) fn runs_project(path: &str, text: &[u8]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name {
        "package.json" => {
            let Ok(package) = serde_json::from_slice::<serde_json::Value>(text) else {
                return true;
            };
            let has_hook = INSTALL_HOOKS.iter().any(|hook| {
                let script = package["scripts"][hook].as_str();
                // Hooks of git are no matter of the guard's.
                script.is_some_and(|script| !matches!(script.trim(), "husky" | "husky install"))
            });
            has_hook || copies_folders(&package)
        }
        "composer.json" => {
            let Ok(package) = serde_json::from_slice::<serde_json::Value>(text) else {
                return true;
            };
            let has_hook = package["scripts"].as_object().is_some_and(|scripts| {
                scripts.keys().any(|name| {
                    ["install", "autoload"]
                        .iter()
                        .any(|part| name.contains(part))
                })
            });
            // Folders are linked, unless it says otherwise.
            let copies = package["repositories"]
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["options"]["symlink"] == false));
            let config = &package["config"];
            let reads = |autoload: &str| package[autoload]["classmap"].is_array();
            has_hook
                || copies
                || reads("autoload")
                || reads("autoload-dev")
                || config["optimize-autoloader"] == true
                || config["classmap-authoritative"] == true
        }
        "Pipfile" => {
            let text = String::from_utf8_lossy(text);
            text.contains("path =") || text.contains("path=") || text.contains("file:")
        }
        _ if path.strip_suffix(".txt").is_some() => {
            String::from_utf8_lossy(text).lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first().is_some_and(|first| !first.starts_with('#')) && installs_local(&words)
            })
        }
        _ => false,
    }
}

/// Lists of a package.json in which packages are named.
const PACKAGE_LISTS: &[&str] = &[
    "dependencies",
    "devDependencies",
    "optionalDependencies",
    "resolutions",
];

/// Whether an install may copy folders of the project, as every package manager but npm does with
/// `file:`.
fn copies_folders(package: &serde_json::Value) -> bool {
    let is_folder = |place: &str| {
        let path = place.strip_prefix("file:").or_else(|| {
            let is_path = place.starts_with("./") || place.starts_with("../");
            is_path.then_some(place)
        });
        let is_archive = |path: &str| {
            let endings = [".tgz", ".tar.gz", ".tar"];
            endings.iter().any(|ending| path.ends_with(ending))
        };
        path.is_some_and(|path| !is_archive(path))
    };
    let values = |list: &str| {
        let list = package[list].as_object();
        list.into_iter().flat_map(serde_json::Map::values)
    };
    let mut named = PACKAGE_LISTS.iter().flat_map(|list| values(list));
    named.any(|place| place.as_str().is_some_and(is_folder))
        || values("dependenciesMeta").any(|meta| meta["injected"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(setup: &[&str], expected: InputScope) {
        let setup: Vec<String> = setup.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(scope_of(&setup), expected, "{setup:?}");
    }

    #[test]
    fn what_only_installs_packages() {
        for script in [
            "npm ci",
            "npm install --no-audit",
            "pnpm install --frozen-lockfile",
            "yarn install --immutable",
            "yarn",
            "cd web && npm ci",
            "npm ci && uv sync --frozen --no-install-project",
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
            "python3 -m venv .venv\n.venv/bin/python -m pip install -q pytest",
            "pip install -r ./requirements/dev.txt",
            "uv venv; uv pip install -r requirements.txt",
            "POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install --no-root",
            "env A=b bundle install",
            "go mod download",
            "cargo fetch",
            "composer install --no-interaction",
            "corepack enable && pnpm i",
        ] {
            check(&["sh", "-c", script], InputScope::Manifests);
        }
        check(&["npm", "ci"], InputScope::Manifests);
    }

    #[test]
    fn what_may_read_anything() {
        for script in [
            "pip install -e .",
            "pip install .",
            "pip install '.[dev]'",
            "pip install ./libs/a",
            "pip install --editable=.",
            "python3 -m pip install -e '.[test]'",
            "uv sync --frozen",
            "uv pip install -e .",
            "poetry install",
            "npm run build",
            "npm ci && npm run build",
            "pnpm -r build",
            "make",
            "cargo build",
            "sh tools/setup.sh",
            "./setup",
            "npm ci --prefix $WEB",
            "npm ci $(cat options)",
            "echo 'unfinished",
            "go build ./...",
        ] {
            check(&["sh", "-c", script], InputScope::WholeTree);
        }
        check(&["make", "deps"], InputScope::WholeTree);
        check(&["sh", "setup.sh"], InputScope::WholeTree);
    }

    #[test]
    fn manifests() {
        for (path, expected) in [
            ("package.json", true),
            ("packages/a/package.json", true),
            ("requirements.txt", true),
            ("requirements-dev.txt", true),
            ("dev-requirements.txt", true),
            ("requirements/base.txt", true),
            ("constraints.txt", true),
            ("a.gemspec", true),
            ("Cargo.toml", true),
            ("patches/left-pad.patch", true),
            ("notes.txt", false),
            ("src/main.rs", false),
            ("package.json.bak", false),
        ] {
            assert_eq!(is_manifest(path), expected, "{path}");
        }
    }

    #[test]
    fn manifests_that_run_the_project() {
        for (path, text, expected) in [
            ("package.json", r#"{"scripts": {"test": "x"}}"#, false),
            ("package.json", r#"{"scripts": {"prepare": "tsc"}}"#, true),
            (
                "a/package.json",
                r#"{"scripts": {"postinstall": "x"}}"#,
                true,
            ),
            (
                "package.json",
                r#"{"scripts": {"prepare": "husky"}}"#,
                false,
            ),
            ("package.json", "not json", true),
            (
                "package.json",
                r#"{"dependencies": {"a": "^1", "b": "workspace:*", "c": "link:./c"}}"#,
                false,
            ),
            (
                "package.json",
                r#"{"devDependencies": {"a": "file:./a-1.0.0.tgz"}}"#,
                false,
            ),
            ("package.json", r#"{"dependencies": {"a": "file:a"}}"#, true),
            ("package.json", r#"{"dependencies": {"a": "../a"}}"#, true),
            (
                "package.json",
                r#"{"dependenciesMeta": {"a": {"injected": true}}}"#,
                true,
            ),
            ("Pipfile", "[packages]\nrequests = '*'\n", false),
            ("Pipfile", "[packages]\na = {path = './a'}\n", true),
            (
                "composer.json",
                r#"{"repositories": [{"type": "path", "url": "a"}]}"#,
                false,
            ),
            (
                "composer.json",
                r#"{"repositories": [{"url": "a", "options": {"symlink": false}}]}"#,
                true,
            ),
            ("composer.json", r#"{"require": {}}"#, false),
            (
                "composer.json",
                r#"{"autoload": {"classmap": ["src/"]}}"#,
                true,
            ),
            (
                "composer.json",
                r#"{"scripts": {"post-install-cmd": "x"}}"#,
                true,
            ),
            (
                "requirements.txt",
                "pytest==8\n# -e .\n-r base.txt\n",
                false,
            ),
            ("requirements.txt", "pytest\n-e .\n", true),
            ("requirements.txt", "./libs/a\n", true),
            ("requirements.txt", "a @ file:///x\n", true),
            ("Cargo.toml", "[package]", false),
        ] {
            assert_eq!(
                runs_project(path, text.as_bytes()),
                expected,
                "{path} {text}"
            );
        }
    }
}
