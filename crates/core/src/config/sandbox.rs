//! `[sandbox]`: what sessions, setup and guards can read, write, reach and use up.

use toml::de::DeValue;

use super::reader::{TomlReader, TomlTable, TomlValue};
use super::{BackendKind, SandboxMode};
use crate::text::{cut_chars, escape_path};

const GIB: u64 = 1 << 30;

/// How children are contained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Whether they are confined.
    pub mode: SandboxMode,
    /// Paths that all of them may read although they are hidden by default.
    pub readable: Vec<String>,
    /// Paths outside the project that all of them may write to.
    pub writable: Vec<String>,
    /// Paths that none of them may read, besides those that are hidden by default.
    pub hidden: Vec<String>,
    /// How large the caches of the runner may become.
    pub cache_limit: u64,
    /// `[sandbox.session]`: what sessions may besides.
    pub session: OpenedPaths,
    /// `[sandbox.setup]`: what setup may besides.
    pub setup: OpenedPaths,
    /// `[sandbox.guard]`: what guards may besides.
    pub guard: OpenedPaths,
    /// `[sandbox.network]`
    pub network: NetworkConfig,
    /// `[sandbox.limits]`
    pub limits: SandboxLimits,
}

/// Paths that are opened to one kind of children, `~/x` below the home folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedPaths {
    /// To be read although they are hidden by default.
    pub readable: Vec<String>,
    /// To be written although they lie outside.
    pub writable: Vec<String>,
}

/// The kinds of children that there are, each with a policy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// The agent.
    Session,
    /// What makes the things that a fresh checkout lacks.
    Setup,
    /// What judges the work; it runs code that an agent wrote.
    Guard,
}

impl ChildKind {
    /// Every kind.
    pub const ALL: [ChildKind; 3] = [ChildKind::Session, ChildKind::Setup, ChildKind::Guard];

    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            ChildKind::Session => "session",
            ChildKind::Setup => "setup",
            ChildKind::Guard => "guard",
        }
    }
}

impl SandboxConfig {
    /// What is opened to one kind alone.
    pub fn opened(&self, kind: ChildKind) -> &OpenedPaths {
        match kind {
            ChildKind::Session => &self.session,
            ChildKind::Setup => &self.setup,
            ChildKind::Guard => &self.guard,
        }
    }

    /// What is opened or hidden beside the usual, and to whom, as a person would say it.
    pub fn opened_in_words(&self) -> Vec<String> {
        let opened = self.opened_entries().into_iter();
        let hidden = self
            .hidden
            .iter()
            .map(|path| (path, "hidden from all".to_owned()));
        opened
            .chain(hidden)
            .map(|(path, what)| format!("{path} ({what})"))
            .collect()
    }

    /// The paths that are opened beside the usual, as the file has them, each with what may be done
    /// with it and by whom.
    pub fn opened_entries(&self) -> Vec<(&String, String)> {
        let lists = [(&self.readable, &self.writable, "all")].into_iter();
        let lists = lists.chain(ChildKind::ALL.map(|kind| {
            let opened = self.opened(kind);
            (&opened.readable, &opened.writable, kind.as_str())
        }));
        lists
            .flat_map(|(readable, writable, who)| {
                let read = readable
                    .iter()
                    .map(move |path| (path, format!("read by {who}")));
                let written = writable.iter();
                read.chain(written.map(move |path| (path, format!("written by {who}"))))
            })
            .collect()
    }

    /// What one kind may read besides, as the file has it.
    pub fn readable_for(&self, kind: ChildKind) -> impl Iterator<Item = &String> {
        self.readable.iter().chain(&self.opened(kind).readable)
    }

    /// What one kind may write besides, as the file has it.
    pub fn writable_for(&self, kind: ChildKind) -> impl Iterator<Item = &String> {
        self.writable.iter().chain(&self.opened(kind).writable)
    }
}

/// What children can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Of the agent.
    pub session: NetworkRule,
    /// Of setup.
    pub setup: NetworkRule,
    /// Of the guard.
    pub guard: NetworkRule,
}

impl NetworkConfig {
    /// The rule for one kind.
    pub fn rule(&self, kind: ChildKind) -> &NetworkRule {
        match kind {
            ChildKind::Session => &self.session,
            ChildKind::Setup => &self.setup,
            ChildKind::Guard => &self.guard,
        }
    }
}

