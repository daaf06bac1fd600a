//! What each word of a command line is to it: the program, the script that it runs, the settings that
//! it reads, or only what it looks at.

/// What a word of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordRole {
    /// What is started.
    Program,
    /// What an interpreter runs.
    Script,
    /// A module that Python runs.
    Module,
    /// What an option names that says how to check.
    Settings,
    /// What a tool checks, moves or prints: no judge.
    Checked,
    /// Anything else.
    Other,
}

/// Words in front of the command that is meant.
const PREFIXES: [&str; 24] = [
    "exec", "time", "nice", "env", "command", "sudo", "xargs", "nohup", "timeout", "setsid",
    "stdbuf", "if", "then", "else", "elif", "while", "until", "do", "!", "[", "export", "ionice",
    "doas", "unbuffer",
];

/// Programs that run another one, which the word behind this one begins.
const RUNNERS: [(&str, &str); 8] = [
    ("uv", "run"),
    ("poetry", "run"),
    ("pipenv", "run"),
    ("bundle", "exec"),
    ("pnpm", "exec"),
    ("yarn", "exec"),
    ("npm", "exec"),
    ("rye", "run"),
];

/// Programs that run the file which they are given.
const INTERPRETERS: [&str; 21] = [
    "sh", "bash", "dash", "zsh", "ksh", "python", "python3", "pypy", "pypy3", "node", "nodejs",
    "deno", "ruby", "perl", "php", "lua", "tclsh", "Rscript", "ts-node", "tsx", "julia",
];

/// Tools whose arguments are what they check, and programs whose arguments are data.
const LOOKERS: [&str; 86] = [
    "pytest",
    "py.test",
    "unittest",
    "doctest",
    "py_compile",
    "compileall",
    "tox",
    "nox",
    "ruff",
    "flake8",
    "mypy",
    "pylint",
    "black",
    "isort",
    "pyright",
    "bandit",
    "pyflakes",
    "pycodestyle",
    "eslint",
    "prettier",
    "tsc",
    "vue-tsc",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "standard",
    "biome",
    "shellcheck",
    "shfmt",
    "rubocop",
    "rspec",
    "phpunit",
    "phpstan",
    "gofmt",
    "staticcheck",
    "golangci-lint",
    "clang-format",
    "clang-tidy",
    "cppcheck",
    "rustfmt",
    "bats",
    "prove",
    "hadolint",
    "yamllint",
    "markdownlint",
    "codespell",
    "cc",
    "gcc",
    "g++",
    "c++",
    "clang",
    "clang++",
    "ld",
    "ar",
    "rustc",
    "javac",
    "test",
    "[[",
    "rm",
    "cp",
    "mv",
    "ln",
    "cat",
    "ls",
    "touch",
    "mkdir",
    "head",
    "tail",
    "wc",
    "cut",
    "sort",
    "uniq",
    "tr",
    "tee",
    "echo",
    "printf",
    "chmod",
    "install",
    "tar",
    "zip",
    "find",
    "stat",
    "du",
    "cd",
    "git",
];

/// Parts of the names of options that take a file which says how to check.
const SETTINGS: [&str; 14] = [
    "config", "rcfile", "file", "rule", "setup", "require", "import", "preload", "loader",
    "plugin", "settings", "script", "policy", "reporter",
];

/// Parts of the names of options that take a file which is written, or only looked at.
const NO_SETTINGS: [&str; 8] = [
    "out",
    "log",
    "report-",
    "cache",
    "target",
    "input",
    "profile",
    "files-with",
];

/// The files that a command itself names as its program, its script or its settings.
pub(crate) fn named_files(argv: &[String], is_file: &dyn Fn(&str) -> bool) -> Vec<String> {
    let script = match argv {
        [shell, option, script] if shell.ends_with("sh") && option.ends_with('c') => {
            script.as_str()
        }
        _ => "",
    };
    let lines = script
        .split(['\n', ';', '|', '&', '(', '`'])
        .flat_map(words_of);
    let plain: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut found: Vec<String> = Vec::new();
    for (word, role) in words_of_argv(&plain).into_iter().chain(lines) {
        let path = word.strip_prefix("./").unwrap_or(word);
        let module = path.replace('.', "/");
        match role {
            WordRole::Program | WordRole::Script | WordRole::Settings => {
                found.push(path.to_owned());
            }
            WordRole::Module => {
                let ends = ["/__init__.py", "/__main__.py", ".py"];
                found.extend(ends.map(|end| format!("{module}{end}")));
            }
            WordRole::Checked | WordRole::Other => {}
        }
    }
    found.retain(|path| is_file(path));
    found
}

