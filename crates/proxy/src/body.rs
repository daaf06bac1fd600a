//! How far the body of a request goes: nothing behind it is passed on.

use crate::refusal::ProxyRefusal;

/// The longest line of a chunked body: sizes, and what nobody uses.
const MAX_LINE: usize = 4096;

/// The most that may come behind the last chunk.
const MAX_TRAILER: usize = 16 * 1024;

/// What is still to come of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// So many bytes.
    Bytes(u64),
    /// Pieces that say how long they are.
    Chunks(ChunkScanner),
}

impl RequestBody {
    pub(crate) const NONE: RequestBody = RequestBody::Bytes(0);

    /// Whether all of it came.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            RequestBody::Bytes(left) => *left == 0,
            RequestBody::Chunks(scanner) => scanner.place == ChunkPlace::Over,
        }
    }

    /// How many of these bytes belong to it.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, ProxyRefusal> {
        match self {
            RequestBody::Bytes(left) => {
                let all = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let taken = all.min(*left);
                *left -= taken;
                Ok(usize::try_from(taken).unwrap_or(bytes.len()))
            }
            RequestBody::Chunks(scanner) => scanner.take(bytes),
        }
    }
}

/// Where a chunked body is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkScanner {
    place: ChunkPlace,
    /// The line that has not ended yet.
    line: Vec<u8>,
    trailer: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkPlace {
    #[default]
    Size,
    Data(u64),
    /// Behind the data of a chunk.
    End,
    Trailer,
    Over,
}

impl ChunkScanner {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, ProxyRefusal> {
        let mut at = 0;
        while at < bytes.len() && self.place != ChunkPlace::Over {
            if let ChunkPlace::Data(left) = self.place {
                let there = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let taken = there.min(left);
                at += usize::try_from(taken).unwrap_or(bytes.len() - at);
                self.place = match left - taken {
                    0 => ChunkPlace::End,
                    left => ChunkPlace::Data(left),
                };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.line.push(byte);
            if byte == b'\n' {
                self.end_line()?;
            } else if self.line.len() > MAX_LINE {
                return Err(bad("a line of the chunked body is too long"));
            }
        }
        Ok(at)
    }

    fn end_line(&mut self) -> Result<(), ProxyRefusal> {
        let line = std::mem::take(&mut self.line);
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(bad("a line of the chunked body ends without a CR"));
        };
        if line.contains(&b'\r') {
            return Err(bad("a bare CR in the chunked body"));
        }
        self.place = match self.place {
            ChunkPlace::Size => match size(line)? {
                0 => ChunkPlace::Trailer,
                size => ChunkPlace::Data(size),
            },
            ChunkPlace::End if line.is_empty() => ChunkPlace::Size,
            ChunkPlace::End => return Err(bad("a chunk is longer than it says")),
            ChunkPlace::Trailer if line.is_empty() => ChunkPlace::Over,
            ChunkPlace::Trailer => {
                self.trailer += line.len();
                if self.trailer > MAX_TRAILER {
                    return Err(bad("too much behind the last chunk"));
                }
                ChunkPlace::Trailer
            }
            other => other,
        };
        Ok(())
    }
}

/// The size at the beginning of a line; what follows a semicolon is for nobody here.
fn size(line: &[u8]) -> Result<u64, ProxyRefusal> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    if digits.is_empty() || !is_hex || digits.len() > 15 {
        return Err(bad("not the size of a chunk"));
    }
    u64::from_str_radix(text, 16).map_err(|_| bad("not the size of a chunk"))
}

fn bad(words: &'static str) -> ProxyRefusal {
    ProxyRefusal::new(400, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of it is the body, fed in pieces of each size; `None`: not yet all of it.
    fn length(text: &str) -> Result<Option<usize>, ProxyRefusal> {
        let mut found = Vec::new();
        for step in [1, 2, 3, 7, 1000] {
            let mut body = RequestBody::Chunks(ChunkScanner::default());
            let mut taken = 0;
            for piece in text.as_bytes().chunks(step) {
                let count = body.take(piece)?;
                taken += count;
                if count < piece.len() {
                    break;
                }
            }
            found.push(body.is_over().then_some(taken));
        }
        found.dedup();
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        Ok(found[0])
    }

    #[test]
    fn chunks() {
        for (text, expected) in [
            ("0\r\n\r\n", Some(5)),
            ("3\r\nabc\r\n0\r\n\r\n", Some(13)),
            ("3;x=y\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", Some(17)),
            ("A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nmore", Some(32)),
            ("3\r\nabc\r\n", None),
            ("3\r\nab", None),
        ] {
            assert_eq!(length(text), Ok(expected), "{text:?}");
        }
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1\nx",
            "1\r\nab\r\n",
            "1\r\nx\n",
            "1\r\r\nx",
            "ffffffffffffffff\r\n",
        ] {
            assert!(length(text).is_err(), "{text:?}");
        }
        assert!(length(&"1".repeat(5000)).is_err());
        assert!(length(&format!("0\r\n{}", "a: b\r\n".repeat(6000))).is_err());
    }

    #[test]
    fn counted_bytes() {
        let mut body = RequestBody::Bytes(5);
        assert_eq!(body.take(b"abc"), Ok(3));
        assert!(!body.is_over());
        assert_eq!(body.take(b"defg"), Ok(2));
        assert!(body.is_over());
        assert_eq!(body.take(b"g"), Ok(0));
        assert!(RequestBody::NONE.is_over());
    }
}
