//! From TOML text to a [`EvalCase`]: strict, with a line and a remedy for everything that is wrong.

use std::collections::BTreeMap;
use std::path::Path;

use runner_core::config::ConfigFinding;
use runner_core::config::reader::{KnownKeys, TomlReader, TomlTable, TomlValue};
use runner_core::digest::sha256_hex;
use runner_core::goal::check_run_id;
use runner_core::text::{escape_path, nearest};
use toml::de::{DeTable, DeValue};

use super::place::check_workspace_path;
use super::settings::CaseSettings;
use super::{
    CHECK_TIMEOUT_SECS, CaseCheck, CaseProblem, CaseSource, EvalCase, EvalOutcome, ExpectedOutput,
    LOOP_TIMEOUT_SECS, TreeCheck,
};

/// A year, as in config.toml.
const MAX_SECS: u64 = 366 * 24 * 60 * 60;

const KNOWN: &KnownKeys = &[
    (
        "",
        &[
            "case", "config", "executor", "env", "files", "source", "checks",
        ],
    ),
    (
        "case",
        &[
            "id",
            "goal",
            "expect",
            "justfile",
            "requires",
            "setup",
            "timeout_secs",
        ],
    ),
    ("source", &["repository", "commit", "tests_from", "tests"]),
];

/// The types of checks with the keys that each may have besides `type`.
const CHECKS: &[(&str, &[&str])] = &[
    ("file_exists", &["path"]),
    ("file_contains", &["path", "text"]),
    ("command_succeeds", &["cmd", "timeout_secs"]),
    (
        "command_output",
        &["cmd", "equals", "contains", "timeout_secs"],
    ),
    ("runner_completed", &[]),
    (
        "tree",
        &[
            "node",
            "passes",
            "attempts_at_most",
            "min_nodes",
            "max_nodes",
            "min_depth",
            "max_depth",
        ],
    ),
];

/// Reads a case file. Otherwise everything that is wrong with it, by line.
pub(crate) fn parse(file: &Path, text: &str) -> Result<EvalCase, Vec<CaseProblem>> {
    let mut reader = TomlReader::knowing(text, KNOWN);
    let read = match DeTable::parse(text) {
        Ok(document) => {
            let case = case(&mut reader, document.get_ref(), file, text);
            reader.finish(case)
        }
        Err(error) => {
            let message = format!("not valid TOML: {}", error.message().replace('\n', " "));
            let at = error.span().map(|span| span.start);
            let hint = "a case begins with [case], an id and a goal; `runner eval init` writes one";
            reader.note(at, String::new(), message, Some(hint.to_owned()));
            reader.finish(None)
        }
    };
    let problem = |finding: ConfigFinding| CaseProblem {
        file: file.to_owned(),
        line: finding.line,
        key: finding.key,
        message: finding.message,
        hint: finding.hint,
    };
    match read {
        Ok(Some(case)) => Ok(case),
        Ok(None) => Err(Vec::new()),
        Err(findings) => Err(findings.into_iter().map(problem).collect()),
    }
}

