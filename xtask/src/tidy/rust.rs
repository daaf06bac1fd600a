//! Rules about source files.

use super::TidyFinding;
use super::files::TidyFiles;

const MAX_LINES: usize = 600;

/// The one module that may hold unsafe code.
const UNSAFE_MODULE: [&str; 2] = ["crates/exec/src/os.rs", "crates/exec/src/os/"];

/// Modules of the standard library that touch the world.
const IMPURE_MODULES: [&str; 6] = ["env", "fs", "net", "process", "thread", "time"];
/// Names that mean a clock, however they were imported.
const CLOCKS: [&str; 2] = ["SystemTime", "Instant::now"];
/// Names that mean chance.
const CHANCE: [&str; 3] = ["RandomState", "getrandom", "rand::"];
/// The folders that hold rules alone, and what they are called in a finding.
const PURE_CRATES: [(&str, &str); 3] = [
    ("crates/core/src/", "the core"),
    ("crates/lifecycle/src/", "the lifecycle"),
    ("crates/fleet/src/rules/", "the rules of the fleet"),
];

/// Sources have at most 600 lines.
pub(super) fn line_limit(files: &TidyFiles) -> Vec<TidyFinding> {
    let folders = ["crates/", "xtask/", "ui/"];
    files
        .ending(&[".rs", ".ts", ".svelte"])
        .filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| {
            let message = format!("{lines} lines, of {MAX_LINES} at most: split it");
            TidyFinding::new(path, 0, message)
        })
        .collect()
}

/// Every module says what it is for.
pub(super) fn module_docs(files: &TidyFiles) -> Vec<TidyFinding> {
    files
        .ending(&[".rs"])
        .filter(|(path, _)| path.contains("/src/"))
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| TidyFinding::new(path, 1, "a module begins with //! and what it is for"))
        .collect()
}

/// Unsafe code is in one module.
pub(super) fn unsafe_code(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in files
        .ending(&[".rs"])
        .filter(|(path, _)| !UNSAFE_MODULE.iter().any(|home| path.starts_with(home)))
    {
        for (line, code) in code_lines(text) {
            if has_word(&code, "unsafe") {
                let message = format!("unsafe code belongs to {}", UNSAFE_MODULE[0]);
                findings.push(TidyFinding::new(path, line, message));
            }
        }
    }
    findings
}

/// The crates of rules reach for nothing outside themselves.
pub(super) fn pure_crates(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in files.ending(&[".rs"]) {
        let home = PURE_CRATES
            .iter()
            .find(|(folder, _)| path.starts_with(folder));
        let Some((_, name)) = home else {
            continue;
        };
        let code = code_of(text);
        let mut find = |at: usize, what: String| {
            let line = code[..at].matches('\n').count() + 1;
            findings.push(TidyFinding::new(
                path,
                line,
                format!("{name} may not {what}"),
            ));
        };
        for (at, _) in code.match_indices("std::") {
            for module in first_names(&code[at + "std::".len()..]) {
                if IMPURE_MODULES.contains(&module) {
                    find(at, format!("use std::{module}"));
                }
            }
        }
        for clock in CLOCKS {
            for (at, _) in code.match_indices(clock) {
                find(at, format!("read the clock ({clock})"));
            }
        }
        for chance in CHANCE {
            for (at, _) in code.match_indices(chance) {
                if !code[..at].chars().next_back().is_some_and(is_name) {
                    find(at, format!("leave anything to chance ({chance})"));
                }
            }
        }
    }
    findings
}

/// The names right after a path prefix: one, or those of a `{…}` group.
fn first_names(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![first_name(rest)];
    };
    let mut depth = 0;
    let mut names = vec![first_name(group)];
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(first_name(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

fn first_name(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|letter| !is_name(letter)).unwrap_or(text.len());
    &text[..end]
}

/// Whether the word stands alone, and not inside a longer name.
fn has_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The lines of Rust code, without comments and without the text of literals.
pub(super) fn code_lines(source: &str) -> Vec<(usize, String)> {
    let code = code_of(source);
    code.lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect()
}

/// Blanks comments and literals, keeping every newline. No parser: good enough
/// for source that compiles.
fn code_of(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(letter) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if letter == '"' {
            string(rest)
        } else if letter == 'r' && !code.ends_with(is_name) {
            raw_string(rest)
        } else if letter == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
        } else {
            let newlines = rest[..skipped].matches('\n').count();
            code.push(' ');
            code.extend(std::iter::repeat_n('\n', newlines));
            rest = &rest[skipped..];
        }
    }
    code
}

