//! What was refused, told once for each name.

use std::collections::HashSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// So many names are told one by one: together they fit into a pipe that nobody reads yet.
pub const MORE_NAMES: usize = 100;

/// Where refused names are told.
pub(crate) struct RefusedNames {
    state: Mutex<RefusedState>,
}

struct RefusedState {
    told: HashSet<String>,
    more: HashSet<u64>,
    out: Box<dyn Write + Send>,
}

impl RefusedNames {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> Self {
        RefusedNames {
            state: Mutex::new(RefusedState {
                told: HashSet::new(),
                more: HashSet::new(),
                out,
            }),
        }
    }

    /// Tells a name and why, unless that was done. Both are checked text of one line.
    pub(crate) fn tell(&self, name: &str, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.told.contains(name) {
            return;
        }
        if state.told.len() >= MORE_NAMES {
            if state.more.len() < 1 << 16 {
                state.more.insert(short(name));
            }
            return;
        }
        state.told.insert(name.to_owned());
        // Whoever listens may be gone: then there is nobody to tell.
        let _ = writeln!(state.out, "{name}{why}");
        let _ = state.out.flush();
    }

    /// Tells how many names were too many.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let more = state.more.len();
        if more > 0 {
            let _ = writeln!(state.out, "{more} more names: not allowed");
            let _ = state.out.flush();
        }
    }
}

/// Enough to tell names apart without keeping them.
fn short(name: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct SharedText(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedText {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn once_each_and_not_without_end() {
        let text = SharedText::default();
        let names = RefusedNames::new(Box::new(text.clone()));
        for _ in 0..3 {
            for number in 0..MORE_NAMES + 7 {
                names.tell(&format!("n{number}.test"), ": not allowed");
            }
        }
        names.finish();
        let said = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said.lines().count(), MORE_NAMES + 1);
        assert_eq!(said.lines().next(), Some("n0.test: not allowed"));
        assert_eq!(said.lines().last(), Some("7 more names: not allowed"));
        // As much as a pipe holds while nobody reads, with names as long as they can be.
        const { assert!(MORE_NAMES * 400 < 1 << 16) };
    }
}
