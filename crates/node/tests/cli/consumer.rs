//! What an operator sees of consumers and can do about them, beside a running node.

use kukuri_event::{Event, UnixSeconds};
use kukuri_feed::Consumer;
use kukuri_index::Index;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;
use serde_json::{Value, json};

use crate::running::{Running, patient};
use crate::search::{Asker, TOPIC, note, words};
use crate::site::{LIMIT, Site, ended, notes, system_time, text};

pub fn an_unknown_consumer_is_an_error(site: &Site) {
    site.run(&["consumer", "list"]).code(1).says("no store");
    site.import(&notes(1)).ok();
    for line in site.run(&["consumer", "list"]).ok().stdout.lines() {
        site.run(&["consumer", "status", line]).ok();
    }
    let commands: [&[&str]; 7] = [
        &["status", "nobody"],
        &["pause", "nobody"],
        &["resume", "nobody"],
        &["replay", "nobody", "--from", "1"],
        &["rebuild", "nobody"],
        &["parked", "list", "nobody"],
        &["parked", "retry", "nobody", "--all"],
    ];
    for command in commands {
        let arguments: Vec<&str> = [&["consumer"], command].concat();
        site.run(&arguments).code(1).says("there is no consumer nobody");
    }
    site.run(&["consumer", "replay", "nobody", "--from", "0"]).code(2);
    site.run(&["consumer", "parked", "discard", "nobody"]).code(2);
    site.run(&["consumer", "rebuild", "nobody", "--accept", "--cancel"]).code(2);
}

/// What `consumer status --json` says of the search.
fn status(site: &Site) -> Value {
    ended(&mut site.command_now(&["consumer", "status", "search", "--json"])).ok().json().remove(0)
}

fn operate(site: &Site, args: &[&str]) {
    ended(&mut site.command_now(&[&["consumer"], args].concat())).ok();
}

/// Whether the search has tables.
fn is_made(site: &Site) -> bool {
    let schemas = site.ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'cn_search'");
    schemas.map_or_else(|| site.path("data").join("search.db").exists(), |count| count > 0)
}

/// How many consumers the view of the server shows at a place that they can have come to; one where there
/// is no server.
fn shown(site: &Site) -> i64 {
    let sql = "SELECT count(*) FROM cn_relay.consumer_offsets
        WHERE consumer = 'search' AND last_seq > 0 AND updated_at > 0";
    site.ask(sql).unwrap_or(1)
}

pub fn looking_at_consumers_makes_nothing(site: &Site) {
    site.import(&notes(1)).ok();
    for args in [&["list"][..], &["status"], &["status", "search"], &["parked", "list", "search"]] {
        operate(site, args);
    }
    assert_eq!(status(site)["generations"], json!([]));
    let told = ended(&mut site.command_now(&["consumer", "status"])).ok().stdout;
    assert_eq!(told, "search: no node has run it yet\n");
    assert!(!is_made(site));
    assert_eq!(site.ask("SELECT count(*) FROM cn_relay.consumer_offsets").unwrap_or(0), 0);
    let running = Running::start(site, &[]);
    wait_for("the index", LIMIT, || (status(site)["generations"] != json!([])).then_some(()))
        .unwrap();
    assert!(is_made(site));
    wait_for("the offset is shown", LIMIT, || (shown(site) == 1).then_some(())).unwrap();
    running.end();
}

pub fn search_is_paused_and_goes_on(site: &Site) {
    let running = Running::spawn(patient(site).env("KUKURI_SEARCH_STALE_SECONDS", "1"));
    let mut asker = Asker::connect(&running);
    asker.publish(note("梅 before"));
    running.finds("梅", &["梅 before"]);
    assert!(running.page(TOPIC, "梅", "").1.get("index_lag_seconds").is_none());

    operate(site, &["pause", "search"]);
    asker.publish(note("梅 meanwhile"));
    let page = wait_for("the answer says how old it is", LIMIT, || {
        let (status, page) = running.page(TOPIC, "梅", "");
        assert_eq!(status, 200, "{page}");
        page.get("index_lag_seconds").is_some().then_some(page)
    });
    let page = page.unwrap();
    assert!(page["index_lag_seconds"].as_u64().unwrap() >= 1, "{page}");
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(asker.search(words("梅")), Ok(vec!["梅 before".to_owned()]));
    assert!(asker.notices[0].starts_with("search: index_lag_seconds "), "{:?}", asker.notices);
    assert!(running.metric("kukuri_index_lag_seconds").unwrap() >= 1.0);
    assert_eq!(running.metric("kukuri_consumer_paused"), Some(1.0));
    assert_eq!(status(site)["paused"], true);

    operate(site, &["resume", "search"]);
    asker.finds(&words("meanwhile"), &["梅 meanwhile"]);
    running.finds("meanwhile", &["梅 meanwhile"]);
    assert!(running.page(TOPIC, "梅", "").1.get("index_lag_seconds").is_none());
    running.end();
}

