//! The files of an iteration, as they were when it was decided, and those of its run, as a command
//! left them: replay compares them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use runner_core::digest::sha256_hex;
use runner_core::meta::RecordedEvents;
use runner_core::text::escape_path;

use serde::{Deserialize, Serialize};

use super::log::EventLog;
use crate::files;
use crate::project::Project;
use crate::step::read_meta;

/// Larger files are compared by their size: a session can make them as large as the disk.
const MAX_HASHED: u64 = 64 << 20;

/// So many files of the quarantine are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The longest part of `events.jsonl` that one iteration answers for.
const MAX_EVENTS: u64 = 16 << 20;

/// The folder of what was taken out of the project; it is recorded as one.
const QUARANTINE: &str = "quarantine";

/// Proven in another way: by the decision that is made again, and by each other.
const PROVEN: [&str; 4] = [
    "journal.jsonl",
    "meta.json",
    "tree.before.json",
    "tree.after.json",
];

/// The files of an iteration's folder by name, each with its hash.
pub(crate) fn record(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !PROVEN.contains(&name.as_str()) && !name.ends_with(files::TEMP_SUFFIX) {
            let value = value_of(folder, &name);
            found.extend(value.map(|value| (name, value)));
        }
    }
    found
}

/// The first file that is not what was recorded, in words.
pub(crate) fn difference(folder: &Path, recorded: &BTreeMap<String, String>) -> Option<String> {
    recorded.iter().find_map(|(name, value)| {
        if folder.join(name).symlink_metadata().is_err() {
            return Some(format!("{name} is missing"));
        }
        let is_same = value_of(folder, name).as_ref() == Some(value);
        (!is_same).then(|| format!("{name} is not what was recorded"))
    })
}

/// Says what a file is: the name of a tree that has the same bytes, or a hash.
fn value_of(folder: &Path, name: &str) -> Option<String> {
    let path = folder.join(name);
    if name == QUARANTINE {
        return Some(format!("sha256:{}", list_of(&path)));
    }
    if name.starts_with("tree.") {
        // Trees are large, and mostly the same.
        let same = ["tree.before.json", "tree.after.json"].into_iter();
        let mut same = same.filter(|other| are_equal(&path, &folder.join(other)));
        if let Some(other) = same.next() {
            return Some(other.to_owned());
        }
    }
    describe(&path)
}

fn are_equal(one: &Path, other: &Path) -> bool {
    let (Ok(first), Ok(second)) = (one.symlink_metadata(), other.symlink_metadata()) else {
        return false;
    };
    if !first.is_file() || !second.is_file() || first.len() != second.len() {
        return false;
    }
    let is_one_file = (first.dev(), first.ino()) == (second.dev(), second.ino());
    is_one_file
        || files::read_regular(one, MAX_HASHED)
            .is_ok_and(|bytes| files::read_regular(other, MAX_HASHED).is_ok_and(|it| it == bytes))
}

/// What lies at a path, in one word.
fn describe(path: &Path) -> Option<String> {
    let meta = path.symlink_metadata().ok()?;
    if meta.is_symlink() {
        let target = fs::read_link(path).ok()?;
        return Some(format!(
            "link:{}",
            sha256_hex(target.as_os_str().as_bytes())
        ));
    }
    if !meta.is_file() {
        return Some("other".to_owned());
    }
    if meta.len() > MAX_HASHED {
        return Some(format!("size:{}", meta.len()));
    }
    let bytes = files::read_regular(path, MAX_HASHED).ok()?;
    Some(format!("sha256:{}", sha256_hex(&bytes)))
}

