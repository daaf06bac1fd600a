//! What a child may write to, and the look at the file system that turns it into a plan.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::bubblewrap::SandboxView;
use crate::layout::{self, BindMount, LayoutInput, SandboxAccess};
use crate::mechanism::{Mechanism, SandboxRefusal};
use crate::network::NetworkAccess;
use crate::{bubblewrap, layer, privileges, readable};

/// What a child may write to. The most specific entry counts, and of two for the same path the
/// read-only one, so that folders may be nested in each other in any way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePolicy {
    /// The project: writable, and where the child is started.
    pub project: PathBuf,
    /// Where the child sees it, if that is another place (bubblewrap only). What lies there
    /// otherwise is hidden from the child.
    pub mounted_at: Option<PathBuf>,
    /// Folders that the child sees somewhere inside the project, read-only (bubblewrap only): the
    /// folder, and the place in the project.
    pub lent: Vec<(PathBuf, PathBuf)>,
    /// Folders and files that are writable too. Those that do not exist are left out.
    pub writable: Vec<PathBuf>,
    /// What is read-only although something around it is writable (bubblewrap only).
    pub read_only: Vec<PathBuf>,
    /// The temp folder of the child.
    pub tmp: PathBuf,
    /// Where the child sees it, if that is another place (bubblewrap only). What lies there
    /// otherwise is hidden from the child, but for `in_sight`.
    pub tmp_seen_at: Option<PathBuf>,
    /// The same for other folders, such as a private home: the folder, and the place.
    pub private: Vec<(PathBuf, PathBuf)>,
    /// Folders to which nothing that the child writes comes: it goes to the other folder
    /// (bubblewrap only, where [`crate::layers_work`]).
    pub layered: Vec<LayeredFolder>,
    /// What stays readable at the places that the private folders hide, and where something around
    /// it is hidden.
    pub in_sight: Vec<PathBuf>,
    /// Folders and files that the child cannot read, but for what is in sight or writable there.
    /// Under bubblewrap they are empty; under Landlock their names can still be seen. Sockets
    /// are closed there wherever they lie, but for those in sight or in folders that are writable.
    pub hidden: Vec<PathBuf>,
    /// Files that the child sees another content in (bubblewrap only; under Landlock they are
    /// hidden): the file with the content, and the place.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// The most that it may keep in `/dev/shm` (bubblewrap only, where it
    /// [`has_sizes`](crate::Bubblewrap::has_sizes)).
    pub shared_memory: Option<u64>,
    /// What it can reach.
    pub network: NetworkAccess,
}

/// A folder that a child sees with its own changes, which lie elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayeredFolder {
    /// The folder. It does not change.
    pub folder: PathBuf,
    /// The changes of an earlier child, laid over it below those of this one. They do not change
    /// either.
    pub earlier: Option<PathBuf>,
    /// Where the changes go. It is made, on the file system of its parent.
    pub changes: PathBuf,
}

/// A writable path that the child will not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutPath {
    /// As the policy has it.
    pub path: PathBuf,
    /// A lowercase fragment.
    pub reason: String,
    /// It simply does not exist: nothing to bother anybody with.
    pub absent: bool,
}

/// A policy with all its paths looked up: links resolved, and what is not there left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlan {
    /// Writable paths that could not be granted.
    pub left_out: Vec<LeftOutPath>,
    /// Read-only paths that are not protected by any mechanism: nothing is there yet, or it is a
    /// link, which can be replaced. Only a look at them afterwards tells.
    pub unprotected: Vec<PathBuf>,
    project: PathBuf,
    /// Where the child sees the project.
    seen: PathBuf,
    mounts: Vec<BindMount>,
    lent: Vec<(PathBuf, PathBuf)>,
    layered: Vec<LayeredFolder>,
    /// What Landlock does not let the child read, and what it does all the same.
    unread: Vec<PathBuf>,
    read: Vec<PathBuf>,
    kept_by_root: Option<Vec<&'static str>>,
    shared_memory: Option<u64>,
    network: NetworkAccess,
}

