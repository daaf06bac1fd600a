//! The project: is its `.runner/` in order?

use std::path::Path;

use super::{DoctorCheck, DoctorVerdict, machine};
use crate::git::Git;
use crate::project::Project;
use crate::run::start::runs_elsewhere;
use crate::state::validate::validate;
use crate::state::{self, ProjectProblem};

const NAME: &str = "project";

/// There is none.
pub(super) fn none(place: &Path) -> DoctorCheck {
    DoctorCheck::warn(
        NAME,
        format!(
            "no .runner/ in {} or above it: only the machine was looked at",
            place.display()
        ),
        "make one with `runner init`",
    )
}

/// Everything that is wrong with it, or that all is well.
pub(super) fn checks(project: &Project) -> Vec<DoctorCheck> {
    let elsewhere = Git::open(project.root())
        .and_then(|git| runs_elsewhere(project, &git))
        .map(Option::unwrap_or_default);
    match elsewhere {
        Ok(runs) if runs.is_empty() => {}
        Ok(runs) => return vec![away(&runs)],
        Err(error) => return vec![machine::from_error(NAME, error)],
    }
    let problems = validate(project);
    if !problems.is_empty() {
        return problems.into_iter().map(problem).collect();
    }
    let is_template = state::load_goal(project).is_ok_and(|goal| goal.is_template());
    vec![in_order(project.root(), is_template)]
}

/// Its runs are on other branches.
fn away(runs: &[String]) -> DoctorCheck {
    DoctorCheck::warn(
        NAME,
        format!(
            "the branch that is checked out has no run; there are {}",
            runs.join(", ")
        ),
        format!(
            "go to one: `runner start {}`",
            runs[0].trim_start_matches("runner/")
        ),
    )
}

fn problem(problem: ProjectProblem) -> DoctorCheck {
    DoctorCheck {
        name: NAME,
        verdict: DoctorVerdict::Fail,
        message: format!("{}: {}", problem.place, problem.message),
        remedy: problem
            .hint
            .or_else(|| Some("mend it; `runner validate` checks again".to_owned())),
    }
}

fn in_order(root: &Path, is_template: bool) -> DoctorCheck {
    if is_template {
        return DoctorCheck::warn(
            NAME,
            "GOAL.md is still the template: agents will find nothing to do in it",
            "write down in .runner/GOAL.md what shall be true in the end",
        );
    }
    DoctorCheck::ok(NAME, format!("{}/.runner is in order", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn what_is_said_of_a_project() {
        let root = Path::new("/p");
        assert_eq!(none(root).verdict, DoctorVerdict::Warn);
        assert_eq!(in_order(root, false).verdict, DoctorVerdict::Ok);
        assert_eq!(in_order(root, true).verdict, DoctorVerdict::Warn);
        let check = away(&["runner/a".to_owned(), "runner/b".to_owned()]);
        assert_eq!(check.verdict, DoctorVerdict::Warn);
        assert!(check.message.ends_with("runner/a, runner/b"), "{check:?}");
        for (hint, expected) in [(Some("do x"), "do x"), (None, "runner validate")] {
            let check = problem(ProjectProblem {
                code: ErrorCode::Config,
                place: "here".to_owned(),
                message: "wrong".to_owned(),
                hint: hint.map(str::to_owned),
            });
            assert_eq!(check.verdict, DoctorVerdict::Fail);
            assert_eq!(check.message, "here: wrong");
            assert!(check.remedy.is_some_and(|it| it.contains(expected)));
        }
    }
}
