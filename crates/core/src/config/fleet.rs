//! `[fleet]`: how many agents work side by side, and within which limits.

use super::reader::{TomlReader, TomlTable};

/// The most agents of one role in one process.
const MAX_AGENTS: u32 = 64;

/// What the fleet uses beside the settings of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Agents that work on tasks of role worker.
    pub workers: u32,
    /// Agents that work on tasks of role tester.
    pub testers: u32,
    /// Agents that work on tasks of role docser.
    pub docsers: u32,
    /// Agents that judge and merge.
    pub judges: u32,
    /// Models to go through when a task fails; empty leaves it to `[executor] model`.
    pub models: Vec<String>,
    /// Whether an agent reviews every result before it is merged.
    pub review: bool,
    /// The branch that results are merged into; empty: the one that is checked out.
    pub base: String,
    /// How long one attempt at a task may take.
    pub timebox_minutes: u32,
    /// How long nothing may be heard of an agent.
    pub timeout_seconds: u32,
    /// How often an agent says that it lives.
    pub heartbeat_interval_seconds: u32,
    /// How long a task whose dependency is dead waits for a person.
    pub dependency_grace_hours: u32,
    /// The most files of one result; 0 is no limit.
    pub max_changed_files: u64,
    /// The largest diff of one result; 0 is no limit.
    pub max_changed_bytes: u64,
    /// The port of the API; 0 takes a free one.
    pub port: u16,
}

impl Default for FleetConfig {
    fn default() -> Self {
        FleetConfig {
            workers: 2,
            testers: 1,
            docsers: 1,
            judges: 1,
            models: Vec::new(),
            review: false,
            base: String::new(),
            timebox_minutes: 60,
            timeout_seconds: 90,
            heartbeat_interval_seconds: 15,
            dependency_grace_hours: 24,
            max_changed_files: 200,
            max_changed_bytes: 2_000_000,
            port: 0,
        }
    }
}

/// The keys of the table.
pub(super) const KEYS: &[&str] = &[
    "workers",
    "testers",
    "docsers",
    "judges",
    "models",
    "review",
    "base",
    "timebox_minutes",
    "timeout_seconds",
    "heartbeat_interval_seconds",
    "dependency_grace_hours",
    "max_changed_files",
    "max_changed_bytes",
    "port",
];

pub(super) fn read(reader: &mut TomlReader<'_>, root: TomlTable<'_, '_>) -> FleetConfig {
    let default = FleetConfig::default();
    let table = reader.known_table(root, "fleet");
    let most = i64::MAX.unsigned_abs();
    let config = FleetConfig {
        workers: reader.integer(table, "workers", 1..=MAX_AGENTS, default.workers),
        testers: reader.integer(table, "testers", 0..=MAX_AGENTS, default.testers),
        docsers: reader.integer(table, "docsers", 0..=MAX_AGENTS, default.docsers),
        judges: reader.integer(table, "judges", 1..=MAX_AGENTS, default.judges),
        models: reader.strings(table, "models", default.models),
        review: reader.boolean(table, "review", default.review),
        base: reader.string(table, "base", default.base),
        timebox_minutes: reader.integer(
            table,
            "timebox_minutes",
            1..=7 * 24 * 60,
            default.timebox_minutes,
        ),
        timeout_seconds: reader.integer(
            table,
            "timeout_seconds",
            30..=24 * 3600,
            default.timeout_seconds,
        ),
        heartbeat_interval_seconds: reader.integer(
            table,
            "heartbeat_interval_seconds",
            5..=3600,
            default.heartbeat_interval_seconds,
        ),
        dependency_grace_hours: reader.integer(
            table,
            "dependency_grace_hours",
            0..=366 * 24,
            default.dependency_grace_hours,
        ),
        max_changed_files: reader.integer(
            table,
            "max_changed_files",
            0..=most,
            default.max_changed_files,
        ),
        max_changed_bytes: reader.integer(
            table,
            "max_changed_bytes",
            0..=most,
            default.max_changed_bytes,
        ),
        port: reader.integer(table, "port", 0..=u16::MAX, default.port),
    };
    check(reader, table, &config);
    config
}