/// Where notifications do not arrive, what others write is found by looking.
pub fn search_finds_what_others_write_where_nobody_tells(site: &Site) {
    let mut command = patient(site);
    let running = Running::spawn(command.env("KUKURI_WAKEUP", "poll"));
    let listening = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'kukuri listener'";
    assert_eq!(site.ask(listening).unwrap_or(0), 0);
    let line = Author::numbered(1).sign(&note("楓 imported").tag("t", TOPIC));
    let file = site.file("other.jsonl", &[line]);
    ended(&mut site.command_now(&["import", text(&file)])).ok();
    running.finds("楓", &["楓 imported"]);
    running.end();
}

pub fn search_reads_the_feed_again(site: &Site) {
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    asker.publish(note("松 one"));
    let gone = asker.publish(note("松 two"));
    asker.publish(Draft::new(5, system_time()).tag("e", gone.id().to_hex()));
    let active = || {
        let status = status(site);
        let generations = status["generations"].as_array().unwrap().clone();
        let active = generations.into_iter().find(|one| one["role"] == "active")?;
        (active["last_seq"] == status["head"]).then_some(active)
    };
    let before = wait_for("the index", LIMIT, active).unwrap();
    running.finds("松", &["松 one"]);
    let refused = ["consumer", "replay", "search", "--from", "1000"];
    ended(&mut site.command_now(&refused)).code(1);
    operate(site, &["replay", "search", "--from", "1"]);
    let after = wait_for("the index again", LIMIT, active).unwrap();
    running.finds("松", &["松 one"]);
    assert_eq!(after["generation"], before["generation"]);
    assert_eq!(after["parked"], 0);
    running.end();
}

