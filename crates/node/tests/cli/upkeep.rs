//! How long and how much is kept: policies, purges, status, and what a running node does by itself.

use std::process::Command;

use kukuri_core::ladder::Step;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::running::Running;
use crate::site::{Ended, LIMIT, NOW, Site, ended, ids, notes, signed, system_time, text};

const GLOBAL: &str = "kukuri:global";
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The command as if so many days had gone by.
fn later(site: &Site, days: i64, args: &[&str]) -> Ended {
    let now = (NOW.0 + days * DAY_SECONDS).to_string();
    ended(site.command_now(args).args(["--now", &now]))
}

fn policy(site: &Site, args: &[&str]) -> Value {
    let mut shown = site.run(&[&["topic", "policy", GLOBAL], args].concat()).ok().json();
    assert_eq!(shown.len(), 1);
    shown.remove(0)
}

pub fn a_policy_is_shown_and_changed(site: &Site) {
    assert_eq!(policy(site, &[]), json!({}));
    let set = ["--retention-days", "7", "--max-events", "100", "--on-full", "refuse"];
    let expected = json!({"retention_days": 7, "max_events": 100, "on_full": "refuse"});
    assert_eq!(policy(site, &set), expected);
    let set = ["--max-events", "default", "--priority", "low", "--backfill", "off"];
    let expected =
        json!({"retention_days": 7, "on_full": "refuse", "priority": "low", "backfill": "off"});
    assert_eq!(policy(site, &set), expected);
    assert_eq!(policy(site, &[]), expected);
    assert_eq!(site.topics()[0]["ingest_policy"], expected);
    bounds_are_shown_and_lifted(site, &expected);
    site.run(&["topic", "policy", "no such topic", "--max-events", "1"]).code(1).says("topic list");
}

/// What is wrong is named, with what would be right, and nothing changes: not even by what stands beside it.
pub fn wrong_policies_change_nothing(site: &Site) {
    let set = ["--retention-days", "7", "--max-events", "100", "--priority", "low"];
    let before = policy(site, &set);
    let number = "give a whole number, or `default`";
    let wrong = [
        ("--retention-days", "-1", number),
        ("--retention-days", "4294967296", number),
        ("--max-events", "many", number),
        ("--max-events", "-5", number),
        // One more than there can be.
        ("--max-events", "18446744073709551616", number),
        ("--max-bytes", "1GB", number),
        ("--max-bytes", "1.5", number),
        ("--max-bytes", "-1", number),
        ("--max-lag-seconds", "4294967296", number),
        ("--max-lag-seconds", "1h", number),
        ("--priority", "urgent", "possible values: low, normal"),
        ("--backfill", "maybe", "possible values: on, off"),
        ("--on-full", "explode", "possible values: evict, refuse"),
    ];
    for (option, value, right) in wrong {
        let beside = if option == "--max-bytes" { "--max-lag-seconds" } else { "--max-bytes" };
        let args = ["topic", "policy", GLOBAL, beside, "5", option, value];
        let ended = site.run(&args).code(2).says(option);
        ended.says(&format!("'{value}'")).says(right);
    }
    assert_eq!(policy(site, &[]), before);
    site.run(&["topic", "policy", "nowhere", "--max-events", "1"]).code(1).says("topic list");
    assert_eq!(site.topics().len(), 1, "looking for it makes none");
}

/// A topic that is not there is no reason to purge everything, or nothing, without a word.
pub fn a_purge_of_no_topic_changes_nothing(site: &Site) {
    site.import(&notes(3)).ok();
    policy(site, &["--retention-days", "1"]);
    let before = site.run(&["feed"]).ok().stdout;
    let id = site.run(&["topic", "id", "nowhere"]).ok().stdout;
    for topic in ["nowhere", id.trim_end()] {
        for args in [&[][..], &["--dry-run"], &["--before", "1d"]] {
            let ended = later(site, 5, &[&["purge", "--topic", topic], args].concat()).code(1);
            ended.says(topic).says("kukuri-node topic list");
        }
    }
    later(site, 5, &["purge", "--topic", "kukuri:x"]).code(1).says("is not a topic id");
    assert_eq!(site.exported(&[]).len(), 3);
    assert_eq!(site.run(&["feed"]).ok().stdout, before);
    assert_eq!(site.topics().len(), 1);
    // It would have purged what there is.
    later(site, 5, &["purge", "--topic", GLOBAL]).ok().says("purged 3 events");
}