/// The length of the block comment, nested ones included, that `rest` begins with.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string literal that `rest` begins with.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of the raw string that `rest` begins with; 0 if it is a name.
fn raw_string(rest: &str) -> usize {
    let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
    if !rest[1 + hashes..].starts_with('"') {
        return 0;
    }
    let start = 1 + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    match rest[start..].find(&end) {
        Some(at) => start + at + end.len(),
        None => rest.len(),
    }
}

/// The length of the character literal that `rest` begins with; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        // The letter after a backslash may be a quote: the end lies behind it.
        Some((_, '\\')) => {
            let behind = letters
                .next()
                .map_or(rest.len(), |(at, letter)| at + letter.len_utf8());
            rest[behind..]
                .find('\'')
                .map_or(rest.len(), |at| behind + at + 1)
        }
        Some((at, letter)) => {
            let behind = at + letter.len_utf8();
            if rest[behind..].starts_with('\'') {
                behind + 1
            } else {
                0
            }
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn long_files_are_found() {
        let long = "x\n".repeat(601);
        let files = [
            ("crates/a/src/lib.rs", long.as_str()),
            ("ui/src/App.svelte", &long),
            ("docs/long.md", &long),
            ("xtask/src/ok.rs", &long[..1200]),
        ];
        assert_eq!(
            check(line_limit, &files),
            [
                "crates/a/src/lib.rs:0 601 lines, of 600 at most: split it",
                "ui/src/App.svelte:0 601 lines, of 600 at most: split it",
            ]
        );
    }

    #[test]
    fn modules_begin_with_their_purpose() {
        let files = [
            ("crates/a/src/lib.rs", "//! Fine.\n"),
            ("crates/a/src/bad.rs", "// Not a doc.\n"),
            ("crates/a/tests/free.rs", "fn a() {}\n"),
        ];
        let found = check(module_docs, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/bad.rs:1 "), "{found:?}");
    }

    #[test]
    fn unsafe_code_has_one_home() {
        let files = [
            (UNSAFE_MODULE[0], "unsafe {}"),
            ("crates/exec/src/os/calls.rs", "unsafe {}"),
            (
                "crates/a/src/lib.rs",
                "#![allow(unsafe_code)] // unsafe\nlet a = \"unsafe\";\nlet b = unsafe { c() };\n",
            ),
        ];
        let found = check(unsafe_code, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/lib.rs:3 "), "{found:?}");
    }

    #[test]
    fn crates_of_rules_are_pure() {
        let lib = "use std::fmt;\nuse std::{cmp::{max, min}, fs, collections::BTreeMap};\n\
            // std::env is banned\nlet a = std::process::id();\nlet b = Instant::now();\n";
        let chance = "//! operand::x\nlet a = operand::x();\nlet b = rand::random();\n";
        let files = [
            ("crates/core/src/lib.rs", lib),
            ("crates/core/tests/free.rs", "use std::fs;"),
            ("crates/exec/src/lib.rs", "use std::fs;"),
            ("crates/lifecycle/src/lib.rs", chance),
            (
                "crates/lifecycle/src/decide/x.rs",
                "use std::time::Duration;",
            ),
            ("crates/fleet/src/rules/x.rs", "use std::fs;"),
            ("crates/fleet/src/backlog.rs", "use std::fs;"),
        ];
        assert_eq!(
            check(pure_crates, &files),
            [
                "crates/core/src/lib.rs:2 the core may not use std::fs",
                "crates/core/src/lib.rs:4 the core may not use std::process",
                "crates/core/src/lib.rs:5 the core may not read the clock (Instant::now)",
                "crates/fleet/src/rules/x.rs:1 the rules of the fleet may not use std::fs",
                "crates/lifecycle/src/decide/x.rs:1 the lifecycle may not use std::time",
                "crates/lifecycle/src/lib.rs:3 the lifecycle may not leave anything to chance (rand::)",
            ]
        );
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let cases = [
            ("a // b\nc", "a  \nc"),
            ("a /* b /* c */ d */ e", "a   e"),
            ("f(\"a \\\" b\", c)", "f( , c)"),
            ("r#\"a \" b\"# c", "  c"),
            ("r#type other", "r#type other"),
            ("for x in 'a'..='\\'' {}", "for x in  ..=  {}"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("'\\u{1F600}' b", "  b"),
            ("\"two\nlines\" z", " \n z"),
            ("\"open", " "),
        ];
        for (source, code) in cases {
            assert_eq!(code_of(source), code, "{source}");
        }
    }
}
