//! The program itself, run as users run it. Each story is told on SQLite by a test of its own, and
//! all of them on PostgreSQL by one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/backfill.rs"]
mod backfill;
#[path = "cli/backup.rs"]
mod backup;
#[path = "cli/beside.rs"]
mod beside;
#[path = "cli/clients.rs"]
mod clients;
#[path = "cli/consumer.rs"]
mod consumer;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/export.rs"]
mod export;
#[path = "cli/feed.rs"]
mod feed;
#[path = "cli/gossip.rs"]
mod gossip;
#[path = "cli/http.rs"]
mod http;
#[path = "cli/import.rs"]
mod import;
#[path = "cli/logs.rs"]
mod logs;
#[path = "cli/node.rs"]
mod node;
#[path = "cli/outage.rs"]
mod outage;
#[path = "cli/own_client.rs"]
mod own_client;
#[path = "cli/returning.rs"]
mod returning;
#[path = "cli/running.rs"]
mod running;
#[path = "cli/search.rs"]
mod search;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/site.rs"]
mod site;
#[path = "cli/topics.rs"]
mod topics;
#[path = "cli/upkeep.rs"]
mod upkeep;

use kukuri_testkit::postgres::{Cluster, Durability};
use site::Site;

macro_rules! stories {
    ($on_postgres:ident, $($module:ident: $($story:ident)+;)+) => {
        $($(
            #[test]
            fn $story() {
                $module::$story(&Site::sqlite());
            }
        )+)+

        /// One cluster for all of them: starting one takes longer than any story.
        #[test]
        fn $on_postgres() {
            let cluster = Cluster::start(Durability::Fast).unwrap();
            $($(
                eprintln!("{}", stringify!($story));
                $module::$story(&Site::postgres(&cluster.create_database()));
            )+)+
        }
    };
}

stories! {
    every_story_holds_on_postgres,
    backfill:
        two_nodes_show_the_same_after_a_sync
        a_sync_does_not_bring_back_what_was_purged
        a_sync_says_what_is_in_its_way
        a_node_backfills_through_kills;
    consumer:
        an_unknown_consumer_is_an_error
        looking_at_consumers_makes_nothing
        search_is_paused_and_goes_on
        search_finds_what_others_write_where_nobody_tells
        search_reads_the_feed_again
        a_rebuild_beside_ingest_fails_no_question
        a_rebuild_is_given_up
        search_begins_anew_beside_a_restored_store
        search_begins_anew_when_the_operator_says_so
        search_begins_anew_when_the_feed_has_gone_on_without_it
        search_waits_for_the_operator_when_the_feed_has_gone_on_without_it
        other_kinds_make_another_index;
    http:
        http_and_nip50_find_what_people_expect
        what_is_gone_is_not_found_over_http
        hostile_questions_are_answered_or_refused
        topics_are_found_by_their_names
        http_goes_by_the_rules_of_the_relay;
    import:
        what_is_imported_can_be_exported
        hostile_lines_are_refused_by_number_and_the_rest_goes_in
        importing_goes_by_the_settings
        importing_again_changes_nothing
        stdin_can_be_imported
        a_report_has_every_line
        old_events_need_any_age
        an_interrupted_import_finishes_what_it_began
        a_deleted_event_stays_deleted
        unreadable_inputs_are_named;
    topics:
        a_new_store_carries_the_global_topic
        names_have_ids
        a_topic_is_added_under_both_mappings
        a_disabled_topic_takes_nothing_in
        a_removed_topic_can_come_back
        removing_can_be_interrupted_and_goes_on
        unknown_topics_are_named;
    feed:
        a_row_has_the_fields_that_are_promised
        rows_can_be_read_from_anywhere
        a_place_beyond_the_feed_is_an_error;
    export:
        filters_choose_events
        a_limit_gives_the_newest_first
        events_after_a_number
        expired_events_are_not_exported
        a_reader_that_leaves_is_no_failure;
    beside:
        a_follower_sees_what_another_process_imports
        two_imports_at_once_take_each_event_once
        the_doctor_finds_nothing_beside_an_import;
    backup:
        a_backup_under_load_is_restored_elsewhere
        a_cursor_of_the_old_life_is_refused
        an_empty_store_can_be_backed_up
        nothing_is_overwritten
        a_damaged_backup_is_refused
        a_backup_belongs_to_its_back_end
        an_interrupted_backup_is_none
        an_interrupted_restore_is_none;
    doctor:
        a_healthy_store_has_no_findings
        who_only_reads_makes_no_store
        findings_are_lines_of_json;
    clients:
        nostr_sdk_uses_the_node_as_any_relay
        nostr_sdk_authenticates
        nostr_tools_uses_the_node_as_any_relay
        what_one_node_takes_in_another_sends;
    own_client:
        our_client_goes_on_after_the_node_was_killed;
    search:
        what_is_published_is_found_by_its_words;
    settings:
        settings_come_in_layers
        wrong_settings_are_named
        the_disk_of_a_server_is_named
        the_operator_sees_how_the_node_is
        the_auth_mode_is_read_again
        the_log_does_not_tell_what_was_said_by_whom_or_from_where;
    upkeep:
        a_policy_is_shown_and_changed
        wrong_policies_change_nothing
        a_purge_of_no_topic_changes_nothing
        a_purge_takes_what_the_policy_no_longer_keeps
        a_dry_run_tells_what_the_purge_does
        a_purge_by_time_takes_everything_before_it
        a_purge_doubts_a_clock_that_is_far_ahead
        status_tells_what_the_node_holds
        each_step_of_the_ladder_is_told
        every_door_looks_at_the_disk
        a_running_node_keeps_house;
    returning:
        what_has_left_does_not_come_back;
    logs:
        logs_hold_nothing_of_clients;
    node:
        running_says_where_everything_is_and_ends_when_asked
        wrong_command_lines_are_code_2;
}

// These wait for each other to notice that somebody is gone, which takes its time.
stories! {
    every_story_of_gossip_holds_on_postgres,
    gossip:
        an_event_is_live_once_at_every_node
        an_event_that_is_heard_twice_is_noticed
        a_node_that_was_cut_off_is_whole_again
        a_peer_that_says_where_its_relay_is_is_asked_there
        a_node_that_was_killed_finds_its_peers_again
        a_node_that_has_purged_stays_so
        the_operator_sees_how_the_node_gossips
        an_instance_that_cannot_begin_leaves_it_to_another
        a_node_carries_so_many_topics_and_not_one_more;
}

/// By the sort of address that the README advises.
#[test]
fn a_server_is_reached_by_its_socket() {
    let cluster = Cluster::start(Durability::Fast).unwrap();
    let site = Site::postgres(&cluster.socket_url(&cluster.create_named()));
    import::what_is_imported_can_be_exported(&site);
}

#[test]
fn the_doctor_finds_what_was_tampered_with() {
    doctor::the_doctor_finds_what_was_tampered_with(&Site::sqlite());
}

#[test]
fn a_second_signal_ends_at_once() {
    node::a_second_signal_ends_at_once();
}
