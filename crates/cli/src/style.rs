//! Colours and marks by state, readable without colour too.

use std::fmt::Display;

use anstyle::{AnsiColor, Effects, Style};
use runner_core::text::is_invisible;
use runner_core::usage::Usage;

/// What a mark or a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTone {
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

impl TextTone {
    fn style(self) -> Style {
        match self {
            TextTone::Good => AnsiColor::Green.on_default(),
            TextTone::Bad => AnsiColor::Red.on_default(),
            TextTone::Busy => AnsiColor::Yellow.on_default(),
            TextTone::Dim => Style::new().effects(Effects::DIMMED),
            TextTone::Strong => Style::new().effects(Effects::BOLD),
            TextTone::Plain => Style::new(),
        }
    }
}

/// Paints, or does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextPaint {
    pub(crate) on: bool,
}

impl TextPaint {
    /// The text in the tone's style.
    pub(crate) fn paint(self, tone: TextTone, text: impl Display) -> String {
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
        .filter(|c| !is_invisible(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    runner_core::text::cut_chars(&clean, max_chars).into_owned()
}

/// Text without control characters other than line ends and tabs, and without
/// those that hide or reorder what stands next to them.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .filter(|c| !is_invisible(*c))
        .collect()
}

/// `$1.23`, `$0.0123`.
pub(crate) fn dollars(usd: f64) -> String {
    if usd < 1.0 {
        format!("${usd:.4}")
    } else {
        format!("${usd:.2}")
    }
}

/// What is known of the tokens, in words.
pub(crate) fn tokens(usage: &Usage) -> String {
    if usage.tokens().is_none() {
        return "unknown".to_owned();
    }
    let number = |tokens: Option<u64>| {
        tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string())
    };
    let cached = usage
        .cached_input_tokens
        .filter(|cached| *cached > 0)
        .map_or_else(String::new, |cached| format!(" ({cached} cached)"));
    let unknown = unknown(usage.tokens_unknown, "tokens");
    format!(
        "{} in{cached}, {} out{unknown}",
        number(usage.input_tokens),
        number(usage.output_tokens)
    )
}

/// What is known of the cost, in words.
pub(crate) fn cost(usage: &Usage) -> String {
    usage.cost_usd.map_or_else(
        || "unknown".to_owned(),
        |usd| format!("{}{}", dollars(usd), unknown(usage.cost_unknown, "cost")),
    )
}

fn unknown(iterations: u32, what: &str) -> String {
    match iterations {
        0 => String::new(),
        1 => format!(", and 1 iteration of unknown {what}"),
        more => format!(", and {more} iterations of unknown {what}"),
    }
}

/// `1 iteration`, `2 iterations`.
pub(crate) fn counted(count: u32, thing: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{s}")
}

/// What the clock on the wall shows, for people: nothing is decided by it.
#[allow(clippy::disallowed_methods)] // the one place of the command line
pub(crate) fn clock() -> jiff::Zoned {
    jiff::Zoned::now()
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
        assert_eq!(harmless("a\u{202e}b"), "ab");
        assert_eq!(one_line("a\u{202e}b", 9), "ab");
    }

    #[test]
    fn what_is_unknown_is_said() {
        let mut usage = Usage::default();
        assert_eq!(
            (tokens(&usage), cost(&usage)),
            ("unknown".into(), "unknown".into())
        );
        usage.input_tokens = Some(1200);
        usage.cached_input_tokens = Some(200);
        usage.output_tokens = Some(30);
        usage.tokens_unknown = 1;
        assert_eq!(
            tokens(&usage),
            "1200 in (200 cached), 30 out, and 1 iteration of unknown tokens"
        );
        (usage.cost_usd, usage.cost_unknown) = (Some(0.012), 0);
        assert_eq!(cost(&usage), "$0.0120");
        (usage.cost_usd, usage.cost_unknown) = (Some(3.5), 2);
        assert_eq!(cost(&usage), "$3.50, and 2 iterations of unknown cost");
    }
}