/// What one kind of children can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkRule {
    /// Everything that the user can.
    #[default]
    Open,
    /// Nothing but a loopback of its own.
    Off,
    /// The hosts of the chosen agent.
    Agent,
    /// These hosts: names, `*.` before one for all below it, `:port` behind one.
    Hosts(Vec<String>),
}

/// What children may use up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Memory of all sessions together.
    pub memory: MemoryLimit,
    /// Processes and threads of one child.
    pub processes: u64,
    /// By how many bytes the folders of one child may grow.
    pub workspace_growth: u64,
    /// How many bytes must remain on the disk.
    pub free_space: u64,
}

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// In hundredths of what the machine has.
    Percent(u8),
    /// In bytes.
    Bytes(u64),
}

impl MemoryLimit {
    /// In bytes, on a machine with so much.
    pub fn bytes(self, machine: u64) -> u64 {
        match self {
            MemoryLimit::Percent(percent) => machine / 100 * u64::from(percent),
            MemoryLimit::Bytes(bytes) => bytes,
        }
    }
}

impl Default for SandboxConfig {
    fn default() -> Self {
        SandboxConfig {
            mode: SandboxMode::Auto,
            readable: Vec::new(),
            writable: Vec::new(),
            hidden: Vec::new(),
            cache_limit: 20 * GIB,
            session: OpenedPaths::default(),
            setup: OpenedPaths::default(),
            guard: OpenedPaths::default(),
            network: NetworkConfig::default(),
            limits: SandboxLimits::default(),
        }
    }
}

impl Default for SandboxLimits {
    fn default() -> Self {
        SandboxLimits {
            memory: MemoryLimit::Percent(75),
            processes: 4096,
            workspace_growth: 20 * GIB,
            free_space: GIB,
        }
    }
}

/// The keys of the table.
pub(super) const KEYS: &[&str] = &[
    "mode",
    "readable",
    "writable",
    "hidden",
    "cache_limit",
    "session",
    "setup",
    "guard",
    "network",
    "limits",
];

/// The keys of the tables of the three kinds.
pub(super) const OPENED_KEYS: &[&str] = &["readable", "writable"];

/// The keys of the table about the network.
pub(super) const NETWORK_KEYS: &[&str] = &["session", "setup", "guard"];

/// The keys of the table of limits.
pub(super) const LIMIT_KEYS: &[&str] = &["memory", "processes", "workspace_growth", "free_space"];

pub(super) fn read(
    reader: &mut TomlReader<'_>,
    root: TomlTable<'_, '_>,
    backend: BackendKind,
) -> SandboxConfig {
    let default = SandboxConfig::default();
    let table = reader.known_table(root, "sandbox");
    let within = |reader: &mut TomlReader<'_>, key, name| {
        let inner = reader.table(table, key).named(name);
        reader.unknown_keys(inner);
        inner
    };
    let hidden = paths(reader, table, "hidden");
    let session = within(reader, "session", "sandbox.session");
    let setup = within(reader, "setup", "sandbox.setup");
    let guard = within(reader, "guard", "sandbox.guard");
    let network = within(reader, "network", "sandbox.network");
    let limits = within(reader, "limits", "sandbox.limits");
    for table in [table, session, setup, guard] {
        for key in OPENED_KEYS {
            refuse_hidden(reader, table, key, &hidden);
        }
    }
    SandboxConfig {
        mode: reader.word(table, "mode", default.mode),
        readable: paths(reader, table, "readable"),
        writable: paths(reader, table, "writable"),
        hidden,
        cache_limit: size(reader, table, "cache_limit", default.cache_limit),
        session: opened(reader, session),
        setup: opened(reader, setup),
        guard: opened(reader, guard),
        network: NetworkConfig {
            session: rule(reader, network, "session", backend),
            setup: rule(reader, network, "setup", backend),
            guard: rule(reader, network, "guard", backend),
        },
        limits: SandboxLimits {
            memory: memory(reader, limits, default.limits.memory),
            processes: reader.integer(
                limits,
                "processes",
                1..=u64::from(u32::MAX),
                default.limits.processes,
            ),
            workspace_growth: size(
                reader,
                limits,
                "workspace_growth",
                default.limits.workspace_growth,
            ),
            free_space: size(reader, limits, "free_space", default.limits.free_space),
        },
    }
}

