//! What a guard has in the user's own checkout and shell, and lacks in a clean checkout: what a person
//! is told of it.

use super::verdict::{BaseProblem, DOCTOR, hint_lacking, hint_variables, shown};
use crate::checkout::trial::some_of;

/// What a guard has in the user's own checkout and shell, and lacks in a clean checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BaseLack {
    /// Ignored files and folders.
    pub(super) files: Vec<String>,
    /// Variables.
    pub(super) variables: Vec<String>,
    /// Variables that look like secrets: a stand-in will do.
    pub(super) secrets: Vec<String>,
    /// Remote-tracking branches.
    pub(super) remote_refs: Vec<String>,
    /// Paths in the home folder that it writes.
    pub(super) home_paths: Vec<String>,
    /// The folders that would have to be opened for that.
    pub(super) home_folders: Vec<String>,
    /// What lies beside the project, such as `../lib`.
    pub(super) beside: Vec<String>,
    /// Paths in the temp folder.
    pub(super) temp_paths: Vec<String>,
}

/// The problem of a guard that is red in a clean checkout alone.
pub(super) fn green_elsewhere(command: &[String], lack: &BaseLack) -> BaseProblem {
    let (mut with, mut hints) = (Vec::new(), Vec::new());
    if !lack.files.is_empty() {
        let names = some_of(&lack.files);
        with.push(format!("the ignored files of yours beside it: {names}"));
        hints.extend(hint_lacking(&lack.files, &[]));
    }
    if !lack.variables.is_empty() {
        let names = some_of(&lack.variables);
        with.push(format!("variables of your shell: {names}"));
        hints.push(hint_variables(&lack.variables));
    }
    if !lack.secrets.is_empty() {
        let names = some_of(&lack.secrets);
        with.push(format!(
            "a stand-in for variables of your shell that look like secrets: {names}"
        ));
        hints.push(hint_variables(&lack.secrets));
    }
    if !lack.beside.is_empty() {
        let names = some_of(&lack.beside);
        with.push(format!("what lies beside your project: {names}"));
        hints.push(format!(
            "let the guard name {names} by its whole path, or install bubblewrap: clean checkouts lie \
             elsewhere, and with it they are seen at the path of your project"
        ));
    }
    if !lack.temp_paths.is_empty() {
        let names = some_of(&lack.temp_paths);
        with.push(format!("files of the temp folder: {names}"));
        let quoted: Vec<String> = lack.temp_paths.iter().map(|it| format!("{it:?}")).collect();
        hints.push(format!(
            "make {names} elsewhere, because each guard has a temp folder of its own, or name it with \
             [sandbox.guard] writable = [{}]",
            quoted.join(", ")
        ));
    }
    if !lack.remote_refs.is_empty() {
        let names = some_of(&lack.remote_refs);
        with.push(format!("remote-tracking branches of yours: {names}"));
        hints.push(format!(
            "let the guard do without {names}: a clean checkout has no remotes, and nothing in it \
             may depend on when you last fetched"
        ));
    }
    if !lack.home_paths.is_empty() {
        let names = some_of(&lack.home_paths);
        with.push(format!("a home folder in which it can write {names}"));
        hints.push(hint_home(&lack.home_folders));
    }
    if hints.is_empty() {
        hints.push(DOCTOR.to_owned());
    }
    BaseProblem {
        why: format!(
            "`{}` is red in a clean checkout and green with {}",
            shown(command),
            with.join(", and ")
        ),
        hint: hints.join("; "),
    }
}

/// The problem of a guard that is red and says that variables are missing which look like secrets:
/// nobody hands them to it to see whether it is right.
pub(super) fn lacks_secrets(command: &[String], names: &[String]) -> BaseProblem {
    BaseProblem {
        why: format!(
            "`{}` is red in a clean checkout, and says that a variable is missing which your shell has \
             and which is not tried, because it looks like a secret: {}",
            shown(command),
            some_of(names)
        ),
        hint: hint_variables(names),
    }
}

fn hint_home(folders: &[String]) -> String {
    let quoted: Vec<String> = folders.iter().map(|it| format!("{it:?}")).collect();
    format!(
        "make the folder and name it with [sandbox.guard] writable = [{}], or let the guard write \
         below $TMPDIR",
        quoted.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guard_lacks_is_named_with_its_remedy() {
        let owned = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        for (files, variables, why, hint) in [
            (
                &["node_modules/"][..],
                &[][..],
                "the ignored files of yours beside it: node_modules/",
                "let [workspace] setup make what a clean checkout lacks (node_modules/), for example \
                 `setup = \"npm ci\"`",
            ),
            (
                &[],
                &["TOKEN"],
                "variables of your shell: TOKEN",
                "pass TOKEN on with [guard] env = [\"TOKEN\"]",
            ),
            (
                &["x/"],
                &["TOKEN"],
                "the ignored files of yours beside it: x/, and variables of your shell: TOKEN",
                "let [workspace] setup make what a clean checkout lacks (x/), for example \
                 `setup = \"npm ci\"`; pass TOKEN on with [guard] env = [\"TOKEN\"]",
            ),
        ] {
            let lack = BaseLack {
                files: owned(files),
                variables: owned(variables),
                ..BaseLack::default()
            };
            let problem = green_elsewhere(&owned(&["just", "ci"]), &lack);
            let expected = format!("`just ci` is red in a clean checkout and green with {why}");
            assert_eq!((problem.why, problem.hint.as_str()), (expected, hint));
        }
    }
}
