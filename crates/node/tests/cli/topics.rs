use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use serde_json::Value;

use crate::site::{LIMIT, NOW, Site, ids, note, notes, text};

fn id_of(site: &Site, args: &[&str]) -> String {
    site.run(&[&["topic", "id"], args].concat()).ok().stdout.trim_end().to_owned()
}

fn find(site: &Site, topic: &str) -> Option<Value> {
    site.topics().into_iter().find(|row| row["topic_id"] == topic)
}

fn on_topic(topic: &str, nth: i64) -> String {
    let draft = Draft::new(1, UnixSeconds(NOW.0 - 60)).tag("t", topic).content(nth.to_string());
    Author::numbered(3).sign(&draft)
}

pub fn a_new_store_carries_the_global_topic(site: &Site) {
    let listed = site.run(&["topic", "list", "--json"]).ok().says("new store at");
    assert_eq!(listed.json().len(), 1);
    let global = &site.topics()[0];
    assert_eq!(global["topic_id"], "kukuri:global");
    assert_eq!((&global["enabled"], &global["pinned"]), (&true.into(), &true.into()));
    // Only a new store: what the operator did afterwards stays.
    site.run(&["topic", "disable", "kukuri:global"]).ok();
    assert_eq!(site.topics()[0]["enabled"], false);
    site.run(&["topic", "list"]).ok();
}

pub fn names_have_ids(site: &Site) {
    let rust = id_of(site, &["Rust"]);
    assert!(rust.starts_with("kukuri:") && rust.len() == 71, "{rust}");
    assert_eq!(id_of(site, &["  rUST "]), rust);
    assert_eq!(id_of(site, &[&rust]), rust);
    assert_ne!(id_of(site, &["rust", "--network", "kukuri:dev:"]), rust);
    assert_ne!(id_of(site, &["ＲＵＳＴ"]), rust);
    assert_eq!(id_of(site, &["ＲＵＳＴ", "--mapping", "v2"]), rust);
    assert_eq!(id_of(site, &["ＲＵＳＴ", "--mapping", "both"]).lines().count(), 2);
    assert_eq!(id_of(site, &["rust", "--mapping", "both"]), rust, "one id is printed once");
    site.run(&["topic", "id", " "]).code(1).says("must not be empty");
    site.run(&["topic", "id", "kukuri:x"]).code(1).says("is not a topic id");
}

pub fn a_topic_is_added_under_both_mappings(site: &Site) {
    let added = site.run(&["topic", "add", " ﾋﾞｯﾄｺｲﾝ ", "--mapping", "both"]).ok();
    let ids: Vec<&str> = added.stdout.lines().collect();
    assert_eq!(ids.len(), 2);
    for id in &ids {
        let row = find(site, id).unwrap();
        assert_eq!(row["name"], "ﾋﾞｯﾄｺｲﾝ");
        assert_eq!((&row["enabled"], &row["pinned"]), (&true.into(), &true.into()));
    }
    // The name means both of them, and an id alone takes no name away.
    site.run(&["topic", "disable", "ﾋﾞｯﾄｺｲﾝ"]).ok();
    assert!(ids.iter().all(|id| find(site, id).unwrap()["enabled"] == false));
    site.run(&["topic", "add", ids[0]]).ok();
    let row = find(site, ids[0]).unwrap();
    assert_eq!((&row["name"], &row["enabled"]), (&"ﾋﾞｯﾄｺｲﾝ".into(), &true.into()));
    let table = site.run(&["topic", "list"]).ok().stdout;
    assert!(table.contains("carried ") && table.contains("disabled "), "{table}");
}

pub fn a_disabled_topic_takes_nothing_in(site: &Site) {
    let rust = id_of(site, &["rust"]);
    let lines = [on_topic(&rust, 1), on_topic(&rust, 2)];
    site.import(&lines).code(3).says("restricted: topic not handled here");
    site.run(&["topic", "add", "rust"]).ok();
    site.import(&lines[..1]).ok();
    site.run(&["topic", "disable", "rust"]).ok().says("no longer carrying");
    site.import(&lines).code(3).says("line 2: restricted: topic not handled here");
    assert_eq!(find(site, &rust).unwrap()["events"], 1, "what is there stays");
    site.run(&["topic", "enable", &rust]).ok();
    site.import(&lines).ok();
    let row = find(site, &rust).unwrap();
    assert_eq!((&row["events"], &row["pinned"]), (&2.into(), &true.into()));
}

pub fn a_removed_topic_can_come_back(site: &Site) {
    let rust = site.run(&["topic", "add", "rust"]).ok().stdout.trim_end().to_owned();
    let lines: Vec<String> = (0..1203).map(|nth| on_topic(&rust, nth)).collect();
    site.import(&lines).ok();
    site.import(&notes(2)).ok();
    site.run(&["topic", "remove", "rust"]).ok().says("with 1203 events");
    assert_eq!(find(site, &rust), None);
    assert_eq!(site.exported(&[]), ids(&notes(2)));
    let feed = site.run(&["feed", "--after", "1205"]).ok().json();
    assert_eq!(feed.len(), 1203);
    assert!(feed.iter().all(|row| row["op"] == "delete" && row["reason"] == "topic"));
    site.run(&["doctor"]).ok();
    site.run(&["topic", "add", "rust"]).ok();
    site.import(&lines).ok().says("accepted                   1203");
}

pub fn removing_can_be_interrupted_and_goes_on(site: &Site) {
    let rust = site.run(&["topic", "add", "rust"]).ok().stdout.trim_end().to_owned();
    let lines: Vec<String> = (0..3000).map(|nth| on_topic(&rust, nth)).collect();
    site.import(&lines).ok();
    let mut remove = site.spawn(&["topic", "remove", "rust"]);
    kukuri_testkit::condition::wait_for("a first chunk", LIMIT, || {
        (find(site, &rust).is_none_or(|row| row["events"] != 3000)).then_some(())
    })
    .unwrap();
    // It may have finished meanwhile, which is as good.
    let _ = remove.interrupt();
    let code = remove.wait(LIMIT).unwrap().code();
    assert!(matches!(code, Some(0 | 130)), "{code:?}: {}", remove.stderr());
    site.run(&["doctor"]).ok();
    if code == Some(130) {
        assert_eq!(find(site, &rust).unwrap()["enabled"], false);
        site.run(&["topic", "remove", "rust"]).ok();
    }
    assert_eq!(find(site, &rust), None);
    assert!(site.exported(&[]).is_empty());
}

pub fn unknown_topics_are_named(site: &Site) {
    for command in ["disable", "enable", "remove"] {
        let ended = site.run(&["topic", command, "nowhere"]).code(1);
        ended.says("no topic \"nowhere\" here: kukuri-node topic list");
    }
    let file = site.file("in.jsonl", &[note(1)]);
    site.run(&["import", text(&file)]).ok();
}