impl WritePolicy {
    /// Looks up all paths. Only a project that cannot be found is an error.
    pub fn plan(&self) -> Result<MountPlan, SandboxRefusal> {
        let project = self
            .project
            .canonicalize()
            .map_err(|error| SandboxRefusal {
                message: format!(
                    "cannot contain anything in `{}`: {error}",
                    self.project.display()
                ),
                hint: "the project folder must exist and be readable".to_owned(),
            })?;
        if project == Path::new("/") {
            return Err(SandboxRefusal {
                message: "the project is `/`: everything would be writable".to_owned(),
                hint: "move the project into a folder of its own, or set [sandbox] mode = \"off\""
                    .to_owned(),
            });
        }
        let mut left_out = Vec::new();
        let writable = self.writable(&project, &mut left_out);
        let mut read_only = Vec::new();
        let mut unprotected = Vec::new();
        for path in &self.read_only {
            match path.canonicalize() {
                Ok(found) => read_only.push(found),
                Err(_) => unprotected.push(path.clone()),
            }
            if path.is_symlink() && !unprotected.contains(path) {
                unprotected.push(path.clone());
            }
        }
        let seen = self.seen(&project)?;
        let see = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
            let shown = paths.into_iter().filter_map(|path| {
                match path.strip_prefix(&project) {
                    Ok(rest) => Some(below(&seen, rest)),
                    // Hidden by the project, which is not that place.
                    Err(_) if path.starts_with(&seen) => None,
                    Err(_) => Some(path),
                }
            });
            shown.collect()
        };
        let temp = self.tmp_seen_at.iter().map(|place| (&self.tmp, place));
        let others = self.private.iter().map(|(folder, place)| (folder, place));
        let private: Vec<(PathBuf, PathBuf)> = temp
            .chain(others)
            .filter_map(|(folder, place)| Some((folder.canonicalize().ok()?, look_up(place).ok()?)))
            .collect();
        let in_sight = self.in_sight.iter().filter_map(|it| it.canonicalize().ok());
        let in_sight: Vec<PathBuf> = in_sight.collect();
        let hidden = self.hidden.iter().filter_map(|it| it.canonicalize().ok());
        // What lies where the project is mounted is not seen anyway.
        let is_covered = |it: &Path| self.mounted_at.is_some() && it.starts_with(&seen);
        let hidden: Vec<PathBuf> = hidden
            .filter(|it| it != Path::new("/") && !is_covered(it))
            .collect();
        let mut mounts = layout::layout(&LayoutInput {
            project: &seen,
            writable: &see(writable),
            read_only: &see(read_only),
            private: &private,
            in_sight: &in_sight,
            hidden: &hidden,
        });
        let shown = mounts.iter_mut().filter(|it| it.source == it.path);
        for mount in shown {
            if let Ok(rest) = mount.path.strip_prefix(&seen) {
                mount.source = below(&project, rest);
            } else if mount.access == SandboxAccess::Hidden && !mount.path.is_dir() {
                mount.source = bubblewrap::NOTHING.into();
            }
        }
        let is_open = |place: &PathBuf| !hidden.iter().any(|it| place.starts_with(it));
        for (content, place) in &self.replaced {
            if let (Ok(content), Ok(place)) = (content.canonicalize(), place.canonicalize())
                && is_open(&place)
            {
                mounts.push(BindMount {
                    source: content,
                    path: place,
                    access: SandboxAccess::ReadOnly,
                });
            }
        }
        let lent = self.lent.iter().filter_map(|(folder, place)| {
            let rest = place.strip_prefix(&self.project).ok()?;
            Some((folder.canonicalize().ok()?, seen.join(rest)))
        });
        // Without mounts nothing can be put in their place.
        let replaced = self.replaced.iter();
        let replaced = replaced.filter_map(|(_, place)| place.canonicalize().ok());
        let unread = hidden.iter().cloned().chain(replaced).collect();
        let lent: Vec<(PathBuf, PathBuf)> = lent.collect();
        let read = in_sight.into_iter();
        let read = read.chain(lent.iter().map(|(folder, _)| folder.clone()));
        Ok(MountPlan {
            unread,
            read: read.collect(),
            left_out,
            unprotected,
            lent,
            layered: self.layered.clone(),
            mounts,
            project,
            seen,
            kept_by_root: privileges::kept_by_root(),
            shared_memory: self.shared_memory,
            network: self.network.clone(),
        })
    }

    /// Where the child sees the project.
    fn seen(&self, project: &Path) -> Result<PathBuf, SandboxRefusal> {
        let Some(place) = &self.mounted_at else {
            return Ok(project.to_owned());
        };
        place.canonicalize().map_err(|error| SandboxRefusal {
            message: format!("cannot mount anything at `{}`: {error}", place.display()),
            hint: "the project folder must exist and be readable".to_owned(),
        })
    }

    /// The real paths of all that is writable.
    fn writable(&self, project: &Path, left_out: &mut Vec<LeftOutPath>) -> Vec<PathBuf> {
        let mut found: Vec<(&Path, PathBuf)> = vec![(&self.project, project.to_owned())];
        // One that is seen elsewhere is not seen where it lies.
        let tmp = self.tmp_seen_at.is_none().then_some(&self.tmp);
        let named = self.writable.iter().chain(tmp);
        for path in named {
            match look_up(path) {
                Ok(real) => found.push((path, real)),
                Err((absent, reason)) => left_out.push(LeftOutPath {
                    path: path.clone(),
                    reason,
                    absent,
                }),
            }
        }
        let mut writable = Vec::new();
        for (path, real) in &found {
            // An earlier session could write there: a link that it planted would open another folder.
            let escapes = found.iter().any(|(around, real_around)| {
                let inside = path.starts_with(around) || path.starts_with(real_around);
                inside && !real.starts_with(real_around)
            });
            if escapes {
                left_out.push(LeftOutPath {
                    path: path.to_path_buf(),
                    reason: format!(
                        "a link in a folder that the agent can write to leads to `{}`: name that folder itself",
                        real.display()
                    ),
                    absent: false,
                });
            } else {
                writable.push(real.clone());
            }
        }
        writable
    }
}