/// The words of one command, in order, each with what it is.
pub(super) fn words_of(command: &str) -> Vec<(&str, WordRole)> {
    let is_end = |letter: char| letter.is_whitespace() || "\"'`()<>{}$,@".contains(letter);
    let tokens: Vec<&str> = command.split(is_end).filter(|it| !it.is_empty()).collect();
    let mut found = Vec::new();
    command_words(&tokens, &mut found);
    found
}

/// The words of a command that is given as such.
pub(super) fn words_of_argv<'w>(argv: &[&'w str]) -> Vec<(&'w str, WordRole)> {
    let mut found = Vec::new();
    command_words(argv, &mut found);
    found
}

fn command_words<'t>(tokens: &[&'t str], found: &mut Vec<(&'t str, WordRole)>) {
    let mut rest = tokens;
    while let [first, more @ ..] = rest {
        let is_number = first.starts_with(|it: char| it.is_ascii_digit());
        let is_option = first.starts_with('-') && !found.is_empty();
        if !(is_assignment(first)
            || PREFIXES.contains(first)
            || matches!(*first, "=" | ":=" | "?=" | "+=")
            || more
                .first()
                .is_some_and(|next| matches!(*next, "=" | ":=" | "?=" | "+="))
            || (is_number || is_option) && !found.is_empty())
        {
            break;
        }
        split(first, WordRole::Other, found);
        rest = more;
    }
    let [program, arguments @ ..] = rest else {
        return;
    };
    // A recipe of make may begin so.
    let program = program.trim_start_matches(['-', '+']);
    let name = program.rsplit('/').next().unwrap_or(program);
    split(program, WordRole::Program, found);
    if let [second, more @ ..] = arguments
        && RUNNERS.contains(&(name, *second))
    {
        found.push((*second, WordRole::Other));
        return command_words(more, found);
    }
    match name {
        "npx" | "bunx" => command_words(arguments, found),
        "coverage" if arguments.first() == Some(&"run") => {
            found.push(("run", WordRole::Other));
            interpreted("python3", &arguments[1..], found);
        }
        "." | "source" => arguments_of(arguments, WordRole::Script, found),
        _ if INTERPRETERS.contains(&name) || name.starts_with("python3.") => {
            interpreted(name, arguments, found);
        }
        _ if LOOKERS.contains(&name) => looked_at(name, arguments, found),
        _ => with_settings(arguments, WordRole::Other, found),
    }
}

/// The first word has this role, the others none.
fn arguments_of<'t>(arguments: &[&'t str], role: WordRole, found: &mut Vec<(&'t str, WordRole)>) {
    for (at, word) in arguments.iter().enumerate() {
        split(word, if at == 0 { role } else { WordRole::Other }, found);
    }
}

/// Behind a program that runs a file.
fn interpreted<'t>(name: &str, arguments: &[&'t str], found: &mut Vec<(&'t str, WordRole)>) {
    let is_shell = name.ends_with("sh");
    let is_python = name.starts_with("py");
    let mut only_checks = false;
    let mut rest = arguments;
    while let [word, more @ ..] = rest {
        if !word.starts_with('-') {
            let role = if only_checks {
                WordRole::Checked
            } else {
                WordRole::Script
            };
            return arguments_of(rest, role, found);
        }
        split(word, WordRole::Other, found);
        rest = more;
        match *word {
            "-m" if is_python => {
                if let [module, more @ ..] = rest {
                    found.push((module, WordRole::Module));
                    if LOOKERS.contains(module) {
                        looked_at(module, more, found);
                    } else {
                        arguments_of(more, WordRole::Other, found);
                    }
                }
                return;
            }
            option if is_shell && option.ends_with('c') && !option.starts_with("--") => {
                return command_words(rest, found);
            }
            "-n" if is_shell => only_checks = true,
            "--check" | "--test" | "-l" => only_checks = true,
            "-e" | "-ne" | "-pe" | "-E" | "--eval" | "-c" | "-p" if !is_shell => {
                return arguments_of(rest, WordRole::Other, found);
            }
            "-W" | "-X" | "-o" | "-I" | "-M" => {
                if let [value, more @ ..] = rest {
                    split(value, WordRole::Other, found);
                    rest = more;
                }
            }
            option if is_settings(option) || option == "-r" => {
                if let [value, more @ ..] = rest {
                    split(value, WordRole::Settings, found);
                    rest = more;
                }
            }
            _ => {}
        }
    }
}

/// Behind a tool that only looks at what it is given, but for its settings.
fn looked_at<'t>(name: &str, arguments: &[&'t str], found: &mut Vec<(&'t str, WordRole)>) {
    // `test -f`, `rm -f`, `cc -c`: those have no settings.
    let first = LOOKERS
        .iter()
        .position(|it| *it == "cc")
        .unwrap_or_default();
    if LOOKERS[first..].contains(&name) {
        for word in arguments {
            split(word, WordRole::Checked, found);
        }
    } else {
        with_settings(arguments, WordRole::Checked, found);
    }
}

