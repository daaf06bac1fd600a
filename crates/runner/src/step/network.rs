//! What a child can reach: how a rule of the config is kept here, and the proxy of one child.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runner_core::config::{ChildKind, Config, NetworkConfig, NetworkRule, SandboxMode};
use runner_core::text::{cut_chars, escape_path};
use runner_exec::{Helper, Input};
use runner_sandbox::{Mechanism, NetworkAccess, PROXY_VARIABLES, SandboxSupport};

use crate::error::{Error, ErrorCode, Result};

/// So many names are told of one child; of the rest how many they are.
const TOLD: usize = 20;

/// What a proxy says when it listens, and the longest that it may take to say what it refused.
const READY: &[u8] = b"ready\n";
const LAST_WORDS: Duration = Duration::from_secs(5);

/// From these on Landlock confines TCP, and sockets without a path.
const TCP_ABI: u32 = 4;
const ABSTRACT_ABI: u32 = 6;

/// What of a network can be kept from children here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkSupport {
    /// Bubblewrap gives them one of their own.
    pub namespace: bool,
    /// Whether they run in bubblewrap.
    pub bubblewrap: bool,
    /// Landlock's version; 0 without it.
    pub landlock: u32,
}

/// How a rule is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMeans {
    /// There is nothing to keep.
    Open,
    /// The same, without the sockets of others that have no path.
    OpenWithoutAbstract,
    /// By a network of its own.
    Namespace,
    /// By that and a proxy.
    Proxy,
    /// For TCP alone, by Landlock.
    WithoutTcp,
    /// Not at all.
    Nothing,
}

impl NetworkSupport {
    /// None.
    pub(crate) const NONE: NetworkSupport = NetworkSupport {
        namespace: false,
        bubblewrap: false,
        landlock: 0,
    };

    /// What there is; a namespace is tried only where a rule asks for one.
    pub fn find(mechanism: &Mechanism, support: &SandboxSupport, config: &NetworkConfig) -> Self {
        let landlock = *support.landlock.as_ref().unwrap_or(&0);
        let wanted = ChildKind::ALL
            .into_iter()
            .any(|kind| *config.rule(kind) != NetworkRule::Open);
        match mechanism {
            Mechanism::Bubblewrap { program } => NetworkSupport {
                namespace: wanted && runner_sandbox::network_namespace(program).is_ok(),
                bubblewrap: true,
                landlock,
            },
            Mechanism::Landlock => NetworkSupport {
                landlock,
                ..NetworkSupport::NONE
            },
            Mechanism::None => NetworkSupport::NONE,
        }
    }

    /// How a rule is kept.
    pub fn means(self, rule: &NetworkRule) -> RuleMeans {
        match rule {
            // Landlock itself keeps them off wherever it can.
            NetworkRule::Open if self.bubblewrap && self.landlock >= ABSTRACT_ABI => {
                RuleMeans::OpenWithoutAbstract
            }
            NetworkRule::Open => RuleMeans::Open,
            NetworkRule::Off if self.namespace => RuleMeans::Namespace,
            NetworkRule::Off if self.landlock >= TCP_ABI => RuleMeans::WithoutTcp,
            NetworkRule::Agent | NetworkRule::Hosts(_) if self.namespace => RuleMeans::Proxy,
            _ => RuleMeans::Nothing,
        }
    }

    /// Refuses a config that requires what cannot be kept.
    pub fn check(self, config: &Config) -> Result<()> {
        if config.sandbox.mode != SandboxMode::Required {
            return Ok(());
        }
        for (kind, rule) in rules(config) {
            if self.means(rule) == RuleMeans::Nothing {
                let message = format!(
                    "[sandbox] mode = \"required\", but [sandbox.network] {} = {} cannot be kept here",
                    kind.as_str(),
                    shown(rule)
                );
                return Err(Error::new(ErrorCode::Config, message).hint(REMEDY));
            }
        }
        Ok(())
    }

    /// What a person should know of rules that are kept in part or not at all.
    pub fn notes(self, config: &Config) -> Vec<String> {
        let all = rules(config).into_iter();
        let notes = all.filter_map(|(kind, rule)| {
            let (kind, rule_text) = (kind.as_str(), shown(rule));
            let what = match self.means(rule) {
                RuleMeans::WithoutTcp => {
                    "is kept for TCP alone, its own loopback included: UDP stays open"
                }
                RuleMeans::Nothing => "cannot be kept here: the network is open to it",
                _ => return None,
            };
            Some(format!("[sandbox.network] {kind} = {rule_text} {what}"))
        });
        notes.collect()
    }
}

/// What gives children a network of their own.
const REMEDY: &str = "install bubblewrap, or let it make network namespaces (in a container: CAP_NET_ADMIN), or set the rule to \"open\"";

fn rules(config: &Config) -> [(ChildKind, &NetworkRule); 3] {
    ChildKind::ALL.map(|kind| (kind, config.sandbox.network.rule(kind)))
}