/// What else can be bounded is told wherever a policy is, until the node's own bounds hold again.
fn bounds_are_shown_and_lifted(site: &Site, others: &Value) {
    let mut bounded = others.clone();
    bounded["max_bytes"] = json!(5_000_000_000_u64);
    bounded["max_lag_seconds"] = json!(u32::MAX);
    let set = ["--max-bytes", "5000000000", "--max-lag-seconds", "4294967295"];
    assert_eq!(policy(site, &set), bounded);
    assert_eq!(site.topics()[0]["ingest_policy"], bounded);
    let status = site.run(&["status", "--json"]).ok().json().remove(0);
    assert_eq!(status["topics"][0]["ingest_policy"], bounded);
    let told = site.run(&["status"]).ok().stdout;
    let words = "\"max_bytes\":5000000000,\"max_lag_seconds\":4294967295";
    assert!(told.contains(words), "{words} in {told}");
    let lifted = ["--max-bytes", "default", "--max-lag-seconds", "default"];
    assert_eq!(policy(site, &lifted), *others);
    assert_eq!(site.topics()[0]["ingest_policy"], *others);
}

pub fn a_purge_takes_what_the_policy_no_longer_keeps(site: &Site) {
    let kept = signed(1, 0, 10, &[]);
    site.import(&[notes(3), vec![kept.clone()]].concat()).ok();
    policy(site, &["--retention-days", "10"]);
    later(site, 9, &["purge"]).ok().says("purged 0 events");
    let foretold = later(site, 11, &["purge", "--dry-run"]).ok();
    foretold.says("3 events").says("would leave kukuri:global").says("nothing was changed");
    assert_eq!(site.exported(&[]).len(), 4);
    later(site, 11, &["purge", "--topic", GLOBAL]).ok().says("purged 3 events");
    assert_eq!(site.exported(&[]), ids(&[kept]), "a current version stays");
    // What was purged is remembered, and does not come back.
    site.import(&notes(3)).ok();
    assert_eq!(site.exported(&[]).len(), 1);
    let rows = site.run(&["feed"]).ok().json();
    let gone = rows.iter().filter(|row| row["reason"] == "retention").count();
    assert_eq!(gone, 3, "each was announced");
    site.run(&["doctor"]).ok();
}

/// A dry run says what the purge then does, to the byte: what has aged, what has to make room, and events that
/// leave several topics or stay in one of them.
pub fn a_dry_run_tells_what_the_purge_does(site: &Site) {
    let names = ["aged", "full", "kept"];
    let topics: Vec<String> = names.iter().map(|name| added(site, name)).collect();
    let [aged, full, kept] = &topics[..] else { unreachable!("there are three") };
    let mut lines = Vec::new();
    for nth in 0..40 {
        let tags = match nth % 4 {
            0 => vec![aged],
            1 => vec![aged, full],
            2 => vec![aged, full, kept],
            _ => vec![full],
        };
        let tags: Vec<_> = tags.into_iter().map(|topic| ("t", topic.as_str())).collect();
        lines.push(signed(1, 1, 100 + nth, &tags));
    }
    lines.push(signed(2, 30_023, 5, &[("t", full), ("d", "x")]));
    // Every one of them carries the global topic as well.
    site.import(&lines).ok();
    for (topic, args) in [
        (GLOBAL, ["--retention-days", "2"]),
        (aged, ["--retention-days", "5"]),
        (full, ["--max-events", "4"]),
    ] {
        site.run(&[&["topic", "policy", topic][..], &args].concat()).ok();
    }
    for days in [0, 3, 6, 31] {
        for scope in [&[][..], &["--topic", "full"], &["--topic", "kept"]] {
            let purge = |args: &[&str]| later(site, days, &[&["purge"], scope, args].concat()).ok();
            let figures = |ended: Ended, begin: &str| {
                let line = ended.stderr.lines().find(|line| line.starts_with(begin));
                let line = line.unwrap_or_else(|| panic!("no {begin:?} in {}", ended.stderr));
                line[begin.len()..].replace("; nothing was changed", "")
            };
            let foretold = figures(purge(&["--dry-run"]), "would purge ");
            let done = figures(purge(&[]), "purged ");
            println!("{days} {scope:?}: {foretold}");
            assert_eq!(foretold, done, "after {days} days, {scope:?}");
            assert!(purge(&["--dry-run"]).stderr.contains("would purge 0 events (0 bytes);"));
        }
    }
    let left = site.run(&["status", "--json"]).ok().json().remove(0);
    assert_eq!(left["events"], 1, "the current version");
    site.run(&["doctor"]).ok();
}

/// The id of a new topic.
fn added(site: &Site, name: &str) -> String {
    site.run(&["topic", "add", name]).ok();
    let topics = site.topics();
    let topic = topics.iter().find(|topic| topic["name"] == name).unwrap();
    topic["topic_id"].as_str().unwrap().to_owned()
}

