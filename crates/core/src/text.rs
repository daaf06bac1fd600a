//! Shortening and showing text: cuts that respect characters and say how much is
//! gone, code fences that hold any content, odd file names on one line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Keeps the start of `text`: at most `max_bytes`, the marker included.
///
/// A limit too small for the marker cuts without one.
pub fn cut_end(text: &str, max_bytes: usize) -> Cow<'_, str> {
    cut(text, max_bytes, 0)
}

/// Keeps the end of `text`: at most `max_bytes`, the marker included.
///
/// A limit too small for the marker cuts without one.
pub fn cut_front(text: &str, max_bytes: usize) -> Cow<'_, str> {
    cut(text, max_bytes, 100)
}

/// Keeps both ends of `text`: at most `max_bytes`, the marker included, of which
/// about `tail_percent` (at most 100) go to the end.
///
/// A limit too small for the marker keeps the start alone, or with a
/// `tail_percent` of 50 and more the end alone.
pub fn cut_middle(text: &str, max_bytes: usize, tail_percent: usize) -> Cow<'_, str> {
    cut(text, max_bytes, tail_percent.clamp(1, 99))
}

/// How much of shortened output is its end: most tools say last what went wrong, and some of them (npm)
/// first.
pub const OUTPUT_TAIL_PERCENT: usize = 65;

/// Keeps the first `max_chars` characters; the last of them becomes an ellipsis
/// when something was cut. For titles and other single lines.
pub fn cut_chars(text: &str, max_chars: usize) -> Cow<'_, str> {
    if text.chars().nth(max_chars).is_none() {
        return Cow::Borrowed(text);
    }
    let Some(kept) = max_chars.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let mut short: String = text.chars().take(kept).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    Cow::Owned(short)
}

/// A run of backticks that no line of `text` can close: at least three, and one
/// more than the longest run inside.
pub fn fence(text: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    "`".repeat(3.max(longest + 1))
}

/// From this likeness on (see [`nearest`]) a word was probably meant.
pub const ALIKE: f64 = 0.75;

/// The word that is most like the given one, with how much it is; the first of equals.
pub fn nearest<'w>(word: &str, known: &[&'w str]) -> (f64, &'w str) {
    known
        .iter()
        .map(|&known| (strsim::jaro_winkler(word, known), known))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .unwrap_or_default()
}

/// A repo path as it can be shown on one line, inside any kind of quotes.
///
/// Control, quote and invisible characters and bytes that are not UTF-8 become
/// escapes; so does the backslash, which keeps two names from looking the same.
pub fn escape_path(path: &[u8]) -> String {
    let mut shown = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut shown, c);
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

fn push_escaped(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        '\\' | '"' | '\'' => {
            shown.push('\\');
            shown.push(c);
        }
        // A backtick would end a Markdown code span.
        '`' | '\0'..='\x1f' | '\x7f' => {
            let _ = write!(shown, "\\x{:02x}", u32::from(c));
        }
        _ if c.is_control() || is_invisible(c) => {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
        _ => shown.push(c),
    }
}

/// Characters that reorder or hide what stands next to them.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The one cut behind the public ones: `tail_percent` of the room goes to the end.
fn cut(text: &str, max_bytes: usize, tail_percent: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let lines = text.contains('\n');
    let marker = |left_out: usize| {
        let note = format!("[... {left_out} bytes left out ...]");
        match (lines, tail_percent) {
            (false, _) => note,
            (true, 0) => format!("\n{note}"),
            (true, 100) => format!("{note}\n"),
            (true, _) => format!("\n{note}\n"),
        }
    };
    // No count is longer than that of the whole text, so this much is enough.
    let Some(room) = max_bytes.checked_sub(marker(text.len()).len()) else {
        return Cow::Borrowed(if tail_percent >= 50 {
            end_of(text, max_bytes)
        } else {
            start_of(text, max_bytes)
        });
    };
    // Divided first: a huge limit must not overflow.
    let tail_room = room / 100 * tail_percent + room % 100 * tail_percent / 100;
    let head = start_of(text, room - tail_room);
    let tail = end_of(text, tail_room);
    let left_out = text.len() - head.len() - tail.len();
    Cow::Owned([head, &marker(left_out), tail].concat())
}

