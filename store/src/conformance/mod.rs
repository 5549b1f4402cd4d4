//! One suite for every engine: each documented property of each trait method, as a test over
//! `Arc<dyn Engine>`. [`conformance!`](crate::conformance!) stamps all of them onto an engine.
//!
//! The tests share a database, also with earlier runs: each makes names of its own. They call for
//! nothing that an engine over the network could not do.

mod counters;
mod facts;
mod index;
mod journal;
mod ledger;
mod meta;
mod names;
mod operate;
mod rows;
mod scan;

use std::sync::Arc;

pub use counters::*;
pub use facts::*;
pub use index::*;
pub use journal::*;
pub use ledger::*;
pub use meta::*;
pub use operate::*;
pub use rows::*;
pub use scan::*;

use crate::engine::Engine;

/// The engine under test.
pub type Subject = Arc<dyn Engine>;

/// Stamps every test of the suite onto an engine, in a module `$name`.
///
/// `$setup` is an async function without arguments that returns the engine and a value that is kept
/// until the test ends: `(Arc<dyn Engine>, impl Sized)`.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $setup:path) => {
        mod $name {
            $crate::conformance!(@stamp $setup;
                facts_join_register_by_register
                a_fact_with_equal_versions_keeps_the_larger_of_each_field
                registers_with_version_zero_are_left_alone
                facts_are_read_in_the_order_asked_for_and_absent_ones_are_none
                facts_of_other_shards_kinds_and_targets_are_apart
                pages_of_facts_reach_the_end_without_skip_or_repeat
                a_root_head_joins_and_is_no_row
                a_batch_with_one_fact_twice_joins_both
                concurrent_fact_writes_lose_nothing
                a_ledger_commit_applies_whole_on_an_absent_head
                a_ledger_commit_conflicts_on_another_revision_and_writes_nothing
                a_ledger_commit_conflicts_on_any_row_and_writes_nothing
                a_ledger_commit_moves_time_rows_with_their_facts
                time_rows_are_listed_latest_and_largest_first
                pages_of_a_ledger_reach_the_end_without_skip_or_repeat
                ledger_repair_drops_and_puts_what_it_says
                a_ledger_head_keeps_all_its_fields
                racing_ledger_commits_apply_one_after_another
                a_dropped_ledger_is_gone_and_others_stay
                the_counter_with_the_larger_order_then_blob_wins
                counters_of_a_target_are_read_together
                the_larger_shown_level_wins
                a_dropped_counter_is_gone
                racing_counter_writes_keep_the_newest
                index_rows_join_by_version
                the_index_lists_latest_and_largest_first
                a_moved_index_row_is_valid_at_its_new_time_only
                a_withdrawn_index_row_is_listed_nowhere
                a_written_fact_carries_its_index_rows
                a_dropped_index_time_row_is_gone
                a_dropped_index_row_is_gone_from_both_sections
                a_repeated_index_write_brings_a_lost_time_row_back
                pages_of_the_index_reach_the_end_without_skip_or_repeat
                a_lane_starts_closed_and_swept_before_its_first_slot
                watermarks_of_a_lane_only_rise
                a_retired_lane_is_listed_but_not_open
                an_unknown_lane_stays_unknown
                journal_entries_are_read_in_order_of_id
                the_next_slot_is_at_or_before_the_first_that_holds_entries
                dropped_slots_are_empty_and_later_ones_stay
                a_fused_landing_writes_entry_facts_and_index
                a_fused_landing_on_a_closed_slot_writes_nothing
                a_fused_landing_on_a_gone_lane_writes_nothing
                slices_partition_the_key_space
                a_fact_scan_finds_each_partition_once
                a_counter_scan_finds_each_target_once
                a_ledger_scan_finds_each_leaf_once
                an_index_scan_finds_each_list_once
                fact_rows_are_read_once_in_order_of_place
                ledger_rows_are_read_once_at_the_places_of_their_facts
                counter_rows_are_read_whole_by_target
                index_rows_are_read_once_in_both_sections
                meta_rows_are_replaced_listed_and_dropped
                a_meta_row_is_swapped_only_where_it_is_as_expected
                racing_meta_swaps_let_one_win_each_time
                the_status_with_the_larger_version_wins
                statuses_of_targets_and_users_are_apart
                pages_of_a_log_reach_the_end_without_skip_or_repeat
                a_dropped_entry_is_gone_and_its_neighbours_stay
                a_dropped_log_is_empty_and_others_stay
                a_log_refuses_what_it_cannot_hold
            );
        }
    };
    (@stamp $setup:path; $($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                use super::*;
                let (engine, guard) = $setup().await;
                $crate::conformance::$test(engine).await;
                drop(guard);
            }
        )*
    };
}