/// A rule as the config has it.
pub(crate) fn shown(rule: &NetworkRule) -> String {
    match rule {
        NetworkRule::Open => "\"open\"".to_owned(),
        NetworkRule::Off => "\"off\"".to_owned(),
        NetworkRule::Agent => "\"agent\"".to_owned(),
        NetworkRule::Hosts(hosts) => format!("{hosts:?}"),
    }
}

/// Sentences about names that were refused to the children of a run, until they are recorded.
#[derive(Clone, Debug, Default)]
pub struct RefusedHosts(Arc<Mutex<Vec<String>>>);

impl RefusedHosts {
    fn add(&self, sentences: &[String]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sentence in sentences {
            if !all.contains(sentence) {
                all.push(sentence.clone());
            }
        }
    }

    /// Hands them out, once.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The way of one child to the network: to be kept until it has ended.
#[derive(Debug)]
pub struct ChildNetwork {
    kind: ChildKind,
    /// What the child is given.
    pub access: NetworkAccess,
    proxy: Option<Helper>,
    refused: Option<RefusedHosts>,
}

/// What a child's network is made of.
pub struct NetworkInput<'a> {
    /// What the child is.
    pub kind: ChildKind,
    /// The config.
    pub config: &'a Config,
    /// What can be kept here.
    pub support: NetworkSupport,
    /// A folder that is to be made, for the proxy's socket.
    pub socket_folder: PathBuf,
    /// Who is told what was refused.
    pub refused: Option<RefusedHosts>,
}

impl ChildNetwork {
    /// Everything.
    pub fn open() -> Self {
        ChildNetwork {
            kind: ChildKind::Session,
            access: NetworkAccess::Open,
            proxy: None,
            refused: None,
        }
    }

    /// As the config has it, with its proxy listening where there is one.
    pub fn begin(input: NetworkInput<'_>) -> Result<Self> {
        let rule = input.config.sandbox.network.rule(input.kind);
        let mut network = ChildNetwork {
            kind: input.kind,
            access: NetworkAccess::Open,
            proxy: None,
            refused: input.refused,
        };
        network.access = match input.support.means(rule) {
            RuleMeans::Open | RuleMeans::Nothing => NetworkAccess::Open,
            RuleMeans::OpenWithoutAbstract => NetworkAccess::OpenWithoutAbstract,
            RuleMeans::Namespace => NetworkAccess::Off,
            RuleMeans::WithoutTcp => NetworkAccess::WithoutTcp,
            RuleMeans::Proxy => {
                let hosts = match rule {
                    NetworkRule::Hosts(hosts) => hosts.clone(),
                    _ => super::agent_hosts::of(input.config),
                };
                let (proxy, socket) = start(&hosts, &input.socket_folder)
                    .map_err(|why| Error::new(ErrorCode::Io, why))?;
                network.proxy = Some(proxy);
                NetworkAccess::Proxy(socket)
            }
        };
        Ok(network)
    }

    /// The environment of the child: a proxy of the user's is out of its reach.
    pub fn environment(&self, env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
        let is_open = matches!(
            self.access,
            NetworkAccess::Open | NetworkAccess::OpenWithoutAbstract
        );
        let is_proxy = |name: &OsStr| {
            PROXY_VARIABLES
                .iter()
                .any(|known| name == OsStr::new(known))
        };
        env.into_iter()
            .filter(|(name, _)| is_open || !is_proxy(name))
            .collect()
    }

    /// Ends the proxy: sentences about what it refused.
    pub fn end(&mut self) -> Vec<String> {
        let Some(mut proxy) = self.proxy.take() else {
            return Vec::new();
        };
        proxy.stdin = None;
        // It ends at once. One that does not is ended with this value.
        if !matches!(proxy.read_for(Some(LAST_WORDS)), Ok(true)) {
            return Vec::new();
        }
        let said = proxy
            .output()
            .map(|output| output.stdout)
            .unwrap_or_default();
        let sentences = sentences(self.kind, &said);
        if let Some(refused) = &self.refused {
            refused.add(&sentences);
        }
        sentences
    }
}

impl Drop for ChildNetwork {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a proxy said, as sentences for people.
fn sentences(kind: ChildKind, said: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(said);
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| escape_path(cut_chars(line, 400).as_bytes()))
        .collect();
    if lines.len() > TOLD {
        let more = lines.len() - TOLD;
        lines.truncate(TOLD);
        lines.push(format!("{more} or more names besides: not allowed"));
    }
    let who = match kind {
        ChildKind::Setup => "setup".to_owned(),
        other => format!("the {}", other.as_str()),
    };
    let sentences = lines.iter().map(|line| format!("{who} asked for {line}"));
    sentences.collect()
}

/// What is added to the log of a child that was refused something.
pub(crate) fn about_refused(refused: &[String]) -> String {
    if refused.is_empty() {
        return String::new();
    }
    format!("\nrunner: {}\n", refused.join("\nrunner: "))
}

