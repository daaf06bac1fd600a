//! Rules about the names of types: docs/writing.md says why.

use std::collections::BTreeMap;

use super::TidyFinding;
use super::files::TidyFiles;
use super::rust::code_lines;

/// The only one-word names of public types; each belongs to one type.
const PLAIN_NAMES: [&str; 60] = [
    // core
    "Accepted",
    "Assessment",
    "Config",
    "Goal",
    "Node",
    "Outcome",
    "Selection",
    "Usage",
    // lifecycle
    "Answer",
    "Assignment",
    "Block",
    "Blocker",
    "Claim",
    "Created",
    "Criterion",
    "Decision",
    "Dependency",
    "Draft",
    "Facts",
    "Inconsistency",
    "Intent",
    "Lane",
    "Lease",
    "Lineage",
    "Policy",
    "Receipt",
    "Refusal",
    "Request",
    "Reservation",
    "Resource",
    "Task",
    "Timestamp",
    // ledger
    "Batcher",
    "Engine",
    "Ledger",
    "Store",
    "Watchdog",
    // agents, sandbox
    "Backend",
    "Bubblewrap",
    "Claude",
    "Codex",
    "Invocation",
    "Mechanism",
    "Opencode",
    // runner
    "Checkout",
    "Containment",
    "Diagnosis",
    "Error",
    "Git",
    "Iteration",
    "Journal",
    "Project",
    "Result",
    // fleet, server, cli
    "Args",
    "Exit",
    "Fleet",
    "Hub",
    "Look",
    "Subscription",
    "Workspaces",
];

/// The types of one are known by their crate (`runner_exec::Report`); the other is test code.
const EXEMPT: [&str; 2] = ["crates/exec/", "crates/lifecycle/src/model/"];

/// No two public types share a name, and one-word names are on the list.
pub(super) fn public_types(files: &TidyFiles) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in files.ending(&[".rs"]) {
        let in_source = path.contains("/src/") && !path.contains("/tests");
        if !in_source || EXEMPT.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        for (line, code) in code_lines(text) {
            let Some(name) = public_type(&code) else {
                continue;
            };
            if is_one_word(name) && !PLAIN_NAMES.contains(&name) {
                let message =
                    format!("a public type has a name of two words or more, not `{name}`");
                findings.push(TidyFinding::new(path, line, message));
            }
            let here = format!("{path}:{line}");
            if let Some(other) = first.get(name) {
                let message = format!("`{name}` is the name of another public type, too: {other}");
                findings.push(TidyFinding::new(path, line, message));
            } else {
                first.insert(name.to_owned(), here);
            }
        }
    }
    findings
}

/// The type that this line declares at the level of its module, if it is public.
fn public_type(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(restricted) => restricted.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = ["struct ", "enum ", "trait ", "type ", "union "]
        .iter()
        .find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = rest
        .find(|letter: char| !letter.is_alphanumeric())
        .unwrap_or(rest.len());
    Some(&rest[..end])
}

fn is_one_word(name: &str) -> bool {
    !name
        .chars()
        .zip(name.chars().skip(1))
        .any(|(before, letter)| before.is_lowercase() && letter.is_uppercase())
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::public_types;

    #[test]
    fn names_are_shared_by_no_two_public_types() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "pub struct LineReader;\nstruct Own;\n",
            ),
            (
                "crates/b/src/lib.rs",
                "\npub(crate) enum LineReader {}\nstruct Own;\n",
            ),
            (
                "crates/exec/src/lib.rs",
                "pub struct LineReader;\npub struct Report;\n",
            ),
            ("crates/b/tests/it.rs", "pub struct LineReader;\n"),
        ];
        let message = "`LineReader` is the name of another public type, too: crates/a/src/lib.rs:1";
        assert_eq!(
            check(public_types, &files),
            [format!("crates/b/src/lib.rs:2 {message}")]
        );
    }

    #[test]
    fn one_word_is_for_plain_names() {
        let text = "pub struct Task<'a>(&'a str);\npub type Yard = ();\npub struct TaskId(u8);\n";
        let message = "a public type has a name of two words or more, not `Yard`";
        assert_eq!(
            check(public_types, &[("crates/a/src/lib.rs", text)]),
            [format!("crates/a/src/lib.rs:2 {message}")]
        );
    }
}
