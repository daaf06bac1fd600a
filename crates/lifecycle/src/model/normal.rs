//! The normal form of a state: what can make no difference any more is the same.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Body, Client, Message, NOW, Slot, Who, World, roles};
use crate::decide::Answer;
use crate::request::Request;
use crate::time::Timestamp;

pub(super) fn hash(world: &World) -> u64 {
    hash_of(world)
}

/// `workers` of the clients are workers, the others judges.
pub(super) fn normalise(world: &mut World, workers: usize) {
    for at in 0..world.slots.len() {
        forget(&mut world.slots[at]);
        rename(world, at);
    }
    sort_clients(world, workers);
    world.network.sort_by_cached_key(hash_of);
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Workers are alike, and so are judges: which of them is at something makes no
/// difference.
fn sort_clients(world: &mut World, workers: usize) {
    let mut order: Vec<usize> = (0..world.clients.len()).collect();
    order.sort_by_cached_key(|at| (*at >= workers, look_of(world, *at)));
    if order.is_sorted() {
        return;
    }
    let mut new_place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        new_place[*old] = new;
    }
    world.clients = order
        .iter()
        .map(|old| world.clients[*old].clone())
        .collect();
    let place = |at: usize| new_place[at];
    for message in messages(world) {
        rename_caller(message, place);
    }
    for slot in &mut world.slots {
        let owner = slot.task.owner.iter_mut();
        let lease = slot.lease.iter_mut();
        owner
            .chain(lease.flat_map(|lease| [&mut lease.owner, &mut lease.key]))
            .for_each(|name| rename_name(name, place));
    }
}

/// What a client is at, whatever its name is.
fn look_of(world: &World, at: usize) -> u64 {
    let own = |other: usize| if other == at { 0 } else { 9 };
    let mut client = world.clients[at].clone();
    if let Client::Waiting { message, .. } = &mut client {
        rename_caller(message, own);
    }
    let name = roles::name(Who::Client(at));
    let leases: Vec<bool> = world
        .slots
        .iter()
        .map(|slot| slot.lease.as_ref().is_some_and(|lease| lease.owner == name))
        .collect();
    let mut calls: Vec<u64> = world
        .network
        .iter()
        .filter(|message| message.from == Who::Client(at))
        .map(|message| {
            let mut message = message.clone();
            rename_caller(&mut message, own);
            hash_of(&message)
        })
        .collect();
    calls.sort_unstable();
    // Nobody in particular comes first.
    let idle = client == Client::Idle && calls.is_empty();
    hash_of(&(client, leases, calls)) | u64::from(idle) << 63
}

fn rename_caller(message: &mut Message, place: impl Fn(usize) -> usize) {
    let Who::Client(at) = message.from else {
        return;
    };
    message.from = Who::Client(place(at));
    if let Body::Call(call) = &mut message.body {
        rename_name(&mut call.actor, &place);
        if let Request::Claim(claim) = &mut call.request {
            rename_name(&mut claim.owner, &place);
            rename_name(&mut claim.key, &place);
        }
    }
}

/// Names of clients, and keys of their claims, are `c`, a number, and maybe `@` and more.
fn rename_name(name: &mut String, place: impl Fn(usize) -> usize) {
    let (number, rest) = match name.split_once('@') {
        Some((number, rest)) => (number, Some(rest)),
        None => (name.as_str(), None),
    };
    let Some(at) = number.strip_prefix('c').and_then(|n| n.parse().ok()) else {
        return;
    };
    let new = roles::name(Who::Client(place(at)));
    *name = match rest {
        Some(rest) => format!("{new}@{rest}"),
        None => new,
    };
}

/// Times are due or not due; counts that no rule reads are gone.
fn forget(slot: &mut Slot) {
    if let Some(blocker) = &mut slot.task.blocker {
        let later = |at: Timestamp| if at > NOW { Timestamp(NOW.0 + 1) } else { NOW };
        blocker.retry_at = blocker.retry_at.map(later);
        blocker.reason.clear();
    }
    slot.task.counters.failures_by_owner.clear();
    if slot.task.state.is_terminal() {
        slot.task.owner = None;
    }
    if let Some(run) = &mut slot.run {
        run.token = 0;
        run.judgement_version = 0;
        run.owner.clear();
    }
}

/// All calls that are under way or may be repeated.
fn messages(world: &mut World) -> impl Iterator<Item = &mut Message> {
    let waiting = world.clients.iter_mut().filter_map(|client| match client {
        Client::Waiting { message, .. } => Some(message),
        _ => None,
    });
    world.network.iter_mut().chain(waiting)
}

