//! Programs that work outside the sandbox for the guard or for setup: a Docker daemon that mounts
//! a volume, a build daemon. Under bubblewrap the workspace is mounted at the project's path, and
//! they see the user's checkout there instead. Looked for in texts; what a text calls is followed.

mod called;

use std::collections::BTreeSet;
use std::path::Path;

use runner_core::config::Config;
use runner_sandbox::{Mechanism, SandboxSupport};

use super::DoctorCheck;
use crate::files;
use called::{all_texts, base_name};

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// A program that hands its work to one that runs already, and how it does so no more.
struct BuildDaemon {
    programs: &'static [&'static str],
    /// It does so only with this word.
    only_with: Option<&'static str>,
    /// It does not do so with one of these words.
    unless: &'static [&'static str],
    remedy: &'static str,
}

const DAEMONS: &[BuildDaemon] = &[
    BuildDaemon {
        programs: &["gradle", "gradlew"],
        only_with: None,
        unless: &["--no-daemon", "-Dorg.gradle.daemon=false"],
        remedy: "call it with --no-daemon",
    },
    BuildDaemon {
        programs: &["bazel", "bazelisk"],
        only_with: None,
        unless: &["--batch", "--output_base", "--output_user_root"],
        remedy: "call it with --batch, or with an --output_base of its own",
    },
    BuildDaemon {
        programs: &["buck", "buck2"],
        only_with: None,
        unless: &["--isolation-dir", "--no-buckd"],
        remedy: "call it with an --isolation-dir of its own",
    },
    BuildDaemon {
        programs: &["mvnd"],
        only_with: None,
        unless: &[],
        remedy: "call mvn instead",
    },
    BuildDaemon {
        programs: &["sbt"],
        only_with: Some("--client"),
        unless: &[],
        remedy: "call sbt without --client",
    },
    BuildDaemon {
        programs: &["sbtn"],
        only_with: None,
        unless: &[],
        remedy: "call sbt instead",
    },
    BuildDaemon {
        programs: &["watchman"],
        only_with: None,
        unless: &[],
        remedy: "do without it",
    },
];

const CONTAINERS: &[&str] = &["docker", "podman"];
const COMPOSERS: &[&str] = &["docker-compose", "podman-compose"];
const COMPOSE_FILES: &[&str] = &[
    "compose.yaml",
    "compose.yml",
    "docker-compose.yml",
    "docker-compose.yaml",
];
const COPY_REMEDY: &str =
    "copy the files into the image (`docker build`, `docker cp`) instead of mounting them";

/// Something that would see the user's checkout.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OutsideUse {
    /// Where it was found.
    place: String,
    what: String,
    remedy: &'static str,
}