fn opened(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>) -> OpenedPaths {
    OpenedPaths {
        readable: paths(reader, table, "readable"),
        writable: paths(reader, table, "writable"),
    }
}

/// Refuses to open what the file hides. A part of that may be opened again.
fn refuse_hidden(
    reader: &mut TomlReader<'_>,
    table: TomlTable<'_, '_>,
    key: &str,
    hidden: &[String],
) {
    let Some(DeValue::Array(items)) = table.get(key).map(TomlValue::get_ref) else {
        return;
    };
    let opened: Vec<String> = items
        .iter()
        .filter_map(|item| item.get_ref().as_str().map(str::to_owned))
        .collect();
    let closed = hidden
        .iter()
        .find(|path| opened.iter().any(|opened| is_at_or_below(path, opened)));
    if let Some(path) = closed {
        let message = format!("opens what [sandbox] hidden hides: `{}`", shown(path));
        let hint = "take one of the two away".to_owned();
        reader.find(table, key, message, Some(hint));
    }
}

/// Whether a path of the file lies at another one or below it.
fn is_at_or_below(path: &str, above: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split('/').filter(|word| !matches!(*word, "" | "."));
        words.map(str::to_owned).collect()
    };
    let is_absolute = |text: &str| text.starts_with('/');
    is_absolute(path) == is_absolute(above) && words(path).starts_with(&words(above))
}

fn paths(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>, key: &str) -> Vec<String> {
    let paths = reader.strings(table, key, Vec::new());
    if paths.iter().any(|path| path.trim().is_empty()) {
        reader.find(table, key, "a path must not be empty", None);
    }
    paths
}

fn rule(
    reader: &mut TomlReader<'_>,
    table: TomlTable<'_, '_>,
    key: &str,
    backend: BackendKind,
) -> NetworkRule {
    const WORDS: &str = "`open`, `off`, `agent` or a list of hosts";
    let Some(value) = table.get(key) else {
        return NetworkRule::Open;
    };
    match value.get_ref() {
        DeValue::String(word) => match word.as_ref() {
            "open" => NetworkRule::Open,
            "off" => NetworkRule::Off,
            "agent" if backend == BackendKind::Command => {
                let message = "`agent` needs an agent whose hosts are known: backend = \"command\" may go anywhere";
                let hint = "list the hosts that it needs: [\"api.example.com\"]".to_owned();
                reader.find(table, key, message, Some(hint));
                NetworkRule::Open
            }
            "agent" => NetworkRule::Agent,
            other => {
                let message = format!("`{}` is not {WORDS}", shown(other));
                let hint = other
                    .contains('.')
                    .then(|| "write hosts as a list: [\"api.example.com\"]".to_owned());
                reader.find(table, key, message, hint);
                NetworkRule::Open
            }
        },
        DeValue::Array(_) => {
            let hosts = reader.strings(table, key, Vec::new());
            for host in &hosts {
                if let Err(why) = check_host(host) {
                    let message = format!("host `{}`: {why}", shown(host));
                    reader.find(table, key, message, None);
                }
            }
            NetworkRule::Hosts(hosts)
        }
        _ => {
            reader.wrong_type(value, table.full_name(key), WORDS);
            NetworkRule::Open
        }
    }
}

/// What is wrong with a host of the list, as a lowercase fragment.
pub fn check_host(text: &str) -> Result<(), &'static str> {
    if text.contains("://") || text.contains('/') {
        return Err("write the name alone, without a scheme or a path");
    }
    let (name, port) = split_port(text);
    if let Some(port) = port
        && port.parse::<u16>().is_ok_and(|port| port > 0).eq(&false)
    {
        return Err("its port is not a number between 1 and 65535");
    }
    let name = name.strip_prefix("*.").unwrap_or(name);
    if name.is_empty() {
        return Err("it has no name");
    }
    if name.contains('*') {
        return Err("`*` stands only before the first dot, as in `*.example.org`");
    }
    let is_address = name.starts_with('[') && name.ends_with(']');
    if is_address
        && name[1..name.len() - 1]
            .parse::<core::net::Ipv6Addr>()
            .is_err()
    {
        return Err("between its brackets is no address of version 6");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !is_address && !name.chars().all(fits) {
        return Err("it is not a name that a host can have");
    }
    Ok(())
}

