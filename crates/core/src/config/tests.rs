//! The config: every key, every finding.

use proptest::prelude::*;

use super::*;

fn findings(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(ToString::to_string).collect(),
    }
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(findings(text), expected, "{text}");
}

#[test]
fn an_empty_file_is_the_default() {
    for text in [
        "",
        "\u{feff}# nothing\r\n",
        "[guard]\n[executor.env]\n[prices]\n",
    ] {
        assert_eq!(Config::parse(text), Ok(Config::default()));
    }
}

#[test]
fn every_key_is_read() {
    let config = Config::parse(
        r#"
max_attempts_default = 5
max_iterations = 7
iteration_timeout_secs = 60
executor_output_limit_bytes = 1_000
guard_output_limit_bytes = 0x10
prompt_budget_bytes = 4096
[workspace]
root = "~/checkouts"
setup = "npm ci && true"
setup_inputs = ["package-lock.json", "packages/*/package.json"]
setup_timeout_secs = 30
include = [".env", "**/node_modules/"]
submodules = false
submodules_may_move = true
env = ["NPM_TOKEN"]
[guard]
env = ["DATABASE_URL"]
command = ["make", "test"]
protected = ["Makefile"]
protected_values = ["package.json:/scripts"]
watched = ["tests/**"]
keep = ["target/"]
checkout = "cold"
junit = ["reports/**/*.xml"]
tests = ["tests/**", "**/*_test.py"]
released_tests = ["tests/old.py"]
original_tests = "require"
product = ["src/**", "!src/gen/**"]
[loop]
max_consecutive_errors = 0
on_timeout = "retry"
wait_quota = true
[executor]
backend = "command"
command = ["./agent", ""]
model = "m"
extra_args = ["-x"]
idle_timeout_secs = 0
inherit = ["mcp", "settings"]
env = { A = "1", "b.c" = "2" }
[commit]
deny = []
max_file_bytes = 1
[prices]
"gpt-x" = { input = 1, cached = 0.5, output = 2.5 }
plain = { input = 3.0, output = 4.0 }
[notify]
command = ["notify"]
[budget]
max_tokens = 9
max_cost_usd = 1
[sandbox]
mode = "required"
readable = ["~/.netrc"]
writable = ["~/x"]
hidden = ["~/private"]
cache_limit = "1GiB"
[sandbox.guard]
readable = ["/run/docker.sock"]
[sandbox.network]
session = "open"
setup = ["a.example", "*.b.example:443"]
guard = "off"
[sandbox.limits]
memory = "50%"
processes = 9
workspace_growth = 5
free_space = "2MiB"
"#,
    )
    .unwrap();
    let price = |input, cached, output| TokenPrice {
        input,
        cached,
        output,
    };
    let expected = Config {
        max_attempts_default: 5,
        max_iterations: 7,
        iteration_timeout_secs: 60,
        executor_output_limit_bytes: 1000,
        guard_output_limit_bytes: 16,
        prompt_budget_bytes: 4096,
        workspace: WorkspaceConfig {
            root: "~/checkouts".to_owned(),
            setup: strings(&["sh", "-c", "npm ci && true"]),
            setup_inputs: strings(&["package-lock.json", "packages/*/package.json"]),
            setup_timeout_secs: 30,
            include: strings(&[".env", "**/node_modules"]),
            submodules: false,
            submodules_may_move: true,
            env: strings(&["NPM_TOKEN"]),
        },
        guard: GuardConfig {
            command: strings(&["make", "test"]),
            protected: strings(&["Makefile"]),
            protected_values: strings(&["package.json:/scripts"]),
            watched: strings(&["tests/**"]),
            env: strings(&["DATABASE_URL"]),
            keep: strings(&["target"]),
            checkout: CheckoutKind::Cold,
            junit: strings(&["reports/**/*.xml"]),
            tests: strings(&["tests/**", "**/*_test.py"]),
            released_tests: strings(&["tests/old.py"]),
            original_tests: OriginalTests::Require,
            product: strings(&["src/**", "!src/gen/**"]),
        },
        run_loop: LoopConfig {
            max_consecutive_errors: 0,
            on_timeout: OnTimeout::Retry,
            wait_quota: true,
        },
        executor: ExecutorConfig {
            backend: BackendKind::Command,
            command: strings(&["./agent", ""]),
            model: "m".to_owned(),
            extra_args: strings(&["-x"]),
            idle_timeout_secs: 0,
            inherit: vec![InheritPart::Mcp, InheritPart::Settings],
            env: [("A", "1"), ("b.c", "2")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        },
        commit: CommitConfig {
            deny: Vec::new(),
            max_file_bytes: 1,
        },
        prices: [
            ("gpt-x".to_owned(), price(1.0, 0.5, 2.5)),
            ("plain".to_owned(), price(3.0, 3.0, 4.0)),
        ]
        .into(),
        notify: NotifyConfig {
            command: strings(&["notify"]),
        },
        budget: BudgetConfig {
            max_tokens: 9,
            max_cost_usd: 1.0,
        },
        sandbox: SandboxConfig {
            mode: SandboxMode::Required,
            readable: strings(&["~/.netrc"]),
            writable: strings(&["~/x"]),
            hidden: strings(&["~/private"]),
            cache_limit: 1 << 30,
            guard: OpenedPaths {
                readable: strings(&["/run/docker.sock"]),
                writable: Vec::new(),
            },
            network: NetworkConfig {
                session: NetworkRule::Open,
                setup: NetworkRule::Hosts(strings(&["a.example", "*.b.example:443"])),
                guard: NetworkRule::Off,
            },
            limits: SandboxLimits {
                memory: MemoryLimit::Percent(50),
                processes: 9,
                workspace_growth: 5,
                free_space: 2 << 20,
            },
            ..SandboxConfig::default()
        },
        fleet: FleetConfig::default(),
    };
    assert_eq!(config, expected);
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    for (text, expected) in [
        (
            "max_iteration = 1",
            "line 1: max_iteration: unknown key (did you mean `max_iterations`?)",
        ),
        (
            "\n[guard]\ncomand = []",
            "line 3: guard.comand: unknown key (did you mean `guard.command`?)",
        ),
        (
            "[guards]\nx = 1",
            "line 1: guards: unknown key (did you mean `guard`?)",
        ),
        (
            "protected = []",
            "line 1: protected: unknown key (did you mean `guard.protected`?)",
        ),
        (
            "[executor]\non_timeout = 'stop'",
            "line 2: executor.on_timeout: unknown key (did you mean `loop.on_timeout`?)",
        ),
        (
            "[prices]\nm = { inputs = 1 }",
            "line 2: prices.m.inputs: unknown key (did you mean `input`?)",
        ),
        ("\"a\\nb\" = 1", "line 1: a\\nb: unknown key"),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn wrong_types() {
    for (text, expected) in [
        (
            "max_iterations = \"3\"",
            "line 1: max_iterations: must be an integer, not a string",
        ),
        (
            "max_iterations = 3.0",
            "line 1: max_iterations: must be an integer, not a float",
        ),
        (
            "guard = 3",
            "line 1: guard: must be a table, not an integer",
        ),
        ("[[loop]]", "line 1: loop: must be a table, not an array"),
        (
            "[guard]\ncommand = \"just ci\"",
            "line 2: guard.command: must be an array of strings, not a string",
        ),
        (
            "[guard]\ncommand = [\"just\",\n 1]",
            "line 3: guard.command[1]: must be a string, not an integer",
        ),
        (
            "[loop]\nwait_quota = 1",
            "line 2: loop.wait_quota: must be true or false, not an integer",
        ),
        (
            "[executor]\nmodel = 2020-01-01",
            "line 2: executor.model: must be a string, not a date or time",
        ),
        (
            "[prices]\nm = 1",
            "line 2: prices.m: must be a table with input, cached and output, not an integer",
        ),
        (
            "[budget]\nmax_cost_usd = true",
            "line 2: budget.max_cost_usd: must be a number, not a boolean",
        ),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn out_of_range() {
    for (text, expected) in [
        (
            "max_attempts_default = 0",
            "line 1: max_attempts_default: must be between 1 and 4294967295",
        ),
        (
            "max_iterations = -1",
            "line 1: max_iterations: must be between 1 and 4294967295",
        ),
        (
            "iteration_timeout_secs = 0",
            "line 1: iteration_timeout_secs: must be between 1 and 31622400",
        ),
        (
            "prompt_budget_bytes = 4095",
            "line 1: prompt_budget_bytes: must be between 4096 and 1073741824",
        ),
        (
            "executor_output_limit_bytes = 99999999999999999999999999999999999999999999",
            "line 1: executor_output_limit_bytes: must be between 1 and 1073741824",
        ),
        (
            "[budget]\nmax_cost_usd = -0.5",
            "line 2: budget.max_cost_usd: must be a number, 0 or more",
        ),
        (
            "[budget]\nmax_cost_usd = nan",
            "line 2: budget.max_cost_usd: must be a number, 0 or more",
        ),
        (
            "[budget]\nmax_tokens = -1",
            "line 2: budget.max_tokens: must be between 0 and 9223372036854775807",
        ),
        (
            "[prices]\nm = { input = -1, output = 1 }",
            "line 2: prices.m.input: must be a number, 0 or more",
        ),
        (
            "[prices.m]\noutput = inf",
            "line 2: prices.m.output: must be a number, 0 or more",
        ),
        (
            "[sandbox]\nwritable = [\" \"]",
            "line 2: sandbox.writable: a path must not be empty",
        ),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn words_and_commands() {
    for (text, expected) in [
        (
            "[executor]\nbackend = \"claud\"",
            "line 2: executor.backend: `claud` is not one of codex, claude, opencode, command \
             (did you mean `claude`?)",
        ),
        (
            "[loop]\non_timeout = \"stopp\"",
            "line 2: loop.on_timeout: `stopp` is not one of stop, retry (did you mean `stop`?)",
        ),
        (
            "[sandbox.guard]\nreadabel = []",
            "line 2: sandbox.guard.readabel: unknown key (did you mean `sandbox.guard.readable`?)",
        ),
        (
            "[sandbox.network]\nguard = \"a.example\"",
            "line 2: sandbox.network.guard: `a.example` is not `open`, `off`, `agent` or a list of hosts (write hosts as a list: [\"api.example.com\"])",
        ),
        (
            "[sandbox.network]\nguard = [\"http://a\"]",
            "line 2: sandbox.network.guard: host `http://a`: write the name alone, without a scheme or a path",
        ),
        (
            "[executor]\nbackend = \"command\"\ncommand = [\"x\"]\n[sandbox.network]\nsession = \"agent\"",
            "line 5: sandbox.network.session: `agent` needs an agent whose hosts are known: backend = \"command\" may go anywhere (list the hosts that it needs: [\"api.example.com\"])",
        ),
        (
            "[sandbox.limits]\nmemory = \"0%\"",
            "line 2: sandbox.limits.memory: must be between 1% and 100%",
        ),
        (
            "[sandbox.limits]\nfree_space = \"1GB\"",
            "line 2: sandbox.limits.free_space: `1GB` is not a size (write a whole number of bytes, or one with KiB, MiB, GiB or TiB behind it)",
        ),
        (
            "[executor]\ninherit = [\"hook\"]",
            "line 2: executor.inherit: `hook` is not one of mcp, hooks, settings, instructions (did you mean `hooks`?)",
        ),
        (
            "[sandbox]\nmode = \"on\"",
            "line 2: sandbox.mode: `on` is not one of off, auto, required (did you mean `off`?)",
        ),
        (
            "[guard]\ncommand = []",
            "line 2: guard.command: must not be empty (name the command that proves the work, \
             for example [\"just\", \"ci\"])",
        ),
        (
            "[guard]\ncommand = [\" \", \"ci\"]",
            "line 2: guard.command: its first word, the program, must not be empty",
        ),
        (
            "[notify]\ncommand = [\"\"]",
            "line 2: notify.command: its first word, the program, must not be empty",
        ),
        (
            "[executor]\nbackend = \"command\"",
            "line 2: executor.command: must not be empty when backend is `command`",
        ),
        (
            "[executor]\nbackend = \"command\"\ncommand = []",
            "line 3: executor.command: must not be empty when backend is `command`",
        ),
        (
            "[executor]\nmodel = \"a\\u0000b\"",
            "line 2: executor.model: must not contain a NUL character",
        ),
    ] {
        check(text, &[expected]);
    }
}

#[test]
fn globs_must_be_able_to_match() {
    check(
        "[guard]\nprotected = [\"ok\", \"[\", \"tests/\"]\nwatched = [\"/x\"]\n[commit]\ndeny = [\"{\"]",
        &[
            "line 2: guard.protected: glob `[`: unclosed character class; missing ']'",
            "line 2: guard.protected: glob `tests/`: it never matches: only files are compared, \
             not folders (write \"tests/**\")",
            "line 3: guard.watched: glob `/x`: it never matches: paths start at the repo root, \
             without `/` or `./` (write \"x\")",
            "line 5: commit.deny: glob `{`: unclosed alternate group; missing '}' (maybe escape \
             '{' with '[{]'?)",
        ],
    );
}

#[test]
fn what_is_hidden_is_not_opened() {
    let message = "opens what [sandbox] hidden hides: `~/private`";
    let hint = "take one of the two away";
    for (opened, line) in [
        ("readable = ['~/private']", Some("sandbox.readable")),
        ("readable = ['~/private/']", Some("sandbox.readable")),
        ("readable = ['~']", Some("sandbox.readable")),
        ("writable = ['~/private']", Some("sandbox.writable")),
        (
            "[sandbox.guard]\nreadable = ['~/private']",
            Some("sandbox.guard.readable"),
        ),
        // A part of it may be opened again.
        ("readable = ['~/private/notes']", None),
        ("readable = ['~/privates']", None),
    ] {
        let text = format!("[sandbox]\nhidden = ['~/private']\n{opened}");
        let at = 3 + opened.matches('\n').count();
        let expected = line.map(|key| format!("line {at}: {key}: {message} ({hint})"));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        if expected.is_empty() {
            let config = Config::parse(&text).unwrap();
            assert_eq!(config.sandbox.hidden, ["~/private"], "{text}");
        } else {
            check(&text, &expected);
        }
    }
}

#[test]
fn all_findings_by_line() {
    check(
        "zzz = 1\nmax_iterations = 0\n[loop]\non_timeout = 1\n[guard]\nwatch = []\ncommand = []",
        &[
            "line 1: zzz: unknown key",
            "line 2: max_iterations: must be between 1 and 4294967295",
            "line 4: loop.on_timeout: must be a string, not an integer",
            "line 6: guard.watch: unknown key (did you mean `guard.watched`?)",
            "line 7: guard.command: must not be empty (name the command that proves the work, \
             for example [\"just\", \"ci\"])",
        ],
    );
}

#[test]
fn broken_toml_has_its_line() {
    let findings = Config::parse("max_iterations = 1\n[guard\n").unwrap_err();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].line, Some(2));
    assert!(findings[0].message.starts_with("not valid TOML: "));
    let twice = Config::parse("[loop]\nwait_quota = true\nwait_quota = true\n").unwrap_err();
    assert_eq!(twice[0].line, Some(3));
}

#[test]
fn secrets_are_never_shown() {
    for text in [
        "[executor.env]\nTOKEN = hunter2\n",
        "[executor.env]\nTOKEN = \"hunter2\n",
        "[executor.env]\nTOKEN = [\"hunter2\"]\n",
        "[executor.env]\nTOKEN = { a = \"hunter2\" }\n",
        "[executor.env]\nTOKEN = \"hunter2\\u0000\"\n",
        "[executor.env]\n\"TOKEN=hunter2\" = \"\"\n",
        "[executor]\nenv = \"hunter2\"\n",
        "[executor]\nmodel = [\"hunter2\"]\nextra_args = \"hunter2\"\ncommand = [\"\", \"hunter2\"]\n",
    ] {
        let shown = findings(text);
        assert!(!shown.is_empty(), "{text}");
        assert!(!shown.concat().contains("hunter2"), "{shown:?}");
    }
    let config = Config::parse("[executor.env]\nTOKEN = \"hunter2\"\n").unwrap();
    let debug = format!("{config:?}");
    assert!(debug.contains("TOKEN") && !debug.contains("hunter2"));
}

#[test]
fn the_template_is_the_default_configuration() {
    let default = Config::default();
    let text = template(NewProject {
        setup: &[],
        include: &[],
        guard: &default.guard.command,
        protected: &default.guard.protected,
        protected_values: &default.guard.protected_values,
        watched: &default.guard.watched,
        tests: &[],
        keep: &[],
        backend: BackendKind::Codex,
        command: &[],
        guard_network: "open",
    });
    assert_eq!(Config::parse(&text), Ok(default));
}

#[test]
fn what_is_copied_or_stays_is_the_projects_own() {
    check(
        "[workspace]\ninclude = [\"/x\", \".venv/\"]\nsetup_inputs = [\"a/\"]\n[guard]\nkeep = [\".runner\"]\ncheckout = \"hot\"",
        &[
            "line 2: workspace.include: glob `/x`: it never matches: paths start at the repo root, \
             without `/` or `./` (write \"x\")",
            "line 3: workspace.setup_inputs: glob `a/`: it never matches: only files are compared, \
             not folders (write \"a/**\")",
            "line 5: guard.keep: glob `.runner`: it means files of git or of the runner",
            "line 6: guard.checkout: `hot` is not one of warm, cold (did you mean `cold`?)",
        ],
    );
}

#[test]
fn words_are_read_back() {
    for &backend in BackendKind::ALL {
        assert_eq!(BackendKind::from_word(&backend.to_string()), Some(backend));
    }
    assert_eq!(OnTimeout::from_word("Stop"), None);
    assert_eq!(SandboxMode::from_word("auto"), Some(SandboxMode::Auto));
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        let _ = Config::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn never_panics_on_nearly_valid_files(
        lines in prop::collection::vec(
            "(max_iterations|command|env|mode|prices|x) = (1|-1|\"a\"|\\[\\]|\\[\"\"\\]|\\{ a = 1 \\})|\\[(guard|executor|loop|executor.env|prices|sandbox)\\]",
            0..8,
        )
    ) {
        let text = lines.join("\n");
        if let Err(findings) = Config::parse(&text) {
            prop_assert!(!findings.is_empty());
            for finding in findings {
                prop_assert!(finding.line.is_none_or(|line| line <= lines.len()));
            }
        }
    }

    #[test]
    fn the_template_keeps_any_words(
        setup in prop::collection::vec("[!-~][^\0]{0,8}", 0..3),
        guard in prop::collection::vec("[^\0]{1,8}", 0..3),
        protected in prop::collection::vec("[a-z*]{1,3}(/[a-z\"' ]{1,3})?", 0..3),
        watched in prop::collection::vec("[a-z*]{1,3}", 0..3),
        include in prop::collection::vec("[a-z.]{1,3}[*\"']", 0..3),
        index in 0usize..4,
        command in prop::collection::vec("[^\0]{1,8}", 0..2),
    ) {
        let mut guard = guard;
        guard.insert(0, "guard\n\"x\"".to_owned());
        let mut command = command;
        command.insert(0, "agent'".to_owned());
        let mut expected = Config::default();
        expected.workspace.setup.clone_from(&setup);
        expected.guard.command.clone_from(&guard);
        expected.guard.protected.clone_from(&protected);
        expected.guard.watched.clone_from(&watched);
        expected.workspace.include.clone_from(&include);
        expected.guard.keep.clone_from(&include);
        expected.executor.backend = BackendKind::ALL[index];
        expected.executor.command.clone_from(&command);
        let text = template(NewProject {
            setup: &setup,
            include: &include,
            guard: &guard,
            protected: &protected,
            protected_values: &[],
            watched: &watched,
            tests: &[],
            keep: &include,
            backend: BackendKind::ALL[index],
            command: &command,
            guard_network: "open",
        });
        prop_assert_eq!(Config::parse(&text), Ok(expected), "{}", text);
    }
}