/// What guard and setup call, where it matters.
pub(super) fn checks(config: &Config, support: &SandboxSupport, root: &Path) -> Vec<DoctorCheck> {
    let mechanism = runner_sandbox::choose(config.sandbox.mode, support);
    if !matches!(mechanism, Ok(Mechanism::Bubblewrap { .. })) {
        return Vec::new();
    }
    let read = |path: &str| {
        let bytes = files::read_regular(&root.join(path), MAX_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    };
    let commands = [
        ("[guard] command", &config.guard.command),
        ("[workspace] setup", &config.workspace.setup),
    ];
    let uses = find(&commands, &read);
    uses.iter().map(told).collect()
}

fn told(it: &OutsideUse) -> DoctorCheck {
    DoctorCheck::warn(
        "outside_programs",
        format!(
            "{}: {} works outside the sandbox, and sees your checkout instead of the workspace",
            it.place, it.what
        ),
        format!(
            "{}; `runner doctor --run-guard` shows whether the guard notices what is broken",
            it.remedy
        ),
    )
}

/// Looks through commands and what they call.
fn find(
    commands: &[(&str, &Vec<String>)],
    read: &dyn Fn(&str) -> Option<String>,
) -> BTreeSet<OutsideUse> {
    let mut found = BTreeSet::new();
    for text in all_texts(commands, read) {
        for call in &text.calls {
            let used = uses_daemon(&call.words, read).or_else(|| {
                let mounts = mounts_volume(&call.words, &call.line, read);
                mounts.map(|what| (what, COPY_REMEDY))
            });
            if let Some((what, remedy)) = used {
                let place = text.place_of(call);
                found.insert(OutsideUse {
                    place,
                    what,
                    remedy,
                });
            }
        }
    }
    found
}

/// A build daemon that a call uses.
fn uses_daemon(
    words: &[String],
    read: &dyn Fn(&str) -> Option<String>,
) -> Option<(String, &'static str)> {
    let program = base_name(words.first()?);
    let has = |option: &str| words.iter().any(|word| word.starts_with(option));
    let daemon = DAEMONS
        .iter()
        .find(|daemon| daemon.programs.contains(&program))?;
    let is_off = daemon.unless.iter().any(|option| has(option))
        || daemon.only_with.is_some_and(|option| !has(option))
        || daemon.programs.contains(&"gradle")
            && read("gradle.properties").is_some_and(|text| has_setting(&text));
    (!is_off).then(|| (format!("the daemon of `{program}`"), daemon.remedy))
}

fn has_setting(properties: &str) -> bool {
    let plain = |line: &str| line.split_whitespace().collect::<String>();
    properties
        .lines()
        .any(|line| plain(line) == "org.gradle.daemon=false")
}

/// A call of docker or its like that mounts files of this machine.
fn mounts_volume(
    words: &[String],
    line: &str,
    read: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let program = base_name(words.first()?);
    let is_compose = COMPOSERS.contains(&program)
        || CONTAINERS.contains(&program) && words.get(1).is_some_and(|it| it == "compose");
    if is_compose {
        let mut files = COMPOSE_FILES.iter();
        let file = files.find(|file| read(file).is_some_and(|text| compose_mounts(&text)))?;
        return Some(format!(
            "the daemon of `{program}` mounts volumes ({file}): it"
        ));
    }
    let runs = words.get(1).is_some_and(|it| it == "run" || it == "create");
    (CONTAINERS.contains(&program) && runs && line_mounts(line))
        .then(|| format!("the daemon of `{program}` mounts a volume: it"))
}

/// Whether the options in a line mount a path, not a volume with a name.
fn line_mounts(line: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches([' ', '=', '"', '\'']).to_owned();
    let is_path = |text: &str| text.starts_with(['.', '/', '~', '$', '`']);
    let volumes = [" -v", " --volume"];
    let mounts_path = volumes.iter().any(|option| {
        line.match_indices(option).any(|(at, _)| {
            let rest = &line[at + option.len()..];
            rest.starts_with([' ', '=']) && is_path(&bare(rest))
        })
    });
    mounts_path || line.contains("--mount") && line.contains("type=bind")
}

/// Whether an entry of a compose file mounts a path.
fn is_path(entry: &str) -> bool {
    entry.starts_with(['.', '/', '~', '$']) && entry.contains(':')
}

/// Whether a list in one line does, as `[".:/app", "data:/data"]`.
fn inline_mounts(list: &str) -> bool {
    let entries = list.strip_prefix('[').unwrap_or_default().split(',');
    entries
        .map(|entry| entry.trim_matches([' ', '"', '\'', ']']))
        .any(is_path)
        || list.contains("type: bind")
}

/// Whether a compose file mounts a path.
fn compose_mounts(text: &str) -> bool {
    let mut in_volumes = None;
    for line in text.lines() {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        if let Some(depth) = in_volumes {
            let entry = words
                .strip_prefix("- ")
                .map(|it| it.trim_matches(['"', '\'']));
            if indent >= depth && entry.is_some_and(|it| is_path(it) || it == "type: bind") {
                return true;
            }
            if indent <= depth && entry.is_none() {
                in_volumes = None;
            }
        }
        if words
            .strip_prefix("volumes:")
            .is_some_and(|it| inline_mounts(it.trim()))
        {
            return true;
        }
        if words.trim_end() == "volumes:" {
            in_volumes = Some(indent);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard, the files of a project, and what is found there.
    type CalledRow<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

    /// What is found for a guard in a project with these files, as `place: what`.
    fn found(guard: &[&str], files: &[(&str, &str)]) -> Vec<String> {
        let guard: Vec<String> = guard.iter().map(|word| (*word).to_owned()).collect();
        let read = |path: &str| {
            let file = files.iter().find(|(name, _)| *name == path)?;
            Some(file.1.to_owned())
        };
        let uses = find(&[("[guard] command", &guard)], &read);
        uses.into_iter()
            .map(|it| format!("{}: {}", it.place, it.what))
            .collect()
    }

    #[test]
    fn commands_that_work_elsewhere() {
        let gradle = "[guard] command: the daemon of `gradlew`";
        let docker = "[guard] command: the daemon of `docker` mounts a volume: it";
        let rows: &[(&[&str], &str)] = &[
            (&["./gradlew", "test"], gradle),
            (&["./gradlew", "--no-daemon", "test"], ""),
            (&["gradle-lint"], ""),
            (
                &["bazel", "test", "//..."],
                "[guard] command: the daemon of `bazel`",
            ),
            (&["bazel", "--batch", "test", "//..."], ""),
            (&["bazel", "--output_base=/x", "test"], ""),
            (&["buck2", "test"], "[guard] command: the daemon of `buck2`"),
            (&["mvnd", "verify"], "[guard] command: the daemon of `mvnd`"),
            (&["mvn", "verify"], ""),
            (&["sbt", "test"], ""),
            (
                &["sbt", "--client", "test"],
                "[guard] command: the daemon of `sbt`",
            ),
            (
                &["sh", "-c", "A=1 exec sbtn test"],
                "[guard] command: the daemon of `sbtn`",
            ),
            (
                &["watchman", "watch", "."],
                "[guard] command: the daemon of `watchman`",
            ),
            (&["echo", "gradle"], ""),
            (&["docker", "run", "-v", "$PWD:/src", "image"], docker),
            (
                &[
                    "sh",
                    "-c",
                    "cd x && docker run --rm -v \"$(pwd)\":/src image",
                ],
                docker,
            ),
            (
                &["sh", "-c", "sudo docker run --volume=./src:/src image"],
                docker,
            ),
            (
                &[
                    "docker",
                    "run",
                    "--mount",
                    "type=bind,source=.,target=/src",
                    "image",
                ],
                docker,
            ),
            (&["docker", "run", "-v", "cache:/cache", "image"], ""),
            (&["docker", "run", "--verbose", "image"], ""),
            (&["docker", "build", "-t", "x", "."], ""),
            (
                &["podman", "run", "-v", ".:/src", "image"],
                "[guard] command: the daemon of `podman` mounts a volume: it",
            ),
        ];
        for (guard, expected) in rows {
            assert_eq!(found(guard, &[]).join("; "), *expected, "{guard:?}");
        }
        let off = [("gradle.properties", "org.gradle.daemon = false\n")];
        assert_eq!(found(&["./gradlew", "test"], &off), [] as [&str; 0]);
    }

    #[test]
    fn what_a_command_calls_is_looked_through() {
        let rows: &[CalledRow<'_>] = &[
            (
                &["sh", "ci.sh"],
                &[(
                    "ci.sh",
                    "#!/bin/sh\n# docker run -v .:/x\nset -e\n./gradlew check\n",
                )],
                "ci.sh line 4: the daemon of `gradlew`",
            ),
            (
                &["./scripts/ci"],
                &[(
                    "scripts/ci",
                    "docker run \\\n  -v \"$PWD\":/src \\\n  image\n",
                )],
                "scripts/ci line 1: the daemon of `docker` mounts a volume: it",
            ),
            (
                &["make", "ci"],
                &[(
                    "Makefile",
                    "ci: lint\n\techo\n\nlint: FLAGS = 1\nlint:\n\t@bazel test //...\n\nother:\n\tmvnd verify\n",
                )],
                "Makefile line 6: the daemon of `bazel`",
            ),
            (
                &["make"],
                &[(
                    "Makefile",
                    ".PHONY: all\nall:\n\tmvnd verify\nother:\n\tgradle x\n",
                )],
                "Makefile line 3: the daemon of `mvnd`",
            ),
            (
                &["just", "ci"],
                &[(
                    "justfile",
                    "ci: test\n\ntest:\n    mvnd verify\n\nother:\n    gradle x\n",
                )],
                "justfile line 4: the daemon of `mvnd`",
            ),
            (
                &["npm", "test"],
                &[
                    (
                        "package.json",
                        r#"{"scripts": {"test": "npm run it", "it": "docker compose run app", "other": "mvnd x"}}"#,
                    ),
                    (
                        "compose.yaml",
                        "services:\n  app:\n    volumes:\n      - .:/app\n",
                    ),
                ],
                "package.json script it: the daemon of `docker` mounts volumes (compose.yaml): it",
            ),
            (
                &["docker-compose", "run", "app"],
                &[(
                    "docker-compose.yml",
                    "services:\n  app:\n    volumes:\n      - data:/data\nvolumes:\n  data:\n",
                )],
                "",
            ),
            (
                &["docker-compose", "run", "app"],
                &[(
                    "docker-compose.yml",
                    "services:\n  app:\n    volumes: [\"data:/data\", \"./src:/app\"]\n",
                )],
                "[guard] command: the daemon of `docker-compose` mounts volumes (docker-compose.yml): it",
            ),
            (
                &["docker-compose", "run", "app"],
                &[(
                    "docker-compose.yml",
                    "services:\n  app:\n    volumes: [data:/data]\n",
                )],
                "",
            ),
            // A script that calls itself ends, and one that is not there says nothing.
            (&["sh", "a.sh"], &[("a.sh", "sh a.sh\nsh b.sh\n")], ""),
        ];
        for (guard, files, expected) in rows {
            assert_eq!(found(guard, files).join("; "), *expected, "{guard:?}");
        }
    }

    #[test]
    fn only_a_mounted_workspace_hides_anything() {
        use runner_core::config::SandboxMode;
        use runner_sandbox::{Bubblewrap, UnavailableReason};
        let mut config = Config::default();
        config.guard.command = vec!["mvnd".to_owned()];
        let missing = || UnavailableReason {
            reason: "not there".to_owned(),
            remedy: None,
        };
        let bubblewrap = Bubblewrap {
            program: "/usr/bin/bwrap".into(),
            version: String::new(),
            has_sizes: true,
        };
        let support = SandboxSupport {
            bubblewrap: Ok(bubblewrap),
            landlock: Ok(7),
            has_broker: true,
            has_ipc: true,
        };
        let root = Path::new("/nowhere");
        let told = checks(&config, &support, root);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0]
                .remedy
                .as_deref()
                .is_some_and(|it| it.starts_with("call mvn instead; "))
        );
        let landlock = SandboxSupport {
            bubblewrap: Err(missing()),
            landlock: Ok(7),
            has_broker: true,
            has_ipc: true,
        };
        assert_eq!(checks(&config, &landlock, root), []);
        config.sandbox.mode = SandboxMode::Off;
        assert_eq!(checks(&config, &support, root), []);
    }
}
