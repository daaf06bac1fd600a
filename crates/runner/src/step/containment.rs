//! Where agent and guard may write, and the temp folder that each of them has alone.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use runner_agents::Invocation;
use runner_core::config::{ChildKind, Config, NetworkConfig, SandboxMode};
use runner_core::paths;
use runner_exec::SpawnFailure;
use runner_sandbox::{Mechanism, WritePolicy};

use crate::checkout::caches::{CacheRequest, ChildCaches};
use crate::checkout::home_view::{self, HomeView};
use crate::checkout::temp_folder::TempFolder;
use crate::checkout::{Checkout, LAYER, beside};
use crate::error::{Error, ErrorCode, Result};
use crate::limits::{self, WrittenFolders};
use crate::search_path::own_search_path;
use crate::step::hidden_paths::{ReadingInput, sockets_of_others};
use crate::step::network::{ChildNetwork, NetworkInput, NetworkSupport, RefusedHosts};
use crate::step::promises;
use crate::step::{environment, file_image};

/// What of `.runner/` a child may write to; the rest is closed, also where
/// nothing lies yet.
const OPEN_STATE: &[&str] = &[".runner/state", paths::NODES_DIR];

/// How this program starts itself as the launcher of the sandbox.
const LAUNCHER: [&str; 2] = ["/proc/self/exe", "__landlock"];

/// How children are contained, chosen once.
#[derive(Clone, Debug)]
pub(crate) struct Containment {
    mechanism: Mechanism,
    /// Whether what is made of memory gets a size.
    has_sizes: bool,
    network: NetworkSupport,
    /// What was refused to its children.
    refused: Option<RefusedHosts>,
}

/// What a choice depends on.
type ChoiceKey = (SandboxMode, NetworkConfig);

/// The choice, made when it is first needed and kept while the config says the
/// same: finding out what there is takes a few milliseconds.
#[derive(Debug, Default)]
pub(crate) struct ContainmentChoice {
    made: RefCell<Option<(ChoiceKey, Containment)>>,
    begun: RefCell<Option<(ChoiceKey, JoinHandle<Result<Containment>>)>>,
}

impl ContainmentChoice {
    /// Begins to find out what there is, beside what else is done until somebody asks.
    pub(crate) fn begin(&self, config: &Config) {
        let key = Self::key(config);
        if config.sandbox.mode == SandboxMode::Off || self.made_for(&key).is_some() {
            return;
        }
        let config = config.clone();
        let spawned = std::thread::Builder::new().spawn(move || Containment::choose(&config));
        *self.begun.borrow_mut() = spawned.ok().map(|thread| (key, thread));
    }

    /// The containment for this config.
    pub(crate) fn for_config(&self, config: &Config) -> Result<Containment> {
        let key = Self::key(config);
        if let Some(containment) = self.made_for(&key) {
            return Ok(containment);
        }
        let begun = self.begun.take().filter(|(begun_for, _)| *begun_for == key);
        let found = begun.and_then(|(_, thread)| thread.join().ok());
        let containment = found.unwrap_or_else(|| Containment::choose(config))?;
        *self.made.borrow_mut() = Some((key, containment.clone()));
        Ok(containment)
    }

    fn key(config: &Config) -> ChoiceKey {
        (config.sandbox.mode, config.sandbox.network.clone())
    }

    fn made_for(&self, key: &ChoiceKey) -> Option<Containment> {
        let made = self.made.borrow();
        let (made_for, containment) = made.as_ref()?;
        (made_for == key).then(|| containment.clone())
    }
}

/// What a child is to be started with.
pub(crate) struct ContainedCommand {
    /// The wrapped argv.
    pub(crate) argv: Vec<OsString>,
    /// The environment, with the child's own temp folder in it.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Why it cannot be started, where it is to be contained: nothing is tried then, because what
    /// starts after all would do so without its wrapper.
    pub(crate) cannot_start: Option<SpawnFailure>,
    /// Whether its first process only watches over the others.
    pub(crate) monitor: bool,
    /// What a person should know.
    pub(crate) notes: Vec<String>,
    /// To be kept until the child has ended.
    pub(crate) held: HeldFolders,
    /// The same; it says what was refused to the child.
    pub(crate) network: ChildNetwork,
}

/// Folders that a child has alone, gone with this value.
pub(crate) struct HeldFolders {
    caches: Option<ChildCaches>,
    temp: TempFolder,
}

