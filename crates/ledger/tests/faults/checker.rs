//! Checkers that know the tables and the law, and none of the ledger's code.

use std::collections::{BTreeMap, BTreeSet};

use runner_ledger::Store;
use serde_json::{Map, Value};
use sqlx::Row as _;

use super::client::Ack;

/// Everything, as it is stored.
#[derive(Default)]
pub(crate) struct Raw {
    /// id, version, state, row
    tasks: BTreeMap<String, (i64, String, Value)>,
    /// task, version, event
    events: BTreeMap<String, Vec<(i64, Value)>>,
    /// resource, task
    locks: Vec<(String, String)>,
    /// task, owner, token
    leases: Vec<(String, String, i64)>,
    runs: BTreeMap<String, Vec<Value>>,
}

macro_rules! read_tables {
    ($pool:expr) => {{
        let pool = $pool;
        let json = |text: String| -> Value { serde_json::from_str(&text).unwrap() };
        let mut raw = Raw::default();
        let sql = "SELECT id, version, state, doc FROM tasks";
        for row in sqlx::query(sql).fetch_all(&pool).await.unwrap() {
            raw.tasks
                .insert(row.get(0), (row.get(1), row.get(2), json(row.get(3))));
        }
        let sql = "SELECT task_id, version, doc FROM events ORDER BY task_id, version";
        for row in sqlx::query(sql).fetch_all(&pool).await.unwrap() {
            let events: &mut Vec<_> = raw.events.entry(row.get(0)).or_default();
            events.push((row.get(1), json(row.get(2))));
        }
        for row in sqlx::query("SELECT resource, task_id FROM locks")
            .fetch_all(&pool)
            .await
            .unwrap()
        {
            raw.locks.push((row.get(0), row.get(1)));
        }
        let sql = "SELECT task_id, owner, token FROM leases";
        for row in sqlx::query(sql).fetch_all(&pool).await.unwrap() {
            raw.leases.push((row.get(0), row.get(1), row.get(2)));
        }
        let sql = "SELECT task_id, doc FROM runs ORDER BY task_id, number";
        for row in sqlx::query(sql).fetch_all(&pool).await.unwrap() {
            let runs: &mut Vec<_> = raw.runs.entry(row.get(0)).or_default();
            runs.push(json(row.get(1)));
        }
        pool.close().await;
        raw
    }};
}

impl Raw {
    pub(crate) async fn read(store: &Store) -> Raw {
        match store {
            Store::Memory => unreachable!("nobody else reaches a store in memory"),
            Store::Sqlite(path) => {
                let pool = sqlx::SqlitePool::connect(path.to_str().unwrap())
                    .await
                    .unwrap();
                read_tables!(pool)
            }
            Store::Postgres(url) => read_tables!(sqlx::PgPool::connect(url).await.unwrap()),
        }
    }

    /// Everything that is wrong.
    pub(crate) fn check(&self, acks: &[Ack]) -> Vec<String> {
        let mut wrong = Vec::new();
        self.histories(&mut wrong);
        self.locks_and_leases(&mut wrong);
        self.runs_and_evidence(&mut wrong);
        self.lineages(&mut wrong);
        self.dependencies(&mut wrong);
        self.acknowledged(acks, &mut wrong);
        wrong
    }

