//! The few options that tasks take, read without a parser crate: xtask is built
//! before anything else and shall be built fast.

use std::str::FromStr;

use crate::failure::{TaskFailure, TaskResult};

/// The words after the task's name; each is taken once.
pub(crate) struct XtaskArgs {
    words: Vec<String>,
}

impl XtaskArgs {
    pub(crate) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// Takes a flag such as `--json`: whether it was there.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes an option with a value, as `--name value` or `--name=value`.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> TaskResult<Option<T>> {
        let prefix = format!("{name}=");
        let is_it = |word: &String| word == name || word.starts_with(&prefix);
        let Some(at) = self.words.iter().position(is_it) else {
            return Ok(None);
        };
        let word = self.words.remove(at);
        let text = match word.strip_prefix(&prefix) {
            Some(text) => text.to_owned(),
            None if at < self.words.len() => self.words.remove(at),
            None => return Err(TaskFailure::usage(format!("{name} needs a value"))),
        };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(TaskFailure::usage(format!("{name} does not take `{text}`"))),
        }
    }

    /// Takes the next word that is no option.
    pub(crate) fn positional(&mut self) -> Option<String> {
        let at = self.words.iter().position(|word| !word.starts_with('-'))?;
        Some(self.words.remove(at))
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> TaskResult<()> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(TaskFailure::usage(format!("unexpected argument `{word}`"))
                .hint("the task's `--help` lists what it takes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> XtaskArgs {
        XtaskArgs::new(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn takes_flags_values_and_words() {
        let mut args = args("loop --json --runs 9 --seed=4");
        assert!(args.flag("--json"));
        assert!(!args.flag("--json"));
        assert_eq!(args.value("--runs").unwrap(), Some(9_u32));
        assert_eq!(args.value("--seed").unwrap(), Some(4_u64));
        assert_eq!(args.value::<u32>("--none").unwrap(), None);
        assert_eq!(args.positional().as_deref(), Some("loop"));
        assert!(args.finish().is_ok());
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(args("--what").finish().is_err());
        assert!(args("--runs").value::<u32>("--runs").is_err());
        assert!(args("--runs many").value::<u32>("--runs").is_err());
    }
}