impl HeldFolders {
    /// Where the child writes, if it works in this folder.
    pub(crate) fn written_in(&self, folder: &Path) -> WrittenFolders {
        let mut own = vec![folder.to_owned(), self.temp.path().to_owned()];
        own.push(self.temp.beside("home"));
        let caches = self.caches.as_ref();
        let own_caches = caches.and_then(ChildCaches::own_folder);
        WrittenFolders {
            shared: match (caches, &own_caches) {
                (Some(caches), None) => vec![caches.folder.clone()],
                _ => Vec::new(),
            },
            own: own.into_iter().chain(own_caches).collect(),
        }
    }
}

impl Containment {
    /// None at all.
    pub(crate) const NONE: Containment = Containment {
        mechanism: Mechanism::None,
        has_sizes: false,
        network: NetworkSupport::NONE,
        refused: None,
    };

    /// The best mechanism that there is, as far as the config wants one.
    pub(crate) fn choose(config: &Config) -> Result<Self> {
        if config.sandbox.mode == SandboxMode::Off {
            return Ok(Containment::NONE);
        }
        let support = runner_sandbox::detect(own_search_path());
        let mechanism = runner_sandbox::choose(config.sandbox.mode, &support)
            .map_err(|refusal| Error::new(ErrorCode::Config, refusal.message).hint(refusal.hint))?;
        let network = NetworkSupport::find(&mechanism, &support, &config.sandbox.network);
        network.check(config)?;
        promises::check(config, &mechanism, &support)?;
        let has_sizes = support.bubblewrap.as_ref().is_ok_and(|it| it.has_sizes);
        Ok(Containment {
            mechanism,
            has_sizes,
            network,
            refused: Some(RefusedHosts::default()),
        })
    }

    /// Sentences about what was refused to its children and is not recorded yet.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        let refused = self.refused.as_ref();
        refused.map_or_else(Vec::new, RefusedHosts::take)
    }

    /// The word in `meta.json`.
    pub(crate) fn as_str(&self) -> &'static str {
        self.mechanism.as_str()
    }

    /// Whether a child sees its folder at the path of the project.
    pub(crate) fn has_mounts(&self) -> bool {
        matches!(self.mechanism, Mechanism::Bubblewrap { .. })
    }

    /// Where a child sees the folder that it works in.
    pub(crate) fn seen<'a>(&self, checkout: &'a Checkout) -> &'a Path {
        if self.has_mounts() {
            checkout.seen_at()
        } else {
            checkout.project.root()
        }
    }

    /// Whether changes can be laid over a folder: tried once, where those of a checkout will lie.
    fn has_layers(&self, checkout: &Path) -> bool {
        self.has_mounts() && layers_work_beside(checkout)
    }

    /// Begins to find that out while a session works in a checkout.
    pub(crate) fn begin_layers(&self, checkout: &Checkout) {
        if self.has_mounts() {
            let checkout = checkout.path().to_owned();
            // Where no thread can be had it is found out when it is needed.
            let _ = std::thread::Builder::new().spawn(move || layers_work_beside(&checkout));
        }
    }

    /// Whether a child can have a network of its own. Known where a rule of the config asks for it.
    pub(crate) fn has_namespace(&self) -> bool {
        self.network.namespace
    }

    /// Whether there is any.
    pub(crate) fn is_on(&self) -> bool {
        self.mechanism != Mechanism::None
    }

    /// What a person should know before a run: `auto` that found nothing.
    pub(crate) fn note(&self, config: &Config) -> Option<String> {
        let network = self.network.notes(config).join("; ");
        match self.note_about_files(config) {
            None => (!network.is_empty()).then_some(network),
            Some(note) if network.is_empty() => Some(note),
            Some(note) => Some(format!("{note}; {network}")),
        }
    }

    fn note_about_files(&self, config: &Config) -> Option<String> {
        match (config.sandbox.mode, &self.mechanism) {
            (SandboxMode::Off, _) | (_, Mechanism::Bubblewrap { .. }) => None,
            (_, Mechanism::Landlock) => Some(
                "agent, setup and guard are confined by Landlock: they write in folders of their own only, and see them \
                 at other paths than the project's; shared memory and /tmp itself are closed to them; bubblewrap \
                 does more"
                    .to_owned(),
            ),
            (_, Mechanism::None) => Some(
                "[sandbox] mode = \"auto\" found neither bubblewrap nor Landlock: agent and guard run without one"
                    .to_owned(),
            ),
        }
    }

    /// The words of the wrapper if it was the wrapper that failed.
    pub(crate) fn setup_failure(&self, exit: Option<i32>, output: &[u8]) -> Option<String> {
        self.mechanism.setup_failure(exit?, output)
    }

    /// Wraps an argv. One that cannot be started is not wrapped, and says why: inside
    /// a wrapper it would look like a program that failed.
    pub(crate) fn wrap(
        &self,
        argv: &[OsString],
        roots: &ContainmentInput<'_>,
    ) -> Result<ContainedCommand> {
        let temp = TempFolder::make(roots.checkout.path())?;
        let cannot_start = self.is_on().then(|| cannot_start(argv, roots)).flatten();
        if !self.is_on() || cannot_start.is_some() {
            return Ok(ContainedCommand {
                argv: argv.to_vec(),
                cannot_start,
                env: environment::with_temp_folder(roots.env, temp.path()),
                monitor: false,
                notes: Vec::new(),
                network: ChildNetwork::open(),
                held: HeldFolders { caches: None, temp },
            });
        }
        let caches = roots.caches(|| self.has_layers(roots.checkout.path()))?;
        let mut policy = roots.policy(argv, self.has_mounts(), &temp)?;
        policy.writable.push(caches.folder.clone());
        policy.layered.extend(caches.layered.clone());
        let home = roots.home_view(&mut policy, self.has_mounts(), (&temp, &caches))?;
        let network = ChildNetwork::begin(NetworkInput {
            kind: roots.kind,
            config: roots.config,
            support: self.network,
            socket_folder: temp.beside("net"),
            refused: self.refused.clone(),
        })?;
        policy.network = network.access.clone();
        // Half of what it may have: the rest is for what runs.
        let memory = limits::memory_limit(roots.config);
        policy.shared_memory = self.has_sizes.then_some((memory / 2).max(1));
        let plan = policy
            .plan()
            .map_err(|refusal| Error::new(ErrorCode::Config, refusal.message).hint(refusal.hint))?;
        let mut notes: Vec<String> = caches.note.iter().cloned().collect();
        let left_out = plan.left_out.iter().filter(|it| !it.absent).map(|it| {
            format!(
                "not writable in the sandbox: {} ({})",
                it.path.display(),
                it.reason
            )
        });
        notes.extend(left_out);
        let launcher = LAUNCHER.map(OsString::from);
        let mut private = caches.variables();
        if !self.has_mounts() {
            // With mounts they are seen where the child looks for them.
            private.push((environment::TEMP_FOLDER.into(), temp.path().into()));
            private.extend(home.map(|it| ("HOME".into(), it.folder.into())));
        }
        let env = environment::with_private(roots.env, private);
        Ok(ContainedCommand {
            argv: plan.wrap(&self.mechanism, &launcher, argv),
            cannot_start: None,
            env: network.environment(env),
            monitor: self.mechanism.has_monitor(),
            notes,
            network,
            held: HeldFolders {
                caches: Some(caches),
                temp,
            },
        })
    }
}

