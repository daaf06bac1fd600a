//! The roles that work on tasks, and in what they differ: instructions, scope, whether a
//! change is expected, lane.

use runner_lifecycle::Lane;

/// A role that execution agents have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleProfile {
    /// Its name in tasks, labels and plans.
    pub name: &'static str,
    /// What every session of it is told.
    pub instructions: &'static str,
    /// What a task of it may change, where nobody says otherwise.
    pub default_scope: &'static [&'static str],
    /// Whether a result without a change is none, where nobody says otherwise.
    pub expects_change: bool,
    /// Which slots its tasks compete for.
    pub lane: Lane,
}

/// Builds what the goal asks for.
pub const WORKER: RoleProfile = RoleProfile {
    name: "worker",
    instructions: "\
You are a worker: you change the code until the goal holds.
- Make the smallest change that reaches the goal, with tests for what is new.
- Leave everything outside the allowed paths alone; a change there is refused.
- Run the commands that check the task before you report it done.",
    default_scope: &["."],
    expects_change: true,
    lane: Lane::Feature,
};

/// Finds out whether something holds.
pub const TESTER: RoleProfile = RoleProfile {
    name: "tester",
    instructions: "\
You are a tester: you find out whether the goal holds, and say how you know.
- Run the commands that check the task, and look at what they print, not only how they end.
- Do not mend the code. If tests are missing, you may add them inside the allowed paths.
- A failure that you can show is a good result: name the command and its output.",
    default_scope: &["tests"],
    expects_change: false,
    lane: Lane::Feature,
};

/// Writes what people read.
pub const DOCSER: RoleProfile = RoleProfile {
    name: "docser",
    instructions: "\
You are a docser: you bring the documentation in line with the code.
- Read the code first and describe what it does today; never what it should do.
- Change documentation only, inside the allowed paths; leave code and tests as they are.
- Try every command and example that you write down.",
    default_scope: &["docs", "README.md"],
    expects_change: true,
    lane: Lane::Docser,
};

/// All of them.
pub const ALL: [&RoleProfile; 3] = [&WORKER, &TESTER, &DOCSER];

/// The role of that name.
pub fn by_name(name: &str) -> Option<&'static RoleProfile> {
    ALL.into_iter().find(|role| role.name == name)
}

/// The names, for messages.
pub fn names() -> String {
    ALL.map(|role| role.name).join(", ")
}

#[cfg(test)]
mod tests {
    use runner_lifecycle::lock::Resource;

    use super::*;

    #[test]
    fn they_really_differ() {
        for role in ALL {
            assert_eq!(by_name(role.name), Some(role));
            for other in ALL.into_iter().filter(|other| *other != role) {
                assert_ne!(role.instructions, other.instructions);
                assert_ne!(role.default_scope, other.default_scope);
                let differ = |role: &RoleProfile| (role.expects_change, role.lane);
                assert_ne!(differ(role), differ(other), "{} {}", role.name, other.name);
            }
            for scope in role.default_scope {
                Resource::parse(scope).unwrap();
            }
        }
        assert_eq!(by_name("judge"), None);
        assert_eq!(names(), "worker, tester, docser");
    }
}
