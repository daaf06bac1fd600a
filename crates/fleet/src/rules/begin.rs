//! Which roles of a fleet that comes up begin at once, and which of the others when their
//! first work appears.

use std::collections::BTreeSet;

use super::preflight::{Counts, Inputs};

/// What a role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Post {
    /// Gives ready tasks to agents.
    Dispatcher,
    /// Leads on what is blocked.
    Cycle,
    /// Makes tasks of the requirement.
    Planner,
    /// Changes code.
    Worker,
    /// Finds out.
    Tester,
    /// Writes documentation.
    Docser,
    /// Judges and merges.
    Judge,
    /// Ends what nobody renewed.
    Keeper,
}

impl Post {
    /// Its name; agents and seats are called after it.
    pub const fn word(self) -> &'static str {
        match self {
            Post::Dispatcher => "dispatcher",
            Post::Cycle => "cycle",
            Post::Planner => "planner",
            Post::Worker => "worker",
            Post::Tester => "tester",
            Post::Docser => "docser",
            Post::Judge => "judge",
            Post::Keeper => "keeper",
        }
    }
}

/// So many of each, in the order in which they begin; the keeper is always there.
pub fn posts(counts: &Counts) -> [(Post, u32); 8] {
    [
        (Post::Keeper, 1),
        (Post::Dispatcher, counts.dispatcher),
        (Post::Cycle, counts.cycle_manager),
        (Post::Planner, counts.planner),
        (Post::Worker, counts.worker),
        (Post::Tester, counts.tester),
        (Post::Docser, counts.docser),
        (Post::Judge, counts.judge),
    ]
}

/// Those that wait for their first work: the project wants some, and none begins at once.
pub fn waiting(wanted: &Counts, at_once: &Counts) -> BTreeSet<Post> {
    let wanted = posts(wanted).into_iter();
    wanted
        .zip(posts(at_once))
        .filter(|((_, wanted), (_, begin))| *wanted > 0 && *begin == 0)
        .map(|((post, _), _)| post)
        .collect()
}

/// The work that is there.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// What preflight goes by, as it is now.
    pub inputs: Inputs,
    /// Tasks that are todo.
    pub todo: u64,
    /// The roles for which a task is ready.
    pub ready: BTreeSet<String>,
}

/// Which of those that wait begin now, each with why.
pub fn due(waiting: &BTreeSet<Post>, work: &Work) -> Vec<(Post, String)> {
    let all = waiting.iter();
    all.filter_map(|post| Some((*post, first_work(*post, work)?)))
        .collect()
}

/// Why a role has something to do, if it has.
fn first_work(post: Post, work: &Work) -> Option<String> {
    let inputs = &work.inputs;
    let some = |count: u64, one: &str, many: &str| {
        (count > 0).then(|| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        })
    };
    match post {
        Post::Keeper => Some("somebody watches over leases".to_owned()),
        // It also says which tasks wait for a dead one, so a task need not be ready.
        Post::Dispatcher => some(work.todo, "task waits to start", "tasks wait to start"),
        Post::Worker | Post::Tester | Post::Docser => work
            .ready
            .contains(post.word())
            .then(|| format!("a task for a {} is ready", post.word())),
        Post::Judge => {
            let count = inputs.open_pull_requests + inputs.awaiting_judge;
            some(
                count,
                "result waits for a judge",
                "results wait for a judge",
            )
        }
        Post::Cycle => {
            let count = inputs.issue_backlog + inputs.open_pull_requests;
            some(count, "issue waits", "issues wait")
                .or_else(|| some(inputs.blocked, "task is blocked", "tasks are blocked"))
        }
        Post::Planner => inputs
            .may_plan()
            .is_ok()
            .then(|| "the requirement can be planned, nothing else is open".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use runner_core::config::FleetConfig;

    use super::super::preflight::{FailedSource, preflight};
    use super::*;

    fn wanted() -> Counts {
        Counts::from(&FleetConfig::default())
    }

    fn words(posts: impl IntoIterator<Item = Post>) -> String {
        let words: Vec<&str> = posts.into_iter().map(Post::word).collect();
        words.join(" ")
    }

    #[test]
    fn who_waits_is_who_does_not_begin_at_once() {
        let check = |inputs: Inputs, expected: &str| {
            let said = preflight(inputs, &FleetConfig::default());
            let waiting = waiting(&wanted(), &said.recommendations.counts);
            assert_eq!(words(waiting), expected, "{:?}", said.inputs);
        };
        let none = Inputs::default;
        let requirement = Inputs {
            has_requirement: true,
            ..none()
        };
        check(requirement, "");
        let tasks = Inputs {
            local_backlog: 1,
            ..none()
        };
        check(tasks, "planner");
        let pulls = Inputs {
            open_pull_requests: 1,
            ..none()
        };
        check(pulls, "dispatcher planner worker tester docser");
        let parked = Inputs {
            blocked: 1,
            ..none()
        };
        check(parked, "dispatcher planner worker tester docser judge");
    }

    #[test]
    fn nobody_waits_for_a_role_that_the_project_does_not_want() {
        let mut wanted = wanted();
        wanted.tester = 0;
        let waiting = waiting(&wanted, &Counts::default());
        assert!(!waiting.contains(&Post::Tester));
        assert!(!waiting.contains(&Post::Keeper), "it is always there");
        assert_eq!(waiting.len(), 6);
    }

    #[test]
    fn first_work_of_each() {
        let everybody: BTreeSet<Post> = waiting(&wanted(), &Counts::default());
        let check = |work: &Work, expected: &[&str]| {
            let due = due(&everybody, work);
            let said: Vec<String> = due
                .iter()
                .map(|(post, why)| format!("{} begins: {why}", post.word()))
                .collect();
            assert_eq!(said, expected, "{work:?}");
        };
        check(&Work::default(), &[]);
        let waits = Work {
            inputs: Inputs {
                local_backlog: 1,
                has_requirement: true,
                ..Inputs::default()
            },
            todo: 1,
            ..Work::default()
        };
        check(&waits, &["dispatcher begins: 1 task waits to start"]);
        let ready = Work {
            ready: ["docser".to_owned()].into(),
            todo: 2,
            ..waits
        };
        check(
            &ready,
            &[
                "dispatcher begins: 2 tasks wait to start",
                "docser begins: a task for a docser is ready",
            ],
        );
        let result = Work {
            inputs: Inputs {
                awaiting_judge: 1,
                local_backlog: 1,
                blocked: 1,
                has_requirement: true,
                ..Inputs::default()
            },
            ..Work::default()
        };
        check(
            &result,
            &[
                "cycle begins: 1 task is blocked",
                "judge begins: 1 result waits for a judge",
            ],
        );
        let outside = Work {
            inputs: Inputs {
                open_pull_requests: 1,
                issue_backlog: 1,
                has_requirement: true,
                ..Inputs::default()
            },
            ..Work::default()
        };
        check(
            &outside,
            &[
                "cycle begins: 2 issues wait",
                "judge begins: 1 result waits for a judge",
            ],
        );
        let mut plan = Work {
            inputs: Inputs {
                has_requirement: true,
                ..Inputs::default()
            },
            ..Work::default()
        };
        check(
            &plan,
            &["planner begins: the requirement can be planned, nothing else is open"],
        );
        plan.inputs.failed_sources.push(FailedSource {
            source: "local".to_owned(),
            reason: "x".to_owned(),
        });
        check(&plan, &[]);
        assert_eq!(due(&BTreeSet::new(), &ready), []);
    }
}
