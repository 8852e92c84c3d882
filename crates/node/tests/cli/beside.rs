//! Several processes on one store.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use crate::site::{LIMIT, Site, id, ids, notes, text};

pub fn a_follower_sees_what_another_process_imports(site: &Site) {
    let lines = notes(900);
    site.import(&lines[..300]).ok();
    let follower = site.spawn(&["feed", "--follow"]);
    let next = || -> Value { serde_json::from_str(&follower.line(LIMIT).unwrap()).unwrap() };
    for (nth, line) in lines[..300].iter().enumerate() {
        let row = next();
        assert_eq!((&row["seq"], &row["event_id"]), (&(nth + 1).into(), &id(line).into()));
    }
    for (part, lines) in lines[300..].chunks(300).enumerate() {
        site.import(lines).ok();
        let asked = Instant::now();
        for (nth, line) in lines.iter().enumerate() {
            let row = next();
            let seq = 300 * (part + 1) + nth + 1;
            assert_eq!((&row["seq"], &row["event_id"]), (&seq.into(), &id(line).into()));
        }
        assert!(asked.elapsed() < LIMIT);
    }
}

pub fn two_imports_at_once_take_each_event_once(site: &Site) {
    let lines = notes(2000);
    // Both have the middle half.
    let (one, two) = (site.file("one", &lines[..1500]), site.file("two", &lines[500..]));
    let mut imports = [site.spawn(&["import", text(&one)]), site.spawn(&["import", text(&two)])];
    for import in &mut imports {
        assert_eq!(import.wait(LIMIT).unwrap().code(), Some(0), "{}", import.stderr());
    }
    assert_eq!(site.exported(&[]), ids(&lines));
    let rows = site.run(&["feed"]).ok().json();
    let seqs = rows.iter().map(|row| row["seq"].as_u64().unwrap());
    assert!(seqs.eq(1..=2000), "gapless");
    let distinct: BTreeSet<&str> = rows.iter().filter_map(|row| row["event_id"].as_str()).collect();
    assert_eq!(distinct.len(), 2000);
    site.run(&["doctor", "--all"]).ok();
}

pub fn the_doctor_finds_nothing_beside_an_import(site: &Site) {
    let lines = notes(4000);
    site.import(&lines[..1000]).ok();
    let file = site.file("rest", &lines[1000..]);
    let mut import = site.spawn(&["import", text(&file)]);
    let mut examinations = 0;
    while import.running().unwrap() {
        site.run(&["doctor"]).ok();
        examinations += 1;
    }
    assert!(examinations > 0);
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(0), "{}", import.stderr());
    assert_eq!(site.exported(&[]).len(), 4000);
}
