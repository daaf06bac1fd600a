//! Reading files that others append to: their end, and what is new since the last
//! look. They lie where a session can write, so anything may have been done to them.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files;

/// A line longer than this is passed over.
const MAX_LINE: usize = 1024 * 1024;

/// The whole lines at the end of a file, from at most `max` bytes of it. None if it
/// cannot be read.
pub(crate) fn last_lines(path: &Path, max: u64) -> Vec<Vec<u8>> {
    let mut tail = FileTail::new(path.to_owned());
    tail.skip_to_last(max);
    tail.read(max).lines
}

/// What one look at a file brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TailChunk {
    /// Lines that are complete, without their ends.
    pub(crate) lines: Vec<Vec<u8>>,
    /// Bytes that were passed over: too many to show, or too long a line.
    pub(crate) skipped: u64,
}

/// A place in a file that grows.
#[derive(Debug)]
pub(crate) struct FileTail {
    path: PathBuf,
    /// Device and inode: another file at the same path is read from its beginning.
    file: Option<(u64, u64)>,
    offset: u64,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    /// The rest of this line is passed over.
    overlong: bool,
}

impl FileTail {
    /// From the beginning.
    pub(crate) fn new(path: PathBuf) -> Self {
        FileTail {
            path,
            file: None,
            offset: 0,
            partial: Vec::new(),
            overlong: false,
        }
    }

    /// Passes over all but the last bytes of what is there now. The line that is cut
    /// by that is passed over too.
    pub(crate) fn skip_to_last(&mut self, max: u64) -> u64 {
        let Some((_, id, len)) = self.open() else {
            return 0;
        };
        self.file = Some(id);
        let from = len.saturating_sub(max).max(self.offset);
        let skipped = from - self.offset;
        if skipped > 0 {
            self.offset = from;
            self.partial.clear();
            self.overlong = true;
        }
        skipped
    }

    /// What is new, up to `max` bytes of it. More than four times as much is not
    /// shown late but passed over: whoever floods a file gets no slow viewer.
    pub(crate) fn read(&mut self, max: u64) -> TailChunk {
        let mut chunk = TailChunk::default();
        let Some((mut file, id, len)) = self.open() else {
            return chunk;
        };
        if self.file != Some(id) || len < self.offset {
            *self = FileTail::new(std::mem::take(&mut self.path));
            self.file = Some(id);
        }
        if len - self.offset > max.saturating_mul(4) {
            chunk.skipped += self.skip_to_last(max);
        }
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(self.offset))
            .and_then(|_| file.take(max).read_to_end(&mut bytes));
        if read.is_err() {
            return chunk;
        }
        self.offset += bytes.len() as u64;
        self.split(&bytes, &mut chunk);
        chunk
    }

    fn split(&mut self, mut bytes: &[u8], chunk: &mut TailChunk) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.partial);
            line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if self.overlong || line.len() > MAX_LINE {
                chunk.skipped += line.len() as u64;
                self.overlong = false;
            } else if !line.is_empty() {
                chunk.lines.push(line);
            }
        }
        if self.overlong {
            chunk.skipped += bytes.len() as u64;
        } else {
            self.partial.extend_from_slice(bytes);
            if self.partial.len() > MAX_LINE {
                chunk.skipped += self.partial.len() as u64;
                self.partial = Vec::new();
                self.overlong = true;
            }
        }
    }

    /// The file, which one it is and how long: no link, no pipe.
    fn open(&self) -> Option<(File, (u64, u64), u64)> {
        let file = files::open_no_trap(&self.path).ok()?;
        let meta = file.metadata().ok()?;
        meta.is_file()
            .then_some((file, (meta.dev(), meta.ino()), meta.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    fn texts(chunk: &TailChunk) -> Vec<String> {
        let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
        chunk.lines.iter().map(text).collect()
    }

    #[test]
    fn only_what_is_new_and_only_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut tail = FileTail::new(path.clone());
        assert_eq!(tail.read(100), TailChunk::default(), "no file yet");
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(texts(&tail.read(100)), ["one"]);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "o\nthree\n").unwrap();
        assert_eq!(texts(&tail.read(100)), ["two", "three"]);
        assert_eq!(tail.read(100), TailChunk::default());
        // Cut short, and replaced.
        fs::write(&path, "new\n").unwrap();
        assert_eq!(texts(&tail.read(100)), ["new"]);
        fs::write(dir.path().join("g"), "other file\n").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
        assert_eq!(texts(&tail.read(100)), ["other file"]);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(
            tail.read(100),
            TailChunk::default(),
            "a link is not followed"
        );
    }

    #[test]
    fn a_flood_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
        let text = lines.join("\n") + "\n";
        fs::write(&path, &text).unwrap();
        let mut tail = FileTail::new(path.clone());
        let chunk = tail.read(1000);
        assert!(chunk.skipped > 90_000, "{}", chunk.skipped);
        assert!(chunk.lines.len() < 100);
        assert_eq!(texts(&chunk).last().unwrap(), "line 9999");
        // A line without an end takes no memory.
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        for _ in 0..3 {
            file.write_all(&vec![b'x'; MAX_LINE]).unwrap();
            tail.read(u64::MAX);
            assert!(tail.partial.len() <= MAX_LINE);
        }
        writeln!(file, "\nshort").unwrap();
        assert_eq!(texts(&tail.read(u64::MAX)), ["short"]);
    }

    #[test]
    fn the_end_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "a\nbb\ncc\n").unwrap();
        let count = |max| last_lines(&path, max).len();
        assert_eq!([count(100), count(8), count(7), count(3)], [3, 3, 2, 0]);
        assert_eq!(last_lines(&dir.path().join("none"), 10).len(), 0);
    }
}