/// `None` only where something was found.
fn case(
    reader: &mut TomlReader<'_>,
    document: &DeTable<'_>,
    file: &Path,
    text: &str,
) -> Option<EvalCase> {
    let root = TomlTable::root(document);
    reader.unknown_keys(root);
    let table = reader.known_table(root, "case");
    if root.get("case").is_none() {
        let hint = "begin the file with [case], an id and a goal";
        reader.note(
            Some(0),
            "case".to_owned(),
            "is missing".to_owned(),
            Some(hint.to_owned()),
        );
        return None;
    }
    let id = required(
        reader,
        table,
        "id",
        "a name for the case, such as `calculator-go`",
    );
    if !id.is_empty() {
        check_id(reader, table, &id);
    }
    let goal = required(
        reader,
        table,
        "goal",
        "what shall be true in the end, in words",
    );
    let expect = outcome(reader, table);
    let justfile = table
        .get("justfile")
        .and_then(|value| reader.text_of(value, "case.justfile"));
    let requires = reader.strings(table, "requires", Vec::new());
    for (index, program) in requires.iter().enumerate() {
        if program.trim().is_empty() || program.contains('/') {
            let message = format!("requires[{index}]: not the name of a program on PATH");
            reader.find(table, "requires", message, Some("such as `go`".to_owned()));
        }
    }
    let setup = reader.argv(table, "setup", Vec::new());
    let timeout_secs = reader.integer(table, "timeout_secs", 1..=MAX_SECS, LOOP_TIMEOUT_SECS);
    let env = reader.table(root, "env");
    let env = reader.variables(env);
    let files = files(reader, root);
    if justfile.is_some() && files.contains_key("justfile") {
        let hint = "keep one of the two";
        reader.find(
            table,
            "justfile",
            "[files] has a justfile too",
            Some(hint.to_owned()),
        );
    }
    let source = source(reader, root, file);
    let checks = checks(reader, root);
    let settings = CaseSettings::read(reader, document, &env);
    Some(EvalCase {
        id,
        goal,
        expect,
        justfile,
        requires,
        setup,
        timeout_secs,
        env,
        files,
        source,
        checks,
        settings: settings?,
        file: file.to_owned(),
        hash: sha256_hex(text.as_bytes()),
    })
}

/// A text that must be there and say something.
fn required(
    reader: &mut TomlReader<'_>,
    table: TomlTable<'_, '_>,
    key: &str,
    hint: &str,
) -> String {
    let text = reader.string(table, key, String::new());
    if text.trim().is_empty() {
        let there = table.get(key).is_some();
        let message = if there {
            "must not be empty"
        } else {
            "is missing"
        };
        let at = table
            .get(key)
            .map_or_else(|| first_key(table), |value| Some(value.span().start));
        reader.note(
            at,
            table.full_name(key),
            message.to_owned(),
            Some(hint.to_owned()),
        );
        return String::new();
    }
    text
}

/// Where a table begins, as near as its keys tell.
fn first_key(table: TomlTable<'_, '_>) -> Option<usize> {
    table.entries().map(|(key, _)| key.span().start).min()
}

fn check_id(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>, id: &str) {
    let wrong = match check_run_id(id) {
        Err(why) => Some(why),
        Ok(()) if id.ends_with("_latest") => {
            Some("it must not end with `_latest`, as the links to workspaces do".to_owned())
        }
        Ok(()) => None,
    };
    if let Some(why) = wrong {
        let shown = escape_path(id.as_bytes());
        let hint = "it names a folder and a branch: letters, digits, `.`, `_` and `-`";
        reader.find(
            table,
            "id",
            format!("`{shown}` cannot name a case: {why}"),
            Some(hint.to_owned()),
        );
    }
}

