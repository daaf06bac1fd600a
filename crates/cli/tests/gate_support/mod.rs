//! Projects whose guard is red until the product is right, with what makes it green otherwise, each
//! tried with the real tool.

pub(crate) mod go;
pub(crate) mod javascript;
pub(crate) mod packages;
pub(crate) mod python;
pub(crate) mod recipes;
pub(crate) mod rust;

use std::fmt::Write as _;
use std::os::unix::fs::symlink;

use runner_testkit::TestRepo;
use serde_json::{Value, json};

use crate::agent_support::put_first_on_path;
use crate::init_support::{installed, need, take};
use crate::scenario::{GOAL, bare};

/// What a session does, and a name for it.
pub(crate) type Deed = (&'static str, &'static str);

/// A project, and what sessions do in it. Each begins with the files as they were.
pub(crate) struct GuardedProject {
    /// Its row in docs/guards.md.
    pub(crate) kind: &'static str,
    pub(crate) guard: &'static [&'static str],
    pub(crate) tool: GateTool,
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Makes the product right.
    pub(crate) fix: &'static str,
    /// Redefines the guard by a file that is protected: refused.
    pub(crate) redefined: &'static [Deed],
    /// Leaves nothing that shows that tests ran: the exit code does not count.
    pub(crate) unproven: &'static [Deed],
    /// Changes tests, or takes some out: told, and refused where the tests of the start are
    /// required.
    pub(crate) told: &'static [Deed],
    /// What an agent may do beside the fix.
    pub(crate) honest: &'static [Deed],
}

