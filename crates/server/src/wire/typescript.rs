//! `ui/src/api/types.ts` is what these types say; `UPDATE_TYPES=1` writes it anew.

use std::fmt::Write as _;

use ts_rs::{Config, TS};

use super::*;

const HEAD: &str = "\
// Generated from crates/server/src/wire: do not edit.
// UPDATE_TYPES=1 cargo test -p runner-server types_are_fresh

";

fn generated() -> String {
    let cfg = Config::new().with_large_int("number");
    let mut text = HEAD.to_owned();
    macro_rules! declare {
        ($($name:ident)*) => {$(
            let docs = $name::docs().unwrap_or_default();
            let _ = writeln!(text, "{}\n", tidied(&format!("{docs}export {}", $name::decl(&cfg))));
        )*};
    }
    declare!(
        RunHeadView GoalView RunStatusView RunPhaseView WaitView LastEndView LeafView LimitsView TotalsView LastError NeedsYou NeedsView RunStateView ServerInfo
        IterationList RunIterations IterationRow ChangeCounts IterationDetail LogFile LogMatches LogMatch AgentReport
        IterationMetaView MetaError DiffView IterationModeView SessionStatus GuardVerdict OutcomeClassView IterationErrorKindView
        TreeNode PlanView PlanChangeView PlanChangeKind PlanNode ApiProblemBody ApiProblem TreeFindingView
        ServerEvent TreeChanged RunStateChanged IterationAdded IterationChanged PhaseChanged
        ProjectChanged StreamLine
    );
    while text.ends_with("\n\n") {
        text.pop();
    }
    text
}

/// Comments on one line each, one field a line, indented.
fn tidied(declaration: &str) -> String {
    let mut out = String::new();
    let mut comment: Option<String> = None;
    let mut inside = false;
    for line in declaration.lines().map(str::trim) {
        let indent = if inside { "  " } else { "" };
        match (&mut comment, line) {
            (None, "/**") => comment = Some(String::new()),
            (Some(words), "*/") => {
                let _ = writeln!(out, "{indent}/** {} */", words.trim());
                comment = None;
            }
            (Some(words), line) => {
                words.push(' ');
                words.push_str(line.trim_start_matches('*').trim());
            }
            (None, line) if line.ends_with("= {") => {
                let _ = writeln!(out, "{line}");
                inside = true;
            }
            (None, line) => {
                if let Some(last) = line.strip_suffix(", };") {
                    let _ = writeln!(out, "{indent}{last};\n}};");
                } else if inside {
                    let _ = writeln!(out, "{indent}{}", line.replace(',', ";"));
                } else {
                    let _ = writeln!(out, "{line}");
                }
            }
        }
    }
    out.trim_end().to_owned()
}

#[test]
fn types_are_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/src/api/types.ts");
    let text = generated();
    if std::env::var_os("UPDATE_TYPES").is_some() {
        let folder = std::path::Path::new(path).parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(path, &text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == text,
        "ui/src/api/types.ts is stale: UPDATE_TYPES=1 cargo test -p runner-server types_are_fresh"
    );
}
