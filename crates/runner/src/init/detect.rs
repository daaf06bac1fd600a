//! Which guard and which agent a project most likely wants.

use std::path::Path;

use runner_core::config::Backend;

/// The guard's argv, and why.
pub(super) fn guard(root: &Path) -> (Vec<String>, String) {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for name in ["justfile", "Justfile", ".justfile"] {
        if has_target(root, name, "ci") {
            return (words("just ci"), format!("{name} has a recipe `ci`"));
        }
    }
    for target in ["ci", "test"] {
        if has_target(root, "Makefile", target) {
            return (
                vec!["make".to_owned(), target.to_owned()],
                format!("Makefile has a target `{target}`"),
            );
        }
    }
    let known = [
        ("Cargo.toml", "cargo test"),
        ("package.json", "npm test"),
        ("go.mod", "go test ./..."),
        ("pyproject.toml", "python3 -m pytest"),
    ];
    for (file, line) in known {
        if root.join(file).is_file() {
            return (words(line), format!("there is a {file}"));
        }
    }
    (
        words("just ci"),
        "nothing was found that tells how this project is checked; `just ci` is the custom"
            .to_owned(),
    )
}

/// Whether a justfile or Makefile has a recipe of this name.
fn has_target(root: &Path, file: &str, target: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root.join(file)) else {
        return false;
    };
    text.lines().any(|line| {
        // `@ci:` is a quiet recipe of a justfile.
        let line = line.strip_prefix('@').unwrap_or(line);
        line.strip_prefix(target).is_some_and(|rest| {
            rest.starts_with(':') && !rest.starts_with(":=")
                || rest.starts_with(' ') && rest.contains(':') && !rest.contains(":=")
        })
    })
}

/// The files that the guard itself consists of.
pub(super) fn protected(guard: &[String]) -> Vec<String> {
    let own: &[&str] = match guard.first().map(String::as_str) {
        Some("make") => &["Makefile"],
        Some("sh" | "bash") => &[],
        _ => &["justfile", "Justfile", ".justfile", "Makefile"],
    };
    let mut files: Vec<String> = own.iter().map(|&name| name.to_owned()).collect();
    // A script of the project that is called as the guard, or by a shell.
    for word in guard.iter().take(2) {
        let script = word.trim_start_matches("./");
        if (word.starts_with("./") || Path::new(script).extension().is_some())
            && !script.starts_with('/')
        {
            files.push(script.to_owned());
        }
    }
    files
}

/// The agent backend, and why.
pub(super) fn backend() -> (Backend, String) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for backend in [Backend::Codex, Backend::Claude, Backend::Opencode] {
        let name = backend.as_str();
        if std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
            return (backend, format!("{name} is installed"));
        }
    }
    (Backend::Codex, "no agent was found on PATH".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_for_which_project() {
        for (file, text, expected) in [
            ("justfile", "ci: test\n", "just ci"),
            ("justfile", "@ci:\n", "just ci"),
            ("justfile", "test:\n", "just ci"),
            ("Makefile", "ci := x\ntest: a\n", "make test"),
            ("Makefile", "ci: a\ntest: a\n", "make ci"),
            ("Cargo.toml", "", "cargo test"),
            ("package.json", "{}", "npm test"),
            ("go.mod", "", "go test ./..."),
            ("pyproject.toml", "", "python3 -m pytest"),
            ("README", "", "just ci"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(file), text).unwrap();
            assert_eq!(guard(dir.path()).0.join(" "), expected, "{file} {text:?}");
        }
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(protected(&words("sh ci.sh")), ["ci.sh"]);
        assert_eq!(protected(&words("make ci")), ["Makefile"]);
        assert_eq!(protected(&words("./check --all")).last().unwrap(), "check");
    }
}