fn outcome(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> EvalOutcome {
    let word = reader.string(table, "expect", "success".to_owned());
    if let Some(outcome) = EvalOutcome::from_word(&word) {
        return outcome;
    }
    let words = EvalOutcome::ALL.map(EvalOutcome::as_str);
    let (_, meant) = nearest(&word, &words);
    let message = format!(
        "`{}` is not one of {}",
        escape_path(word.as_bytes()),
        words.join(", ")
    );
    reader.find(
        table,
        "expect",
        message,
        Some(format!("did you mean `{meant}`?")),
    );
    EvalOutcome::Success
}

fn files(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> BTreeMap<String, String> {
    let table = reader.table(root, "files");
    let mut files = BTreeMap::new();
    for (key, value) in table.entries() {
        let path: &str = key.get_ref();
        let name = table.full_name(path);
        let mut wrong = check_workspace_path(path);
        if wrong.is_ok() && Path::new(path).starts_with(".runner") {
            let message = "the files in .runner/ are made by `runner init`".to_owned();
            wrong = Err((message, "use [config] and [executor] for what they say"));
        }
        if let Err((message, hint)) = wrong {
            reader.note(Some(key.span().start), name, message, Some(hint.to_owned()));
            continue;
        }
        match value.get_ref() {
            DeValue::String(text) => {
                files.insert(path.to_owned(), text.to_string());
            }
            _ => reader.wrong_type(value, name, "a string, the content of the file"),
        }
    }
    for path in files.keys() {
        let below = |other: &&String| Path::new(other).starts_with(path) && *other != path;
        if let Some(other) = files.keys().find(below) {
            let message = format!("cannot be a file: `{other}` lies below it");
            reader.find(table, path, message, Some("rename one of them".to_owned()));
        }
    }
    files
}

fn source(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>, file: &Path) -> Option<CaseSource> {
    root.get("source")?;
    let table = reader.known_table(root, "source");
    let commit = required(
        reader,
        table,
        "commit",
        "the commit that the workspace begins with",
    );
    let repository = reader.string(table, "repository", ".".to_owned());
    // From the case file, so that a folder of cases can move with its repository.
    let folder = file.parent().unwrap_or(Path::new("."));
    let repository = folder.join(repository);
    let tests = reader.strings(table, "tests", Vec::new());
    for path in &tests {
        if let Err((message, hint)) = check_workspace_path(path) {
            reader.find(table, "tests", message, Some(hint.to_owned()));
        }
    }
    let tests_from = table
        .get("tests_from")
        .and_then(|value| reader.text_of(value, "source.tests_from"));
    if tests_from.is_some() == tests.is_empty() {
        let hint = "give both, or none of them";
        let at = table.get("tests").or(table.get("tests_from"));
        reader.note(
            at.map(|value| value.span().start),
            "source.tests".to_owned(),
            "tests and tests_from belong together".to_owned(),
            Some(hint.to_owned()),
        );
    }
    Some(CaseSource {
        repository,
        commit,
        tests_from,
        tests,
    })
}

fn checks(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> Vec<CaseCheck> {
    let hint = "add at least one, such as\n[[checks]]\ntype = \"runner_completed\"";
    let Some(value) = root.get("checks") else {
        reader.note(
            None,
            "checks".to_owned(),
            "there are none: every outcome would be a success".to_owned(),
            Some(hint.to_owned()),
        );
        return Vec::new();
    };
    let DeValue::Array(items) = value.get_ref() else {
        reader.wrong_type(
            value,
            "checks".to_owned(),
            "tables, each begun with [[checks]]",
        );
        return Vec::new();
    };
    if items.is_empty() {
        let message = "must not be empty".to_owned();
        reader.note(
            Some(value.span().start),
            "checks".to_owned(),
            message,
            Some(hint.to_owned()),
        );
    }
    let mut checks = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let name = format!("checks[{index}]");
        match item.get_ref() {
            DeValue::Table(entries) => {
                let table = TomlTable::root(entries).named(&name);
                checks.extend(check(reader, table, item));
            }
            _ => reader.wrong_type(item, name, "a table"),
        }
    }
    checks
}

fn check(
    reader: &mut TomlReader<'_>,
    table: TomlTable<'_, '_>,
    item: &TomlValue<'_>,
) -> Option<CaseCheck> {
    let kinds: Vec<&str> = CHECKS.iter().map(|(kind, _)| *kind).collect();
    let Some(value) = table.get("type") else {
        let hint = format!("one of {}", kinds.join(", "));
        reader.note(
            Some(item.span().start),
            table.full_name("type"),
            "is missing".to_owned(),
            Some(hint),
        );
        return None;
    };
    let kind = reader.text_of(value, &table.full_name("type"))?;
    let Some((_, keys)) = CHECKS.iter().find(|(known, _)| *known == kind) else {
        let (_, meant) = nearest(&kind, &kinds);
        let message = format!(
            "`{}` is not one of {}",
            escape_path(kind.as_bytes()),
            kinds.join(", ")
        );
        reader.find(
            table,
            "type",
            message,
            Some(format!("did you mean `{meant}`?")),
        );
        return None;
    };
    for (key, _) in table.entries() {
        let word: &str = key.get_ref();
        if word != "type" && !keys.contains(&word) {
            let hint = if keys.is_empty() {
                "it takes none but `type`".to_owned()
            } else {
                format!("it takes {}", keys.join(", "))
            };
            reader.note(
                Some(key.span().start),
                table.full_name(word),
                format!("unknown key for `{kind}`"),
                Some(hint),
            );
        }
    }
    Some(match kind.as_str() {
        "file_exists" => CaseCheck::FileExists {
            path: path(reader, table),
        },
        "file_contains" => CaseCheck::FileContains {
            path: path(reader, table),
            text: required(reader, table, "text", "the text that the file must have"),
        },
        "command_succeeds" => CaseCheck::CommandSucceeds {
            cmd: command(reader, table),
            timeout_secs: timeout(reader, table),
        },
        "command_output" => CaseCheck::CommandOutput {
            cmd: command(reader, table),
            wants: wants(reader, table),
            timeout_secs: timeout(reader, table),
        },
        "tree" => CaseCheck::Tree(tree(reader, table)),
        _ => CaseCheck::RunnerCompleted,
    })
}

fn path(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> String {
    let path = required(reader, table, "path", "a path in the workspace");
    if !path.is_empty()
        && let Err((message, hint)) = check_workspace_path(&path)
    {
        reader.find(table, "path", message, Some(hint.to_owned()));
    }
    path
}

fn command(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> Vec<String> {
    let cmd = reader.argv(table, "cmd", Vec::new());
    if cmd.is_empty() {
        let there = table.get("cmd").is_some();
        let message = if there {
            "must not be empty"
        } else {
            "is missing"
        };
        let at = table.get("cmd").or(table.get("type"));
        reader.note(
            at.map(|value| value.span().start),
            table.full_name("cmd"),
            message.to_owned(),
            Some("an argv, such as [\"go\", \"build\", \".\"]".to_owned()),
        );
    }
    cmd
}

fn timeout(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> u64 {
    reader.integer(table, "timeout_secs", 1..=MAX_SECS, CHECK_TIMEOUT_SECS)
}

fn wants(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> ExpectedOutput {
    let text = |reader: &mut TomlReader<'_>, key: &str| {
        let value = table.get(key)?;
        reader.text_of(value, &table.full_name(key))
    };
    match (text(reader, "equals"), text(reader, "contains")) {
        (Some(text), None) => ExpectedOutput::Equals(text),
        (None, Some(text)) if !text.is_empty() => ExpectedOutput::Contains(text),
        (equals, contains) => {
            let message = if equals.is_some() && contains.is_some() {
                "give `equals` or `contains`, not both"
            } else {
                "says neither what the output `equals` nor what it `contains`"
            };
            let hint = "for example: contains = \"42\"".to_owned();
            reader.find(table, "type", message, Some(hint));
            ExpectedOutput::Equals(String::new())
        }
    }
}

fn tree(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> TreeCheck {
    let mut number = |key: &str, least: u32| {
        table.get(key)?;
        Some(reader.integer(table, key, least..=u32::MAX, least))
    };
    let attempts_at_most = number("attempts_at_most", 0);
    let [min_nodes, max_nodes] = [number("min_nodes", 1), number("max_nodes", 1)];
    let [min_depth, max_depth] = [number("min_depth", 1), number("max_depth", 1)];
    let check = TreeCheck {
        node: table
            .get("node")
            .and_then(|value| reader.text_of(value, &table.full_name("node"))),
        passes: table
            .get("passes")
            .map(|_| reader.boolean(table, "passes", true)),
        attempts_at_most,
        min_nodes,
        max_nodes,
        min_depth,
        max_depth,
    };
    let nothing = TreeCheck {
        node: check.node.clone(),
        ..TreeCheck::default()
    };
    if check == nothing && check.node.is_none() {
        let hint = "for example: passes = true, or min_depth = 3";
        reader.find(
            table,
            "type",
            "says nothing about the tree",
            Some(hint.to_owned()),
        );
    }
    check
}