/// Arguments of this role, but for what options name.
fn with_settings<'t>(arguments: &[&'t str], role: WordRole, found: &mut Vec<(&'t str, WordRole)>) {
    let mut before = "";
    for word in arguments {
        let is_value = is_settings(before) && !before.contains('=') && !word.starts_with('-');
        split(
            word,
            if is_value { WordRole::Settings } else { role },
            found,
        );
        before = word;
    }
}

/// A word, and what an option names in it.
fn split<'t>(word: &'t str, role: WordRole, found: &mut Vec<(&'t str, WordRole)>) {
    match word.split_once('=') {
        Some((option, value)) => {
            found.push((option, WordRole::Other));
            let is_setting = option.starts_with("--") && is_settings(option);
            let role = match (is_setting, role) {
                (true, _) => WordRole::Settings,
                (false, WordRole::Checked) => WordRole::Checked,
                (false, _) => WordRole::Other,
            };
            let values = value.split('=').filter(|it| !it.is_empty());
            found.extend(values.map(|value| (value, role)));
        }
        None => found.push((word, role)),
    }
    found.retain(|(word, _)| !word.is_empty());
}

fn is_settings(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    if matches!(name, "-f" | "-c") {
        return true;
    }
    name.starts_with("--")
        && SETTINGS.iter().any(|it| name.contains(it))
        && !NO_SETTINGS.iter().any(|it| name.contains(it))
}

/// `NAME=value` in front of a command.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else {
        return false;
    };
    let name = name.trim_end_matches([':', '?', '+']);
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|it| it.is_ascii_alphabetic() || it == '_')
        && letters.all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// The folders of the project that a text puts on a search path (`PATH`, `PYTHONPATH`); the root is
/// the empty one.
pub(super) fn search_folders(text: &str, variable: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, _) in text.match_indices(variable) {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_${".contains(letter);
        let before = text[..at].chars().next_back();
        let rest = text[at + variable.len()..].trim_start_matches([' ', ']', '"', '\'']);
        let value = [":=", "::=", "?=", "+=", "="]
            .iter()
            .find_map(|sign| rest.strip_prefix(sign));
        let (false, Some(value)) = (before.is_some_and(is_part), value) else {
            continue;
        };
        let value = value.trim_start_matches([' ', '"', '\'', '[']);
        let value = value.split(['\n', '"', '\'', ';', ' ', ']']).next();
        for part in value.unwrap_or_default().split(':') {
            if let Some(folder) = inside(part)
                && !found.contains(&folder)
            {
                found.push(folder);
            }
        }
    }
    found
}

/// A part of a search path as a folder of the project: `./bin`, `$(CURDIR)/tools`, `$PWD/bin`.
fn inside(part: &str) -> Option<String> {
    let is_variable = part.starts_with('$');
    let part = part.trim_start_matches('$');
    let is_root = [
        "(CURDIR)", "{CURDIR}", "PWD", "{PWD}", "(PWD)", "(pwd)", "`pwd`", ".",
    ];
    if is_root.contains(&part) {
        return Some(String::new());
    }
    let known = is_root.iter().find_map(|root| {
        let rest = part.strip_prefix(root)?;
        rest.strip_prefix('/')
    });
    let path = known.unwrap_or(part).trim_end_matches('/');
    let path = path.strip_prefix("./").unwrap_or(path);
    let is_inside = !path.is_empty()
        && !path.starts_with(['/', '~', '(', '{', '.'])
        && !path.contains(['$', '*', '?', '[', '`', '\\'])
        && (known.is_some() || !is_variable)
        && path.split('/').all(|it| !matches!(it, "" | "." | ".."));
    is_inside.then(|| path.to_owned())
}

