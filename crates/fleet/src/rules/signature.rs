//! The normal form of a failure: two attempts that failed alike have the same one.
//!
//! What differs between two runs of the same failure is left out: numbers, times,
//! durations, hashes, folders for temporary files, colours.

use runner_core::digest::sha256_hex;
use runner_core::text::cut_chars;
use runner_lifecycle::FailureCategory;

/// Folders that hold temporary ones with names of chance.
const TEMP_ROOTS: [&str; 6] = [
    "/private/tmp/",
    "/private/var/folders/",
    "/var/folders/",
    "/var/tmp/",
    "/dev/shm/",
    "/tmp/",
];

/// Lines with one of these say what is wrong; the others are its surroundings.
const TELLING: [&str; 12] = [
    "error",
    "fail",
    "panick",
    "assert",
    "exception",
    "traceback",
    "not found",
    "no such",
    "denied",
    "cannot",
    "could not",
    "timed out",
];

/// How many lines are enough to know a failure by.
const LINES: usize = 10;

/// The longest gist, in characters.
const GIST_CHARS: usize = 200;

/// The signature of a failure: its category and a hash of its normal form.
pub fn signature(category: FailureCategory, text: &str) -> String {
    let digest = sha256_hex(telling_lines(text).join("\n").as_bytes());
    format!("{category}:{}", &digest[..12])
}

/// One line that says what went wrong, as it was written; empty if nothing does.
pub fn gist(text: &str) -> String {
    // What the runner itself says is the reason.
    let said = text.lines().find_map(|line| line.strip_prefix("runner: "));
    if let Some(said) = said {
        return cut_chars(said.trim(), GIST_CHARS).into_owned();
    }
    let Some(normal) = telling_lines(text).into_iter().next() else {
        return String::new();
    };
    let plain = without_escapes(text);
    let mut written = plain.lines().filter(|line| normal_line(line) == normal);
    cut_chars(written.next().unwrap_or(&normal).trim(), GIST_CHARS).into_owned()
}

/// The lines that tell a failure, in their normal form: those that name an error, each
/// once and sorted where there are several, since tests end in any order; else the last.
fn telling_lines(text: &str) -> Vec<String> {
    let lines = normal_form(text);
    let mut telling: Vec<String> = Vec::new();
    for line in &lines {
        let lower = line.to_lowercase();
        if counts_only(&lower) {
            continue;
        }
        if TELLING.iter().any(|word| lower.contains(word)) && !telling.contains(line) {
            telling.push(line.clone());
        }
    }
    if telling.is_empty() {
        let skipped = lines.len().saturating_sub(LINES);
        return lines.into_iter().skip(skipped).collect();
    }
    telling.sort();
    telling.truncate(LINES);
    telling
}

/// Whether a line does nothing but count failures, as summaries of test tools do: `# fail #`.
fn counts_only(lower: &str) -> bool {
    const COUNTED: [&str; 6] = ["fail", "failed", "failures", "failure", "errors", "error"];
    let mut words = lower
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty());
    let only = words.next().filter(|_| words.next().is_none());
    lower.contains('#') && only.is_some_and(|word| COUNTED.contains(&word))
}

/// The lines of a text without what differs from run to run.
pub fn normal_form(text: &str) -> Vec<String> {
    without_escapes(text)
        .lines()
        .map(normal_line)
        .filter(|line| line.chars().any(char::is_alphabetic))
        .collect()
}

fn normal_line(line: &str) -> String {
    let line = without_temp_folders(line);
    let mut normal = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            normal.push(if first.is_whitespace() { ' ' } else { first });
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if let Some(after) = after_uuid(rest) {
            normal.push('#');
            rest = after;
            continue;
        }
        let (word, after) = rest.split_at(end);
        normal.push_str(if differs(word) { "#" } else { word });
        rest = after;
    }
    merged_numbers(&normal)
}

/// What follows a UUID, if the text begins with one: its groups alone look like words.
fn after_uuid(text: &str) -> Option<&str> {
    const FORM: [usize; 5] = [8, 4, 4, 4, 12];
    let uuid = text.get(..36)?;
    let groups: Vec<&str> = uuid.split('-').collect();
    let hex = |group: &str| group.bytes().all(|b| b.is_ascii_hexdigit());
    let fits = groups.len() == FORM.len()
        && groups
            .iter()
            .zip(FORM)
            .all(|(group, len)| group.len() == len && hex(group));
    (fits && !text[36..].starts_with(is_word)).then(|| &text[36..])
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a word is a number, a duration, a part of a date, or a hash. A word that
/// begins with a letter keeps its digits: `E0308` and `test_2` are names.
fn differs(word: &str) -> bool {
    let hash = word.len() >= 7
        && word.bytes().all(|b| b.is_ascii_hexdigit())
        && word.bytes().any(|b| b.is_ascii_digit());
    hash || word.starts_with(|c: char| c.is_ascii_digit())
}

/// `#-#-#:#` becomes `#`, and so does `# #`: dates, versions and durations have more or
/// fewer parts each time. Other blanks become one.
fn merged_numbers(line: &str) -> String {
    let mut merged = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '#' => {
                let kept = merged
                    .trim_end_matches(['-', ':', '.', ',', '/', '+', ' '])
                    .len();
                if merged[..kept].ends_with('#') {
                    merged.truncate(kept);
                } else {
                    merged.push('#');
                }
            }
            ' ' if merged.is_empty() || merged.ends_with(' ') || chars.peek().is_none() => {}
            _ => merged.push(c),
        }
    }
    merged.truncate(merged.trim_end().len());
    merged
}

