//! Nodes that fetch from each other what they have missed, as programs.

use std::process::Command;

use kukuri_core::TopicId;
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;

use crate::running::{Running, patient};
use crate::site::{Ended, LIMIT, Site, ended, id, ids, system_time, text};

/// For longer than this nobody waits for a node that was killed.
const LEASE_SECONDS: i64 = 31;

/// A signed event of now and a little earlier, on `kukuri:global`. Those of two ages are two, also when a second
/// ends between them.
fn signed(kind: u16, age: i64, tags: &[(&str, &str)]) -> String {
    let draft = Draft::new(kind, UnixSeconds(system_time().0 - age)).tag("t", TopicId::global());
    let draft = draft.content(age.to_string());
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).sign(&draft)
}

fn notes(ages: std::ops::Range<i64>) -> Vec<String> {
    ages.map(|age| signed(1, age, &[])).collect()
}

fn import(site: &Site, lines: &[String]) {
    let file = site.file("import.jsonl", lines);
    ended(&mut site.command_now(&["import", text(&file)])).ok();
}

fn exported(site: &Site) -> Vec<String> {
    let export = ended(&mut site.command_now(&["export"])).ok();
    let mut ids: Vec<String> = export.stdout.lines().map(id).collect();
    ids.sort_unstable();
    ids
}

fn sync(site: &Site, from: &Running) -> Ended {
    ended(&mut site.command_now(&["sync", "--from", &from.url, "--topic", "kukuri:global"]))
}

/// What one line of the counts says.
fn counted(ended: &Ended, name: &str) -> u64 {
    let lines = ended.stderr.lines().filter_map(|line| line.trim().strip_prefix(name));
    let mut counts = lines.filter_map(|rest| rest.trim().parse().ok());
    counts.next().unwrap_or_else(|| panic!("no {name:?} in {}", ended.stderr))
}