/// Versions and tokens become their rank among those that are still in use.
fn rename(world: &mut World, at: usize) {
    let mut versions = BTreeSet::from([world.slots[at].task.version]);
    let mut tokens = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for message in messages(world).filter(|message| message.slot == at) {
        if let Body::Call(call) = &message.body {
            versions.extend(call.expected_version);
            tokens.extend(call.request.token());
            match &call.request {
                Request::Claim(claim) => {
                    keys.insert(claim.key.clone());
                }
                Request::RecordIntent { intent, .. } | Request::SettleIntent { intent, .. } => {
                    versions.extend(version_in(&intent.merge_commit));
                }
                _ => {}
            }
        }
    }
    let intent = world.slots[at].task.intent.as_ref();
    versions.extend(intent.and_then(|intent| version_in(&intent.merge_commit)));
    let kept = world.slots[at].receipts.iter();
    versions.extend(kept.filter_map(|kept| match &kept.request {
        Request::SettleIntent { intent, .. } => version_in(&intent.merge_commit),
        _ => None,
    }));
    let work = world.clients.iter().filter_map(|client| match client {
        Client::Busy(work) => Some(work),
        Client::Waiting { work, .. } => work.as_ref(),
        Client::Idle => None,
    });
    tokens.extend(work.filter(|work| work.slot == at).map(|work| work.token));

    let asked = tokens.clone();
    tokens.insert(world.slots[at].task.token);

    let version_of = |old: u64| rank(&versions, old);
    let token_of = |old: u64| rank(&tokens, old);
    for message in messages(world).filter(|message| message.slot == at) {
        let from = message.from;
        if let Body::Call(call) = &mut message.body {
            call.expected_version = call.expected_version.map(version_of);
            if let (Request::Claim(claim), Some(version)) =
                (&mut call.request, call.expected_version)
            {
                claim.key = roles::key(from, version);
            }
            set_token(&mut call.request, token_of);
            set_commit(&mut call.request, version_of);
        }
    }
    for client in &mut world.clients {
        let work = match client {
            Client::Busy(work) => Some(work),
            Client::Waiting { work, .. } => work.as_mut(),
            Client::Idle => None,
        };
        if let Some(work) = work.filter(|work| work.slot == at) {
            work.token = token_of(work.token);
        }
    }
    let slot = &mut world.slots[at];
    slot.task.version = version_of(slot.task.version);
    slot.task.token = token_of(slot.task.token);
    if let Some(intent) = &mut slot.task.intent {
        intent.merge_commit = renamed_key(&intent.merge_commit, version_of);
    }
    if let Some(lease) = &mut slot.lease {
        lease.token = token_of(lease.token);
        lease.key = if keys.contains(&lease.key) {
            renamed_key(&lease.key, version_of)
        } else {
            String::new()
        };
    }
    slot.receipts.retain(|kept| {
        kept.request
            .token()
            .is_some_and(|token| asked.contains(&token))
    });
    for kept in &mut slot.receipts {
        if let Answer::Moved { retry_at, .. } = &mut kept.answer {
            *retry_at = None;
        }
        set_token(&mut kept.request, token_of);
        set_commit(&mut kept.request, version_of);
    }
}

/// The version in the name of a claim or of a merge commit.
fn version_in(name: &str) -> Option<u64> {
    name.split_once('@')?.1.parse().ok()
}

fn set_commit(request: &mut Request, version_of: impl Fn(u64) -> u64) {
    if let Request::RecordIntent { intent, .. } | Request::SettleIntent { intent, .. } = request {
        intent.merge_commit = renamed_key(&intent.merge_commit, version_of);
    }
}

/// Counted from 1, in order.
fn rank(all: &BTreeSet<u64>, one: u64) -> u64 {
    all.range(..=one).count() as u64
}

fn renamed_key(key: &str, version_of: impl Fn(u64) -> u64) -> String {
    let Some((owner, version)) = key.split_once('@') else {
        return String::new();
    };
    let version = version.parse().map_or(0, version_of);
    format!("{owner}@{version}")
}

fn set_token(request: &mut Request, token_of: impl Fn(u64) -> u64) {
    match request {
        Request::Heartbeat { token }
        | Request::Finish { token, .. }
        | Request::Judge { token, .. }
        | Request::RecordIntent { token, .. }
        | Request::SettleIntent { token, .. } => *token = token_of(*token),
        _ => {}
    }
}
