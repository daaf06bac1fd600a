//! The prompt's own words.

use std::fmt::Write as _;

use super::{PromptInput, PromptMode};
use crate::context::argv;
use crate::output::MAX_SUMMARY_CHARS;
use crate::paths::{OWNED, PYTHON_MODULES};
use crate::text::{cut_chars, cut_middle, escape_path};
use crate::tree::MAX_LEVELS;

/// A path longer than this is not spelled out: the rest of the contract must fit.
const MAX_SHOWN_PATH: usize = 512;

/// What every session at a leaf must know, the most important first: a budget that is
/// far too small takes from the end.
pub(super) fn rules(input: &PromptInput<'_>) -> String {
    let mut text = format!(
        "\
You are one session in a loop. A runner keeps a tree of tasks in `.runner/state/tree.json`, gives each \
session one open leaf of it, lets a guard command judge the work and commits everything. No session \
remembers another one: what matters later must be in the repository.

This is attempt {attempt} of {max_attempts} at the leaf under \"Selected leaf\" below. You and the \
guard together have {time}. The guard is `{guard}`.

## Rules

1. Work on the selected leaf alone, until its goal and each of its acceptance points hold.
2. Nobody is there to answer you. Never wait for a person: decide, append what you took for granted to \
`.runner/state/assumptions.md` and what you would have asked to `.runner/state/questions.md`, and go on.
3. `passes`, `attempts` and `max_attempts` belong to the runner; whatever you write there is overwritten. \
A leaf passes only when you report `done` and the guard then succeeds.
4. Nodes with `\"passes\": true` are finished: never change, move or remove them, nor their files in \
`.runner/nodes/`. Further work on them is a new node.
5. Open nodes may be edited, moved below another open node, and added. None may vanish.
6. Leave alone what is listed under \"Files that are not yours\".

## Statuses

- `done`: goal and acceptance hold, and you changed neither. The leaf has no children. The guard runs next.
- `retry`: not finished. The leaf has no children. The guard does not run, one attempt is used up, and the \
next session gets your summary.
- `decomposed`: the leaf is too large for one session, so you gave it children. The guard does not run and \
no attempt is used up.

## Splitting the leaf

Add children to the selected node in `.runner/state/tree.json`, each a step that the guard can judge by \
itself. A child has exactly these fields; its id is used by no other node and consists of 1 to 64 \
letters, digits, `.`, `_` or `-`. Children are worked on by `order`, then by `id`.

{child}

## Files that are not yours

- The runner's: {owned}. Earlier lines of assumptions.md and questions.md stay, too.
- Submodules, and git: only the files that you leave count, and the runner commits them. You may use git here as \
you like; what you commit, stash or switch to is thrown away. Make no second repository inside this one.
- Files that git ignores are not in the commit that the guard judges.
- Keys, passwords and `.env` files: add none.",
        attempt = input.attempt,
        max_attempts = input.max_attempts,
        time = duration(input.timeout_secs),
        guard = guard(input),
        child = example_child(input.max_attempts),
        owned = owned(),
    );
    push_protected(&mut text, input);
    text.push_str(
        "\n\nParts of this prompt may be shortened to fit; the whole texts are in `.runner/`.",
    );
    text
}

/// The contract of a repair.
pub(super) fn repair_rules(input: &PromptInput<'_>) -> String {
    let mut text = format!(
        "\
`.runner/state/tree.json`, the tree of tasks, is not valid since the last session. This session has one \
task: make it valid again. No leaf is selected and no guard runs. You have {time}.

## Rules

1. Edit `.runner/state/tree.json` until none of the findings below is left. Its schema is \
`.runner/state/schema.json`: each node has exactly `id`, `order`, `title`, `goal`, `acceptance`, `passes`, \
`attempts`, `max_attempts` and `children`; ids are unique; there are at most {MAX_LEVELS} levels.
2. Keep every node of the last valid tree, shown below. Those with `\"passes\": true` must be exactly \
as they were, in the same place. Open ones may differ, but none may vanish.
3. Keep what the last session meant to add, as far as it can be made valid.
4. `passes`, `attempts` and `max_attempts` belong to the runner; whatever you write there is overwritten.
5. Never wait for a person: decide, append what you took for granted to `.runner/state/assumptions.md` \
and what you would have asked to `.runner/state/questions.md`, and go on.
6. Leave the runner's own files as they are: {owned}.",
        time = duration(input.timeout_secs),
        owned = owned(),
    );
    push_protected(&mut text, input);
    text
}