/// A host of the list, apart from its port.
pub fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        // An address of version 6 stands in brackets.
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    }
}

fn memory(
    reader: &mut TomlReader<'_>,
    table: TomlTable<'_, '_>,
    default: MemoryLimit,
) -> MemoryLimit {
    const KEY: &str = "memory";
    let percent = match table.get(KEY).map(TomlValue::get_ref) {
        Some(DeValue::String(text)) => text.trim().strip_suffix('%').map(str::to_owned),
        _ => None,
    };
    let Some(percent) = percent else {
        let bytes = size(reader, table, KEY, 0);
        return if bytes == 0 {
            default
        } else {
            MemoryLimit::Bytes(bytes)
        };
    };
    if let Ok(percent @ 1..=100) = percent.trim().parse() {
        MemoryLimit::Percent(percent)
    } else {
        reader.find(table, KEY, "must be between 1% and 100%", None);
        default
    }
}

fn size(reader: &mut TomlReader<'_>, table: TomlTable<'_, '_>, key: &str, default: u64) -> u64 {
    let Some(value) = table.get(key) else {
        return default;
    };
    let DeValue::String(text) = value.get_ref() else {
        return reader.integer(table, key, 1..=i64::MAX.unsigned_abs(), default);
    };
    parse_size(text).unwrap_or_else(|| {
        let message = format!("`{}` is not a size", shown(text));
        let hint = "write a whole number of bytes, or one with KiB, MiB, GiB or TiB behind it";
        reader.find(table, key, message, Some(hint.to_owned()));
        default
    })
}

/// `20GiB` and the like, in bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    const UNITS: &[(&str, u32)] = &[("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let text = text.trim();
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (number, shift) = unit.map_or((text, 0), |(name, shift)| {
        (&text[..text.len() - name.len()], *shift)
    });
    let number: u64 = number.trim().parse().ok().filter(|number| *number > 0)?;
    number.checked_mul(1 << shift)
}

/// A size as the file would have it.
pub fn show_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |shift: u32| bytes >> shift > 0 && bytes.trailing_zeros() >= shift;
    match units.iter().find(|(_, shift)| fits(*shift)) {
        Some((name, shift)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn shown(text: &str) -> String {
    escape_path(cut_chars(text, 60).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_in_words() {
        let text = "[sandbox]\nreadable = [\"~/a\"]\n[sandbox.guard]\nwritable = [\"/b\"]\n";
        let config = crate::config::Config::parse(text).unwrap();
        let words = config.sandbox.opened_in_words();
        assert_eq!(words, ["~/a (read by all)", "/b (written by guard)"]);
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("1", Some(1)),
            ("20GiB", Some(20 << 30)),
            (" 3 MiB ", Some(3 << 20)),
            ("1KiB", Some(1024)),
            ("2TiB", Some(2 << 40)),
            ("0", None),
            ("", None),
            ("GiB", None),
            ("1.5GiB", None),
            ("-1", None),
            ("1GB", None),
            ("99999999999999999999", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
        for bytes in [1, 1000, 1024, 3 << 20, 20 << 30, 2 << 40, (1 << 30) + 1] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
        assert_eq!(show_size(20 << 30), "20GiB");
    }

    #[test]
    fn hosts_that_can_be() {
        for text in [
            "a.example",
            "*.example.org:443",
            "localhost:8080",
            "127.0.0.1",
            "[::1]:80",
            "[::1]",
            "a_b-c.d",
        ] {
            assert_eq!(check_host(text), Ok(()), "{text}");
        }
        for (text, words) in [
            ("", "no name"),
            ("*.", "no name"),
            ("https://a.b", "without a scheme"),
            ("a.b/c", "without a scheme"),
            ("a:0", "port"),
            ("a:65536", "port"),
            ("a:", "port"),
            ("a.*.b", "before the first dot"),
            ("*a.b", "before the first dot"),
            ("a b", "not a name"),
            ("[::g]:80", "no address"),
            ("[127.0.0.1]", "no address"),
        ] {
            let why = check_host(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn memory_in_hundredths() {
        assert_eq!(MemoryLimit::Percent(75).bytes(400), 300);
        assert_eq!(MemoryLimit::Bytes(5).bytes(400), 5);
    }
}
