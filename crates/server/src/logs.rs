//! A log by pages: a file of any size is never read as a whole.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use crate::wire::{LogMatch, LogMatches};

/// How long a page is when nobody says.
pub(crate) const DEFAULT_LIMIT: u64 = 256 * 1024;
/// How long it may be.
pub(crate) const MAX_LIMIT: u64 = 4 * 1024 * 1024;
/// How many lines one search finds.
const MAX_MATCHES: usize = 200;
/// How much of a found line is shown.
const MAX_MATCH_BYTES: usize = 400;
/// How much one search looks at; the next one goes on from there.
const MAX_SEARCHED: u64 = 256 * 1024 * 1024;
/// How much is held in memory while searching.
const WINDOW: usize = 256 * 1024;

/// A piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogPage {
    pub(crate) bytes: Vec<u8>,
    /// The size of the file.
    pub(crate) size: u64,
    /// Where the piece begins.
    pub(crate) offset: u64,
    /// Where the next one does, if there is one.
    pub(crate) next: Option<u64>,
}

/// Reads a page. It ends with a whole line where it can; a negative offset counts
/// from the end and begins with a whole line. Of a file `by_lines` only whole
/// lines exist.
pub(crate) fn page(
    file: &mut File,
    offset: i64,
    limit: u64,
    by_lines: bool,
) -> io::Result<LogPage> {
    let size = file.metadata()?.len();
    let from_end = offset < 0;
    let mut start = if from_end {
        size.saturating_sub(offset.unsigned_abs())
    } else {
        offset.unsigned_abs().min(size)
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(limit.min(MAX_LIMIT)).read_to_end(&mut bytes)?;
    if from_end && start > 0 {
        // Whether a line begins right here is not known: the first one may be cut.
        let cut = bytes.iter().position(|byte| *byte == b'\n');
        let cut = cut.map_or(0, |at| at + 1);
        bytes.drain(..cut);
        start += cut as u64;
    }
    let at_end = start + bytes.len() as u64 >= size;
    if !at_end || by_lines {
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => bytes.truncate(end + 1),
            // Not one whole line: a page of a log is cut inside it, but not inside
            // a character.
            None if !by_lines => bytes.truncate(char_boundary(&bytes)),
            None if at_end => bytes.clear(),
            None => {}
        }
    }
    let end = start + bytes.len() as u64;
    Ok(LogPage {
        next: (end < size && !bytes.is_empty()).then_some(end),
        bytes,
        size,
        offset: start,
    })
}

/// The end of the last whole character, as far as it is UTF-8.
fn char_boundary(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(4);
    for at in (tail..bytes.len()).rev() {
        let byte = bytes[at];
        let needs = match byte {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            0x80..=0xBF => continue,
            _ => 1,
        };
        let cut_off = bytes.len() - at < needs;
        return if cut_off && at > 0 { at } else { bytes.len() };
    }
    bytes.len()
}

