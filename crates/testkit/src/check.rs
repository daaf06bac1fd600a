//! What tests look at after a run: git, the tree, the logs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::repo::TestRepo;

impl TestRepo {
    /// Fails if the work tree is not clean or git's index is locked.
    #[track_caller]
    pub fn assert_clean(&self) {
        // Without a refresh of the index: looking must not change anything.
        let status = self.git(&["--no-optional-locks", "status", "--porcelain", "-uall"]);
        assert!(status.is_empty(), "the work tree is not clean:\n{status}");
        let lock = self.git(&["rev-parse", "--git-path", "index.lock"]);
        assert!(!self.exists(&lock), "{lock} was left behind");
    }

    /// The commit that HEAD names.
    #[track_caller]
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "--verify", "HEAD"])
    }

    /// The subjects of the history, oldest first.
    #[track_caller]
    pub fn subjects(&self) -> Vec<String> {
        let log = self.git(&["log", "--reverse", "--format=%s"]);
        log.lines().map(str::to_owned).collect()
    }

    /// The task tree on disk.
    #[track_caller]
    pub fn tree(&self) -> Value {
        state_json(self, ".runner/state/tree.json")
    }

    /// One node of the task tree; fails if there is none of that id.
    #[track_caller]
    pub fn node(&self, id: &str) -> Value {
        let tree = self.tree();
        match find_node(&tree, id) {
            Some(node) => node.clone(),
            None => panic!("no node {id:?} in {tree:#}"),
        }
    }

    /// The run's bookkeeping file.
    #[track_caller]
    pub fn run_state(&self) -> Value {
        state_json(self, ".runner/state/run_state.json")
    }

    /// The id of the current run.
    #[track_caller]
    pub fn run_id(&self) -> String {
        let state = self.run_state();
        match state["run_id"].as_str() {
            Some(id) => id.to_owned(),
            None => panic!("no run has been started: {state}"),
        }
    }

    /// What lies among the private checkouts of all projects of this home: folders and locks.
    pub fn private_checkouts(&self) -> Vec<PathBuf> {
        self.private_folders(|kind| kind == "checkouts")
    }

    /// What lies among the repositories of task runs of all fleets of this home: folders and locks.
    pub fn task_run_folders(&self) -> Vec<PathBuf> {
        self.private_folders(|kind| kind.starts_with("task-runs-"))
    }

    fn private_folders(&self, is_asked: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let root = self.root().join("home/.local/state/runner");
        let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries(root)
            .flat_map(|project| entries(project.path()))
            .filter(|kind| kind.file_name().to_str().is_some_and(&is_asked))
            .flat_map(|kind| entries(kind.path()))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// The folder in which the sessions of the current run work, or a path in it.
    #[track_caller]
    pub fn workspace(&self, path: impl AsRef<Path>) -> PathBuf {
        let root = self.root().join("home/.local/state/runner");
        let run_id = self.run_id();
        let projects = std::fs::read_dir(&root).into_iter().flatten().flatten();
        let mut found = projects.map(|project| project.path().join("workspaces").join(&run_id));
        let found = found.find(|folder| folder.is_dir());
        // One that is not there yet has no path either: wait for what cannot come.
        found.unwrap_or(root).join(path)
    }

    /// The log folder of the current run.
    #[track_caller]
    pub fn run_dir(&self) -> PathBuf {
        self.path(".runner/iterations").join(self.run_id())
    }

    /// The log folder of one iteration of the current run.
    #[track_caller]
    pub fn iteration(&self, iter: u64) -> PathBuf {
        self.run_dir().join(iter.to_string())
    }

    /// The `meta.json` of one iteration.
    #[track_caller]
    pub fn meta(&self, iter: u64) -> Value {
        read_json(&self.iteration(iter).join("meta.json"))
    }

    /// The events of the current run; none if there is no file of them.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        let path = self.run_dir().join("events.jsonl");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => panic!("{}: {error} in {line:?}", path.display()),
        };
        text.lines().map(parse).collect()
    }
}

/// The node of that id in the tree below `node`.
fn find_node<'a>(node: &'a Value, id: &str) -> Option<&'a Value> {
    if node["id"] == id {
        return Some(node);
    }
    let children = node["children"].as_array()?;
    children.iter().find_map(|child| find_node(child, id))
}

/// A file of `.runner/`; one that is not checked out is read from git.
#[track_caller]
fn state_json(repo: &TestRepo, path: &str) -> Value {
    if repo.exists(path) {
        return read_json(&repo.path(path));
    }
    let text = repo.git(&["show", &format!("HEAD:{path}")]);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}\n{text}"))
}

#[track_caller]
fn read_json(path: &Path) -> Value {
    let bytes =
        fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(&bytes);
        panic!("{} is not JSON: {error}\n{text}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn repo_with_state() -> TestRepo {
        let repo = TestRepo::new("runner");
        let tree = json!({"id": "root", "children": [
            {"id": "a", "children": [{"id": "deep", "passes": true, "children": []}]},
        ]});
        repo.write(".runner/state/tree.json", tree.to_string());
        repo.write(".runner/state/run_state.json", r#"{"run_id": "demo"}"#);
        repo.write(".runner/iterations/demo/3/meta.json", r#"{"iter": 3}"#);
        let events = "{\"event\":\"a\"}\n{\"event\":\"b\"}\n";
        repo.write(".runner/iterations/demo/events.jsonl", events);
        repo
    }

    #[test]
    fn reads_state_and_logs() {
        let repo = repo_with_state();
        assert_eq!(repo.node("deep")["passes"], true);
        assert_eq!(repo.run_id(), "demo");
        assert_eq!(repo.meta(3)["iter"], 3);
        assert_eq!(repo.events().len(), 2);
        repo.commit_all("State");
        repo.assert_clean();
        assert_eq!(repo.subjects(), ["Begin", "State"]);
    }

    #[test]
    #[should_panic(expected = "no node \"b\"")]
    fn a_missing_node_fails() {
        repo_with_state().node("b");
    }

    #[test]
    #[should_panic(expected = "?? new/file")]
    fn an_untracked_file_is_not_clean() {
        let repo = TestRepo::new("runner");
        repo.write("new/file", "");
        repo.assert_clean();
    }

    #[test]
    #[should_panic(expected = "index.lock was left behind")]
    fn a_locked_index_is_not_clean() {
        let repo = TestRepo::new("runner");
        repo.write(".git/index.lock", "");
        repo.assert_clean();
    }
}
