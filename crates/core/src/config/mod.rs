//! `.runner/state/config.toml`: what can be set, the defaults, and a strict reader
//! that reports everything that is wrong at once.
//!
//! Values from the file are shown in messages only where they are words of a fixed
//! set or globs: anything else might be a secret.

mod fleet;
mod read;
pub mod reader;
mod sandbox;
mod template;

use std::collections::BTreeMap;
use std::fmt;

use crate::product::USUAL_PRODUCT;

pub use fleet::FleetConfig;
pub use sandbox::{
    ChildKind, MemoryLimit, NetworkConfig, NetworkRule, OpenedPaths, SandboxConfig, SandboxLimits,
    check_host, parse_size, show_size, split_port,
};
pub use template::{NewProject, template};

/// The smallest prompt budget: below it the contract itself would not fit.
pub const MIN_PROMPT_BUDGET: usize = 4096;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How many attempts a new leaf gets.
    pub max_attempts_default: u32,
    /// How many iterations a run may have.
    pub max_iterations: u32,
    /// Wall clock of one iteration, agent and guard together.
    pub iteration_timeout_secs: u64,
    /// How much of the agent's output is kept.
    pub executor_output_limit_bytes: u64,
    /// How much of the guard's output is kept.
    pub guard_output_limit_bytes: u64,
    /// The longest prompt.
    pub prompt_budget_bytes: usize,
    /// `[workspace]`
    pub workspace: WorkspaceConfig,
    /// `[guard]`
    pub guard: GuardConfig,
    /// `[loop]`
    pub run_loop: LoopConfig,
    /// `[executor]`
    pub executor: ExecutorConfig,
    /// `[commit]`
    pub commit: CommitConfig,
    /// `[prices]`: by model.
    pub prices: BTreeMap<String, TokenPrice>,
    /// `[notify]`
    pub notify: NotifyConfig,
    /// `[budget]`
    pub budget: BudgetConfig,
    /// `[sandbox]`
    pub sandbox: SandboxConfig,
    /// `[fleet]`
    pub fleet: FleetConfig,
}

/// Where commits are checked out to be worked on or judged, and what they need there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// The folder for private folders; empty takes the one for the state of programs.
    pub root: String,
    /// The command that makes what a fresh checkout lacks; empty: nothing is needed.
    pub setup: Vec<String>,
    /// Globs of the files that setup reads: it runs again where one of them changed. Empty: those
    /// that package managers read.
    pub setup_inputs: Vec<String>,
    /// How long that may take.
    pub setup_timeout_secs: u64,
    /// Globs of ignored files and folders of the user's checkout that are copied, as
    /// [`crate::paths::FolderGlobs`] reads them.
    pub include: Vec<String>,
    /// Whether submodules are filled from the project's own clones.
    pub submodules: bool,
    /// Whether a session may let a submodule be at a commit that its remote does not have.
    pub submodules_may_move: bool,
    /// Names of variables that setup, agent and guard get from the runner's environment.
    pub env: Vec<String>,
}

/// What judges the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// The command; exit code 0 is a pass.
    pub command: Vec<String>,
    /// Globs of files that no session may change.
    pub protected: Vec<String>,
    /// Values inside files that no session may change, as [`crate::protected_value`] reads them.
    pub protected_values: Vec<String>,
    /// Globs of files whose changes are pointed out to people.
    pub watched: Vec<String>,
    /// Names of variables that the guard alone gets from the runner's environment.
    pub env: Vec<String>,
    /// Globs of build outputs that stay from one verdict to the next, as
    /// [`crate::paths::FolderGlobs`] reads them.
    pub keep: Vec<String>,
    /// Whether anything stays.
    pub checkout: CheckoutKind,
    /// Globs of reports in JUnit's format that the guard writes.
    pub junit: Vec<String>,
    /// Globs of the files that are tests.
    pub tests: Vec<String>,
    /// Those of them that a person lets sessions change.
    pub released_tests: Vec<String>,
    /// What counts for tests that sessions changed.
    pub original_tests: OriginalTests,
    /// Which files are product, as [`crate::product::ProductFiles`] reads them.
    pub product: Vec<String>,
}

/// How the loop deals with errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopConfig {
    /// After how many transient errors in a row it gives up.
    pub max_consecutive_errors: u32,
    /// What a timeout means.
    pub on_timeout: OnTimeout,
    /// Whether it waits for a used-up quota to come back.
    pub wait_quota: bool,
}

/// Which agent works, and how it is called.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// The agent CLI.
    pub backend: BackendKind,
    /// The command of [`BackendKind::Command`].
    pub command: Vec<String>,
    /// The model; empty leaves it to the CLI.
    pub model: String,
    /// Further arguments for the CLI.
    pub extra_args: Vec<String>,
    /// A session that is silent for so long is ended; 0 never ends one.
    pub idle_timeout_secs: u64,
    /// What of a person's own settings reaches sessions.
    pub inherit: Vec<InheritPart>,
    /// Variables added to the session's environment.
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for ExecutorConfig {
    /// Leaves out what may hold secrets: the values of `env`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorConfig")
            .field("backend", &self.backend)
            .field("command", &self.command)
            .field("model", &self.model)
            .field("extra_args", &self.extra_args)
            .field("idle_timeout_secs", &self.idle_timeout_secs)
            .field("inherit", &self.inherit)
            .field("env", &self.env.keys())
            .finish()
    }
}