/// What a log of a red guard ends with where that did not have the open network.
pub(crate) fn about_closed(config: &Config, access: &NetworkAccess) -> Option<String> {
    if matches!(
        access,
        NetworkAccess::Open | NetworkAccess::OpenWithoutAbstract
    ) {
        return None;
    }
    let rule = config.sandbox.network.rule(ChildKind::Guard);
    let had = match rule {
        NetworkRule::Off => "ran without a network",
        _ => "could reach some hosts only",
    };
    let rule = shown(rule);
    Some(format!(
        "\nrunner: this guard {had} ([sandbox.network] guard = {rule})\n"
    ))
}

/// Starts a proxy: it listens when this returns.
fn start(hosts: &[String], folder: &Path) -> std::result::Result<(Helper, PathBuf), String> {
    let cannot = |error: std::io::Error| format!("cannot start the proxy: {error}");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(folder)
        .map_err(cannot)?;
    let socket = folder.join("proxy");
    #[allow(clippy::disallowed_methods)] // Described here, started by runner-exec.
    let mut command = Command::new("/proc/self/exe");
    command.arg("__proxy").arg("--socket").arg(&socket);
    for host in hosts {
        command.args(["--host", host]);
    }
    // It needs none of it, and so cannot lose it.
    for (name, _) in std::env::vars_os() {
        command.env_remove(name);
    }
    let mut proxy = Helper::spawn(&command, Input::Pipe).map_err(cannot)?;
    let (said, more) = proxy.read_up_to(READY.len() - 1).map_err(cannot)?;
    if more && READY.starts_with(&said) {
        return Ok((proxy, socket));
    }
    let output = proxy.output().map_err(cannot)?;
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("cannot start the proxy: {words}"))
}

#[cfg(test)]
mod tests {
    use super::RuleMeans::{Namespace, Nothing, Open, OpenWithoutAbstract, Proxy, WithoutTcp};
    use super::*;

    #[test]
    fn how_rules_are_kept() {
        let list = NetworkRule::Hosts(vec!["a.b".to_owned()]);
        let rules = [
            NetworkRule::Open,
            NetworkRule::Off,
            NetworkRule::Agent,
            list,
        ];
        for (namespace, bubblewrap, landlock, expected) in [
            (
                true,
                true,
                6,
                [OpenWithoutAbstract, Namespace, Proxy, Proxy],
            ),
            (true, true, 5, [Open, Namespace, Proxy, Proxy]),
            (true, true, 0, [Open, Namespace, Proxy, Proxy]),
            (false, true, 4, [Open, WithoutTcp, Nothing, Nothing]),
            (false, true, 3, [Open, Nothing, Nothing, Nothing]),
            (false, false, 7, [Open, WithoutTcp, Nothing, Nothing]),
            (false, false, 3, [Open, Nothing, Nothing, Nothing]),
            (false, false, 0, [Open, Nothing, Nothing, Nothing]),
        ] {
            let support = NetworkSupport {
                namespace,
                bubblewrap,
                landlock,
            };
            let means = rules.each_ref().map(|rule| support.means(rule));
            assert_eq!(means, expected, "{support:?}");
        }
    }

    #[test]
    fn only_required_refuses() {
        let config = |mode: &str, rule: &str| {
            Config::parse(&format!(
                "[sandbox]\nmode = \"{mode}\"\n[sandbox.network]\nguard = {rule}\n"
            ))
            .unwrap()
        };
        let landlock = NetworkSupport {
            landlock: 6,
            ..NetworkSupport::NONE
        };
        for (mode, rule, support, refused, noted) in [
            ("required", "[\"a.b\"]", landlock, true, 1),
            ("auto", "[\"a.b\"]", landlock, false, 1),
            ("required", "\"off\"", landlock, false, 1),
            ("required", "\"off\"", NetworkSupport::NONE, true, 1),
            ("required", "\"open\"", NetworkSupport::NONE, false, 0),
        ] {
            let config = config(mode, rule);
            assert_eq!(support.check(&config).is_err(), refused, "{mode} {rule}");
            assert_eq!(support.notes(&config).len(), noted, "{mode} {rule}");
        }
        let words = landlock
            .check(&config("required", "[\"a.b\"]"))
            .unwrap_err()
            .message;
        assert!(words.contains("guard = [\"a.b\"]"), "{words}");
    }

    #[test]
    fn what_was_refused_in_sentences() {
        let said = b"x.y: not allowed\n\x1b[31mz: not allowed\n";
        assert_eq!(
            sentences(ChildKind::Session, said),
            [
                "the session asked for x.y: not allowed",
                "the session asked for \\x1b[31mz: not allowed"
            ]
        );
        let many = (0..101).map(|n| format!("n{n}: not allowed\n"));
        let many = many.collect::<Vec<_>>().concat();
        let told = sentences(ChildKind::Setup, many.as_bytes());
        assert_eq!(told.len(), TOLD + 1);
        assert_eq!(
            told.last().unwrap(),
            "setup asked for 81 or more names besides: not allowed"
        );
        let refused = RefusedHosts::default();
        refused.add(&told[..2]);
        refused.add(&told[1..3]);
        assert_eq!(refused.take(), &told[..3]);
        assert!(refused.take().is_empty());
    }
}