/// Two nodes of which each has missed something, a deletion and a new version among it, show the same once
/// each has asked the other, beside a node that runs or without one.
pub fn two_nodes_show_the_same_after_a_sync(site: &Site) {
    let (one, two) = (site, site.elsewhere());
    let shared = notes(100..400);
    let doomed = signed(1, 50, &[]);
    let old = signed(30_023, 40, &[("d", "x")]);
    let new = signed(30_023, 30, &[("d", "x")]);
    let deletion = signed(5, 20, &[("e", &id(&doomed))]);
    import(one, &[&shared[..200], &[doomed.clone(), new.clone(), deletion.clone()]].concat());
    import(&two, &[&shared[100..], &[doomed, old]].concat());
    let running = Running::spawn(&mut patient(one));
    let first = sync(&two, &running).ok();
    assert_eq!((counted(&first, "missing here"), counted(&first, "accepted")), (102, 102));
    assert_eq!(counted(&first, "only here"), 102, "{}", first.stderr);
    let all = ids(&[&shared[..], &[new, deletion]].concat());
    assert_eq!(exported(&two), all);
    let feed = ended(&mut two.command_now(&["feed"])).ok();
    assert!(feed.stdout.contains(r#""source":"backfill""#), "{}", feed.stdout);
    let other = Running::spawn(&mut patient(&two));
    let second = sync(one, &other).ok();
    assert_eq!(counted(&second, "accepted"), 100);
    assert_eq!(exported(one), all);
    // Who has everything has nothing to fetch, and says little.
    let again = sync(&two, &running).ok();
    assert_eq!((counted(&again, "missing here"), counted(&again, "fetched")), (0, 0));
    assert!(counted(&again, "bytes sent") + counted(&again, "bytes received") < 2048);
    other.end();
    running.end();
}

pub fn a_sync_does_not_bring_back_what_was_purged(site: &Site) {
    let (one, two) = (site, site.elsewhere());
    import(one, &notes(100..200));
    ended(&mut two.command_now(&["topic", "list"])).ok();
    let running = Running::spawn(&mut patient(one));
    assert_eq!(counted(&sync(&two, &running).ok(), "accepted"), 100);
    let at = (system_time().0 + 1).to_string();
    ended(&mut two.command_now(&["purge", "--before", &at])).ok();
    assert!(exported(&two).is_empty());
    let again = sync(&two, &running).ok();
    assert_eq!((counted(&again, "known before"), counted(&again, "fetched")), (100, 0));
    assert!(exported(&two).is_empty());
    running.end();
}

pub fn a_sync_says_what_is_in_its_way(site: &Site) {
    let two = site.elsewhere();
    let running = Running::spawn(&mut patient(site));
    let at = |topic: &str| {
        ended(&mut two.command_now(&["sync", "--from", &running.url, "--topic", topic]))
    };
    at("kukuri:global").code(1).says("there is no store in");
    ended(&mut two.command_now(&["topic", "add", "tea"])).ok();
    at("coffee").code(1).says("no topic \"coffee\" here");
    at("tea").code(1).says("restricted: topic not handled here");
    ended(&mut two.command_now(&["topic", "policy", "tea", "--backfill", "off"])).ok();
    at("tea").code(1).says("takes no backfill");
    ended(&mut two.command_now(&["topic", "disable", "tea"])).ok();
    at("tea").code(1).says("is not carried");
    let nobody = ["sync", "--from", "ws://127.0.0.1:1", "--topic", "kukuri:global"];
    ended(&mut two.command_now(&nobody)).code(1).says("cannot be reached");
    let wrong = ["sync", "--from", "http://x", "--topic", "kukuri:global"];
    ended(&mut two.command_now(&wrong)).code(2);
    running.end();
}

fn follower(site: &Site, from: &Running, settings: &[(&str, &str)]) -> Command {
    let mut command = patient(site);
    command.env("KUKURI_BACKFILL_FROM", &from.url);
    command.env("KUKURI_BACKFILL_INTERVAL_SECONDS", "1");
    command.envs(settings.iter().copied());
    command
}

/// A node that is killed while it fetches goes on when it is back, and then follows the other one: what is
/// published, replaced and deleted there.
pub fn a_node_backfills_through_kills(site: &Site) {
    let (one, two) = (site, site.elsewhere());
    let first = notes(100..700);
    import(one, &first);
    let running = Running::spawn(&mut patient(one));
    let slow = [("KUKURI_BACKFILL_PER_SECOND", "30")];
    let mut begun = 0.0;
    // Who is killed leaves a lease behind: by their clocks, each starts when the last one's has run out.
    let started = system_time().0;
    for ago in [2 * LEASE_SECONDS, LEASE_SECONDS] {
        let mut command = follower(&two, &running, &slow);
        command.arg("--now").arg((started - ago).to_string());
        let mut follower = Running::spawn(&mut command);
        let more = || {
            let events = follower.metric("kukuri_store_events")?;
            (events > begun).then_some(events)
        };
        begun = wait_for("some of it", LIMIT, more).unwrap();
        let told = || follower.node.stderr().contains("backfill goes on").then_some(());
        wait_for("how far it is", LIMIT, told).unwrap();
        follower.node.kill9().unwrap();
        assert!(exported(&two).len() < first.len(), "it was killed in the middle of it");
    }
    let any = [("KUKURI_BACKFILL_PER_SECOND", "0")];
    let follower = Running::spawn(&mut follower(&two, &running, &any));
    let equal = || (exported(&two) == exported(one)).then_some(());
    wait_for("all of it", LIMIT, equal).unwrap();
    let (old, new) = (signed(10_002, 30, &[]), signed(10_002, 20, &[]));
    import(one, &[old]);
    wait_for("what is new", LIMIT, equal).unwrap();
    import(one, &[new, signed(5, 10, &[("e", &id(&first[0]))])]);
    wait_for("what has changed", LIMIT, equal).unwrap();
    assert!(exported(&two).len() == first.len() + 1, "one less, and two more");
    let status = ended(&mut two.command_now(&["status"])).ok();
    assert!(status.stdout.contains("backfill a running node does it"), "{}", status.stdout);
    assert_eq!(follower.metric("kukuri_backfill_passes_failed_total"), Some(0.0));
    assert!(follower.metric("kukuri_backfill_accepted_total") >= Some(2.0));
    follower.end();
    running.end();
}