    /// Every row is the sum of its events, each follows the one before, and each step is
    /// legal.
    fn histories(&self, wrong: &mut Vec<String>) {
        for (id, (version, state, row)) in &self.tasks {
            let events = self.events.get(id).map_or(&[][..], Vec::as_slice);
            let mut at: Option<String> = None;
            let mut fields = Map::new();
            let mut token = 0;
            for (index, (number, event)) in events.iter().enumerate() {
                if *number != i64::try_from(index + 1).unwrap() || event["version"] != *number {
                    wrong.push(format!("{id}: event {number} at place {}", index + 1));
                }
                let (from, to) = (
                    event["from_state"].as_str(),
                    event["to_state"].as_str().unwrap(),
                );
                if from != at.as_deref() {
                    wrong.push(format!(
                        "{id}: event {number} begins in {from:?}, not in {at:?}"
                    ));
                }
                if from.is_some_and(|from| !legal(from, to)) {
                    wrong.push(format!("{id}: event {number} from {from:?} to {to}"));
                }
                for (name, value) in event["changes"].as_object().unwrap() {
                    if from.is_some_and(is_terminal) && name != "superseded_by" {
                        wrong.push(format!("{id}: {name} changed after the end"));
                    }
                    fields.insert(name.clone(), value.clone());
                }
                let next = fields.get("token").and_then(Value::as_i64).unwrap_or(0);
                if next < token {
                    wrong.push(format!("{id}: token {next} after {token}"));
                }
                token = next;
                at = Some(to.to_owned());
            }
            if at.as_deref() != Some(state) || row["state"] != state.as_str() {
                wrong.push(format!("{id}: the row is {state}, its last event {at:?}"));
            }
            if *version != i64::try_from(events.len()).unwrap() || row["version"] != *version {
                wrong.push(format!("{id}: version {version}, {} events", events.len()));
            }
            for (name, value) in &fields {
                // The two names that the row has for people.
                let shown = match name.as_str() {
                    "task_type" => "type",
                    "timebox_seconds" => "timebox",
                    other => other,
                };
                if row.get(shown).or_else(|| row.get(name)) != Some(value) {
                    wrong.push(format!(
                        "{id}: {name} is {}, its events say {value}",
                        row[name]
                    ));
                }
            }
        }
        for id in self
            .events
            .keys()
            .filter(|id| !self.tasks.contains_key(*id))
        {
            wrong.push(format!("{id}: events and no row"));
        }
    }

    fn locks_and_leases(&self, wrong: &mut Vec<String>) {
        for (at, (one, task)) in self.locks.iter().enumerate() {
            for (other, theirs) in &self.locks[at + 1..] {
                if task != theirs && overlap(one, other) {
                    wrong.push(format!("{task} holds {one}, {theirs} holds {other}"));
                }
            }
        }
        let working: BTreeSet<&str> = self
            .tasks
            .iter()
            .filter(|(_, (_, state, _))| state == "in_progress")
            .map(|(id, _)| id.as_str())
            .collect();
        let locked: BTreeSet<&str> = self.locks.iter().map(|(_, task)| task.as_str()).collect();
        let leased: BTreeSet<&str> = self.leases.iter().map(|lease| lease.0.as_str()).collect();
        if working != locked || working != leased {
            wrong.push(format!(
                "in progress {working:?}, locked {locked:?}, leased {leased:?}"
            ));
        }
        for (task, owner, token) in &self.leases {
            let row = &self.tasks[task].2;
            if row["owner"] != owner.as_str() || row["token"] != *token {
                wrong.push(format!("{task}: the lease is {owner}'s, {token}"));
            }
        }
    }

    fn runs_and_evidence(&self, wrong: &mut Vec<String>) {
        for (id, (_, state, row)) in &self.tasks {
            let runs = self.runs.get(id).map_or(&[][..], Vec::as_slice);
            let running = runs.iter().filter(|run| run["status"] == "running").count();
            if running > usize::from(state == "in_progress") {
                wrong.push(format!("{id}: {state} with {running} running runs"));
            }
            let mut tokens: Vec<i64> = runs
                .iter()
                .map(|run| run["token"].as_i64().unwrap())
                .collect();
            let count = tokens.len();
            tokens.sort_unstable();
            tokens.dedup();
            if tokens.len() != count {
                wrong.push(format!("{id}: two runs with one token"));
            }
            if state != "done" {
                continue;
            }
            let Some(run) = runs.iter().rev().find(|run| run["status"] == "success") else {
                wrong.push(format!("{id}: done without a result"));
                continue;
            };
            let packet = if row["expects_change"] == true {
                &run["judge_packet"]
            } else {
                &run["packet"]
            };
            let answers = packet["acceptance_check"].as_array();
            let answered = row["acceptance"]
                .as_array()
                .unwrap()
                .iter()
                .all(|criterion| {
                    answers.is_some_and(|answers| {
                        answers.iter().any(|answer| {
                            answer["criterion"] == criterion["id"]
                                && answer["status"] == "pass"
                                && answer["evidence"]
                                    .as_str()
                                    .is_some_and(|text| !text.is_empty())
                        })
                    })
                });
            if !answered {
                wrong.push(format!("{id}: done without evidence"));
            }
        }
    }

