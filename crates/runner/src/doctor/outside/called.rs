//! The calls of a command and of what it calls: scripts of the project, targets of make, recipes
//! of just, scripts of a package. Read roughly: what cannot be told is not followed.

use std::collections::BTreeSet;

use serde_json::Value;

/// More texts are not followed.
const MAX_TEXTS: usize = 64;

/// Words before a program that are not the program.
const WRAPPERS: &[&str] = &[
    "sudo", "exec", "time", "env", "command", "npx", "nice", "if", "then", "else", "do", "!",
];

/// Programs that run a script whose path they are given.
const INTERPRETERS: &[&str] = &["sh", "bash", "dash", "zsh", "."];

/// Programs that run a script of package.json.
const PACKAGE_RUNNERS: &[&str] = &["npm", "pnpm", "yarn", "bun"];

/// What the number of a line is about.
#[derive(Clone, Copy, Debug)]
enum LineSource {
    /// Nothing: it is a setting.
    Setting,
    /// The file that the text is named after.
    NamedFile,
    /// This file, of which the text is a part.
    PartOf(&'static str),
}

/// A text of commands.
#[derive(Debug)]
pub(super) struct CommandText {
    /// Where it is, for people; no two have the same.
    name: String,
    lines_of: LineSource,
    pub(super) calls: Vec<ProgramCall>,
}

/// A call of a program.
#[derive(Debug)]
pub(super) struct ProgramCall {
    number: usize,
    /// The whole line.
    pub(super) line: String,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
}

impl CommandText {
    fn new(name: String, lines_of: LineSource, lines: &[(usize, String)]) -> Self {
        let calls = lines.iter().flat_map(|(number, line)| {
            programs(line).into_iter().map(|words| ProgramCall {
                number: *number,
                line: line.clone(),
                words,
            })
        });
        CommandText {
            calls: calls.collect(),
            name,
            lines_of,
        }
    }

