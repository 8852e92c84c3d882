//! What every back end must do, as library functions: each test suite runs them on its own store.
//!
//! A case gets a fresh store, does one thing to it, and says literally what must follow. Cases go
//! through the port alone, so the model, SQLite and PostgreSQL run the same list.

mod answers;
mod arrivals;
mod capacity;
mod deletions;
pub mod double;
mod expiry;
mod filters;
mod leaving;
mod memory;
mod retention;
mod rows;
mod scene;
pub mod signing;
mod topics;
mod versions;
mod walks;

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use crate::{Entry, Place, Store};
use scene::Scene;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store under test, and what has to live as long as it.
pub struct Subject {
    pub store: Arc<dyn Store>,
    pub home: Box<dyn Any + Send + Sync>,
}

impl Subject {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, home: Box::new(()) }
    }
}

type Case = fn(Scene) -> BoxFuture;

macro_rules! cases {
    ($($module:ident { $($case:ident)+ })+) => {
        const CASES: &[(&str, Case)] = &[$($(
            (concat!(stringify!($module), "::", stringify!($case)),
             |scene| Box::pin($module::$case(scene))),
        )+)+];
    };
}

cases! {
    arrivals {
        a_regular_event_is_stored_and_announced
        what_is_stored_is_the_canonical_text
        a_repeat_changes_nothing
        repeats_within_a_batch_are_repeats
        an_ephemeral_event_leaves_no_trace
        an_event_without_a_handled_topic_is_refused
        sightings_add_up
        the_source_and_the_swarm_are_on_the_row
        an_empty_batch_is_nothing
    }
    versions {
        a_newer_version_replaces_an_older_one
        a_stale_version_is_remembered_and_not_stored
        a_tie_goes_to_the_smaller_id
        versions_of_one_batch_leave_one_winner
        addressable_events_are_kept_per_d
        odd_d_values_are_keys_like_any_other
        kinds_and_authors_do_not_share_a_key
        a_replaced_version_is_known_and_hidden
        a_version_on_two_topics_leaves_both
    }
    deletions {
        a_deletion_hides_its_target
        a_deletion_comes_before_its_target
        nobody_deletes_what_is_not_theirs
        deletions_cannot_be_deleted
        a_deleted_event_on_two_topics_leaves_both
        an_address_deletes_versions_up_to_its_time
        an_address_of_another_author_is_ignored
        an_address_that_names_no_version_is_ignored
        a_winner_deleted_before_it_arrives_beats_the_older_version
        an_older_version_does_not_come_back
        a_limit_stands_when_it_is_asked_for_less
        a_deletion_takes_what_a_stale_version_left
        a_deletion_reaches_a_replaced_version
        a_tombstone_says_when_it_was_applied
        a_deletion_of_many_targets_is_one_event
    }
    expiry {
        what_expires_is_hidden_before_it_is_swept
        the_sweep_announces_what_expired
        nothing_expires_before_its_time
        an_event_that_arrives_expired_is_refused
        an_expired_winner_keeps_its_mark
        overdue_events_come_longest_first
    }
    topics {
        a_topic_is_set_with_absolute_values
        a_disabled_topic_takes_nothing_in_and_keeps_what_it_has
        a_topic_handled_later_is_linked_when_the_event_comes_again
        an_event_is_linked_to_the_topics_that_are_handled
        usage_counts_stored_bodies
        a_topic_in_use_cannot_be_removed
        a_topic_can_be_removed_and_come_back
        longer_retention_moves_an_event_to_longer_keep
    }
    leaving {
        an_event_leaves_one_topic_and_stays_in_the_other
        what_left_a_topic_is_not_linked_again
        the_body_goes_with_the_last_link
        a_purged_event_is_remembered
        a_removed_topic_forgets_its_events
        a_removed_topic_lets_nothing_back_into_another
        a_purged_winner_keeps_its_mark
        a_winner_of_a_removed_topic_comes_back
        hidden_events_leave_without_a_row
        leaving_and_coming_back_in_one_batch
        what_is_not_there_cannot_leave
        linked_lists_every_link_once
    }
    retention {
        a_regular_event_leaves_when_its_days_are_over
        a_topic_keeps_events_for_its_own_days
        history_leaves_sooner_and_never_later
        deletions_stay_longer_and_never_shorter
        current_versions_are_kept
        the_node_says_how_long_events_are_kept
        a_stale_plan_removes_nothing
        an_event_lives_as_long_as_one_of_its_topics_keeps_it
        what_has_aged_in_a_topic_is_not_linked_there_again
        a_purge_takes_what_was_taken_in_before_a_time
        what_has_aged_is_listed
    }
    capacity {
        a_full_topic_refuses_one_more
        a_topic_without_bytes_left_refuses
        a_deletion_always_finds_room
        an_event_goes_to_the_topics_that_have_room
        a_known_event_that_finds_no_room_is_a_duplicate
        a_version_that_finds_no_room_changes_nothing
        a_topic_gives_up_no_more_than_it_must
        a_topic_that_refuses_gives_up_nothing
        the_node_counts_each_body_once
        a_full_node_refuses_or_evicts
        the_last_step_of_the_ladder_evicts
        an_evicted_winner_never_comes_back
        storage_without_room_takes_deletions_alone
        the_last_of_the_reserve_is_for_purging
        the_room_of_the_disk_is_set_by_itself
        the_last_move_of_the_ladder_is_kept
        topics_of_low_priority_are_paused_first
        backfill_is_stopped_first_of_all
        the_oldest_are_given_up_first_and_current_versions_last
    }
    memory {
        ids_are_forgotten_after_their_time
        what_is_stored_is_not_forgotten
        deletions_are_forgotten_after_their_time
        a_second_request_is_remembered_from_then_on
        what_was_forgotten_is_too_old
        what_is_forgotten_and_comes_again_at_once_is_new
        how_much_was_forgotten_only_grows
        a_deletion_is_remembered_from_the_date_of_what_it_refused
        a_task_is_one_instances
        a_lease_that_ran_out_changes_hands
        a_deposed_instance_moves_nothing
    }
    rows {
        seqs_are_gapless_across_batches
        the_feed_is_read_in_pages
        a_cursor_of_another_life_diverges
        a_cursor_beyond_the_head_diverges
        a_cursor_below_the_floor_is_truncated
        heads_follow_commits
        what_was_just_written_begins_the_feed
        deletes_need_no_body
        a_row_carries_everything
    }
    filters {
        every_condition_narrows
        conditions_on_different_tags_all_hold
        values_of_one_condition_are_alternatives
        tag_names_are_letters_of_either_case
        an_empty_list_matches_nothing
        bounds_of_time_are_inclusive
        topics_are_tested_against_links
        long_tag_values_are_found
        tag_values_are_bytes
        only_the_first_value_of_a_tag_counts
        ids_are_found_with_and_without_a_topic
        a_value_given_twice_is_found_once
    }
    answers {
        newest_first_and_ties_by_id
        a_limit_cuts_at_a_tie_by_id
        the_limit_counts_visible_events
        a_limit_of_zero_finds_nothing
        every_filter_has_its_own_limit
        several_filters_make_one_ordered_list
        the_node_bounds_every_limit
        no_filter_finds_nothing
        a_query_names_the_head_it_saw
        bodies_come_in_the_order_asked_for
        a_broad_query_is_refused_or_answered
        an_answer_goes_on_after_any_place
        answers_do_not_depend_on_hidden_events
    }
    walks {
        a_walk_sees_every_table_in_key_order
        pages_join_without_gap_or_repeat
        a_walk_finds_what_one_query_finds
        a_walk_ends_at_the_limit_of_its_filter
        a_walk_goes_on_within_a_second
        facts_tell_absent_from_present
        topics_are_listed_by_id
    }
}