    fn lineages(&self, wrong: &mut Vec<String>) {
        let mut merged = BTreeMap::<&str, u32>::new();
        let mut successors = BTreeMap::<&str, &str>::new();
        for (id, (_, state, row)) in &self.tasks {
            if state == "done" {
                *merged
                    .entry(row["lineage"]["root"].as_str().unwrap())
                    .or_default() += 1;
            }
            if let Some(parent) = row["rework_of"].as_str() {
                if let Some(other) = successors.insert(parent, id) {
                    wrong.push(format!("{parent}: successors {id} and {other}"));
                }
                let (_, state, row) = &self.tasks[parent];
                if row["superseded_by"] != id.as_str()
                    || !matches!(state.as_str(), "failed" | "canceled")
                {
                    wrong.push(format!(
                        "{parent}: {state}, and {id} says that it succeeds it"
                    ));
                }
            }
            if let Some(next) = row["superseded_by"].as_str()
                && self
                    .tasks
                    .get(next)
                    .is_none_or(|(_, _, row)| row["rework_of"] != id.as_str())
            {
                wrong.push(format!("{id}: superseded by {next}, which does not know"));
            }
        }
        for (root, count) in merged.into_iter().filter(|(_, count)| *count > 1) {
            wrong.push(format!("the lineage of {root} was merged {count} times"));
        }
    }

    /// Nobody worked on a task before its dependencies were done.
    fn dependencies(&self, wrong: &mut Vec<String>) {
        for (id, (_, _, row)) in &self.tasks {
            if !self.runs.contains_key(id) {
                continue;
            }
            for dependency in row["dependencies"].as_array().unwrap() {
                let mut end = dependency.as_str().unwrap();
                while let Some(next) = self.tasks[end].2["superseded_by"].as_str() {
                    end = next;
                }
                if self.tasks[end].1 != "done" {
                    wrong.push(format!("{id} was worked on, and {end} is not done"));
                }
            }
        }
    }

    fn acknowledged(&self, acks: &[Ack], wrong: &mut Vec<String>) {
        for ack in acks {
            let events = self.events.get(&ack.task);
            let at = usize::try_from(ack.version).unwrap() - 1;
            let event = events.and_then(|events| events.get(at));
            if event.is_none_or(|(_, event)| event["reason"] != ack.reason.as_str()) {
                wrong.push(format!("{ack:?} is not there"));
            }
        }
    }
}

fn is_terminal(state: &str) -> bool {
    matches!(state, "done" | "failed" | "canceled")
}

/// The legal transitions, written down once more. A note leaves the state as it is.
fn legal(from: &str, to: &str) -> bool {
    from == to
        || match from {
            "todo" => matches!(to, "in_progress" | "blocked" | "failed" | "canceled"),
            "in_progress" => matches!(to, "done" | "blocked" | "failed" | "canceled"),
            "blocked" => matches!(to, "todo" | "in_progress" | "failed" | "canceled"),
            _ => false,
        }
}

fn overlap(one: &str, other: &str) -> bool {
    let inside = |outer: &str, inner: &str| {
        outer == inner
            || (outer == "." && !inner.starts_with('@'))
            || inner.starts_with(&format!("{outer}/"))
    };
    inside(one, other) || inside(other, one)
}