    /// The place of a call, for people.
    pub(super) fn place_of(&self, call: &ProgramCall) -> String {
        match self.lines_of {
            LineSource::Setting => self.name.clone(),
            LineSource::NamedFile => format!("{} line {}", self.name, call.number),
            LineSource::PartOf(file) => format!("{file} line {}", call.number),
        }
    }
}

/// The texts of commands and everything that they call.
pub(super) fn all_texts(
    commands: &[(&str, &Vec<String>)],
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<CommandText> {
    let mut waiting: Vec<CommandText> = commands
        .iter()
        .map(|(name, argv)| {
            let text = match argv.as_slice() {
                [shell, option, text, ..] if is_shell(shell) && option == "-c" => text.clone(),
                words => words.join(" "),
            };
            CommandText::new((*name).to_owned(), LineSource::Setting, &numbered(&text))
        })
        .collect();
    let mut known = BTreeSet::new();
    let mut all: Vec<CommandText> = Vec::new();
    while let Some(text) = waiting.pop() {
        if all.len() >= MAX_TEXTS || !known.insert(text.name.clone()) {
            continue;
        }
        for call in &text.calls {
            waiting.extend(called(&call.words, read));
        }
        all.push(text);
    }
    all
}

/// The name of a program without its folder.
pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_shell(word: &str) -> bool {
    INTERPRETERS.contains(&base_name(word))
}

/// What a call runs, if that is of the project.
fn called(words: &[String], read: &dyn Fn(&str) -> Option<String>) -> Vec<CommandText> {
    let Some((program, arguments)) = words.split_first() else {
        return Vec::new();
    };
    let plain = || arguments.iter().filter(|word| !word.starts_with('-'));
    let script = if is_shell(program) {
        plain().next()
    } else {
        Some(program).filter(|word| word.contains('/'))
    };
    if let Some(path) = script {
        let path = path.strip_prefix("./").unwrap_or(path);
        let text = read(path)
            .map(|text| CommandText::new(path.to_owned(), LineSource::NamedFile, &numbered(&text)));
        return text.into_iter().collect();
    }
    let wanted: Vec<&str> = plain().map(String::as_str).collect();
    match base_name(program) {
        "make" | "gmake" => recipes(&["GNUmakefile", "makefile", "Makefile"], &wanted, read),
        "just" => recipes(&[".justfile", "Justfile", "justfile"], &wanted, read),
        runner if PACKAGE_RUNNERS.contains(&runner) => package_scripts(&wanted, read),
        _ => Vec::new(),
    }
}

/// The scripts of package.json that these words mean.
fn package_scripts(wanted: &[&str], read: &dyn Fn(&str) -> Option<String>) -> Vec<CommandText> {
    let name = match wanted {
        ["t", ..] => "test",
        ["run" | "run-script", name, ..] | [name, ..] => name,
        [] => return Vec::new(),
    };
    let package = read("package.json").and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(package) = package else {
        return Vec::new();
    };
    let names = [format!("pre{name}"), name.to_owned(), format!("post{name}")];
    let scripts = names.iter().filter_map(|name| {
        let text = package["scripts"][name].as_str()?;
        let place = format!("package.json script {name}");
        Some(CommandText::new(
            place,
            LineSource::Setting,
            &numbered(text),
        ))
    });
    scripts.collect()
}

/// A rule of a makefile, or a recipe of a justfile.
#[derive(Debug, Default)]
struct RecipeRule {
    names: Vec<String>,
    needs: Vec<String>,
    lines: Vec<(usize, String)>,
}

/// The recipes with these names, and those that they need; without names the first.
fn recipes(
    files: &[&'static str],
    wanted: &[&str],
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<CommandText> {
    let found = files.iter().find_map(|file| Some((*file, read(file)?)));
    let Some((file, text)) = found else {
        return Vec::new();
    };
    let rules = rules_of(&text);
    let first = rules.iter().find(|rule| !rule.names[0].starts_with('.'));
    let mut waiting: Vec<String> = wanted
        .iter()
        .filter(|word| !word.contains('='))
        .map(|word| (*word).to_owned())
        .collect();
    if waiting.is_empty() {
        waiting.extend(first.map(|rule| rule.names[0].clone()));
    }
    let name = format!("{file} {}", waiting.join(" "));
    let mut known = BTreeSet::new();
    let mut lines = Vec::new();
    while let Some(name) = waiting.pop() {
        if !known.insert(name.clone()) {
            continue;
        }
        for rule in rules.iter().filter(|rule| rule.names.contains(&name)) {
            lines.extend(rule.lines.iter().cloned());
            waiting.extend(rule.needs.iter().cloned());
        }
    }
    vec![CommandText::new(name, LineSource::PartOf(file), &lines)]
}

fn rules_of(text: &str) -> Vec<RecipeRule> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let mut rules: Vec<RecipeRule> = Vec::new();
    for (number, line) in numbered(text) {
        if line.starts_with([' ', '\t']) {
            if let Some(rule) = rules.last_mut() {
                rule.lines.push((number, line));
            }
            continue;
        }
        let Some((names, needs)) = line.split_once(':') else {
            continue;
        };
        let names: Vec<String> = words(names.trim_start_matches('@'));
        if !needs.starts_with('=') && !line.starts_with('#') && !names.is_empty() {
            rules.push(RecipeRule {
                names,
                needs: words(needs),
                lines: Vec::new(),
            });
        }
    }
    rules
}

/// The lines of a text with their numbers; those that go on in the next are joined with it.
fn numbered(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        let part = line.strip_suffix('\\');
        match lines.last_mut() {
            Some((_, last)) if goes_on => last.push_str(part.unwrap_or(line)),
            _ => lines.push((number + 1, part.unwrap_or(line).to_owned())),
        }
        goes_on = part.is_some();
    }
    lines
}

/// The programs that a line calls, each with its arguments.
fn programs(line: &str) -> Vec<Vec<String>> {
    if line.trim_start().starts_with('#') {
        return Vec::new();
    }
    let ends = [';', '&', '|', '(', ')', '{', '}', '`', '"', '\''];
    let calls = line.split(ends).map(|call| {
        // As makefiles and justfiles say that a line is not printed, or may fail.
        let call = call.trim_start().trim_start_matches(['@', '-', '+']);
        let mut is_wrapped = false;
        let words = call.split_whitespace().skip_while(|word| {
            let is_wrapper = WRAPPERS.contains(word);
            let is_option = is_wrapped && word.starts_with('-');
            is_wrapped |= is_wrapper;
            is_wrapper || is_option || is_assignment(word)
        });
        words.map(str::to_owned).collect::<Vec<String>>()
    });
    calls.filter(|words| !words.is_empty()).collect()
}

/// `NAME=value`.
fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_programs_a_line_calls() {
        for (line, expected) in [
            ("a b; c && d | e", "a b,c,d,e"),
            ("\t@-A=1 sudo -E x y", "x y"),
            ("# a b", ""),
            ("if test -e x; then y; fi", "test -e x,y,fi"),
            ("sh -c \"a b\"", "sh -c,a b"),
        ] {
            let calls: Vec<String> = programs(line).iter().map(|it| it.join(" ")).collect();
            assert_eq!(calls.join(","), expected, "{line}");
        }
    }

    #[test]
    fn lines_that_go_on_are_one() {
        let lines = numbered("a \\\n b\nc\n");
        assert_eq!(lines, [(1, "a  b".to_owned()), (3, "c".to_owned())]);
    }
}
