//! The file that defines a guard: a goal that begins with an empty repository has none yet.

use std::path::Path;

/// Programs that run a script whose path they are given.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "python", "python3", "node", "ruby", "perl",
];

/// The file that defines the guard, if it can be told and is missing.
pub(crate) fn missing(command: &[String], is_there: impl Fn(&str) -> bool) -> Option<String> {
    let files = candidates(command);
    let preferred = files.last()?.clone();
    (!files.iter().any(|file| is_there(file))).then_some(preferred)
}

/// Why a green exit code in a folder says nothing: the file that defines the guard is not there.
/// Asked before the guard runs, because `make` makes even its own makefile of other files.
pub(crate) fn undefined(command: &[String], folder: &Path) -> Option<String> {
    let file = missing(command, |path| folder.join(path).is_file())?;
    Some(format!(
        "there is no {file}, so the exit code 0 of `{}` says nothing: commit the file that says what is checked",
        command.join(" ")
    ))
}

/// The files of the project of which one defines the guard, the usual one last.
pub(crate) fn candidates(command: &[String]) -> Vec<String> {
    let is_setting = |word: &&String| word.as_str() == "env" || word.contains('=');
    let skipped = match command.first() {
        Some(first) if first == "env" => command.iter().take_while(is_setting).count(),
        _ => 0,
    };
    let Some((program, arguments)) = command[skipped..].split_first() else {
        return Vec::new();
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let elsewhere = |options: &[&str]| {
        arguments
            .iter()
            .any(|word| options.iter().any(|option| word.starts_with(option)))
    };
    let base = program.rsplit('/').next().unwrap_or(program);
    if base == program || program.starts_with('/') {
        return match base {
            "make" | "gmake"
                if !elsewhere(&["-f", "-C", "--file", "--makefile", "--directory"]) =>
            {
                names(&["GNUmakefile", "makefile", "Makefile"])
            }
            "just" if !elsewhere(&["-f", "-d", "--justfile", "--working-directory"]) => {
                names(&[".justfile", "Justfile", "justfile"])
            }
            _ if INTERPRETERS.contains(&base) => script(arguments).into_iter().collect(),
            _ => Vec::new(),
        };
    }
    inside(program).into_iter().collect()
}

/// The script among the arguments of an interpreter: the first, if no option comes before it,
/// because options take words of their own.
fn script(arguments: &[String]) -> Option<String> {
    let first = arguments.first()?;
    (!first.starts_with('-')).then(|| inside(first)).flatten()
}

/// A path inside the project, without a dot at its beginning.
fn inside(path: &str) -> Option<String> {
    let plain = path.strip_prefix("./").unwrap_or(path);
    let is_inside = !plain.is_empty()
        && !plain.starts_with('/')
        && plain
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."));
    is_inside.then(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_define_a_guard() {
        for (command, there, expected) in [
            ("make ci", "", Some("Makefile")),
            ("make ci", "GNUmakefile", None),
            ("make ci", "ci.sh", Some("Makefile")),
            ("/usr/bin/make ci", "ci", Some("Makefile")),
            ("env CI=1 make ci", "ci", Some("Makefile")),
            ("env CI=1 make ci", "makefile", None),
            ("make -f ci.mk", "", None),
            ("make -C sub", "", None),
            ("just ci", "", Some("justfile")),
            ("just ci", "justfile", None),
            ("./ci.sh --fast", "", Some("ci.sh")),
            ("./ci.sh", "ci.sh", None),
            ("tools/ci", "", Some("tools/ci")),
            ("../ci.sh", "", None),
            ("/usr/bin/ci", "", None),
            ("sh ci.sh", "", Some("ci.sh")),
            ("sh ci.sh", "ci.sh", None),
            ("sh -e ci.sh", "", None),
            ("python3 check.py", "", Some("check.py")),
            ("python3 -m pytest", "", None),
            ("cargo test", "", None),
            ("npm test", "", None),
            ("", "", None),
        ] {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            let found = missing(&words, |file| file == there);
            assert_eq!(found.as_deref(), expected, "{command}, {there:?}");
        }
    }
}