/// What a project is judged with.
#[derive(Clone, Copy)]
pub(crate) enum GateTool {
    /// Programs of the system.
    System(&'static [&'static str]),
    /// An environment of Python that `cargo xtask setup` makes.
    Environment(&'static str),
    /// Packages of npm that it installs.
    Packages(&'static str),
    /// A package manager that it installs.
    Manager(&'static str),
}

impl GuardedProject {
    /// How many cheats there are.
    pub(crate) fn cheats(&self) -> usize {
        self.redefined.len() + self.unproven.len() + self.told.len()
    }

    /// Tries all of it.
    pub(crate) fn check(&self) {
        self.check_what_cheats_are_worth();
        self.check_what_becomes_of_them();
        if !self.told.is_empty() {
            self.check_with_the_tests_of_the_start();
        }
    }

    /// With nothing protected and nothing known of the base every cheat passes.
    fn check_what_cheats_are_worth(&self) {
        let mut repo = self.committed();
        configure(&mut repo, &json!({}), "off");
        // In a script: a test tool that is the guard itself and reports nothing is red in any case.
        let line = self.guard.join(" ");
        repo.start_run(GOAL, &["sh", "-c", &line]);
        self.plan(&repo);
        let report = step(&repo, "echo x > notes.txt");
        assert_eq!(report["guard"], "fail", "{}: {report:#}", self.kind);
        let lists = [self.redefined, self.unproven, self.told];
        for (name, script) in lists.into_iter().flatten() {
            let report = step(&repo, script);
            if report["findings"]
                .to_string()
                .contains(" now) is protected")
            {
                // Packages that come from elsewhere are undone whatever a config says.
                continue;
            }
            let log = guard_log(&repo, &report);
            assert_eq!(
                report["passes"], true,
                "{}: {name} is no cheat: {report:#}\n{log}",
                self.kind
            );
        }
    }

    /// With what `init` writes none passes unseen, and what is honest does.
    fn check_what_becomes_of_them(&self) {
        let repo = self.begun("report");
        for (name, script) in self.redefined {
            let report = step(&repo, script);
            let what = format!("{}: {name}: {report:#}", self.kind);
            assert_eq!(report["class"], "agent_error", "{what}");
            assert!(
                report["findings"].to_string().contains("is protected"),
                "{what}"
            );
            let remedy = "take it off [guard] protected or protected_values";
            assert!(report["notes"].to_string().contains(remedy), "{what}");
        }
        for (name, script) in self.unproven {
            let report = step(&repo, script);
            let log = guard_log(&repo, &report);
            let what = format!("{}: {name}: {report:#}\n{log}", self.kind);
            assert_eq!(report["guard"], "fail", "{what}");
            let facts = &repo.meta(report["iter"].as_u64().unwrap_or(0))["facts"];
            assert_eq!(facts["guard_exit"], 0, "{what}");
            assert_ne!(facts["evidence_gaps"][0], Value::Null, "{what}");
        }
        // What is refused is tried again at the same leaf, which has attempts for all of it.
        self.plan(&repo);
        for (name, script) in self.told {
            let report = step(&repo, script);
            let what = format!("{}: {name}: {report:#}", self.kind);
            assert_eq!(report["passes"], true, "{what}");
            assert!(
                report["notes"].to_string().contains("the run began"),
                "{what}"
            );
        }
        for (name, script) in self.honest {
            let report = step(&repo, &format!("{script}\n{}", self.fix));
            let log = guard_log(&repo, &report);
            let what = format!("{}: {name}: {report:#}\n{log}", self.kind);
            assert_eq!(report["passes"], true, "{what}");
        }
        let report = step(&repo, self.fix);
        assert_eq!(report["passes"], true, "{}: {report:#}", self.kind);
        let notes = report["notes"].to_string();
        assert!(
            !notes.contains("the run began"),
            "{}: {report:#}",
            self.kind
        );
    }

    fn check_with_the_tests_of_the_start(&self) {
        let repo = self.begun("require");
        for (name, script) in self.told {
            let report = step(&repo, script);
            let what = format!("{}: {name}: {report:#}", self.kind);
            assert_eq!(report["guard"], "fail", "{what}");
            let iter = report["iter"].as_u64().unwrap_or(0);
            assert_eq!(repo.meta(iter)["facts"]["guard_exit"], 0, "{what}");
        }
        let report = step(&repo, self.fix);
        assert_eq!(report["passes"], true, "{}: {report:#}", self.kind);
    }

    /// A run as `init` proposes it, whose base was tried.
    fn begun(&self, original_tests: &str) -> TestRepo {
        let mut repo = self.committed();
        let guard = self.guard.join(" ");
        let args = [
            "init",
            "--json",
            "--no-try",
            "--backend",
            "command",
            "--guard",
            &guard,
        ];
        let found = repo.runner(&args).success().json();
        std::fs::remove_dir_all(repo.path(".runner")).expect("init made the folder");
        configure(&mut repo, &found, original_tests);
        repo.init_run(GOAL, self.guard);
        repo.runner(&["start"]).success();
        repo
    }

    fn committed(&self) -> TestRepo {
        let mut repo = bare();
        repo.machine_toolchains();
        match self.tool {
            GateTool::System(programs) => programs.iter().for_each(|program| need(program)),
            GateTool::Environment(name) => {
                put_first_on_path(&mut repo, &installed(name).join("environment/bin"));
            }
            GateTool::Manager(name) => take(&mut repo, name),
            // Found from every checkout, because they lie in a folder above all of them.
            GateTool::Packages(name) => {
                let packages = installed(name).join("node_modules");
                symlink(packages, repo.root().join("node_modules")).expect("a link can be made");
            }
        }
        for (name, text) in self.files {
            repo.write(name, text);
        }
        repo.commit_all("Add the project");
        repo
    }

    /// As many leaves as may pass, and one that stays open.
    fn plan(&self, repo: &TestRepo) {
        let mut script = String::new();
        for number in 0..self.cheats() + self.honest.len() + 2 {
            let _ = writeln!(script, "add_child root leaf-{number} {number} 'A leaf'");
        }
        repo.agent(&format!("{script}out decomposed 'split it'"));
        repo.runner(&["step"]).success();
    }
}

fn configure(repo: &mut TestRepo, found: &Value, original_tests: &str) {
    let list = |key: &str| match &found[key] {
        Value::Null => json!([]),
        list => list.clone(),
    };
    repo.config(|config| {
        config
            .set("guard.protected", list("protected"))
            .set("guard.protected_values", list("protected_values"))
            .set("guard.tests", list("tests"))
            .set("guard.original_tests", original_tests)
            .set("max_attempts_default", 100)
            .set("max_iterations", 300);
    });
}

/// A session that begins with the files as they were.
fn step(repo: &TestRepo, script: &str) -> Value {
    repo.agent(&format!(
        "find . -mindepth 1 -maxdepth 1 ! -name .git ! -name .runner -exec rm -rf {{}} +\n\
         git checkout -q {} -- . ':(exclude).runner'\n{script}\nout done 'did it'",
        repo.git(&["rev-parse", "main"]).trim()
    ));
    repo.runner(&["step", "--json"]).success().json()
}

/// What the guard printed, for whoever reads why a test failed.
fn guard_log(repo: &TestRepo, report: &Value) -> String {
    let folder = repo.iteration(report["iter"].as_u64().unwrap_or(0));
    std::fs::read_to_string(folder.join("guard.log")).unwrap_or_default()
}