/// Whether changes can be laid over a folder on the disk of a checkout, whose lock is held.
fn layers_work_beside(checkout: &Path) -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        let scratch = beside(checkout, LAYER);
        let works = runner_sandbox::layers_work(LAUNCHER[0].as_ref(), &scratch);
        // What stays is removed before the next verdict there begins, or with the checkout.
        let _ = file_image::remove_closed(&scratch);
        works
    })
}

/// The folders that every program leaves things in: each child sees one of its own in their place.
pub(crate) fn shared_temp_folders() -> Vec<PathBuf> {
    let usual = runner_sandbox::SHARED_TEMP.iter().map(PathBuf::from);
    let mut folders = vec![std::env::temp_dir()];
    folders.extend(usual.filter(|folder| folder.is_dir()));
    folders.sort_by_cached_key(|folder| folder.canonicalize().ok());
    folders.dedup_by_key(|folder| folder.canonicalize().ok());
    folders
}

/// What the command line and the environment of a child name: that stays in sight where the temp
/// folders are replaced by a private one. With a program come the files that lie beside it, and with
/// a folder of programs everything around it, because programs are links to elsewhere.
fn named_paths(
    argv: &[OsString],
    env: &[(OsString, OsString)],
    shared: &[PathBuf],
) -> Vec<PathBuf> {
    // One of them may lie in another.
    let around = |path: &Path| {
        let around = shared.iter().filter(|it| path.starts_with(it));
        around.max_by_key(|it| it.components().count()).cloned()
    };
    let words = argv.iter().map(PathBuf::from);
    let beside = words.map(|path| match path.parent() {
        Some(folder) if !shared.iter().any(|it| it == folder) && path.is_file() => {
            folder.to_owned()
        }
        _ => path,
    });
    let values = env.iter().filter(|(name, _)| name != "TMPDIR");
    let listed = values.flat_map(|(name, value)| {
        let is_path = name == "PATH";
        std::env::split_paths(value).map(move |path| {
            let shared = around(&path).filter(|_| is_path);
            let rest = shared.as_ref().and_then(|it| path.strip_prefix(it).ok());
            let first = rest.and_then(|rest| rest.components().next());
            match (shared.as_ref(), first) {
                (Some(shared), Some(first)) => shared.join(first),
                _ => path.clone(),
            }
        })
    });
    let mut paths: Vec<PathBuf> = beside
        .chain(listed)
        .filter(|path| around(path).is_some_and(|it| it != *path))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn cannot_start(argv: &[OsString], roots: &ContainmentInput<'_>) -> Option<SpawnFailure> {
    let folder = roots.checkout.project.root();
    let program = argv.first().map_or(OsStr::new(""), OsString::as_os_str);
    let refused = environment::resolve(program, folder, roots.env).err()?;
    Some(SpawnFailure {
        not_found: refused.not_found,
        message: refused.message,
    })
}

/// Where the agent's CLI keeps its own files, by the environment that it gets.
pub(crate) fn agent_homes(invocation: &Invocation, env: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let value = |variable: &str| {
        let last = env.iter().rev().find(|(name, _)| name == variable);
        last.map(|(_, value)| value)
            .filter(|value| !value.is_empty())
    };
    let mut homes = Vec::new();
    let mut unused: Vec<&str> = Vec::new();
    for moved in invocation.moved_homes {
        if let Some(value) = value(moved.variable) {
            let folder = Path::new(value);
            homes.push(if moved.below.is_empty() {
                folder.to_owned()
            } else {
                folder.join(moved.below)
            });
            unused.extend(moved.instead_of);
        }
    }
    if let Some(home) = value("HOME") {
        let used = invocation
            .writable_home
            .iter()
            .filter(|path| !unused.contains(path));
        homes.extend(used.map(|path| Path::new(home).join(path)));
    }
    homes
}

/// Makes the folders among them that are not there yet: in its sandbox the CLI could
/// not do it by itself, and ends at once.
pub(crate) fn make_homes(homes: &[PathBuf]) {
    for home in homes {
        // A name with an ending is a file's.
        if home.is_absolute() && home.extension().is_none() && home.symlink_metadata().is_err() {
            // The CLI says what is wrong if it needs it.
            let _ = std::fs::create_dir_all(home);
        }
    }
}

/// What a child's write policy is made of.
pub(crate) struct ContainmentInput<'a> {
    /// What it is, and so which policy it has.
    pub(crate) kind: ChildKind,
    /// Where it works.
    pub(crate) checkout: &'a Checkout,
    pub(crate) config: &'a Config,
    /// The child's environment.
    pub(crate) env: &'a [(OsString, OsString)],
    /// The folder where the agent leaves its report; a guard has none.
    pub(crate) report: Option<&'a Path>,
    /// Folders and files outside the project that the agent's CLI writes to.
    pub(crate) agent_homes: &'a [PathBuf],
}