pub fn a_purge_by_time_takes_everything_before_it(site: &Site) {
    site.import(&[notes(3), vec![signed(1, 0, 10, &[])]].concat()).ok();
    let at = NOW.0.to_string();
    site.run(&["purge", "--before", &at]).ok().says("purged 0 events");
    later(site, 2, &["purge", "--before", "1d", "--dry-run"]).ok().says("4 events");
    later(site, 2, &["purge", "--before", "1d"]).ok().says("purged 4 events");
    assert!(site.exported(&[]).is_empty());
    site.run(&["purge", "--before", "yesterday"]).code(2).says("expected Unix seconds, or an age");
    site.run(&["doctor"]).ok();
}

/// What left by a clock that is ahead would not come back when it is set right.
pub fn a_purge_doubts_a_clock_that_is_far_ahead(site: &Site) {
    site.import(&notes(3)).ok();
    for args in [&["purge"][..], &["purge", "--before", "1d"], &["purge", "--topic", GLOBAL]] {
        let refused = later(site, 91, args).code(1).says("the clock seems to be ahead");
        refused.says("KUKURI_RETENTION_CLOCK=believe").says("nothing was purged");
    }
    let foretold = later(site, 91, &["purge", "--dry-run"]).ok();
    foretold.says("would purge 3 events").says("it would be refused");
    assert_eq!(site.exported(&[]).len(), 3);
    // Nodes are away for a while.
    later(site, 90, &["purge", "--before", "89d", "--dry-run"]).ok().says("would purge 3 events");
    later(site, 90, &["purge", "--before", "91d"]).ok().says("purged 0 events");
    let now = (NOW.0 + 91 * DAY_SECONDS).to_string();
    let mut believing = site.command_now(&["purge", "--now", &now]);
    ended(believing.env("KUKURI_RETENTION_CLOCK", "believe")).ok().says("purged 3 events");
    assert!(site.exported(&[]).is_empty());
    site.run(&["doctor"]).ok();
}

pub fn status_tells_what_the_node_holds(site: &Site) {
    site.import(&notes(5)).ok();
    policy(site, &["--max-events", "7"]);
    let status = site.run(&["status", "--json"]).ok().json().remove(0);
    assert_eq!((&status["feed"]["floor"], &status["feed"]["head"]), (&json!(0), &json!(5)));
    assert_eq!((&status["events"], &status["ladder_step"]), (&json!(5), &json!("none")));
    assert_eq!(status["topics"][0]["ingest_policy"]["max_events"], 7);
    assert_eq!(status["topics"][0]["events"], 5);
    assert!(status["extents"].as_array().unwrap().iter().any(|e| e["bytes"].as_u64() > Some(0)));
    assert_eq!(status["upkept_until"], Value::Null);
    let told = site.run(&["status"]).ok().stdout;
    for words in ["5 events", "kukuri:global", "\"max_events\":7", "ladder   none", "no node runs"]
    {
        assert!(told.contains(words), "{words} in {told}");
    }
    let extents = status["extents"].as_array().unwrap();
    let names: Vec<&str> = extents.iter().map(|extent| extent["name"].as_str().unwrap()).collect();
    for name in &names {
        assert!(told.contains(name), "{name} in {told}");
    }
    // A PostgreSQL gives space back by the partition, so each of them is told.
    if let Some(partitions) = site.ask(PARTITIONS) {
        let parted = ["events_standard_", "events_outbox_"];
        let listed = |name: &&str| parted.iter().any(|table| name.starts_with(table));
        let listed = names.into_iter().filter(listed).count();
        assert!(listed >= parted.len(), "{told}");
        assert_eq!(i64::try_from(listed), Ok(partitions), "{told}");
    }
}

/// Those of the events and of the feed.
const PARTITIONS: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent IN
    ('cn_relay.events_standard'::REGCLASS, 'cn_relay.events_outbox'::REGCLASS)";

/// The metric of a running node and the status beside it name the same step. It takes a minute of pressure to come
/// to one: here the node comes back to where it stood when it ended.
pub fn each_step_of_the_ladder_is_told(site: &Site) {
    site.import(&notes(1)).ok();
    let names = ["none", "stop_backfill", "stop_low_priority", "evict_oldest"];
    assert_eq!(Step::ALL.len(), names.len());
    for (nth, (step, name)) in (0_u32..).zip(Step::ALL.iter().zip(names)) {
        stand_on(site, *step);
        let running = Running::start(site, &[]);
        assert_eq!(running.metric("kukuri_ladder_step"), Some(f64::from(nth)), "{name}");
        let status = site.run(&["status", "--json"]).ok().json().remove(0);
        assert_eq!(status["ladder_step"], name);
        assert_eq!(status["allowance"]["step"], name);
        let told = site.run(&["status"]).ok().stdout;
        let words = format!("ladder   {name}");
        assert!(told.lines().any(|line| line.starts_with(&words)), "{words} in {told}");
        let is_stopped = told.contains("stopped by the ladder");
        assert_eq!(is_stopped, *step >= Step::StopBackfill, "backfill in {told}");
        running.end();
    }
    assert_eq!(site.exported(&[]).len(), 1, "no step takes what there is room for");
}

