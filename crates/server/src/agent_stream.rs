//! What the agent at work says, line by line, as it says it.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use crate::source::FoundIteration;
use crate::wire::{ServerEvent, StreamLine};

/// How many lines one look tells: more than anybody can read. If there are more,
/// the newest are told, and the gap shows in the offsets.
const MAX_LINES: usize = 128;
/// How far back one look reads.
const MAX_READ: u64 = 4 * 1024 * 1024;
/// The longest line that is told; a longer one is in the file.
const MAX_LINE: usize = 64 * 1024;

/// A place in the `stream.jsonl` of the iteration that is under way.
#[derive(Debug, Default)]
pub(crate) struct AgentStream {
    place: Option<StreamPlace>,
}

#[derive(Debug)]
struct StreamPlace {
    root: PathBuf,
    it: FoundIteration,
    offset: u64,
}

impl AgentStream {
    /// Begins at the end of what has been said already.
    pub(crate) fn skip(&mut self, talking: Option<(PathBuf, String, u32)>) {
        self.turn_to(talking);
        self.read_on(&mut |_| {});
    }

    /// Tells what another iteration has said already, if it is that one's turn now.
    pub(crate) fn follow(
        &mut self,
        talking: Option<(PathBuf, String, u32)>,
        tell: &mut dyn FnMut(ServerEvent),
    ) {
        if self.turn_to(talking) {
            self.read_on(tell);
        }
    }

    fn turn_to(&mut self, talking: Option<(PathBuf, String, u32)>) -> bool {
        let same = match (&self.place, &talking) {
            (Some(place), Some((root, run, iter))) => {
                (&place.root, &place.it.run, place.it.iter) == (root, run, *iter)
            }
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.place = talking.map(|(root, run, iter)| StreamPlace {
                root,
                it: FoundIteration { run, iter },
                offset: 0,
            });
        }
        !same
    }

    /// Tells what was said since the last time.
    pub(crate) fn read_on(&mut self, tell: &mut dyn FnMut(ServerEvent)) {
        let Some(place) = &mut self.place else { return };
        let Ok(mut file) = place.it.open(&place.root, "stream.jsonl") else {
            return;
        };
        let size = file.metadata().map_or(0, |meta| meta.len());
        if size < place.offset {
            // It was begun anew.
            place.offset = 0;
        }
        let mut from = place.offset;
        let behind = size - from > MAX_READ;
        if behind {
            from = size - MAX_READ;
        }
        let mut bytes = Vec::new();
        let read = file
            .seek(SeekFrom::Start(from))
            .and_then(|_| file.take(MAX_READ).read_to_end(&mut bytes));
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        if read.is_err() {
            return;
        }
        let mut lines: Vec<(u64, &[u8])> = Vec::new();
        let mut at = from;
        for line in bytes[..=end].split_inclusive(|byte| *byte == b'\n') {
            lines.push((at, line));
            at += line.len() as u64;
        }
        place.offset = at;
        // After a jump the first line may be the rest of one.
        let skip = lines
            .len()
            .saturating_sub(MAX_LINES)
            .max(usize::from(behind));
        for (offset, line) in lines.into_iter().skip(skip) {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = (text.len() <= MAX_LINE).then(|| String::from_utf8_lossy(text).into_owned());
            tell(ServerEvent::Stream(StreamLine {
                run_id: place.it.run.clone(),
                iter: place.it.iter,
                offset,
                line: text,
                next_offset: offset + line.len() as u64,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;

    #[test]
    fn whole_lines_once_each_with_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(".runner/iterations/r");
        fs::create_dir_all(folder.join("1")).unwrap();
        fs::create_dir_all(folder.join("2")).unwrap();
        let append = |iter: &str, text: &str| {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(folder.join(iter).join("stream.jsonl"))
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let at = |iter| Some((dir.path().to_owned(), "r".to_owned(), iter));
        let mut stream = AgentStream::default();
        let mut look = |talking| {
            let mut told = Vec::new();
            let mut tell = |event| {
                let ServerEvent::Stream(line) = event else {
                    panic!("{event:?}")
                };
                told.push((line.iter, line.offset, line.line.unwrap_or_default()));
            };
            stream.read_on(&mut tell);
            stream.follow(talking, &mut tell);
            told
        };
        assert!(look(at(1)).is_empty());
        append("1", "{\"a\":1}\n{\"b\"");
        assert_eq!(look(at(1)), [(1, 0, "{\"a\":1}".to_owned())]);
        append("1", ":2}\n");
        // The rest of the last iteration, then the next.
        append("2", "{}\n");
        assert_eq!(
            look(at(2)),
            [(1, 8, "{\"b\":2}".to_owned()), (2, 0, "{}".to_owned())]
        );
        assert!(look(at(2)).is_empty());
        // A flood: the newest, each whole.
        append("2", &"{\"flood\":1}\n".repeat(500_000));
        let told = look(at(2));
        assert_eq!(told.len(), MAX_LINES);
        assert!(told.iter().all(|(_, _, line)| line == "{\"flood\":1}"));
        assert!(look(None).is_empty());

        let mut late = AgentStream::default();
        late.skip(at(2));
        append("2", "{\"new\":1}\n");
        let mut count = 0;
        late.read_on(&mut |_| count += 1);
        assert_eq!(count, 1);
    }
}
