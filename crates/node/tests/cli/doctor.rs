use rusqlite::Connection;

use crate::site::{Site, id, note, notes, signed};

pub fn a_healthy_store_has_no_findings(site: &Site) {
    site.topics();
    site.run(&["doctor"]).ok().says("0 feed rows, 0 events, 0 signatures: nothing wrong");
    let mut lines = notes(30);
    lines.push(signed(1, 0, 20, &[]));
    lines.push(signed(1, 0, 10, &[]));
    lines.push(signed(1, 5, 10, &[("e", &id(&note(3)))]));
    site.import(&lines).ok();
    let ended = site.run(&["doctor"]).ok();
    assert!(ended.stdout.is_empty());
    ended.says("35 feed rows, 33 events, 33 signatures: nothing wrong");
    site.run(&["doctor", "--sample", "0"]).ok().says("0 signatures");
    site.run(&["doctor", "--all", "--json"]).ok();
}

pub fn who_only_reads_makes_no_store(site: &Site) {
    for command in ["doctor", "export", "feed"] {
        site.run(&[command]).code(1).says("there is no store in").says(site.place_option());
    }
    site.run(&["topic", "list"]).ok().says("new store at");
}

pub fn findings_are_lines_of_json(site: &Site) {
    site.import(&notes(3)).ok();
    assert_eq!(site.run(&["doctor", "--json"]).ok().stdout, "");
}

/// SQL that breaks a store, and words of the finding.
const SABOTAGE: &[(&str, &str)] = &[
    ("DELETE FROM events_outbox WHERE seq = 5", "feed: feed row 6: it follows row 4"),
    ("UPDATE topic_usage SET events = events + 1", "usage: topic kukuri:global: its counter says"),
    ("UPDATE events SET state = 3 WHERE seq = 7", "and the feed says visible; make a new store"),
    ("UPDATE current_versions SET state = 2", "versions: key \"0:"),
    (
        "UPDATE events SET event_json = replace(event_json, '\"kind\":1', '\"kind\":2') WHERE seq = 7",
        "its id is not the hash of its values; stop the node",
    ),
    ("UPDATE events SET event_json = '{' WHERE seq = 7", "storage: table events"),
    ("DELETE FROM events WHERE seq = 7", "and it is not stored there"),
    ("DELETE FROM event_tags", "it is visible, and not found by a tag e; make a new"),
    (
        "DELETE FROM event_topics WHERE seq = 7",
        "it is visible, and not found by topic kukuri:global",
    ),
    ("DELETE FROM event_ids WHERE seq = 7", "it is visible, and dedupe does not know it"),
];

pub fn the_doctor_finds_what_was_tampered_with(_: &Site) {
    for (sql, words) in SABOTAGE {
        let site = Site::sqlite();
        let mut lines = notes(20);
        lines.push(signed(1, 0, 10, &[]));
        lines.push(signed(1, 1, 5, &[("e", &id(&note(3)))]));
        site.import(&lines).ok();
        site.run(&["doctor"]).ok();
        let file = Connection::open(site.path("data").join("events.db")).unwrap();
        assert!(file.execute(sql, []).unwrap() > 0, "{sql} changed nothing");
        drop(file);
        site.run(&["doctor"]).code(3).says(words);
        let json = site.run(&["doctor", "--json"]).code(3).json();
        assert!(json.iter().all(|f| f["check"].is_string() && f["advice"].is_string()), "{json:?}");
        assert!(!json.is_empty());
    }
}