/// The globs of loops whose files are run, one after the other: `for f in checks/*.sh; do sh $f; done`.
pub(super) fn looped_globs(text: &str) -> Vec<String> {
    let plain = text.replace("$$", "$").replace(['"', '\''], "");
    let plain = plain.replace("${", "$").replace('}', "");
    let mut found = Vec::new();
    for (at, _) in plain.match_indices("for ") {
        let rest = &plain[at + 4..];
        let Some((head, body)) = rest.split_once("do") else {
            continue;
        };
        let Some((name, list)) = head.split_once(" in ") else {
            continue;
        };
        let name = format!("${}", name.trim());
        let body = body.split("done").next().unwrap_or(body);
        let is_run = body.split(['\n', ';', '|', '&', '(']).any(|command| {
            let tokens: Vec<&str> = command.split_whitespace().collect();
            let mut words = Vec::new();
            command_words(&tokens, &mut words);
            words.iter().any(|(word, role)| {
                let is_it = word.trim_start_matches("./") == name;
                is_it && matches!(role, WordRole::Program | WordRole::Script)
            })
        });
        if is_run {
            let globs = list
                .trim_end_matches([';', '\n', '\\', ' '])
                .split_whitespace();
            found.extend(globs.map(|it| it.strip_prefix("./").unwrap_or(it).to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_are() {
        use WordRole::{Checked, Module, Program, Script, Settings};
        for (line, word, expected) in [
            ("bin/ci --fast", "bin/ci", Program),
            ("CI=1 exec bin/ci", "bin/ci", Program),
            ("timeout 60 bin/ci", "bin/ci", Program),
            ("-bin/ci", "bin/ci", Program),
            ("bash -eu bin/ci", "bin/ci", Script),
            ("sh -c 'bin/ci x'", "bin/ci", Program),
            (". bin/env", "bin/env", Script),
            ("awk -f check.awk data", "check.awk", Settings),
            ("python3 -m checks.run x", "checks.run", Module),
            ("python3 -W error check.py", "check.py", Script),
            ("python3 -m pytest src/app.py", "src/app.py", Checked),
            ("pytest src/app.py", "src/app.py", Checked),
            ("uv run pytest src/app.py", "src/app.py", Checked),
            ("pytest -c ci.ini src", "ci.ini", Settings),
            ("eslint --config=rules.js src/a.js", "rules.js", Settings),
            ("eslint --config=rules.js src/a.js", "src/a.js", Checked),
            ("node --test src/a.js", "src/a.js", Checked),
            ("node --require ./hook.js app.js", "./hook.js", Settings),
            ("sh -n app.sh", "app.sh", Checked),
            ("cc -c src/a.c", "src/a.c", Checked),
            ("test -f answer.txt", "answer.txt", Checked),
            ("coverage run check.py", "check.py", Script),
            ("grep -q right answer.txt", "answer.txt", WordRole::Other),
            ("perl -ne 'print' data.pl", "data.pl", WordRole::Other),
        ] {
            let found = words_of(line);
            let role = found.iter().find(|(it, _)| *it == word);
            assert_eq!(role, Some(&(word, expected)), "{line}: {found:?}");
        }
    }

    #[test]
    fn files_that_a_command_names() {
        let is_file = |path: &str| matches!(path, "bin/setup" | "checks/run.py" | "data");
        for (line, expected) in [
            (&["sh", "bin/setup", "data"][..], &["bin/setup"][..]),
            (&["./bin/setup"], &["bin/setup"]),
            (&["sh", "-c", "cd x && bin/setup; cat data"], &["bin/setup"]),
            (&["python3", "-m", "checks.run"], &["checks/run.py"]),
            (&["npm", "ci"], &[]),
        ] {
            let argv: Vec<String> = line.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(named_files(&argv, &is_file), expected, "{line:?}");
        }
    }

    #[test]
    fn folders_of_search_paths() {
        for (text, variable, expected) in [
            (
                "export PATH := $(CURDIR)/tools:$(PATH)\n",
                "PATH",
                &["tools"][..],
            ),
            ("PATH=./bin:$PATH cmd\n", "PATH", &["bin"]),
            ("PATH=\"$PWD/ci/bin:$PATH\"", "PATH", &["ci/bin"]),
            ("PATH=/usr/bin:$PATH x", "PATH", &[]),
            ("PATH=$HOME/bin:$PATH x", "PATH", &[]),
            ("echo $PATH", "PATH", &[]),
            ("PYTHONPATH=src python3", "PATH", &[]),
            ("PYTHONPATH=src:. python3", "PYTHONPATH", &["src", ""]),
            ("PYTHONPATH=$(pwd)/lib python3", "PYTHONPATH", &["lib"]),
            ("pythonpath = [\"src\"]\n", "pythonpath", &["src"]),
            ("pythonpath = src\n", "pythonpath", &["src"]),
        ] {
            assert_eq!(search_folders(text, variable), expected, "{text}");
        }
    }

    #[test]
    fn globs_of_loops() {
        for (text, expected) in [
            (
                "for f in checks/*.sh; do sh $f || exit 1; done",
                &["checks/*.sh"][..],
            ),
            ("for f in ./checks/*; do\n  \"$f\"\ndone\n", &["checks/*"]),
            ("\tfor f in a/* b/*; do sh $$f; done", &["a/*", "b/*"]),
            ("for f in src/*.c; do cc -c $f; done", &[]),
            ("for f in src/*.py; do python3 -m py_compile $f; done", &[]),
            ("look for a thing in it and do so", &[]),
        ] {
            assert_eq!(looped_globs(text), expected, "{text}");
        }
    }
}
