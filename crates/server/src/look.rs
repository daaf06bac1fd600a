//! One look at a project: enough to tell, by comparing two of them, what changed.
//!
//! What the kernel reports of changes is only a reason to look. So an event that
//! was lost, doubled or came out of order changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner::{CheckoutPosition, ContentId, FileId, Project, RunActivity, RunSnapshot};
use runner_core::paths;

use crate::beneath;
use crate::head;
use crate::source::RunSource;
use crate::wire::{
    IterationAdded, IterationChanged, PhaseChanged, ProjectChanged, RunPhaseView, RunStateChanged,
    RunStatusView, ServerEvent, TreeChanged,
};

/// Files besides tree and bookkeeping that `/api/run` is made of.
const OTHERS: [&str; 4] = [
    paths::GOAL,
    paths::CONFIG,
    paths::QUESTIONS,
    paths::ASSUMPTIONS,
];

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    project: Option<Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    root: PathBuf,
    run: RunSnapshot,
    /// The `.runner` folder: another one at the same place is another project.
    runner: (u64, u64),
    tree: Option<ContentId>,
    run_state: Option<ContentId>,
    others: [Option<ContentId>; OTHERS.len()],
    events: Option<FileId>,
    pid: Option<u32>,
    run_id: Option<String>,
    runs: BTreeMap<String, SeenRun>,
    /// What goes on, in one word too; `None` until [`Look::settle`].
    head: Option<(RunActivity, RunStatusView)>,
}

#[derive(Clone, Debug, PartialEq)]
struct SeenRun {
    folder: Option<FileId>,
    /// Each iteration, and whether it is recorded.
    iterations: BTreeMap<u32, bool>,
}

impl Look {
    /// Looks, using what is known from the last time where it cannot have changed.
    /// Nothing large is read: what changed can be told at once.
    pub(crate) fn at(source: &RunSource, before: &Look) -> Self {
        let project = source.run().and_then(|run| {
            let before = before
                .project
                .as_ref()
                .filter(|seen| seen.root == run.project.root());
            seen(run, before)
        });
        Look { project }
    }

    /// Reads what takes longer, if anything it depends on is new.
    pub(crate) fn settle(&mut self, source: &RunSource) {
        let Some(seen) = &mut self.project else {
            return;
        };
        if seen.head.is_none() {
            let status = head::status(source, &seen.run);
            seen.head = Some((runner::activity(&seen.run.project), status));
        }
    }

    /// The folders to be told about, the project's own and those on the way to it.
    pub(crate) fn folders(&self, dir: &Path) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        match &self.project {
            // The nearest folder that is there: the next one below it will appear in it.
            None => folders.extend(
                dir.ancestors()
                    .find(|folder| folder.is_dir())
                    .map(Path::to_owned),
            ),
            Some(seen) => {
                let runner = seen.root.join(".runner");
                folders.push(seen.root.clone());
                folders.push(runner.join("state"));
                folders.push(runner.join("iterations"));
                if let Some(run) = &seen.run_id {
                    let run_folder = runner.join("iterations").join(run);
                    let open = seen.runs.get(run).and_then(SeenRun::open);
                    folders.extend(open.map(|iter| run_folder.join(iter.to_string())));
                    folders.push(run_folder);
                }
                folders.push(runner);
            }
        }
        // Where the link or folder itself lies, should it be replaced.
        folders.extend(dir.parent().map(Path::to_owned));
        folders.sort();
        folders.dedup();
        folders
    }

    /// The iteration whose agent may be talking: its run and number, and the root.
    pub(crate) fn talking(&self) -> Option<(PathBuf, String, u32)> {
        let seen = self.project.as_ref()?;
        let run = seen.run_id.clone()?;
        let iter = seen.runs.get(&run)?.open()?;
        Some((seen.root.clone(), run, iter))
    }

    /// The same project as before, if there was one, and as it is now.
    fn pair<'l>(&'l self, before: &'l Look) -> Option<(Option<&'l Seen>, &'l Seen)> {
        let new = self.project.as_ref()?;
        let same = |old: &&Seen| (&old.root, old.runner) == (&new.root, new.runner);
        Some((before.project.as_ref().filter(same), new))
    }

    /// What to tell at once when this was seen after `before`.
    pub(crate) fn events_since(&self, before: &Look) -> Vec<ServerEvent> {
        let Some((old, new)) = self.pair(before) else {
            let gone = before.project.is_some();
            let event = ServerEvent::ProjectChanged(ProjectChanged { there: false });
            return if gone { vec![event] } else { Vec::new() };
        };
        let mut events = Vec::new();
        if old.is_none() {
            events.push(ServerEvent::ProjectChanged(ProjectChanged { there: true }));
        }
        if old.is_none_or(|old| old.tree != new.tree) {
            let there = new.tree.is_some();
            events.push(ServerEvent::TreeChanged(TreeChanged { there }));
        }
        if old.is_none_or(|old| old.run_state != new.run_state) {
            let there = new.run_state.is_some();
            events.push(ServerEvent::RunStateChanged(RunStateChanged { there }));
        }
        // Of a project that has just appeared everything is to be fetched anyway.
        if let Some(old) = old {
            events.extend(iteration_events(&old.runs, &new.runs));
        }
        events
    }

    /// What to tell of the head of the page, once this has settled.
    pub(crate) fn phase_since(&self, before: &Look) -> Option<ServerEvent> {
        let Some((old, new)) = self.pair(before) else {
            return before.project.as_ref().map(|_| phase_changed(None));
        };
        let head = |seen: &Seen| (seen.head.clone(), seen.others.clone(), seen.about());
        let differs = old.is_none_or(|old| head(old) != head(new));
        differs.then(|| phase_changed(new.head.as_ref()))
    }
}

