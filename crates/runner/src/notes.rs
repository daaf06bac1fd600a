//! `assumptions.md` and `questions.md` only grow.

use std::collections::HashMap;

/// What such a file shall contain after a session: everything that was there
/// before, then the session's new lines. `None`: it is fine as it is.
pub(crate) fn regrow(before: &str, after: &str) -> Option<String> {
    if after.starts_with(before) {
        return None;
    }
    let mut text = before.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for line in added(before, after) {
        text.push_str(line);
        text.push('\n');
    }
    Some(text)
}

/// What such a file shall contain so that what the session added shows nothing that is to be hidden.
/// `None`: it is fine as it is.
pub(crate) fn kept(before: &str, after: &str, hide: impl Fn(&str) -> String) -> Option<String> {
    let regrown = regrow(before, after);
    let grown = regrown.as_deref().unwrap_or(after);
    let new = grown.strip_prefix(before).unwrap_or(grown);
    let shown = hide(new);
    if shown == new {
        return regrown;
    }
    Some(format!("{before}{shown}"))
}

/// The lines that are new in such a file, wherever they stand.
pub(crate) fn added<'t>(before: &str, after: &'t str) -> Vec<&'t str> {
    let mut known: HashMap<&str, usize> = HashMap::new();
    for line in before.lines() {
        *known.entry(line).or_default() += 1;
    }
    let is_new = |line: &&str| match known.get_mut(*line) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    after.lines().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_hidden_is_replaced_in_new_lines() {
        for (before, after, expected) in [
            ("", "", None),
            ("", "a secret\n", Some("a ***\n")),
            ("a\n", "a\nb\n", None),
            ("a\n", "a\nb secret\n", Some("a\nb ***\n")),
            ("a\n", "secret\n", Some("a\n***\n")),
            // What a person wrote is the person's.
            ("a secret\n", "a secret\nb\n", None),
            ("a secret\n", "secret\n", Some("a secret\n***\n")),
        ] {
            let found = kept(before, after, |text| text.replace("secret", "***"));
            assert_eq!(found.as_deref(), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn earlier_lines_come_back_and_new_ones_stay() {
        for (before, after, expected) in [
            ("", "", None),
            ("a\n", "a\nb\n", None),
            ("a\n", "", Some("a\n")),
            ("a\nb\n", "b\nc\n", Some("a\nb\nc\n")),
            ("a\nb\n", "x\na\nb\n", Some("a\nb\nx\n")),
            ("a\na\n", "a\nq\n", Some("a\na\nq\n")),
            ("a", "b", Some("a\nb\n")),
        ] {
            assert_eq!(
                regrow(before, after).as_deref(),
                expected,
                "{before:?} {after:?}"
            );
        }
    }
}
