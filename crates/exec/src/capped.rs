//! A log with a cap: the head as it arrives, the tail at the end, and a count of what lies between.

use std::collections::VecDeque;

/// The longest UTF-8 sequence.
const MAX_CHAR: usize = 4;

/// Keeps at most `cap` bytes of what is pushed: about half from the front, the rest from the end.
///
/// The head is handed back at once, to be written to a log file that can be followed live; only the
/// tail is held in memory, in a ring that never exceeds the cap. A cut never splits a character.
#[derive(Debug)]
pub struct CappedLog {
    cap: usize,
    head_limit: usize,
    head_len: usize,
    /// The last bytes of the head, to recognise a character that two pushes share.
    head_end: Vec<u8>,
    head_open: bool,
    tail: VecDeque<u8>,
    dropped: u64,
}

/// What belongs after the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// How many bytes were dropped between head and tail.
    pub dropped: u64,
    /// What to append to the head: a marker line if something was dropped, then the tail. Empty if
    /// the head is everything.
    pub bytes: Vec<u8>,
}

impl CappedLog {
    /// A log of at most `cap` bytes, the marker not counted.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            head_limit: cap / 2,
            head_len: 0,
            head_end: Vec::new(),
            head_open: true,
            tail: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Takes `bytes` and returns the part of them that belongs to the head.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (head, rest) = bytes.split_at(self.head_share(bytes));
        self.head_len += head.len();
        self.push_tail(rest);
        head
    }

    /// The marker and the tail.
    pub fn finish(mut self) -> Tail {
        if self.dropped == 0 {
            return Tail {
                dropped: 0,
                bytes: self.tail.into(),
            };
        }
        // The first bytes may be the end of a character whose beginning was dropped.
        let torn = self
            .tail
            .iter()
            .take(MAX_CHAR - 1)
            .take_while(|byte| is_continuation(**byte))
            .count();
        self.tail.drain(..torn);
        self.dropped += torn as u64;
        let mut bytes = format!("\n[... {} bytes dropped ...]\n", self.dropped).into_bytes();
        let (front, back) = self.tail.as_slices();
        bytes.reserve_exact(self.tail.len());
        bytes.extend_from_slice(front);
        bytes.extend_from_slice(back);
        Tail {
            dropped: self.dropped,
            bytes,
        }
    }

    /// How many of `bytes` go to the head, which closes as soon as another character might not fit.
    fn head_share(&mut self, bytes: &[u8]) -> usize {
        if !self.head_open || bytes.is_empty() {
            return 0;
        }
        let room = self.head_limit - self.head_len;
        let take = bytes.len().min(room);
        // What was handed out cannot be taken back, so a character must be known to fit before its
        // first byte goes out: the head stays open only while a whole one has room behind it.
        let share = if self.head_len + take + MAX_CHAR <= self.head_limit {
            take
        } else {
            self.head_open = false;
            let torn = if take >= MAX_CHAR {
                torn_at_end(&bytes[..take])
            } else {
                torn_at_end(&[&self.head_end, &bytes[..take]].concat())
            };
            if torn > take {
                // Begun by an earlier push, when there was room for all of it: let it be completed.
                self.head_open = true;
                take
            } else {
                take - torn
            }
        };
        self.remember_end(&bytes[..share]);
        share
    }

    fn remember_end(&mut self, head: &[u8]) {
        let recent = &head[head.len().saturating_sub(MAX_CHAR - 1)..];
        self.head_end.extend_from_slice(recent);
        let excess = self.head_end.len().saturating_sub(MAX_CHAR - 1);
        self.head_end.drain(..excess);
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let room = self.cap - self.head_len;
        let (skipped, bytes) = bytes.split_at(bytes.len().saturating_sub(room));
        let evicted = (self.tail.len() + bytes.len()).saturating_sub(room);
        self.tail.drain(..evicted);
        self.dropped += (skipped.len() + evicted) as u64;
        let wanted = self.tail.len() + bytes.len();
        if wanted > self.tail.capacity() {
            // Doubling, but never beyond the cap, and nothing up front for a cap that is not reached.
            let target = wanted.max(2 * self.tail.capacity()).min(room);
            self.tail.reserve_exact(target - self.tail.len());
        }
        self.tail.extend(bytes);
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes at the end are the beginning of a character that is not complete yet.
fn torn_at_end(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(MAX_CHAR - 1);
    (1..=longest)
        .find(|len| {
            let end = &bytes[bytes.len() - len..];
            // "Unexpected end", from the first byte on, is what an unfinished character gives.
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes `input` in pieces and returns head, tail.
    fn run(cap: usize, input: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<u8>, Tail) {
        let mut log = CappedLog::new(cap);
        let mut head = Vec::new();
        let mut rest = input;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            head.extend_from_slice(log.push(now));
            assert!(log.tail.capacity() <= cap, "the ring outgrew the cap");
            assert!(log.head_end.len() < MAX_CHAR);
            rest = later;
        }
        (head, log.finish())
    }

    /// Everything that must hold for any input, cap and cutting.
    fn check(cap: usize, input: &[u8], piece: impl FnMut() -> usize) {
        let (head, tail) = run(cap, input, piece);
        if input.len() <= cap {
            assert_eq!([head, tail.bytes].concat(), input);
            assert_eq!(tail.dropped, 0);
            return;
        }
        let marker = format!("\n[... {} bytes dropped ...]\n", tail.dropped);
        let end = tail.bytes.strip_prefix(marker.as_bytes()).unwrap();
        assert!(input.starts_with(&head));
        assert!(input.ends_with(end));
        let dropped = usize::try_from(tail.dropped).unwrap();
        assert_eq!(head.len() + dropped + end.len(), input.len());
        assert!(head.len() <= cap / 2 && head.len() + 2 * MAX_CHAR > cap / 2);
        assert!(head.len() + end.len() <= cap && head.len() + end.len() + MAX_CHAR > cap);
        if let Ok(text) = std::str::from_utf8(input) {
            assert!(text.is_char_boundary(head.len()), "head splits a character");
            assert!(
                text.is_char_boundary(input.len() - end.len()),
                "tail splits a character"
            );
        }
    }

    /// Numerical Recipes' generator: the same cases on every run.
    struct Lcg(u32);

    impl Lcg {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.0 >> 8) as usize % limit
        }
    }

    #[test]
    fn holds_for_random_text_and_bytes() {
        let alphabet = ["a", "\n", "é", "ß", "€", "中", "🙂", "\u{10ffff}"];
        let mut random = Lcg(7);
        for _ in 0..20_000 {
            let mut input = Vec::new();
            for _ in 0..random.below(60) {
                input.extend_from_slice(alphabet[random.below(alphabet.len())].as_bytes());
            }
            if random.below(3) == 0 {
                for _ in 0..random.below(8) {
                    let at = random.below(input.len() + 1);
                    input.insert(at, u8::try_from(random.below(256)).unwrap());
                }
            }
            let cap = random.below(80);
            let longest = 1 + random.below(24);
            let mut pieces = Lcg(random.0);
            check(cap, &input, move || 1 + pieces.below(longest));
        }
    }

    #[test]
    fn holds_for_every_short_cutting() {
        let input = "a€🙂é".repeat(5).into_bytes();
        for cap in 0..=input.len() + 1 {
            for piece in 1..=input.len() {
                check(cap, &input, || piece);
            }
        }
    }

    #[test]
    fn exactly_the_cap_is_kept_without_a_marker() {
        let (head, tail) = run(10, b"0123456789", || 3);
        assert_eq!([head, tail.bytes].concat(), b"0123456789");
        let (head, tail) = run(10, b"0123456789a", || 11);
        assert_eq!(head, b"01234");
        assert_eq!(tail.bytes, b"\n[... 1 bytes dropped ...]\n6789a");
    }

    #[test]
    fn a_cap_of_zero_counts_everything() {
        let (head, tail) = run(0, b"abc", || 1);
        assert!(head.is_empty());
        assert_eq!(tail.dropped, 3);
    }

    #[test]
    fn a_flood_stays_within_the_cap() {
        let mut log = CappedLog::new(100_000);
        let chunk = vec![b'x'; 65_536];
        for _ in 0..1_000 {
            log.push(&chunk);
            assert!(log.tail.capacity() <= 100_000);
        }
        let tail = log.finish();
        assert_eq!(tail.dropped, 65_536_000 - 100_000);
    }
}