/// The lines from an offset on that contain a text, whatever the case of its
/// (ASCII) letters.
pub(crate) fn find(file: &mut File, offset: u64, text: &str) -> io::Result<LogMatches> {
    let wanted = text.to_ascii_lowercase().into_bytes();
    let mut found = LogMatches {
        matches: Vec::new(),
        next_offset: None,
    };
    if wanted.is_empty() {
        return Ok(found);
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut held: Vec<u8> = Vec::new();
    let mut held_at = offset;
    let mut ended = false;
    while !ended {
        let before = held.len();
        held.resize(before + WINDOW, 0);
        let read = file.read(&mut held[before..])?;
        held.truncate(before + read);
        ended = read == 0;
        // Whole lines; a line that is longer than the window is searched by pieces.
        let end = match held.iter().rposition(|byte| *byte == b'\n') {
            Some(end) if !ended => end + 1,
            None if !ended && held.len() < 2 * WINDOW => 0,
            _ => held.len(),
        };
        let mut line_at = held_at;
        for line in held[..end].split_inclusive(|byte| *byte == b'\n') {
            if contains(line, &wanted) {
                if found.matches.len() == MAX_MATCHES {
                    found.next_offset = Some(line_at);
                    return Ok(found);
                }
                found.matches.push(LogMatch {
                    offset: line_at,
                    line: shown(line),
                });
            }
            line_at += line.len() as u64;
        }
        held.drain(..end);
        held_at += end as u64;
        if !ended && held_at - offset > MAX_SEARCHED {
            found.next_offset = Some(held_at);
            return Ok(found);
        }
    }
    Ok(found)
}

fn contains(line: &[u8], wanted: &[u8]) -> bool {
    line.windows(wanted.len())
        .any(|part| part.eq_ignore_ascii_case(wanted))
}

fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = if line.len() > MAX_MATCH_BYTES {
        char_boundary(&line[..MAX_MATCH_BYTES])
    } else {
        line.len()
    };
    String::from_utf8_lossy(&line[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        file
    }

    #[track_caller]
    fn check(
        text: &str,
        (offset, limit, by_lines): (i64, u64, bool),
        expected: (&str, u64, Option<u64>),
    ) {
        let page = page(&mut file(text.as_bytes()), offset, limit, by_lines).unwrap();
        let got = String::from_utf8_lossy(&page.bytes).into_owned();
        assert_eq!((got.as_str(), page.offset, page.next), expected);
        assert_eq!(page.size, text.len() as u64);
    }

    #[test]
    fn pages_are_whole_lines_where_they_can_be() {
        check("ab\ncd\nef", (0, 100, false), ("ab\ncd\nef", 0, None));
        check("ab\ncd\nef", (0, 4, false), ("ab\n", 0, Some(3)));
        check("ab\ncd\nef", (3, 100, false), ("cd\nef", 3, None));
        check("ab\ncd\nef", (99, 100, false), ("", 8, None));
        // From the end.
        check("ab\ncd\nef\n", (-5, 100, false), ("ef\n", 6, None));
        check("ab\ncd\nef\n", (-99, 100, false), ("ab\ncd\nef\n", 0, None));
        // Half a line of a growing file is not shown.
        check("{}\n{\"a", (0, 100, true), ("{}\n", 0, Some(3)));
        check("{}\n{\"a", (3, 100, true), ("", 3, None));
        // A line that is longer than the page is cut between characters.
        check("aöööö", (0, 4, false), ("aö", 0, Some(3)));
        check("aöööö", (3, 4, false), ("öö", 3, Some(7)));
        check("", (0, 10, false), ("", 0, None));
    }

    #[test]
    fn pages_put_together_are_the_file() {
        let text = "é line\nanother one\n".repeat(50);
        for limit in [1, 2, 3, 7, 64, 4096] {
            let mut file = file(text.as_bytes());
            let (mut all, mut at) = (Vec::new(), Some(0));
            while let Some(offset) = at {
                let page = page(&mut file, i64::try_from(offset).unwrap(), limit, false).unwrap();
                assert_eq!(page.offset, offset);
                all.extend(page.bytes);
                at = page.next;
            }
            assert_eq!(String::from_utf8(all).unwrap(), text, "{limit}");
        }
    }

    #[test]
    fn finds_lines_across_windows() {
        let mut text = "x".repeat(WINDOW - 3);
        text.push_str("\nan ERROR here\nfine\nerror again");
        let found = find(&mut file(text.as_bytes()), 0, "Error").unwrap();
        let lines: Vec<_> = found.matches.iter().map(|it| it.line.as_str()).collect();
        assert_eq!(lines, ["an ERROR here", "error again"]);
        assert_eq!(found.matches[0].offset, WINDOW as u64 - 2);
        assert_eq!(found.next_offset, None);
        let later = find(&mut file(text.as_bytes()), WINDOW as u64, "error").unwrap();
        assert_eq!(later.matches.len(), 1 + 1);

        let many = "error\n".repeat(MAX_MATCHES + 5);
        let found = find(&mut file(many.as_bytes()), 0, "error").unwrap();
        assert_eq!(found.matches.len(), MAX_MATCHES);
        let next = found.next_offset.unwrap();
        assert_eq!(next, 6 * MAX_MATCHES as u64);
        let rest = find(&mut file(many.as_bytes()), next, "error").unwrap();
        assert_eq!((rest.matches.len(), rest.next_offset), (5, None));
        assert!(find(&mut file(b"x"), 0, "").unwrap().matches.is_empty());
    }
}