/// As if a node had ended on a step.
fn stand_on(site: &Site, step: Step) {
    let stand = |table: &str| {
        format!("UPDATE {table} SET allowance = '{{\"step\":\"{}\"}}'", step.as_str())
    };
    if site.ask(&stand("cn_relay.node_state")).is_none() {
        let file = Connection::open(site.path("data").join("events.db")).unwrap();
        assert_eq!(file.execute(&stand("node_state"), []).unwrap(), 1);
    }
}

/// Whoever opens the store goes by what is free now, and not by what a node found that ran once. (The disk
/// of a PostgreSQL has to be named.)
pub fn every_door_looks_at_the_disk(site: &Site) {
    // No disk has so much room.
    const BEYOND: &str = "1000000000000";
    let reserving = |command: &mut Command, reserve_mib: &str| {
        ended(command.env("KUKURI_CAPACITY_DISK_RESERVE_MIB", reserve_mib))
    };
    let importing = |lines: &[String], reserve_mib: &str| {
        let file = site.file("import.jsonl", lines);
        let mut command = site.command(&["import", text(&file)]);
        reserving(site.show_disk(&mut command), reserve_mib)
    };
    let storage = || site.run(&["status", "--json"]).ok().json()[0]["allowance"]["storage"].clone();
    let lines = notes(3);
    importing(&lines[..1], BEYOND).code(3).says("storage_full");
    assert!(storage()["spent"]["reserve_bytes"].as_u64() > Some(0), "{}", storage());
    importing(&lines[1..2], "0").ok().says("accepted                      1");
    assert_eq!(storage(), json!("open"));
    // Who is not told where a server's disk is keeps no reserve there.
    reserving(&mut site.command(&["purge"]), BEYOND).ok();
    assert_eq!(storage() == json!("open"), !site.has_own_disk());
    reserving(site.show_disk(&mut site.command(&["purge"])), BEYOND).ok();
    assert_ne!(storage(), json!("open"));
    let running = Running::spawn(site.show_disk(&mut site.command_now(&["run"])));
    wait_for("room", LIMIT, || (storage() == json!("open")).then_some(())).unwrap();
    running.end();
}

/// What has expired leaves within seconds, and a topic over its limit lets its oldest go.
pub fn a_running_node_keeps_house(site: &Site) {
    policy(site, &["--max-events", "3"]);
    let note = |nth: i64| Draft::new(1, system_time()).tag("t", GLOBAL).content(nth.to_string());
    let author = Author::numbered(1);
    let running = Running::start(site, &[]);
    let import = |line: String| {
        let file = site.file("events.jsonl", &[line]);
        ended(&mut site.command_now(&["import", file.to_str().unwrap()]))
    };
    // On a slow machine its time may be over before it is taken in: then it is given more.
    let taken_in = [2, 8, 32].into_iter().any(|seconds| {
        let expiring = note(0).tag("expiration", (system_time().0 + seconds).to_string());
        import(author.sign(&expiring)).code == Some(0)
    });
    assert!(taken_in, "it expired before it was taken in");
    let reasons = |reason: &str| {
        let rows = site.run(&["feed"]).ok().json();
        rows.iter().filter(|row| row["reason"] == reason).count()
    };
    wait_for("the sweep", LIMIT, || (reasons("expiration") == 1).then_some(())).unwrap();
    let more: Vec<String> = (1..=6).map(|nth| author.sign(&note(nth))).collect();
    let file = site.file("events.jsonl", &more);
    ended(&mut site.command_now(&["import", file.to_str().unwrap()])).ok();
    let events = || site.run(&["status", "--json"]).ok().json()[0]["events"].as_u64();
    wait_for("the oldest to leave", LIMIT, || (events() == Some(3)).then_some(())).unwrap();
    assert_eq!(reasons("capacity"), 3, "the hidden one left without a word");
    let metrics = Running::get(&running.admin, "/metrics", "*/*").1;
    assert!(metrics.contains("kukuri_upkeep_expired_events_total 1"), "{metrics}");
    let step = site.run(&["status", "--json"]).ok().json()[0]["ladder_step"].clone();
    assert_eq!((running.metric("kukuri_ladder_step"), step), (Some(0.0), json!("none")));
    running.end();
    // Whoever ends lets others go on at once.
    let status = site.run(&["status", "--json"]).ok().json().remove(0);
    assert_eq!(status["upkept_until"], Value::Null);
    site.run(&["doctor"]).ok();
}
