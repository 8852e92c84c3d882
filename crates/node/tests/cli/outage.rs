//! A PostgreSQL server that goes away and comes back.

use std::io::Write;

use kukuri_testkit::condition::wait_for;
use kukuri_testkit::postgres::{Cluster, Durability};
use kukuri_testkit::process::Process;

use crate::site::{LIMIT, Site, ids, notes};

fn says(process: &Process, words: &str) {
    wait_for(words, LIMIT, || process.stderr().contains(words).then_some(())).unwrap();
}

#[test]
fn an_import_with_patience_outlives_its_server() {
    let mut cluster = Cluster::start(Durability::Fast).unwrap();
    let site = Site::postgres(&cluster.create_database());
    let lines = notes(900);
    site.topics();
    let follower = site.spawn(&["feed", "--follow"]);
    let mut import = site.spawn(&["import", "-", "--patience", "300", "--report", "-"]);
    let mut stdin = import.stdin().unwrap();
    let mut send = |lines: &[String]| {
        lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    };
    send(&lines[..300]);
    let first = import.line(LIMIT).unwrap();
    assert!(first.contains("\"ok\":true"), "{first}");
    cluster.stop_fast().unwrap();
    send(&lines[300..]);
    says(&import, ": waiting for it");
    says(&follower, "trying again until it is back");
    cluster.start_again().unwrap();
    drop(stdin);
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(0), "{}", import.stderr());
    assert_eq!(site.exported(&[]), ids(&lines));
    for seq in 1..=900 {
        let row = follower.line(LIMIT).unwrap();
        assert!(row.starts_with(&format!("{{\"seq\":{seq},")), "{row}");
    }
    site.run(&["doctor", "--all"]).ok();
}

#[test]
fn an_import_that_waits_can_be_interrupted_with_all_lines_read() {
    let mut cluster = Cluster::start(Durability::Fast).unwrap();
    let site = Site::postgres(&cluster.create_database());
    let lines = notes(600);
    let mut import = site.spawn(&["import", "-", "--patience", "300", "--report", "-"]);
    let mut stdin = import.stdin().unwrap();
    lines[..256].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    for _ in 0..256 {
        assert!(import.line(LIMIT).unwrap().contains("\"ok\":true"));
    }
    cluster.stop_fast().unwrap();
    lines[256..].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    drop(stdin);
    says(&import, ": waiting for it");
    import.interrupt().unwrap();
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(130), "{}", import.stderr());
    assert!(import.stderr().contains("interrupted after line 256"), "{}", import.stderr());
    cluster.start_again().unwrap();
    site.import(&lines).ok().says("duplicate                   256");
}

#[test]
fn an_import_without_patience_says_how_far_it_came() {
    let mut cluster = Cluster::start(Durability::Fast).unwrap();
    let site = Site::postgres(&cluster.create_database());
    let lines = notes(600);
    let mut import = site.spawn(&["import", "-", "--report", "-"]);
    let mut stdin = import.stdin().unwrap();
    lines[..256].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    for _ in 0..256 {
        assert!(import.line(LIMIT).unwrap().contains("\"ok\":true"));
    }
    cluster.stop_fast().unwrap();
    lines[256..].iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    drop(stdin);
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(1));
    let stderr = import.stderr();
    assert!(stderr.contains("stdin: 256 events"), "{stderr}");
    assert!(stderr.contains("344 lines have no answer"), "{stderr}");
    assert!(stderr.contains("at line 257: error: storage unavailable"), "{stderr}");
    cluster.start_again().unwrap();
    site.import(&lines).ok().says("duplicate                   256");
}