impl Seen {
    /// What else the head of the page says of the run.
    fn about(&self) -> (Option<CheckoutPosition>, bool, Option<String>) {
        let run = &self.run;
        let problem = run.problem.as_ref().map(|error| error.message.clone());
        (run.position.clone(), run.can_step, problem)
    }
}

impl SeenRun {
    /// The newest iteration, if it is not recorded.
    fn open(&self) -> Option<u32> {
        let (iter, recorded) = self.iterations.last_key_value()?;
        (!recorded).then_some(*iter)
    }
}

fn seen(run: RunSnapshot, before: Option<&Seen>) -> Option<Seen> {
    use std::os::unix::fs::MetadataExt as _;
    let project = &run.project;
    let runner = project.runner_dir().symlink_metadata().ok()?;
    let file = |path: &str| project.content_id(path);
    let fresh = |id: &Option<ContentId>| id.as_ref().is_some_and(ContentId::is_fresh);
    let tree = file(paths::TREE);
    let run_state = file(paths::RUN_STATE);
    let others = OTHERS.map(file);
    let same = before.filter(|old| old.run_state == run_state && !fresh(&run_state));
    let run_id = match same {
        Some(same) => same.run_id.clone(),
        None => runner::run_state_of(project)
            .ok()
            .and_then(|state| state.run_id),
    };
    let events = run_id
        .as_deref()
        .and_then(|run| FileId::at(&runner::events_path(project, run)));
    let runs = runs(project, run_id.as_deref(), before);
    let mut now = Seen {
        root: project.root().to_owned(),
        runner: (runner.dev(), runner.ino()),
        tree,
        run_state,
        others,
        events,
        pid: runner::running_pid(project),
        run,
        run_id,
        runs,
        head: None,
    };
    let files = |seen: &Seen| (seen.tree.clone(), seen.run_state.clone(), seen.events);
    if let Some(old) = before
        && (old.pid, files(old), old.about()) == (now.pid, files(&now), now.about())
        && old.runs == now.runs
        && !fresh(&now.tree)
        && !now.events.is_some_and(|id| id.is_fresh())
    {
        now.head.clone_from(&old.head);
    }
    Some(now)
}

fn runs(
    project: &Project,
    current: Option<&str>,
    before: Option<&Seen>,
) -> BTreeMap<String, SeenRun> {
    let root = project.root();
    beneath::folders(root, &[".runner", "iterations"])
        .into_iter()
        .map(|run| {
            let path = project.run_folder(&run);
            let folder = FileId::at(&path);
            let old = before.and_then(|seen| seen.runs.get(&run));
            let unchanged = old.filter(|old| {
                old.folder == folder && folder.is_some_and(|folder| !folder.is_fresh())
            });
            let mut iterations = match unchanged {
                Some(old) => old.iterations.clone(),
                None => crate::source::iterations(root, &run)
                    .into_iter()
                    .map(|iter| {
                        let known = old.and_then(|old| old.iterations.get(&iter)).copied();
                        (iter, known.unwrap_or(false))
                    })
                    .collect(),
            };
            // A record stays. Of other runs only what was never looked at is asked.
            if unchanged.is_none() || current == Some(run.as_str()) {
                for (iter, recorded) in &mut iterations {
                    *recorded = *recorded
                        || path
                            .join(iter.to_string())
                            .join("meta.json")
                            .symlink_metadata()
                            .is_ok();
                }
            }
            (run, SeenRun { folder, iterations })
        })
        .collect()
}

fn iteration_events(
    old: &BTreeMap<String, SeenRun>,
    new: &BTreeMap<String, SeenRun>,
) -> Vec<ServerEvent> {
    let mut events = Vec::new();
    let none = BTreeMap::new();
    for (run, seen) in new {
        let before = old.get(run).map_or(&none, |run| &run.iterations);
        for (iter, recorded) in &seen.iterations {
            let known = before.get(iter);
            if known.is_none() {
                events.push(ServerEvent::IterationAdded(IterationAdded {
                    run_id: Some(run.clone()),
                    iter: Some(*iter),
                }));
            }
            if *recorded && known != Some(&true) {
                events.push(changed(run, *iter));
            }
        }
    }
    for (run, seen) in old {
        let after = new.get(run).map_or(&none, |run| &run.iterations);
        let gone = seen
            .iterations
            .keys()
            .filter(|iter| !after.contains_key(iter));
        events.extend(gone.map(|iter| changed(run, *iter)));
    }
    events
}

fn changed(run: &str, iter: u32) -> ServerEvent {
    ServerEvent::IterationChanged(IterationChanged {
        run_id: Some(run.to_owned()),
        iter: Some(iter),
    })
}

fn phase_changed(head: Option<&(RunActivity, RunStatusView)>) -> ServerEvent {
    let now = head.map(|(now, _)| now);
    ServerEvent::PhaseChanged(PhaseChanged {
        state: head.map(|(_, status)| *status),
        phase: now.map_or(RunPhaseView::Idle, |now| now.phase.into()),
        iter: now.and_then(|now| now.iter),
        node_id: now.and_then(|now| now.node_id.clone()),
    })
}
