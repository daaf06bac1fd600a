//! The one gate through which everything is printed: data to stdout, the rest
//! to stderr.

use std::io::{BufRead, IsTerminal as _, Write as _};

use runner::Error;
use serde_json::{Value, json};

use crate::args::{ColorChoice, GlobalOptions};
use crate::style::{self, TextPaint, TextTone};

/// The version of every JSON object that is printed.
const SCHEMA_VERSION: u32 = 1;

/// How and where to print.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Options of the command line, as they are.
pub(crate) struct OutputGate {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
    /// For stdout.
    pub(crate) paint: TextPaint,
    /// For stderr.
    pub(crate) paint_err: TextPaint,
    /// Whether a line that redraws itself makes sense on stderr.
    pub(crate) live: bool,
    /// Lines that the next ones replace.
    lines_shown: usize,
}

impl OutputGate {
    /// As the options and the terminal want it.
    pub(crate) fn new(global: &GlobalOptions) -> Self {
        let (out_tty, err_tty) = (
            std::io::stdout().is_terminal(),
            std::io::stderr().is_terminal(),
        );
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let on = |tty: bool| match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => tty && !no_color,
        };
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        OutputGate {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            paint: TextPaint { on: on(out_tty) },
            paint_err: TextPaint { on: on(err_tty) },
            live: err_tty && !dumb && !global.quiet && !global.json,
            lines_shown: 0,
        }
    }

    /// A line of data.
    pub(crate) fn data(&mut self, text: &str) {
        self.clear_line();
        // Whoever closed the pipe has read enough.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// A JSON object as data.
    pub(crate) fn object(&mut self, mut value: Value) {
        if let Value::Object(map) = &mut value {
            map.insert("schema_version".to_owned(), json!(SCHEMA_VERSION));
        }
        self.data(&value.to_string());
    }

    /// What somebody else says, as data, as it comes.
    pub(crate) fn pass_on(&mut self, from: &mut dyn BufRead) -> std::io::Result<()> {
        self.clear_line();
        let mut last = b'\n';
        loop {
            let bytes = match from.fill_buf() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let mut to = std::io::stdout().lock();
            let Some(end) = bytes.last() else {
                if last != b'\n' {
                    let _ = writeln!(to);
                }
                return Ok(());
            };
            last = *end;
            // Whoever closed the pipe has read enough.
            if to.write_all(bytes).and_then(|()| to.flush()).is_err() {
                return Ok(());
            }
            let length = bytes.len();
            from.consume(length);
        }
    }

    /// A remark for people.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.err(text);
        }
    }

    /// Something that people should know.
    pub(crate) fn warning(&mut self, text: &str) {
        let label = self.paint_err.paint(TextTone::Busy, "warning:");
        self.say(&format!("{label} {}", style::harmless(text)));
    }

    /// What another process said on stderr; also for those who want quiet, as it was
    /// quiet itself.
    pub(crate) fn say_always(&mut self, text: &str) {
        self.err(text);
    }

    /// A remark for people who want to hear more.
    pub(crate) fn detail(&mut self, text: &str) {
        if self.verbose {
            self.err(text);
        }
    }

    /// An error, with its hint.
    pub(crate) fn error(&mut self, error: &Error) {
        if self.json {
            self.object(json!({"error": error_value(error)}));
            return;
        }
        self.problem(&error.message, error.hint.as_deref());
    }

    /// What is wrong, and what to do about it; also said to those who want quiet.
    pub(crate) fn problem(&mut self, message: &str, hint: Option<&str>) {
        let label = self.paint_err.paint(TextTone::Bad, "error:");
        self.err(&format!("{label} {}", style::harmless(message)));
        // Some messages end with what to do: once is enough.
        if let Some(hint) = hint.filter(|hint| !message.ends_with(hint)) {
            let label = self.paint_err.paint(TextTone::Busy, "hint:");
            self.err(&format!("{label} {}", style::harmless(hint)));
        }
    }

    /// A line that the next one replaces; only on a terminal.
    pub(crate) fn live_line(&mut self, text: &str) {
        self.live_lines(&[text.to_owned()]);
    }

    /// Some lines that the next ones replace; only on a terminal. They must fit its width.
    pub(crate) fn live_lines(&mut self, lines: &[String]) {
        if self.live {
            let text = format!("{}{}", self.take_away(), lines.join("\r\n"));
            let _ = write!(std::io::stderr().lock(), "{text}");
            let _ = std::io::stderr().flush();
            self.lines_shown = lines.len();
        }
    }

    /// Takes the live lines away.
    pub(crate) fn clear_line(&mut self) {
        if self.lines_shown > 0 {
            let text = self.take_away();
            let _ = write!(std::io::stderr().lock(), "{text}");
            let _ = std::io::stderr().flush();
            self.lines_shown = 0;
        }
    }

    /// What moves the cursor back over the live lines and empties them.
    fn take_away(&self) -> String {
        let up = "\x1b[1A\x1b[2K".repeat(self.lines_shown.saturating_sub(1));
        format!("\r\x1b[2K{up}")
    }

    fn err(&mut self, text: &str) {
        self.clear_line();
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// An error as scripts read it.
pub(crate) fn error_value(error: &Error) -> Value {
    json!({"code": error.code.as_str(), "message": error.message, "hint": error.hint})
}