fn start_of(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn end_of(text: &str, max_bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(max_bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_text_is_untouched() {
        for text in ["", "a", "äöü", "0123456789"] {
            for cut in [
                cut_end(text, 10),
                cut_front(text, 10),
                cut_middle(text, 10, 50),
            ] {
                assert!(matches!(cut, Cow::Borrowed(kept) if kept == text));
            }
        }
    }

    #[test]
    fn the_marker_counts_what_is_gone() {
        let line = "x".repeat(100);
        let lines = "abc\n".repeat(25);
        for (text, max, tail, expected) in [
            (&line, 40, 0, "xxxxxxxxxxxx[... 88 bytes left out ...]"),
            (&line, 40, 100, "[... 88 bytes left out ...]xxxxxxxxxxxx"),
            (&line, 40, 50, "xxxxxx[... 88 bytes left out ...]xxxxxx"),
            (&lines, 40, 0, "abc\nabc\nabc\n[... 89 bytes left out ...]"),
            (
                &lines,
                40,
                100,
                "[... 89 bytes left out ...]\nbc\nabc\nabc\n",
            ),
            (
                &lines,
                41,
                75,
                "abc\n[... 89 bytes left out ...]\nabc\nabc\n",
            ),
        ] {
            assert_eq!(cut(text, max, tail), expected, "{max} {tail}");
        }
    }

    #[test]
    fn too_small_for_a_marker() {
        assert_eq!(cut_end("äää", 3), "ä");
        assert_eq!(cut_front("äää", 3), "ä");
        assert_eq!(cut_middle("abcdef", 3, 30), "abc");
        assert_eq!(cut_middle("abcdef", 3, 70), "def");
        assert_eq!(cut_middle("abcdef", 0, 70), "");
    }

    #[test]
    fn characters() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("äöüß", 3, "äö…"),
            ("a  bc", 4, "a…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
        ] {
            assert_eq!(cut_chars(text, max), expected, "{text:?} {max}");
        }
    }

    #[test]
    fn fences() {
        for (text, expected) in [
            ("", "```"),
            ("a `b` c", "```"),
            ("```\nx\n```", "````"),
            ("``````", "```````"),
        ] {
            assert_eq!(fence(text), expected, "{text:?}");
        }
    }

    #[test]
    fn odd_names() {
        for (path, expected) in [
            (b"src/a b.rs".as_slice(), "src/a b.rs"),
            ("größe.txt".as_bytes(), "größe.txt"),
            (b"a\nb\tc\rd", r"a\nb\tc\rd"),
            (b"\x1b[31mred\x7f\0", r"\x1b[31mred\x7f\x00"),
            (br#"it's "x" `y` \"#, r#"it\'s \"x\" \x60y\x60 \\"#),
            (b"\xff\xfe-\xc3", r"\xff\xfe-\xc3"),
            ("a\u{202e}b\u{85}".as_bytes(), r"a\u{202e}b\u{85}"),
        ] {
            assert_eq!(escape_path(path), expected);
        }
    }

    proptest! {
        #[test]
        fn cuts_keep_to_the_limit(text in "(?s).{0,300}", max in 0usize..400, tail in 0usize..=120) {
            for cut in [cut_end(&text, max), cut_front(&text, max), cut_middle(&text, max, tail)] {
                prop_assert!(cut.len() <= max);
                prop_assert!(text.len() > max || cut == text);
            }
            prop_assert!(cut_chars(&text, max).chars().count() <= max);
            prop_assert!(!text.contains(&fence(&text)));
        }

        #[test]
        fn cuts_take_any_limit(text in "(?s).{0,20}", max: usize, tail: usize) {
            prop_assert!(cut_middle(&text, max, tail).len() <= text.len());
        }

        #[test]
        fn shown_names_are_one_plain_line(bytes: Vec<u8>, other: Vec<u8>) {
            let shown = escape_path(&bytes);
            prop_assert!(!shown.contains(|c: char| c.is_control()));
            prop_assert_eq!(bytes == other, shown == escape_path(&other));
        }
    }
}
