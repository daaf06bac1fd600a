//! The part of YAML that lock files are written in: tables and lists by indentation or in brackets,
//! and text. Whatever else YAML knows is refused, because a tool might read it otherwise.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// Deeper ones are no lock files.
const MAX_DEPTH: usize = 24;

pub(super) fn parse(text: &str) -> Option<Value> {
    if text.contains('\t') {
        return None;
    }
    let lines = text.lines().map(|line| {
        let content = line.trim_start_matches(' ');
        (line.len() - content.len(), content.trim_end())
    });
    let lines: Vec<(usize, &str)> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut reader = YamlReader {
        lines: &lines,
        at: 0,
    };
    let value = match lines.first() {
        Some((indent, _)) => reader.block(*indent, 0)?,
        None => Value::Object(Map::new()),
    };
    (reader.at == lines.len()).then_some(value)
}

struct YamlReader<'t> {
    lines: &'t [(usize, &'t str)],
    at: usize,
}

impl<'t> YamlReader<'t> {
    /// The next line, where it stands just there.
    fn line_at(&self, indent: usize) -> Option<&'t str> {
        let (found, line) = self.lines.get(self.at)?;
        (*found == indent).then_some(*line)
    }

    /// A table or a list of lines that stand equally deep.
    fn block(&mut self, indent: usize, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        if is_item(self.line_at(indent)?) {
            let mut list = Vec::new();
            while let Some(line) = self.line_at(indent).filter(|line| is_item(line)) {
                self.at += 1;
                list.push(scalar(line[1..].trim_start())?);
            }
            return Some(Value::Array(list));
        }
        let mut map = Map::new();
        while let Some(line) = self.line_at(indent).filter(|line| !is_item(line)) {
            self.at += 1;
            let (key, rest) = key_of(line)?;
            let value = if rest.is_empty() {
                self.below(indent, depth)?
            } else if rest.starts_with(['|', '>']) {
                self.long_text(indent)
            } else {
                scalar(rest)?
            };
            // `<<` puts other tables into this one.
            if key == "<<" || map.insert(key, value).is_some() {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    /// What stands below a key, if anything does. Items may stand as deep as the key.
    fn below(&mut self, indent: usize, depth: usize) -> Option<Value> {
        match self.lines.get(self.at) {
            Some((deeper, _)) if *deeper > indent => self.block(*deeper, depth + 1),
            Some((same, line)) if *same == indent && is_item(line) => self.block(*same, depth + 1),
            _ => Some(Value::Null),
        }
    }

    fn long_text(&mut self, indent: usize) -> Value {
        let mut text = String::new();
        while let Some((deeper, line)) = self.lines.get(self.at)
            && *deeper > indent
        {
            self.at += 1;
            text.push_str(line);
            text.push('\n');
        }
        Value::String(text)
    }
}

fn is_item(line: &str) -> bool {
    line == "-" || line.starts_with("- ")
}

/// The key of a line, and what stands behind it.
fn key_of(line: &str) -> Option<(String, &str)> {
    if line.starts_with(['"', '\'']) {
        let mut chars = line.chars().peekable();
        let key = quoted(&mut chars)?;
        let rest: String = chars.collect();
        let rest = &line[line.len() - rest.len()..];
        return Some((key, rest.strip_prefix(':')?.trim_start()));
    }
    let (key, rest) = match line.split_once(": ") {
        Some((key, rest)) => (key, rest.trim_start()),
        None => (line.strip_suffix(':')?, ""),
    };
    is_plain(key).then(|| (key.to_owned(), rest))
}

/// Whether text without quotes means itself.
fn is_plain(text: &str) -> bool {
    let starts = [
        '&', '*', '!', '|', '>', '%', '@', '`', '?', '{', '[', '"', '\'', '#', ',',
    ];
    !text.is_empty() && !text.starts_with(starts) && !text.starts_with("---")
}

/// A value on one line.
fn scalar(text: &str) -> Option<Value> {
    let mut chars = text.chars().peekable();
    if text.starts_with(['{', '[', '"', '\'']) {
        let value = flow(&mut chars, 0)?;
        let rest: String = chars.collect();
        let rest = rest.trim_start();
        return (rest.is_empty() || rest.starts_with('#')).then_some(value);
    }
    // `>=1` in quotes is text; without them it would be a long one.
    let text = text.split(" #").next().unwrap_or(text).trim_end();
    let is_table = text.contains(": ") || text.ends_with(':');
    (is_plain(text) && !is_table).then(|| Value::String(text.to_owned()))
}

type YamlChars<'t> = Peekable<Chars<'t>>;

fn skip_spaces(chars: &mut YamlChars<'_>) {
    while chars.next_if_eq(&' ').is_some() {}
}

/// A value in brackets or quotes, or plain text between them.
fn flow(chars: &mut YamlChars<'_>, depth: usize) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    skip_spaces(chars);
    match chars.peek()? {
        '{' => {
            chars.next();
            let mut map = Map::new();
            loop {
                skip_spaces(chars);
                if chars.next_if_eq(&'}').is_some() {
                    return Some(Value::Object(map));
                }
                let key = flow_text(chars, true)?;
                skip_spaces(chars);
                chars.next_if_eq(&':')?;
                let value = flow(chars, depth + 1)?;
                if key == "<<" || map.insert(key, value).is_some() {
                    return None;
                }
                skip_spaces(chars);
                if chars.next_if_eq(&',').is_none() && chars.peek() != Some(&'}') {
                    return None;
                }
            }
        }
        '[' => {
            chars.next();
            let mut list = Vec::new();
            loop {
                skip_spaces(chars);
                if chars.next_if_eq(&']').is_some() {
                    return Some(Value::Array(list));
                }
                list.push(flow(chars, depth + 1)?);
                skip_spaces(chars);
                if chars.next_if_eq(&',').is_none() && chars.peek() != Some(&']') {
                    return None;
                }
            }
        }
        _ => flow_text(chars, false).map(Value::String),
    }
}

fn flow_text(chars: &mut YamlChars<'_>, is_key: bool) -> Option<String> {
    if matches!(chars.peek()?, '"' | '\'') {
        return quoted(chars);
    }
    let mut text = String::new();
    while let Some(next) = chars.peek().copied() {
        let mut ahead = chars.clone();
        ahead.next();
        let ends_key = next == ':' && matches!(ahead.peek(), None | Some(' '));
        if matches!(next, ',' | '}' | ']' | '{' | '[') || (ends_key && is_key) {
            break;
        }
        if ends_key {
            return None;
        }
        text.push(next);
        chars.next();
    }
    let text = text.trim_end().to_owned();
    // `>= 1` may stand between brackets.
    let is_plain = is_plain(text.trim_start_matches('>'));
    (is_plain && !text.contains(" #")).then_some(text)
}

/// Text in quotes; of what can be escaped in it, only the sign itself.
fn quoted(chars: &mut YamlChars<'_>) -> Option<String> {
    let quote = chars.next()?;
    let mut text = String::new();
    loop {
        match chars.next()? {
            next if next == quote => {
                // Two are one in single quotes.
                if quote != '\'' || chars.next_if_eq(&'\'').is_none() {
                    return Some(text);
                }
                text.push('\'');
            }
            '\\' if quote == '"' => match chars.next()? {
                next @ ('"' | '\\' | '/') => text.push(next),
                _ => return None,
            },
            next => text.push(next),
        }
    }
}