/// Which newly added files never go into a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitConfig {
    /// Globs, as [`crate::paths::DenyList`] reads them.
    pub deny: Vec<String>,
    /// Larger files are denied too.
    pub max_file_bytes: u64,
}

/// USD per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenPrice {
    /// Tokens read afresh.
    pub input: f64,
    /// Tokens read from the provider's cache; `input` where the file does not say.
    pub cached: f64,
    /// Tokens written.
    pub output: f64,
}

/// Whom to tell when a run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyConfig {
    /// The command; empty tells nobody.
    pub command: Vec<String>,
}

/// When a run has cost enough; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetConfig {
    /// Tokens of all sessions together.
    pub max_tokens: u64,
    /// USD of all sessions together.
    pub max_cost_usd: f64,
}

/// A word of a fixed set in the file.
trait ConfigWord: Copy + 'static {
    const ALL: &'static [Self];
    fn word(self) -> &'static str;
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The word in the file.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The value that the word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl ConfigWord for $name {
            const ALL: &'static [Self] = $name::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// The agent CLIs that the runner knows how to call.
    BackendKind {
        /// OpenAI's codex.
        Codex = "codex",
        /// Anthropic's claude.
        Claude = "claude",
        /// opencode.
        Opencode = "opencode",
        /// Any command that writes the report itself.
        Command = "command",
    }
}

words! {
    /// What belongs to a person and can be let into sessions.
    InheritPart {
        /// MCP servers.
        Mcp = "mcp",
        /// Hooks and plugins.
        Hooks = "hooks",
        /// Settings.
        Settings = "settings",
        /// Instructions in the person's own folder.
        Instructions = "instructions",
    }
}

words! {
    /// What the loop does after a timeout.
    OnTimeout {
        /// It ends.
        Stop = "stop",
        /// It goes on with the next iteration.
        Retry = "retry",
    }
}

words! {
    /// What a clean checkout has beside the files of its commit and what setup makes.
    CheckoutKind {
        /// The build outputs of earlier verdicts.
        Warm = "warm",
        /// Nothing.
        Cold = "cold",
    }
}

words! {
    /// What counts for tests that sessions changed since the run began.
    OriginalTests {
        /// Nothing is said about them.
        Off = "off",
        /// They are pointed out.
        Report = "report",
        /// The guard must be green with the tests of the run's start, too.
        Require = "require",
    }
}

words! {
    /// How strictly writes are confined.
    SandboxMode {
        /// Not at all.
        Off = "off",
        /// By the best mechanism there is.
        Auto = "auto",
        /// As `auto`, but without a mechanism nothing runs.
        Required = "required",
    }
}

/// One thing that is wrong with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    /// Where, from 1.
    pub line: Option<usize>,
    /// Which key, with its table; empty when the file is no TOML.
    pub key: String,
    /// What is wrong, as a lowercase fragment.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl Config {
    /// Reads the file; missing keys take their defaults. Otherwise all findings, by
    /// line.
    pub fn parse(text: &str) -> Result<Config, Vec<ConfigFinding>> {
        read::read(text)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_attempts_default: 3,
            max_iterations: 100,
            iteration_timeout_secs: 1800,
            executor_output_limit_bytes: 1_000_000,
            guard_output_limit_bytes: 1_000_000,
            prompt_budget_bytes: 40_000,
            workspace: WorkspaceConfig::default(),
            guard: GuardConfig::default(),
            run_loop: LoopConfig::default(),
            executor: ExecutorConfig::default(),
            commit: CommitConfig::default(),
            prices: BTreeMap::new(),
            notify: NotifyConfig::default(),
            budget: BudgetConfig::default(),
            sandbox: SandboxConfig::default(),
            fleet: FleetConfig::default(),
        }
    }
}

impl Default for GuardConfig {
    fn default() -> Self {
        GuardConfig {
            command: strings(&["just", "ci"]),
            protected: strings(&["justfile", "Justfile", ".justfile", "Makefile"]),
            protected_values: Vec::new(),
            watched: Vec::new(),
            env: Vec::new(),
            keep: Vec::new(),
            checkout: CheckoutKind::Warm,
            junit: Vec::new(),
            tests: Vec::new(),
            released_tests: Vec::new(),
            original_tests: OriginalTests::Report,
            product: strings(&USUAL_PRODUCT),
        }
    }
}

impl Default for WorkspaceConfig {
    fn default() -> Self {
        WorkspaceConfig {
            root: String::new(),
            setup: Vec::new(),
            setup_inputs: Vec::new(),
            setup_timeout_secs: 900,
            include: Vec::new(),
            submodules: true,
            submodules_may_move: false,
            env: Vec::new(),
        }
    }
}

impl Default for LoopConfig {
    fn default() -> Self {
        LoopConfig {
            max_consecutive_errors: 3,
            on_timeout: OnTimeout::Stop,
            wait_quota: false,
        }
    }
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        ExecutorConfig {
            backend: BackendKind::Codex,
            command: Vec::new(),
            model: String::new(),
            extra_args: Vec::new(),
            idle_timeout_secs: 600,
            inherit: Vec::new(),
            env: BTreeMap::new(),
        }
    }
}

impl Default for CommitConfig {
    fn default() -> Self {
        CommitConfig {
            deny: strings(&[".env*", "*.pem", "*.key", "id_rsa*", "id_ed25519*"]),
            max_file_bytes: 10_485_760,
        }
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests;
