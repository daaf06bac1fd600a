//! Serves the fleet's API over a seeded ledger on a free port of loopback, for tools that
//! check it from outside. The first line on stdout is `ADDRESS TOKEN`; it ends when stdin
//! does.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // It is a part of tests.

#[path = "../tests/fleet_support/mod.rs"]
mod fleet_support;

use std::io::Read as _;
use std::sync::Arc;

use fleet_support::{TOKEN, Told, open, seed, state};
use runner_ledger::SystemClock;
use runner_server::Address;
use runner_server::fleet::serve_fleet;

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    // The past of the seed, then the clock of the machine.
    let clock = fleet_support::ManualClock::new();
    let ledger = open(folder.path(), clock.clone()).await;
    seed(&ledger, |secs| clock.advance_secs(secs)).await;
    ledger.close().await.unwrap();
    let ledger = open(folder.path(), Arc::new(SystemClock)).await;
    let listening = runner_server::bind(Address {
        port: 0,
        ..Address::default()
    })
    .unwrap();
    println!("{} {TOKEN}", listening.address());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let ended = async move { drop(ended.await) };
    serve_fleet(listening, state(&ledger, &Told::new(), false), ended)
        .await
        .unwrap();
}