/// Runs every case on a store of its own, and fails with the names of those that failed.
pub async fn run<F, Made>(make: F)
where
    F: Fn() -> Made,
    Made: Future<Output = Subject>,
{
    let failures = failures(make).await;
    let (failed, cases) = (failures.len(), CASES.len());
    assert!(failures.is_empty(), "{failed} of {cases} cases failed:\n{}", failures.join("\n"));
}

/// The cases that a store fails, by name, and how.
pub async fn failures<F, Made>(make: F) -> Vec<String>
where
    F: Fn() -> Made,
    Made: Future<Output = Subject>,
{
    let mut failures = Vec::new();
    for (name, case) in CASES {
        let scene = Scene::new(make().await);
        // A task of its own keeps a panic to one case, so that one run names them all.
        if let Err(error) = tokio::spawn(case(scene)).await {
            failures.push(format!("{name}: {}", why(error)));
        }
    }
    failures
}

fn why(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "cancelled".to_owned();
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The whole raw state, table by table in key order.
///
/// # Panics
/// When the store cannot be read, or a page goes back: a comparison cannot go on without it.
pub async fn dump(store: &dyn Store) -> Vec<Entry> {
    const ENTRIES_PER_PAGE: usize = 500;
    dump_in_pages(store, ENTRIES_PER_PAGE).await
}

async fn dump_in_pages(store: &dyn Store, entries_per_page: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for beginning in Place::ALL {
        let mut place = beginning;
        loop {
            let page = store.page(place.clone(), entries_per_page).await;
            let page = page.unwrap_or_else(|error| panic!("the page after {place:?}: {error}"));
            assert!(page.len() <= entries_per_page, "a page after {place:?} is too long");
            let Some(last) = page.last() else { break };
            assert_ne!(last.place(), place, "a page does not move on");
            place = last.place();
            entries.extend(page);
        }
    }
    entries
}