/// What the single values do not say.
fn check(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>, config: &FleetConfig) {
    if config.models.iter().any(|model| model.trim().is_empty()) {
        reader.find(table, "models", "a model must not be empty", None);
    }
    if !config.base.is_empty() && !is_branch_name(&config.base) {
        let hint = "write its short name, for example \"main\"; \"\" is the one checked out";
        reader.find(
            table,
            "base",
            "not a name that a branch can have",
            Some(hint.to_owned()),
        );
    }
    if config.heartbeat_interval_seconds >= config.timeout_seconds {
        let key = if table.get("heartbeat_interval_seconds").is_some() {
            "heartbeat_interval_seconds"
        } else {
            "timeout_seconds"
        };
        let hint = "a third of the timeout or less lets an agent miss two of them";
        reader.find(
            table,
            key,
            "heartbeat_interval_seconds must be less than timeout_seconds",
            Some(hint.to_owned()),
        );
    }
}

/// The rules of git for a branch, as far as a word can break them.
fn is_branch_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    !name.contains(odd)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.ends_with('.')
        && name != "@"
        && name.split('/').all(|part| {
            !part.is_empty() && !part.starts_with('.') && part.strip_suffix(".lock").is_none()
        })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        match Config::parse(&format!("[fleet]\n{text}")) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn every_key_is_read() {
        let config = Config::parse(
            "[fleet]\nworkers = 4\ntesters = 0\ndocsers = 2\njudges = 3\nmodels = [\"a\", \"b\"]\n\
             review = true\nbase = \"team/main\"\ntimebox_minutes = 30\ntimeout_seconds = 60\n\
             heartbeat_interval_seconds = 10\ndependency_grace_hours = 0\nmax_changed_files = 0\n\
             max_changed_bytes = 5\nport = 7700\n",
        )
        .unwrap();
        let expected = FleetConfig {
            workers: 4,
            testers: 0,
            docsers: 2,
            judges: 3,
            models: vec!["a".to_owned(), "b".to_owned()],
            review: true,
            base: "team/main".to_owned(),
            timebox_minutes: 30,
            timeout_seconds: 60,
            heartbeat_interval_seconds: 10,
            dependency_grace_hours: 0,
            max_changed_files: 0,
            max_changed_bytes: 5,
            port: 7700,
        };
        assert_eq!(config.fleet, expected);
        assert_eq!(Config::parse("").unwrap().fleet, FleetConfig::default());
    }

    #[test]
    fn findings_row_by_row() {
        for (text, expected) in [
            (
                "worker = 2",
                "line 2: fleet.worker: unknown key (did you mean `fleet.workers`?)",
            ),
            (
                "workers = 0",
                "line 2: fleet.workers: must be between 1 and 64",
            ),
            (
                "testers = 65",
                "line 2: fleet.testers: must be between 0 and 64",
            ),
            (
                "judges = 0",
                "line 2: fleet.judges: must be between 1 and 64",
            ),
            (
                "review = \"yes\"",
                "line 2: fleet.review: must be true or false, not a string",
            ),
            (
                "models = [\"m\", \" \"]",
                "line 2: fleet.models: a model must not be empty",
            ),
            (
                "base = \"a b\"",
                "line 2: fleet.base: not a name that a branch can have (write its short name, \
                 for example \"main\"; \"\" is the one checked out)",
            ),
            (
                "timeout_seconds = 29",
                "line 2: fleet.timeout_seconds: must be between 30 and 86400",
            ),
            (
                "heartbeat_interval_seconds = 4",
                "line 2: fleet.heartbeat_interval_seconds: must be between 5 and 3600",
            ),
            (
                "timeout_seconds = 30\nheartbeat_interval_seconds = 30",
                "line 3: fleet.heartbeat_interval_seconds: heartbeat_interval_seconds must be \
                 less than timeout_seconds (a third of the timeout or less lets an agent miss \
                 two of them)",
            ),
            (
                "timebox_minutes = 0",
                "line 2: fleet.timebox_minutes: must be between 1 and 10080",
            ),
            (
                "port = 65536",
                "line 2: fleet.port: must be between 0 and 65535",
            ),
            (
                "max_changed_files = -1",
                "line 2: fleet.max_changed_files: must be between 0 and 9223372036854775807",
            ),
        ] {
            assert_eq!(findings(text), [expected], "{text}");
        }
    }

    #[test]
    fn branch_names() {
        for (name, good) in [
            ("main", true),
            ("release/1.2", true),
            ("fleet/main", true),
            ("-x", false),
            ("a..b", false),
            ("a/", false),
            ("/a", false),
            ("a//b", false),
            (".a", false),
            ("a.lock", false),
            ("a.", false),
            ("a~1", false),
            ("@", false),
            ("a@{1}", false),
            ("a\tb", false),
        ] {
            assert_eq!(is_branch_name(name), good, "{name}");
        }
    }
}