/// One hash over everything below a folder.
fn list_of(folder: &Path) -> String {
    let mut paths = Vec::new();
    collect(folder, &mut paths);
    paths.sort();
    let mut text = String::new();
    for path in &paths {
        let name = path.strip_prefix(folder).unwrap_or(path);
        let name = escape_path(name.as_os_str().as_bytes());
        let what = describe(path).unwrap_or_else(|| "closed".to_owned());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{what} {name}");
    }
    sha256_hex(text.as_bytes())
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if paths.len() >= MAX_ENTRIES {
            return;
        }
        if path.symlink_metadata().is_ok_and(|it| it.is_dir()) {
            collect(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

/// The part of a run's `events.jsonl` that has been added since an earlier iteration.
pub(crate) fn record_events(
    run_folder: &Path,
    earlier: Option<&RecordedEvents>,
) -> Option<RecordedEvents> {
    let from = earlier.map_or(0, |it| it.to);
    let to = EventLog::path(run_folder).metadata().ok()?.len();
    let bytes = part(run_folder, from, to)?;
    Some(RecordedEvents {
        from,
        to,
        sha256: sha256_hex(&bytes),
    })
}

/// Whether that part is still the same.
pub(crate) fn has_events(run_folder: &Path, recorded: &RecordedEvents) -> bool {
    part(run_folder, recorded.from, recorded.to)
        .is_some_and(|bytes| sha256_hex(&bytes) == recorded.sha256)
}

fn part(run_folder: &Path, from: u64, to: u64) -> Option<Vec<u8>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let len = to.checked_sub(from).filter(|len| *len <= MAX_EVENTS)?;
    let mut file = files::open_no_trap(&EventLog::path(run_folder)).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == len).then_some(bytes)
}

/// The file that says how a command left the files of a run.
const RUN_RECORD: &str = "recorded.json";

/// The largest such file.
const MAX_RECORD: u64 = 1 << 20;

/// What the guard printed about the result that landed.
const LAND_LOG: &str = "land-guard.log";

/// The files of a run beside its iterations.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RunRecord {
    /// The logs of landings by name, each with its hash.
    files: BTreeMap<String, String>,
    /// The end of `events.jsonl`, which no iteration answers for.
    #[serde(default)]
    events: Option<RecordedEvents>,
    /// The commit that the log of the guard is about, if the run landed then.
    #[serde(default)]
    landing: Option<String>,
}

/// Writes down how a command leaves the files of a run; `landing`: the commit that it made. Where
/// that fails, replay has less to compare.
pub(crate) fn record_run(project: &Project, run_id: &str, landing: Option<&str>) {
    let folder = project.run_folder(run_id);
    let numbers = project.iteration_numbers(run_id).into_iter().rev();
    let mut metas = numbers.filter_map(|iter| read_meta(&project.iteration(run_id, iter)));
    let earlier = metas.find_map(|meta| meta.events);
    let files: BTreeMap<String, String> = logs_of_landings(&folder)
        .into_iter()
        .filter_map(|name| Some((name.clone(), describe(&folder.join(name))?)))
        .collect();
    // The landing of an earlier command, as long as the log is of that.
    let before = read_record(&folder).unwrap_or_default();
    let is_same = before.files.get(LAND_LOG) == files.get(LAND_LOG);
    let record = RunRecord {
        events: record_events(&folder, earlier.as_ref()),
        landing: landing
            .map(str::to_owned)
            .or(before.landing.filter(|_| is_same)),
        files,
    };
    // Strings and numbers alone: there is nothing that could fail.
    let bytes = serde_json::to_vec(&record).unwrap_or_default();
    if folder.is_dir() {
        let _ = files::write_whole(&folder.join(RUN_RECORD), &bytes);
    }
}

/// The first file of a run that is not as a command left it, in words. `log_of`: the hash that a
/// commit gives for the log of its guard; `landings`: those of all landings.
pub(crate) fn run_difference(
    folder: &Path,
    log_of: impl Fn(&str) -> Option<String>,
    landings: &[String],
) -> Option<String> {
    let differs = || {
        Some(format!(
            "{LAND_LOG} is not what the commit that landed says"
        ))
    };
    let log = describe(&folder.join(LAND_LOG));
    let Some(record) = read_record(folder) else {
        // Written by an earlier version, or removed: the commits still say it.
        let is_known = log.is_none_or(|log| landings.contains(&log));
        return if is_known || landings.is_empty() {
            None
        } else {
            differs()
        };
    };
    if let Some(events) = &record.events
        && !has_events(folder, events)
    {
        return Some("events.jsonl is not what was recorded at its end".to_owned());
    }
    let landed = record.landing.as_deref().and_then(log_of);
    if landed.is_some() && landed != log {
        return differs();
    }
    difference(folder, &record.files)
}

fn read_record(folder: &Path) -> Option<RunRecord> {
    let bytes = files::read_regular(&folder.join(RUN_RECORD), MAX_RECORD).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The names of the logs that landings leave in a run's folder.
fn logs_of_landings(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .filter(|name| name.starts_with("land-") && name.strip_suffix(".log").is_some())
        .collect()
}
