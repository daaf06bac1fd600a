//! What a child can reach: the whole network, nothing, or what a proxy lets it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// Where a child inside bubblewrap finds this program and the socket of its proxy: in its own /dev,
/// which nothing of the user's hides.
const PROGRAM: &str = "/dev/.runner/program";
const SOCKET: &str = "/dev/.runner/proxy";

/// What a child can reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// Everything that its user can.
    #[default]
    Open,
    /// The same, but for the sockets of other programs that have no path in the file system
    /// (bubblewrap only: Landlock keeps them off wherever it can).
    OpenWithoutAbstract,
    /// A loopback of its own (bubblewrap only).
    Off,
    /// No connection over TCP, and no port; other protocols are left open.
    WithoutTcp,
    /// A loopback of its own, and on it a way to the proxy that listens at this socket (bubblewrap
    /// only).
    Proxy(PathBuf),
}

impl NetworkAccess {
    /// Whether it is a network namespace of its own.
    pub(crate) fn is_namespace(&self) -> bool {
        matches!(self, Self::Off | Self::Proxy(_))
    }

    /// The words for the launcher that becomes the program: it also takes away system calls.
    fn launcher_words(&self) -> Vec<OsString> {
        let words: &[&str] = match self {
            Self::Open | Self::Off => &[],
            Self::OpenWithoutAbstract => &["--no-abstract"],
            Self::WithoutTcp => &["--no-abstract", "--no-tcp"],
            Self::Proxy(_) => &["--proxy", SOCKET],
        };
        let all = std::iter::once("--files-open").chain(words.iter().copied());
        all.map(OsString::from).collect()
    }

    /// The mounts that the launcher needs inside bubblewrap, and the words before the program.
    pub(crate) fn inside_bubblewrap(
        &self,
        launcher: &[OsString],
    ) -> (Vec<OsString>, Vec<OsString>) {
        let Some((program, rest)) = launcher.split_first() else {
            return (Vec::new(), Vec::new());
        };
        // Inside bubblewrap `/proc/self/exe` would be bubblewrap.
        let found = Path::new(program).canonicalize();
        let is_needed = matches!(self, Self::WithoutTcp | Self::Proxy(_));
        if found.is_err() && !is_needed {
            // Replaced by an update meanwhile: not worth refusing the child.
            return (Vec::new(), Vec::new());
        }
        let program = found.map_or_else(|_| program.clone(), Into::into);
        let mut mounts: Vec<OsString> = vec!["--ro-bind".into(), program, PROGRAM.into()];
        if let Self::Proxy(socket) = self {
            mounts.extend(["--bind".into(), socket.into(), SOCKET.into()]);
        }
        let mut words: Vec<OsString> = vec![PROGRAM.into()];
        words.extend(rest.iter().cloned());
        words.extend(self.launcher_words());
        words.push("--".into());
        (mounts, words)
    }
}

/// What the launcher takes away of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NetworkLimits {
    /// Files are somebody else's matter.
    pub(crate) files_open: bool,
    pub(crate) no_abstract: bool,
    pub(crate) no_tcp: bool,
    pub(crate) proxy: Option<PathBuf>,
}

impl NetworkLimits {
    /// Takes away what is left to this process where files are somebody else's matter.
    pub(crate) fn restrict(&self) -> Result<(), String> {
        if !self.no_abstract && !self.no_tcp {
            return Ok(());
        }
        let status = self.enforce().map_err(|error| error.to_string())?;
        if self.no_tcp && status.ruleset == RulesetStatus::NotEnforced {
            return Err("the kernel does not confine the network".to_owned());
        }
        Ok(())
    }

    fn enforce(&self) -> Result<landlock::RestrictionStatus, RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        let ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
        // Rules about files that come on top would else refuse every rename between two folders.
        let refer = AccessFs::Refer;
        self.without_tcp(ruleset.handle_access(refer)?)?
            .create()?
            .add_rules(path_beneath_rules(["/"], refer))?
            .restrict_self()
    }

    /// A ruleset that refuses TCP too, if that is wanted.
    pub(crate) fn without_tcp(&self, ruleset: Ruleset) -> Result<Ruleset, RulesetError> {
        if !self.no_tcp {
            return Ok(ruleset);
        }
        ruleset
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessNet::from_all(ABI::V4))
            .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
    }

    /// The variables that lead a program to its proxy, once it is there.
    pub(crate) fn enter(&self) -> Result<Vec<(&'static str, String)>, String> {
        let Some(socket) = &self.proxy else {
            return Ok(Vec::new());
        };
        let entry = runner_proxy::enter(socket)
            .map_err(|error| format!("cannot reach the proxy: {error}"))?;
        let url = format!("http://{}", entry.address);
        let to_proxy = PROXY_VARIABLES.iter().map(|name| (*name, url.clone()));
        // What listens in the namespace itself is reached as it is.
        let past_it = ["NO_PROXY", "no_proxy"].map(|name| (name, OWN_HOSTS.to_owned()));
        // Node asks its own variable before it looks at the others.
        let node = std::iter::once(("NODE_USE_ENV_PROXY", "1".to_owned()));
        Ok(to_proxy.chain(past_it).chain(node).collect())
    }
}

/// Variables that name a proxy.
pub const PROXY_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

const OWN_HOSTS: &str = "localhost,127.0.0.1,::1";
