//! Colours and marks by state, readable without colour too.

use std::fmt::Display;

use anstyle::{AnsiColor, Effects, Style};

/// What a mark or a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Passed.
    Good,
    /// Failed, stuck.
    Bad,
    /// Under way, to be tried again.
    Busy,
    /// Of less importance.
    Dim,
    /// Of more.
    Strong,
    /// As it is.
    Plain,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad => AnsiColor::Red.on_default(),
            Tone::Busy => AnsiColor::Yellow.on_default(),
            Tone::Dim => Style::new().effects(Effects::DIMMED),
            Tone::Strong => Style::new().effects(Effects::BOLD),
            Tone::Plain => Style::new(),
        }
    }
}

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    pub(crate) on: bool,
}

impl Paint {
    /// The text in the tone's style.
    pub(crate) fn paint(self, tone: Tone, text: impl Display) -> String {
        if self.on {
            let style = tone.style();
            format!("{style}{text}{style:#}")
        } else {
            text.to_string()
        }
    }
}

/// `42s`, `3m05s`, `2h07m`.
pub(crate) fn duration(millis: u64) -> String {
    let secs = millis / 1000;
    match secs {
        0 => format!("{millis}ms"),
        1..=9 => format!("{}.{}s", secs, millis % 1000 / 100),
        10..=59 => format!("{secs}s"),
        60..=3599 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3600, secs % 3600 / 60),
    }
}

/// One line without control characters: what agents and files say must not
/// move the cursor of whoever reads it.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let clean: String = line
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    runner_core::text::cut_chars(&clean, max_chars).into_owned()
}

/// Text without control characters other than line ends and tabs.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (millis, text) in [
            (7, "7ms"),
            (1250, "1.2s"),
            (42_000, "42s"),
            (185_000, "3m05s"),
            (7_620_000, "2h07m"),
        ] {
            assert_eq!(duration(millis), text);
        }
    }

    #[test]
    fn foreign_text_cannot_move_the_cursor() {
        assert_eq!(one_line("\n a\x1b[2Jb \nc", 80), "a [2Jb");
        assert_eq!(harmless("a\x1b[31m\tb\r\n"), "a[31m\tb\n");
    }
}