impl ContainmentInput<'_> {
    fn policy(
        &self,
        argv: &[OsString],
        has_mounts: bool,
        temp: &TempFolder,
    ) -> Result<WritePolicy> {
        let root = self.checkout.project.root();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let mut writable: Vec<PathBuf> = OPEN_STATE.iter().map(|path| root.join(path)).collect();
        writable.extend(self.report.map(Path::to_owned));
        let mut read_only = vec![self.checkout.project.runner_dir()];
        read_only.extend(paths::OWNED.iter().map(|path| root.join(path)));
        read_only.extend(self.checkout.closed.iter().cloned());
        writable.extend(self.agent_homes.iter().cloned());
        let mut opened = Vec::new();
        for text in self.config.sandbox.writable_for(self.kind) {
            let path =
                runner_sandbox::expand_home(text, home.as_deref(), root).map_err(|message| {
                    Error::new(ErrorCode::Config, format!("[sandbox] writable: {message}"))
                })?;
            opened.push(path.clone());
            writable.push(path);
        }
        // As the private home has it.
        let home = home.map(|home| home.canonicalize().unwrap_or(home));
        // Landlock's monitor closes all sockets that nobody opened.
        let others = has_mounts.then(sockets_of_others).unwrap_or_default();
        let reading = ReadingInput {
            kind: self.kind,
            config: self.config,
            home: home.as_deref(),
            var: &|name| std::env::var_os(name),
            other_sockets: &others,
            project: root,
            agent_homes: self.agent_homes,
            argv,
        };
        let reading = reading.rules()?;
        let shared = shared_temp_folders();
        let mut in_sight = reading.in_sight.clone();
        if has_mounts {
            // A variable may name a socket, and that is not to be reached.
            let is_socket = |path: &PathBuf| reading.sockets.iter().any(|it| path.starts_with(it));
            let named = named_paths(argv, self.env, &shared).into_iter();
            in_sight.extend(named.filter(|path| !is_socket(path)));
        }
        // One that the config opens as a whole stays what it is.
        let is_opened = |place: &PathBuf| reading.in_sight.iter().any(|it| place.starts_with(it));
        let temp_folder = std::env::temp_dir();
        let private: Vec<(PathBuf, PathBuf)> = shared
            .into_iter()
            .filter(|place| has_mounts && *place != temp_folder && !is_opened(place))
            .map(|place| (temp.path().to_owned(), place))
            .collect();
        // A project there may look beside itself as it would elsewhere.
        let seen = self.checkout.seen_at();
        let around = private.iter().filter_map(|(_, place)| {
            let first = seen.strip_prefix(place).ok()?.components().next()?;
            Some(place.join(first))
        });
        in_sight.extend(around);
        in_sight.extend(self.checkout.project_paths.in_sight(self.env));
        let opened = [&reading.in_sight[..], &opened].concat();
        let mut hidden = self.checkout.hidden.clone();
        hidden.extend(self.checkout.project_paths.hidden(home.as_deref(), &opened));
        hidden.extend_from_slice(&reading.hidden);
        let replaced = reading.replaced_in(temp)?;
        Ok(WritePolicy {
            project: root.to_owned(),
            mounted_at: has_mounts.then(|| self.checkout.seen_at().to_owned()),
            lent: self.checkout.tree.source.lent(root),
            writable,
            read_only,
            tmp: temp.path().to_owned(),
            tmp_seen_at: has_mounts.then(std::env::temp_dir),
            private,
            layered: Vec::new(),
            in_sight,
            hidden,
            replaced,
            shared_memory: None,
            network: runner_sandbox::NetworkAccess::Open,
        })
    }

    /// The caches that it gets.
    fn caches(&self, has_layers: impl FnOnce() -> bool) -> Result<ChildCaches> {
        let mut request = CacheRequest {
            kind: self.kind,
            in_workspace: self.checkout.is_workspace,
            fill: self.checkout.cache_fill.get(),
            has_layers: false,
            checkout: self.checkout.path(),
        };
        request.has_layers = !request.writes_for_others() && has_layers();
        self.checkout.caches.for_child(request)
    }

    /// A home folder of its own, where the user's can be replaced.
    fn home_view(
        &self,
        policy: &mut WritePolicy,
        has_mounts: bool,
        (temp, caches): (&TempFolder, &ChildCaches),
    ) -> Result<Option<HomeView>> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let shared = std::env::temp_dir();
        let seen = self.checkout.seen_at();
        let Some(home) = home.and_then(|home| home_view::replaceable(&home, seen, &shared)) else {
            return Ok(None);
        };
        let folder = temp.beside("home");
        let (hidden, replaced) = (&policy.hidden, &policy.replaced);
        let cache = caches.for_programs();
        let view = HomeView::make(&home, (&folder, &cache), hidden, replaced, has_mounts)?;
        if has_mounts {
            policy.private.push((cache, home.join(home_view::CACHE)));
            policy
                .private
                .push((view.folder.clone(), view.seen_at.clone()));
            policy.in_sight.extend(view.in_sight.iter().cloned());
        } else {
            policy.writable.push(view.folder.clone());
        }
        Ok(Some(view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_in_temp_folders() {
        let shared = ["/tmp".into(), "/tmp/own".into(), "/var/tmp".into()];
        let argv = ["/tmp/a/agent", "/tmp", "/usr/bin/x"].map(OsString::from);
        let env = [
            ("PATH", "/tmp/b/c/bin:/usr/bin:/tmp/own/d/bin:/tmp"),
            ("HOME", "/tmp/e/f"),
            ("TMPDIR", "/tmp/own/g"),
            ("CACHE", "/var/tmp/h"),
        ]
        .map(|(name, value)| (name.into(), value.into()));
        let found = named_paths(&argv, &env, &shared);
        let expected = [
            "/tmp/a/agent",
            "/tmp/b",
            "/tmp/e/f",
            "/tmp/own/d",
            "/var/tmp/h",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