/// A temporary folder becomes `<tmp>`; what lies below it stays.
fn without_temp_folders(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    loop {
        let found = TEMP_ROOTS
            .iter()
            .filter_map(|root| rest.find(root).map(|at| (at, *root)))
            .min_by_key(|(at, root)| (*at, usize::MAX - root.len()));
        let Some((at, root)) = found else {
            shown.push_str(rest);
            return shown;
        };
        shown.push_str(&rest[..at]);
        shown.push_str("<tmp>");
        let name = &rest[at + root.len()..];
        let end = name.find(|c: char| !(is_word(c) || c == '.' || c == '-'));
        rest = &name[end.unwrap_or(name.len())..];
    }
}

/// Leaves out the escape sequences of terminals.
pub(super) fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next() == Some('[') {
                    // A control sequence ends with a letter or one of `@[\]^_`{|}~`.
                    let _ = chars.find(|c| ('@'..='~').contains(c));
                }
            }
            '\r' => plain.push('\n'),
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_in_their_normal_form() {
        for (line, normal) in [
            (
                "error[E0308]: mismatched types",
                "error[E0308]: mismatched types",
            ),
            (" --> src/lib.rs:12:5", "--> src/lib.rs:#"),
            ("finished in 1.23s", "finished in #"),
            ("finished in 2m 03s", "finished in #"),
            ("finished in 450ms", "finished in #"),
            ("2026-11-15T20:01:33.123Z ERROR x", "# ERROR x"),
            ("2026-11-15 20:01:33 ERROR x", "# ERROR x"),
            ("at commit 9fceb02d0ae598e9 now", "at commit # now"),
            ("at 0x7ffee4b2 in f", "at # in f"),
            ("id 3f2504e0-4f89-a1d3-ea0c-0305e82c3301 gone", "id # gone"),
            (
                "cannot open /tmp/tmp.Xa81/src/a.rs",
                "cannot open <tmp>/src/a.rs",
            ),
            ("in /var/folders/zz/abc: no", "in <tmp>/abc: no"),
            ("\u{1b}[31merror\u{1b}[0m: bad", "error: bad"),
            ("test test_2 ... FAILED", "test test_2 ... FAILED"),
            ("1 failed, 3 passed", "# failed, # passed"),
        ] {
            assert_eq!(normal_form(line), [normal], "{line}");
        }
    }

    #[test]
    fn alike_and_not_alike() {
        let first = "running 3 tests\ntest a ... FAILED\nthread 'a' panicked at src/l.rs:4:9:\n\
                     left: 1\nfinished in 0.01s in /tmp/x9/target";
        let again = "running 4 tests\ntest a ... FAILED\nthread 'a' panicked at src/l.rs:7:9:\n\
                     left: 2\nfinished in 12.5s in /tmp/.tmpQ1/target";
        let other = "running 3 tests\ntest b ... FAILED\nthread 'b' panicked at src/m.rs:4:9:";
        assert_eq!(
            signature(FailureCategory::Test, first),
            signature(FailureCategory::Test, again)
        );
        assert_ne!(
            signature(FailureCategory::Test, first),
            signature(FailureCategory::Test, other)
        );
        assert_ne!(
            signature(FailureCategory::Test, first),
            signature(FailureCategory::Env, first)
        );
        let swapped = "test a ... FAILED\ntest b ... FAILED";
        let straight = "test b ... FAILED\ntest a ... FAILED";
        assert_eq!(
            signature(FailureCategory::Test, swapped),
            signature(FailureCategory::Test, straight)
        );
        assert!(signature(FailureCategory::ModelLoop, "x").starts_with("model_loop:"));
    }

    #[test]
    fn a_gist_is_one_line_that_tells() {
        for (text, expected) in [
            ("compiling\nerror: no parser\nwarning", "error: no parser"),
            ("nothing telling\nlast line", "nothing telling"),
            ("", ""),
            ("12 34\n...", ""),
            // People look for what is named, so nothing is left out.
            (
                "kept in refs/runner/lost/issue-7-1\r\n",
                "kept in refs/runner/lost/issue-7-1",
            ),
            (
                "ok\n  \u{1b}[31mcannot open\u{1b}[0m /tmp/p/a.rs:12",
                "cannot open /tmp/p/a.rs:12",
            ),
        ] {
            assert_eq!(gist(text), expected, "{text:?}");
        }
        assert_eq!(
            gist(&format!("error {}", "x".repeat(500))).chars().count(),
            GIST_CHARS
        );
    }

    proptest! {
        #[test]
        fn numbers_never_matter(a: u32, b: u32, millis in 0u32..100_000) {
            let text = |n: u32, t: u32| format!("error in step {n}: {n} left\nin {t}ms");
            prop_assert_eq!(
                signature(FailureCategory::Test, &text(a, millis)),
                signature(FailureCategory::Test, &text(b, 1))
            );
        }

        #[test]
        fn any_text_is_taken(text in "(?s).{0,200}") {
            let _ = gist(&text);
            for line in normal_form(&text) {
                prop_assert!(!line.contains('\n'));
                prop_assert!(!line.is_empty());
            }
        }
    }
}