/// Whoever asks while a new generation is built, compared and put in place of the old one is answered.
pub fn a_rebuild_beside_ingest_fails_no_question(site: &Site) {
    const NOTES: i64 = 5000;
    let draft = |nth: i64| note(&format!("竹 {nth}")).tag("t", TOPIC);
    let lines: Vec<String> = (0..NOTES).map(|nth| Author::numbered(2).sign(&draft(nth))).collect();
    let file = site.file("many.jsonl", &lines);
    ended(&mut site.command_now(&["import", text(&file)])).ok();
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    asker.publish(note("first of all"));
    running.finds("first of", &["first of all"]);

    // Nobody builds while the consumer is paused: so it is certain that somebody asks beside the unfinished
    // generation, however quick the machine.
    operate(site, &["pause", "search"]);
    let mut rebuild = Process::spawn(&mut site.command_now(&["consumer", "rebuild", "search"]));
    let rebuild = rebuild.as_mut().unwrap();
    let building = || running.metric("kukuri_consumer_building") == Some(1.0);
    wait_for("a generation is begun", LIMIT, || building().then_some(())).unwrap();
    let (mut published, mut asked_meanwhile) = (0, 0);
    while rebuild.running().unwrap() {
        asker.publish(note(&format!("live {published}")));
        published += 1;
        let building = building();
        let (status, answer) = running.page(TOPIC, "first of", "");
        assert_eq!((status, answer["items"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
        assert_eq!(asker.search(words("first of")), Ok(vec!["first of all".to_owned()]));
        asked_meanwhile += u32::from(building);
        if published == 1 {
            operate(site, &["resume", "search"]);
        }
    }
    assert_eq!(rebuild.wait(LIMIT).unwrap().code(), Some(0), "{}", rebuild.stderr());
    assert!(asked_meanwhile > 0, "nothing was asked while the generation was built");
    eprintln!("{published} published, {asked_meanwhile} rounds asked while it was built");
    let last = format!("live {}", published - 1);
    running.finds(&format!("\"{last}\""), &[&last]);
    let (_, page) = running.page(TOPIC, "live", "&limit=50");
    assert_eq!(page["items"].as_array().unwrap().len(), published.min(50));
    let status = status(site);
    let generations = status["generations"].as_array().unwrap();
    let active = generations.iter().find(|one| one["role"] == "active").unwrap();
    assert_eq!(active["generation"], 2, "{status}");
    running.end();
}

/// By whoever began it, or by somebody else; what was read is read on.
pub fn a_rebuild_is_given_up(site: &Site) {
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    asker.publish(note("杉 before"));
    running.finds("杉", &["杉 before"]);
    // Nobody builds while the consumer is paused: so it is certain that it is not complete.
    operate(site, &["pause", "search"]);
    let generations = || status(site)["generations"].as_array().unwrap().len();
    for (by_signal, code) in [(false, 1), (true, 130)] {
        let mut command = site.command_now(&["consumer", "rebuild", "search"]);
        let mut rebuild = Process::spawn(&mut command).unwrap();
        wait_for("a generation is begun", LIMIT, || (generations() == 2).then_some(())).unwrap();
        match by_signal {
            true => rebuild.interrupt().unwrap(),
            false => operate(site, &["rebuild", "search", "--cancel"]),
        }
        assert_eq!(rebuild.wait(LIMIT).unwrap().code(), Some(code), "{}", rebuild.stderr());
        assert!(rebuild.stderr().contains("given up"), "{}", rebuild.stderr());
        assert_eq!(generations(), 1);
    }
    ended(&mut site.command_now(&["consumer", "rebuild", "search", "--cancel"])).code(1);
    operate(site, &["resume", "search"]);
    asker.publish(note("杉 after"));
    running.finds("after", &["杉 after"]);
    assert_eq!(active(&status(site)).unwrap()["generation"], 1);
    running.end();
}

/// Puts an older store under the index of a newer one. Returns what the older one does not have.
fn restore_older(site: &Site) -> Event {
    let saved = site.path("saved");
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    asker.publish(note("梨 saved"));
    ended(&mut site.command_now(&["backup", text(&saved)])).ok();
    let lost = asker.publish(note("梨 lost"));
    asker.publish(note("梨 lost too"));
    wait_for("all are found", LIMIT, || {
        asker.search(words("梨")).is_ok_and(|found| found.len() == 3).then_some(())
    })
    .unwrap();
    running.end();
    site.lose_events();
    ended(&mut site.command_now(&["restore", text(&saved)])).ok();
    lost
}

/// The generation of the search that is read.
fn active(status: &Value) -> Option<&Value> {
    status["generations"].as_array().unwrap().iter().find(|one| one["role"] == "active")
}

/// Beside an older store, the index of a newer one is not read on as if it were its own, even when the feed
/// has grown again to where the index had come: it is built anew, and nobody has to ask for it.
pub fn search_begins_anew_beside_a_restored_store(site: &Site) {
    let lost = restore_older(site);
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    asker.publish(note("梨 new"));
    asker.publish(Draft::new(5, system_time()).tag("e", lost.id().to_hex()));
    let anew = wait_for("the index of the restored store", LIMIT, || {
        let status = status(site);
        let active = active(&status)?;
        let there = active["generation"] == 2 && active["last_seq"] == status["head"];
        there.then(|| active.clone())
    });
    assert_eq!(anew.unwrap()["parked"], 0);
    let mut found = asker.search(words("梨")).unwrap();
    found.sort_unstable();
    assert_eq!(found, ["梨 new", "梨 saved"]);
    assert_eq!(running.page(TOPIC, "lost", "").1["items"], json!([]));
    running.end();
}

/// The same where the operator wants to be asked: the search says what it waits for, and skips nothing.
pub fn search_begins_anew_when_the_operator_says_so(site: &Site) {
    restore_older(site);
    let running = Running::spawn(patient(site).env("KUKURI_SEARCH_REBUILD", "manual"));
    let mut asker = Asker::connect(&running);
    asker.publish(note("梨 new"));
    let halted = || active(&status(site))?["halted"].as_str().map(str::to_owned);
    let why = wait_for("the search halts", LIMIT, halted).unwrap();
    assert!(why.contains("consumer rebuild search"), "{why}");
    let before = status(site);
    assert_eq!(before["generations"].as_array().unwrap().len(), 1, "{before}");
    assert_eq!(running.metric("kukuri_consumer_halted"), Some(1.0));

    operate(site, &["rebuild", "search"]);
    assert_eq!(active(&status(site)).unwrap()["generation"], 2);
    running.finds("new", &["梨 new"]);
    let mut found = asker.search(words("梨")).unwrap();
    found.sort_unstable();
    assert_eq!(found, ["梨 new", "梨 saved"]);
    running.end();
}

/// The feed goes on without the search until rows that it has not read are no longer kept. Returns what it
/// would find had it read them.
fn leave_behind(site: &Site) -> [&'static str; 2] {
    const DAY_SECONDS: i64 = 24 * 60 * 60;
    let now = system_time().0;
    let import = |days_ago: i64, drafts: &[Draft]| {
        let sign = |draft: &Draft| Author::numbered(1).sign(draft);
        let lines: Vec<String> = drafts.iter().map(sign).collect();
        let file = site.file(&format!("{days_ago}.jsonl"), &lines);
        let at = (now - days_ago * DAY_SECONDS).to_string();
        ended(&mut site.command_now(&["import", text(&file), "--now", &at])).ok();
        lines
    };
    let draft = |kind, days_ago: i64| {
        Draft::new(kind, UnixSeconds(now - days_ago * DAY_SECONDS)).tag("t", TOPIC)
    };
    let read = import(5, &[draft(1, 5).content("椿 deleted"), draft(1, 5).content("椿 kept")]);
    let running = Running::spawn(&mut patient(site));
    wait_for("the search has read them", LIMIT, || {
        let (_, page) = running.page(TOPIC, "椿", "");
        (page["items"].as_array()?.len() == 2).then_some(())
    })
    .unwrap();
    operate(site, &["pause", "search"]);
    running.end();
    let deleted = Event::parse(&read[0]).unwrap().id().to_hex();
    import(4, &[draft(1, 4).content("椿 unread"), draft(5, 4).tag("e", deleted)]);
    ["椿 unread", "椿 kept"]
}

/// A node that keeps its feed for a day, after it has let go of what is older.
fn forgetful(site: &Site, rebuild: &str) -> Running {
    let mut command = patient(site);
    command.env("KUKURI_RETENTION_FEED_DAYS", "1").env("KUKURI_SEARCH_REBUILD", rebuild);
    let running = Running::spawn(&mut command);
    let unread = active(&status(site)).unwrap()["last_seq"].as_f64().unwrap();
    let gone = || running.metric("kukuri_feed_floor").filter(|floor| *floor > unread);
    wait_for("the unread rows are gone", LIMIT, gone).unwrap();
    running
}

/// Rows that are no longer kept are not skipped: the search is built anew from what there is.
pub fn search_begins_anew_when_the_feed_has_gone_on_without_it(site: &Site) {
    let expected = leave_behind(site);
    let running = forgetful(site, "auto");
    operate(site, &["resume", "search"]);
    let mut asker = Asker::connect(&running);
    asker.finds(&words("椿"), &expected);
    assert_eq!(active(&status(site)).unwrap()["generation"], 2);
    assert_eq!(running.page(TOPIC, "deleted", "").1["items"], json!([]));
    running.end();
}

/// The same where the operator wants to be asked: what was found before is found until then.
pub fn search_waits_for_the_operator_when_the_feed_has_gone_on_without_it(site: &Site) {
    let expected = leave_behind(site);
    let running = forgetful(site, "manual");
    operate(site, &["resume", "search"]);
    let halted = || active(&status(site))?["halted"].as_str().map(str::to_owned);
    let why = wait_for("the search halts", LIMIT, halted).unwrap();
    assert!(why.contains("consumer rebuild search"), "{why}");
    let mut asker = Asker::connect(&running);
    assert_eq!(asker.search(words("unread")), Ok(Vec::new()), "nobody skips");

    operate(site, &["rebuild", "search"]);
    asker.finds(&words("椿"), &expected);
    running.end();
}

/// Naming other kinds leads to another index by itself, and naming what is never searched is an error.
pub fn other_kinds_make_another_index(site: &Site) {
    for kinds in ["1,4", "20000", "", "1,x"] {
        let mut command = site.command_now(&["config"]);
        ended(command.env("KUKURI_SEARCH_KINDS", kinds)).code(2).says("KUKURI_SEARCH_KINDS");
    }
    let running = Running::spawn(patient(site).env("KUKURI_SEARCH_KINDS", "1, 1111"));
    let mut asker = Asker::connect(&running);
    asker.publish(Draft::new(30_023, system_time()).tag("d", "a").content("桜 article"));
    asker.publish(note("桜 note"));
    running.finds("桜", &["桜 note"]);
    running.end();

    let running = Running::spawn(&mut patient(site));
    running.finds("article", &["桜 article"]);
    running.finds("note", &["桜 note"]);
    let versions: Vec<Value> = status(site)["generations"].as_array().unwrap().clone();
    let active = versions.iter().find(|one| one["role"] == "active").unwrap();
    let version = Index::default().version();
    assert_eq!((&active["generation"], &active["version"]), (&json!(2), &json!(version)));
    running.end();
}
