//! One suite for both stores: every body runs on SQLite and on a PostgreSQL of its own.
#![allow(clippy::unwrap_used)] // the bodies are tests, though no attribute says so

mod conformance {
    pub(crate) mod fleet;
    pub(crate) mod guards;
    pub(crate) mod memory;
    pub(crate) mod order;
    pub(crate) mod pages;
    pub(crate) mod protocol;
    pub(crate) mod repairs;
    pub(crate) mod together;
    pub(crate) mod watchdog;
}
mod support;

macro_rules! on_both {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod sqlite {
            $( #[test] fn $case() {
                let world = crate::support::World::sqlite();
                crate::support::block_on(crate::conformance::$module::$case(world));
            } )+
        }
        mod postgres {
            $( #[test] fn $case() {
                let world = crate::support::World::postgres();
                crate::support::block_on(crate::conformance::$module::$case(world));
            } )+
        }
    };
}

on_both! {
    protocol::from_creation_to_merge,
    protocol::a_stale_token_changes_nothing,
    protocol::a_repeated_ending_gets_its_recorded_answer,
    protocol::a_repeated_claim_gets_the_same_lease,
    protocol::a_claim_on_its_way_twice_gets_one_lease,
    protocol::a_named_request_is_answered_once,
    protocol::a_named_creation_on_its_way_twice_is_answered_twice,
    protocol::another_version_is_refused,
    protocol::a_plan_is_saved_whole_or_not_at_all,
    protocol::a_retry_makes_one_successor,
    protocol::secrets_are_not_stored,
    protocol::an_export_round_trips,
    protocol::a_damaged_export_is_refused,
    guards::events_cannot_be_changed,
    guards::rows_are_rebuilt_from_events,
    guards::a_check_finds_what_does_not_fit,
    guards::a_check_reads_on_where_something_cannot_be_read,
    guards::a_newer_schema_is_refused,
    guards::a_read_only_store_says_so,
    guards::opening_again_changes_nothing,
    memory::whoever_holds_work_asks_nothing,
    memory::what_others_did_meanwhile_is_noticed,
    memory::damage_is_found_behind_a_memory,
    together::whole_lives_at_once,
    together::whoever_is_refused_harms_nobody,
    together::claims_at_once_keep_the_rules,
    together::a_claim_in_a_batch_with_itself_gets_one_lease,
    together::nothing_is_claimed_at_once_while_paused,
    together::the_first_in_order_is_not_overtaken,
    together::what_cannot_be_kept_harms_nobody,
    order::claims_use_the_index,
    order::the_order_is_that_of_the_rules,
    order::dependencies_open_the_way,
    order::a_dependency_is_met_by_its_successor,
    order::dependencies_that_end_at_the_same_time,
    order::overlapping_scopes_are_never_both_held,
    order::a_hot_lock_is_looked_at_once_for_each_release,
    order::a_released_scope_lets_everybody_start_who_fits,
    order::an_unmerged_result_keeps_its_scope,
    order::the_first_in_order_reserves_its_scope,
    order::nothing_starts_while_the_fleet_is_paused,
    pages::pages_are_stable_under_writes,
    pages::tasks_are_filtered,
    pages::runs_come_newest_first,
    pages::the_sequence_of_events_is_followed,
    watchdog::the_armed_deadline_is_the_boundary,
    watchdog::an_idle_watchdog_asks_nothing,
    watchdog::a_watchdog_that_was_asleep_gives_grace,
    watchdog::a_cooldown_ends_at_its_time,
    watchdog::a_watchdog_hears_and_can_be_stopped,
    watchdog::other_processes_hear_of_a_change,
    repairs::each_contradiction_is_mended,
    repairs::what_is_in_the_way_of_a_claim_is_mended,
    repairs::nothing_is_done_over_an_overlap,
    repairs::a_merge_goes_on_after_the_repair,
    repairs::what_cannot_be_mended_is_parked,
    fleet::agents_are_offline_after_three_intervals,
    fleet::what_an_agent_was_given,
    fleet::a_role_lease_has_one_holder,
    fleet::a_run_is_charged_once,
    fleet::the_view_is_what_a_dispatcher_needs,
    fleet::what_is_dead_and_what_is_to_recover,
    fleet::counts_and_the_oldest,
    fleet::what_mends_the_base_does_not_queue,
}

#[test]
fn decisions_go_by_the_clock_of_the_server() {
    let world = support::World::postgres();
    support::block_on(conformance::protocol::the_clock_of_the_server(world));
}

/// A store without a file: the same rules, and those who listen hear.
#[test]
fn in_memory() {
    support::block_on(async {
        let world = support::World {
            store: runner_ledger::Store::Memory,
            ..support::World::sqlite()
        };
        let ledger = world.open().await;
        let mut notifications = ledger.listen().await.unwrap();
        support::made(&ledger, support::new_task("a", "src")).await;
        notifications.next().await;
        let a = support::work(&ledger, "w", "k").await.unwrap();
        ledger.call(&support::succeed(&a, "w")).await.unwrap();
        support::judge_and_merge(&ledger, "a", "a-1").await;
        support::assert_clean(&ledger.check().await.unwrap());
    });
}

#[test]
fn an_event_that_is_being_written_is_waited_for() {
    let world = support::World::postgres();
    support::block_on(conformance::pages::an_event_that_is_being_written_is_waited_for(world));
}

#[test]
fn a_task_that_is_canceled_while_it_is_woken_passes_the_word_on() {
    let world = support::World::postgres();
    let case = conformance::pages::a_task_that_is_canceled_while_it_is_woken_passes_the_word_on;
    support::block_on(case(world));
}

#[test]
fn ends_wait_for_nobody_elses() {
    let world = support::World::postgres();
    support::block_on(conformance::together::ends_wait_for_nobody_elses(world));
}