/// The end of every prompt.
pub(super) fn output_contract(input: &PromptInput<'_>) -> String {
    let path = input.output_path;
    let place = if path.len() <= MAX_SHOWN_PATH && escape_path(path.as_bytes()) == path {
        format!("`{path}`")
    } else {
        "the file that the environment variable `RUNNER_OUTPUT_PATH` names".to_owned()
    };
    let (example, status) = match input.mode {
        PromptMode::Work => (
            "done",
            "`done`, `retry` or `decomposed`, as described under \"Statuses\"",
        ),
        PromptMode::Repair { .. } => (
            "retry",
            "`retry`: a repair is recorded like this, however well it went",
        ),
    };
    format!(
        "\
## Output contract

Your last act, whatever happened before: write {place}. It holds one JSON object and nothing else, no \
text around it and no further keys:

```json
{{\"status\": \"{example}\", \"summary\": \"What you did, what is left, what the next session should know.\"}}
```

- `status`: {status}.
- `summary`: a text of 1 to {MAX_SUMMARY_CHARS} characters.

A session that ends without this file counts for nothing. If you are asked for a final answer, give this \
same object.
"
    )
}

/// A Markdown list, one line for each item.
pub(super) fn list(items: &[String]) -> String {
    let mut text = String::new();
    for item in items {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- {}", item.trim().replace(['\r', '\n'], " "));
    }
    text
}

/// A path inside backticks.
pub(super) fn shown(path: &str) -> String {
    escape_path(cut_chars(path, 200).as_bytes())
}

fn push_protected(text: &mut String, input: &PromptInput<'_>) {
    if !input.protected.is_empty() {
        text.push_str(
            "\n\n## Protected files\n\n\
             The guard relies on them: do not change, make or remove files that match one of these globs, \
             whether they exist or not. Only where the file that defines the guard itself is missing may you \
             make that one. If the work needs another version of such a file, write that into questions.md: a \
             person can change it.\n",
        );
        for glob in input.protected {
            let _ = match glob.strip_suffix(PYTHON_MODULES) {
                Some(folder) => write!(
                    text,
                    "\n- new modules in `./{folder}` with the name of one of Python's own, or of a test tool"
                ),
                None => write!(text, "\n- `{}`", shown(glob)),
            };
        }
    }
    if !input.protected_values.is_empty() {
        text.push_str(
            "\n\n## Protected values\n\n\
             The rest of these files may change, for example to add a dependency; these values may not.\n",
        );
        for value in input.protected_values {
            let _ = write!(text, "\n- `{}`", shown(value));
        }
    }
}

fn guard(input: &PromptInput<'_>) -> String {
    cut_middle(&argv(input.guard_command), 300, 50).into_owned()
}

fn owned() -> String {
    let names: Vec<String> = OWNED.iter().map(|path| format!("`{path}`")).collect();
    names.join(", ")
}

fn duration(secs: u64) -> String {
    match (secs / 60, secs % 60) {
        (1, 0) => "1 minute".to_owned(),
        (minutes @ 2.., 0) => format!("{minutes} minutes"),
        _ => format!("{secs} seconds"),
    }
}

/// Indented rather than fenced: should the rules be cut in the middle of it, no fence
/// stays open.
fn example_child(max_attempts: u32) -> String {
    let lines = [
        "{",
        r#"  "id": "date-parser","#,
        r#"  "order": 1,"#,
        r#"  "title": "Read dates","#,
        r#"  "goal": "Dates in the input file are read into the record type.","#,
        r#"  "acceptance": ["a test reads a valid date", "a bad date is an error that names its line"],"#,
        r#"  "passes": false,"#,
        r#"  "attempts": 0,"#,
        &format!(r#"  "max_attempts": {max_attempts},"#),
        r#"  "children": []"#,
        "}",
    ];
    lines.map(|line| format!("    {line}")).join("\n")
}
