//! Tests that lie inside product code: the functions of `#[cfg(test)]` items of Rust.

use std::collections::BTreeSet;

/// The functions in them, each with its attributes; white space says nothing.
pub fn inline_tests(text: &str) -> BTreeSet<String> {
    const MARK: &str = "#[cfg(test)]";
    let code = code_only(text);
    let mut found = BTreeSet::new();
    let mut from = 0;
    while let Some(at) = code[from..].find(MARK).map(|at| from + at) {
        from = at + MARK.len();
        let Some(end) = end_of_item(&code, from) else {
            continue;
        };
        let mut inner = from;
        while let Some(at) = next_function(&code[..end], inner) {
            let Some(close) = end_of_item(&code[..end], at) else {
                break;
            };
            let begin = code[from..at].rfind(['{', '}', ';']);
            let begin = begin.map_or(from, |before| from + before + 1);
            let words: Vec<&str> = text[begin..close].split_whitespace().collect();
            found.insert(words.join(" "));
            inner = close;
        }
        from = end;
    }
    found
}

/// Where the next function begins.
fn next_function(code: &str, from: usize) -> Option<usize> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut places = code[from..].match_indices("fn ").map(|(at, _)| from + at);
    places.find(|at| !code[..*at].chars().next_back().is_some_and(is_part))
}

/// Behind the braces that come next; `None`: the item has none.
fn end_of_item(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return (depth == 1).then_some(at + 1),
            b'}' => depth -= 1,
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The same text with spaces in the place of comments, strings and characters.
fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                let rest = &bytes[at..];
                at + rest
                    .iter()
                    .position(|it| *it == b'\n')
                    .unwrap_or(rest.len())
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => text[at + 2..]
                .find("*/")
                .map_or(bytes.len(), |it| at + it + 4),
            b'"' => end_of_string(bytes, at),
            b'\'' => end_of_letter(bytes, at),
            _ => {
                at += 1;
                continue;
            }
        };
        let end = end.min(bytes.len());
        code[at..end].fill(b' ');
        at = end.max(at + 1);
    }
    // What is not ASCII was in a string or a comment, or in a name.
    String::from_utf8(code).unwrap_or_default()
}

/// Behind a string; one with `#` in front of it ends with as many.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[..at]
        .iter()
        .rev()
        .take_while(|it| **it == b'#')
        .count();
    let before = at.checked_sub(hashes + 1).map(|at| bytes[at]);
    let is_raw = before == Some(b'r');
    let mut now = at + 1;
    while now < bytes.len() {
        match bytes[now] {
            b'\\' if !is_raw => now += 1,
            b'"' if !is_raw => return now + 1,
            b'"' if bytes[now + 1..].iter().take(hashes).all(|it| *it == b'#') => return now + 1,
            _ => {}
        }
        now += 1;
    }
    bytes.len()
}

/// Behind a character; the name of a lifetime is none.
fn end_of_letter(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1) {
        Some(b'\\') => {
            let rest = bytes.get(at + 3..).unwrap_or_default();
            at + 4 + rest.iter().position(|it| *it == b'\'').unwrap_or(0)
        }
        Some(first) => {
            let length = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            let is_letter = bytes.get(at + 1 + length) == Some(&b'\'');
            if is_letter { at + 2 + length } else { at + 1 }
        }
        None => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODE: &str = "fn add() { let a = '}'; }\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    \
        fn help<'a>(it: &'a str) -> &'a str { it }\n\n    // }\n    #[test]\n    fn adds() {\n        \
        assert_eq!(r#\"}\"{\"#, \"\\\"}\");\n    }\n}\n";

    #[test]
    fn functions_of_tests() {
        let found = inline_tests(CODE);
        assert_eq!(found.len(), 2, "{found:?}");
        let adds = found.iter().find(|it| it.contains("fn adds()")).unwrap();
        assert!(adds.contains("#[test] fn adds() {"), "{adds}");
        assert!(!adds.contains("help"), "{adds}");
    }

    #[test]
    fn what_counts_as_a_change() {
        let before = inline_tests(CODE);
        for (from, to, is_kept) in [
            ("fn add() {", "fn add() { other();", true),
            ("    #[test]\n", "#[test]\n\n", true),
            (
                "    use super::*;",
                "    use super::*;\n    #[test]\n    fn more() {}",
                true,
            ),
            ("#[test]", "#[test]\n#[ignore]", false),
            ("fn adds()", "fn other()", false),
            ("assert_eq!", "let _ = ", false),
            ("#[cfg(test)]", "", false),
        ] {
            let now = inline_tests(&CODE.replacen(from, to, 1));
            assert_eq!(before.is_subset(&now), is_kept, "{from}: {now:?}");
        }
        assert!(inline_tests("#[cfg(test)]\nmod tests;\nfn a() {}\n").is_empty());
    }

    proptest! {
        #[test]
        fn never_panics(text in "(#\\[cfg\\(test\\)\\]|fn |[{};\"'\\\\/*#rä \n]){0,40}") {
            inline_tests(&text);
        }
    }
}
