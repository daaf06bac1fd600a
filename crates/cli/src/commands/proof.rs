//! `runner replay` and `runner verify`: does what is recorded hold?

use std::cell::RefCell;
use std::path::Path;

use runner::{Project, ProofSigner, Result};
use serde_json::json;

use super::{Exit, with_context};
use crate::out::OutputGate;
use crate::style::{self, TextTone};

/// Derives a recorded run again.
pub(crate) fn replay(dir: &Path, run: Option<&str>, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let report = runner::replay(&project, run)?;
    if out.json {
        out.object(json!({
            "run_id": report.run_id,
            "iterations": report.iterations,
            "notes": report.notes,
            "difference": report.difference,
        }));
    } else {
        for note in &report.notes {
            out.say(&format!("note: {note}"));
        }
        match &report.difference {
            None => {
                let word = out.paint.paint(TextTone::Good, "the same");
                out.data(&format!(
                    "run {}: {} iterations derived again, all {word}",
                    report.run_id, report.iterations
                ));
            }
            Some(difference) => {
                let word = out.paint.paint(TextTone::Bad, "different");
                out.data(&format!("run {}: {word}: {difference}", report.run_id));
            }
        }
    }
    Ok(if report.difference.is_none() {
        Exit::Success
    } else {
        Exit::Error
    })
}

/// Runs the guard again where it passed a node.
pub(crate) fn verify(dir: &Path, node: &str, out: &mut OutputGate) -> Result<Exit> {
    let project = Project::of_run(dir)?;
    let cell = RefCell::new(&mut *out);
    let result = with_context(&cell, false, |context| {
        runner::verify(&project, node, context)
    })?;
    let holds = result.holds();
    if out.json {
        out.object(json!({
            "node_id": result.node_id,
            "commit": result.commit,
            "iter": result.iter,
            "command": result.command,
            "recorded_exit": result.recorded_exit,
            "exit": result.exit,
            "same_log": result.same_log,
            "same_setup": result.same_setup,
            "tree_proven": result.tree_proven,
            "guard_changed": result.changed,
            "signed_by": result.signer.as_str(),
            "holds": holds,
        }));
    } else {
        let word = if holds {
            out.paint.paint(TextTone::Good, "holds")
        } else {
            out.paint.paint(TextTone::Bad, "does not hold")
        };
        let exit = result.exit.map_or_else(
            || "no exit in time".to_owned(),
            |code| format!("exit {code}"),
        );
        out.data(&format!(
            "{}: the proof {word}: `{}` at {} gave {exit}, recorded exit {}",
            result.node_id,
            result.command.join(" "),
            &result.commit[..12.min(result.commit.len())],
            result.recorded_exit,
        ));
        if !result.tree_proven {
            out.data("the tree in that commit is not the one that its proof names");
        }
        if !result.changed.is_empty() {
            out.data(&format!(
                "the guard changed files of the commit that it judges: {}",
                result.changed.join(", ")
            ));
        }
        print_signer(&result.signer, out);
        if !result.same_setup {
            out.say("note: the setup of that verdict was another one: [workspace] setup, its variables or its inputs differ");
        }
        if !result.same_log {
            out.say("note: the guard's output differs from the recorded one (times and paths in it may)");
        }
        if !holds {
            out.say(&style::harmless(&result.output_tail));
            if let Some(hint) = &result.hint {
                out.say(&format!("hint: {hint}"));
            }
        }
    }
    Ok(if holds { Exit::Success } else { Exit::Error })
}

/// Says whose word the proof is.
fn print_signer(signer: &ProofSigner, out: &mut OutputGate) {
    let only_now = "it shows only that the guard passes there now";
    match signer {
        ProofSigner::Machine(id) => out.data(&format!("signed by this machine's key ({id})")),
        ProofSigner::Start(id) => out.data(&format!(
            "signed by the key that the first commit of the run names ({id})"
        )),
        ProofSigner::Unknown(id) => {
            out.data(&format!(
                "signed by a key that is not known here ({id}): {only_now}"
            ));
        }
        ProofSigner::Nobody => out.data(&format!("not signed: {only_now}")),
        ProofSigner::Forged => {
            out.data("its signature is about another commit: somebody rewrote it");
        }
    }
}