/// A path below a folder; the folder itself where there is no more of it.
fn below(folder: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        return folder.to_owned();
    }
    folder.join(rest)
}

/// The real path, or why it is not granted and whether that is because it does not exist.
fn look_up(path: &Path) -> Result<PathBuf, (bool, String)> {
    if !path.is_absolute() {
        return Err((false, "it is not an absolute path".to_owned()));
    }
    let real = path.canonicalize().map_err(|error| {
        let absent = error.kind() == io::ErrorKind::NotFound;
        (absent, error.to_string())
    })?;
    if real == Path::new("/") {
        return Err((false, "it is `/`: everything would be writable".to_owned()));
    }
    if real.starts_with("/proc") {
        return Err((false, "the child has a /proc of its own".to_owned()));
    }
    Ok(real)
}

impl MountPlan {
    /// The real path of the project.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// What Landlock lets the child write to. It knows no exceptions below a folder.
    fn landlock_roots(&self) -> Vec<PathBuf> {
        let hidden = self.unread.iter();
        let hidden = hidden.filter(|place| !readable::has_sockets_alone(place));
        let hidden: Vec<PathBuf> = hidden.cloned().collect();
        let folders = layout::writable_folders(&self.mounts);
        readable::writable_roots(&folders, &self.project, &hidden, &readable::entries_of)
    }

    /// The argv that runs `argv` in containment. `launcher` is how to call
    /// [`crate::landlock_main`], as in `["/proc/self/exe", "__landlock"]`; the same program has
    /// [`crate::layer_main`] as `__layer`.
    pub fn wrap(
        &self,
        mechanism: &Mechanism,
        launcher: &[OsString],
        argv: &[OsString],
    ) -> Vec<OsString> {
        match mechanism {
            Mechanism::None => argv.to_vec(),
            Mechanism::Landlock => {
                let mut wrapped = launcher.to_vec();
                for root in self.landlock_roots() {
                    wrapped.extend(["--rw".into(), root.into()]);
                }
                for path in &self.unread {
                    wrapped.extend(["--hide".into(), path.into()]);
                }
                for path in &self.read {
                    // What nobody hides is read anyway, but sockets are closed wherever they lie.
                    wrapped.extend(["--show".into(), path.into()]);
                }
                if self.network == NetworkAccess::WithoutTcp {
                    wrapped.push("--no-tcp".into());
                }
                wrapped.push("--".into());
                wrapped.extend(argv.iter().cloned());
                wrapped
            }
            Mechanism::Bubblewrap { program } => {
                let mut wrapped = layer::prelude(launcher, &self.layered);
                wrapped.extend(bubblewrap::base(
                    program,
                    self.kept_by_root.as_deref(),
                    self.shared_memory,
                ));
                let shown = SandboxView {
                    mounts: &self.mounts,
                    lent: &self.lent,
                };
                if self.network.is_namespace() {
                    wrapped.push("--unshare-net".into());
                }
                let (mounts, mut inside) = self.network.inside_bubblewrap(launcher);
                inside.extend(argv.iter().cloned());
                bubblewrap::complete(&mut wrapped, &shown, &mounts, &self.seen, &inside);
                wrapped
            }
        }
    }
}

/// [`WritePolicy::plan`] and [`MountPlan::wrap`] in one; without a mechanism the argv as it is.
pub fn wrap(
    mechanism: &Mechanism,
    policy: &WritePolicy,
    launcher: &[OsString],
    argv: &[OsString],
) -> Result<Vec<OsString>, SandboxRefusal> {
    if *mechanism == Mechanism::None {
        return Ok(argv.to_vec());
    }
    Ok(policy.plan()?.wrap(mechanism, launcher, argv))
}
