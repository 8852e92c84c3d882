//! Drills: a backup of a node at work, and a node made from it elsewhere.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::JoinHandle;

use kukuri_store::backup::{Backup, Manifest};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::process::Process;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;

use crate::running::Running;
use crate::site::{LIMIT, Site, ids, note, notes, signed, text};

/// How often something is tried that has to hit the middle of a short work.
const TRIES_MAX: u32 = 20;

fn manifest(directory: &Path) -> Manifest {
    Backup::open(directory).unwrap().manifest().clone()
}

fn is_absent(site: &Site) {
    site.run(&["doctor"]).code(1).says("there is no store in");
}

/// A load that goes on during the backup: an import whose lines keep coming.
struct Load {
    import: Process,
    feeding: JoinHandle<()>,
    acknowledged: usize,
}

impl Load {
    fn start(site: &Site, lines: &[String]) -> Self {
        let mut import = site.spawn(&["import", "-", "--report", "-"]);
        let mut stdin = import.stdin().unwrap();
        let lines = lines.to_vec();
        let feed = move || lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
        Self { import, feeding: std::thread::spawn(feed), acknowledged: 0 }
    }

    /// How many lines are in by now.
    fn acknowledged(&mut self) -> usize {
        let answers = self.import.lines_so_far();
        assert!(answers.iter().all(|answer| answer.contains("\"ok\":true")), "{answers:?}");
        self.acknowledged += answers.len();
        self.acknowledged
    }

    fn end(mut self) {
        self.feeding.join().unwrap();
        assert_eq!(self.import.wait(LIMIT).unwrap().code(), Some(0), "{}", self.import.stderr());
    }
}

pub fn a_backup_under_load_is_restored_elsewhere(site: &Site) {
    let mut lines = large(site);
    let there = lines.len();
    lines.extend(notes(12_000));
    let mut load = Load::start(site, &lines[there..]);
    wait_for("the load", LIMIT, || (load.acknowledged() > 0).then_some(())).unwrap();
    // Until rows are acknowledged after the moment of a backup and before its end.
    let hit = (0..TRIES_MAX).find_map(|nth| {
        let saved = site.path(&format!("saved{nth}"));
        site.run(&["backup", text(&saved)]).ok().says("backed up").says("restore it with");
        let head = usize::try_from(manifest(&saved).feed.head_seq).unwrap();
        let meanwhile = (there + load.acknowledged()).checked_sub(head)?;
        println!("{head} rows are in the backup, {meanwhile} were acknowledged after its moment");
        (meanwhile > 0).then_some((saved, head))
    });
    load.end();
    let (saved, head) = hit.expect("a backup is made under load");
    assert!(head > there && head < lines.len(), "{head}");
    is_a_prefix(site, &saved, &lines, head);
}

/// What is restored is the source's first `head` rows and their events, and nothing else; and it is
/// a store like any other.
fn is_a_prefix(site: &Site, saved: &Path, lines: &[String], head: usize) {
    let elsewhere = site.elsewhere();
    elsewhere.run(&["restore", text(saved)]).ok().says("restored").says("doctor");
    elsewhere.run(&["doctor", "--all"]).ok().says("nothing wrong");
    let feed = site.run(&["feed"]).ok().stdout;
    let rows: Vec<&str> = feed.lines().collect();
    let restored = elsewhere.run(&["feed"]).ok().stdout;
    assert_eq!(restored.lines().collect::<Vec<_>>(), rows[..head]);
    let in_rows = |row: &&str| -> String {
        let row: Value = serde_json::from_str(row).unwrap();
        row["event_id"].as_str().unwrap().to_owned()
    };
    let mut expected: Vec<String> = rows[..head].iter().map(in_rows).collect();
    expected.sort_unstable();
    assert_eq!(elsewhere.exported(&[]), expected);
    elsewhere.import(lines).ok().says(&format!("duplicate {head:>21}"));
    assert_eq!(elsewhere.exported(&[]), ids(lines));
    elsewhere.run(&["doctor", "--all"]).ok();
    site.run(&["doctor", "--all"]).ok();
}

/// The end of the stored events, or why there is none.
fn asked(url: &str, after: &str) -> Value {
    let (mut socket, _) = tungstenite::connect(url).unwrap();
    let filter = json!({"#t": ["kukuri:global"], "after": after});
    socket.send(json!(["REQ", "s", filter]).to_string().into()).unwrap();
    loop {
        let message: Value =
            serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap();
        if message[0] != "EVENT" {
            return message;
        }
    }
}

/// Who followed the old feed must not go on in the new one as if nothing had happened.
pub fn a_cursor_of_the_old_life_is_refused(site: &Site) {
    let saved = site.path("saved");
    site.import(&notes(20)).ok();
    let running = Running::start(site, &[]);
    let end = asked(&running.url, "");
    assert_eq!(end[0], "EOSE", "{end}");
    let cursor = end[2]["cursor"].as_str().unwrap().to_owned();
    assert_eq!(asked(&running.url, &cursor)[0], "EOSE", "the cursor is good where it is from");
    site.run(&["backup", text(&saved)]).ok();
    running.end();
    let elsewhere = site.elsewhere();
    elsewhere.run(&["restore", text(&saved)]).ok();
    let running = Running::start(&elsewhere, &[]);
    let closed = asked(&running.url, &cursor);
    assert_eq!(closed, json!(["CLOSED", "s", "error: cursor diverged"]));
    assert_eq!(asked(&running.url, "")[0], "EOSE");
    running.end();
}

pub fn an_empty_store_can_be_backed_up(site: &Site) {
    let saved = site.path("saved");
    let topics = site.topics();
    site.run(&["backup", text(&saved)]).ok().says("no feed rows, 0 events");
    let elsewhere = site.elsewhere();
    elsewhere.run(&["restore", text(&saved)]).ok();
    assert_eq!(elsewhere.topics(), topics);
    elsewhere.run(&["doctor"]).ok();
    // One row more than nothing.
    elsewhere.import(&[note(1)]).ok();
    let again = elsewhere.path("again");
    elsewhere.run(&["backup", text(&again)]).ok().says("feed rows 1 to 1, 1 events");
    let third = site.elsewhere();
    third.run(&["restore", text(&again)]).ok();
    assert_eq!(third.exported(&[]), ids(&[note(1)]));
}

pub fn nothing_is_overwritten(site: &Site) {
    let saved = site.path("saved");
    site.run(&["backup", text(&saved)]).code(1).says("there is no store in");
    assert!(!saved.exists());
    site.import(&[note(1)]).ok();
    site.run(&["restore", text(&saved)]).code(1).says("there is no backup in");
    site.run(&["backup", text(&saved)]).ok();
    let before = fs::read(saved.join("manifest.json")).unwrap();
    site.run(&["backup", text(&saved)]).code(1).says("holds a backup already");
    assert_eq!(fs::read(saved.join("manifest.json")).unwrap(), before);
    site.run(&["restore", text(&saved)]).code(1).says("already: name");
    assert_eq!(site.exported(&[]), ids(&[note(1)]));
    site.run(&["backup"]).code(2);
    site.run(&["restore"]).code(2);
}

pub fn a_damaged_backup_is_refused(site: &Site) {
    let saved = site.path("saved");
    site.import(&notes(50)).ok();
    site.run(&["backup", text(&saved)]).ok();
    let parts = manifest(&saved).parts;
    let largest = parts.iter().max_by_key(|part| part.bytes).unwrap();
    let path = saved.join(&largest.file);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let elsewhere = site.elsewhere();
    let refused = elsewhere.run(&["restore", text(&saved)]).code(1);
    refused.says(&format!("{} is damaged", largest.file)).says("use another backup");
    is_absent(&elsewhere);
    fs::remove_file(&path).unwrap();
    elsewhere.run(&["restore", text(&saved)]).code(1).says(&largest.file);
    is_absent(&elsewhere);
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    elsewhere.run(&["restore", text(&saved)]).ok();
    assert_eq!(elsewhere.exported(&[]), ids(&notes(50)));
}

pub fn a_backup_belongs_to_its_back_end(site: &Site) {
    let saved = site.path("saved");
    site.import(&[note(1)]).ok();
    site.run(&["backup", text(&saved)]).ok();
    let other = site.other_back_end();
    let refused = other.run(&["restore", text(&saved)]).code(1);
    refused.says("can only be restored to").says("use `export` and `import`");
}

/// A store whose copy takes a moment, and the events in it.
fn large(site: &Site) -> Vec<String> {
    let long = "x".repeat(40_000);
    let lines: Vec<String> = (1..=500).map(|age| signed(1, 1, age, &[("long", &long)])).collect();
    site.import(&lines).ok();
    lines
}

/// Signals in the middle of a backup: there is no backup then, and nothing of it after Ctrl-C.
pub fn an_interrupted_backup_is_none(site: &Site) {
    large(site);
    let (mut interrupted, mut killed) = (0, 0);
    for nth in 0..TRIES_MAX {
        let saved = site.path(&format!("saved{nth}"));
        let begun = || saved.join("manifest.json.partial").exists().then_some(());
        let mut backup = site.spawn(&["backup", text(&saved)]);
        wait_for("the beginning of the backup", LIMIT, || {
            begun().or_else(|| saved.join("manifest.json").exists().then_some(()))
        })
        .unwrap();
        if nth % 2 == 0 {
            let _ = backup.interrupt();
            match backup.wait(LIMIT).unwrap().code() {
                Some(130) => {
                    assert!(!saved.exists(), "{}", backup.stderr());
                    interrupted += 1;
                }
                code => assert_eq!((code, saved.exists()), (Some(0), true)),
            }
        } else if backup.kill9().is_ok() && begun().is_some() {
            let elsewhere = site.elsewhere();
            elsewhere.run(&["restore", text(&saved)]).code(1).says("was cut short");
            is_absent(&elsewhere);
            site.run(&["backup", text(&saved)]).code(1).says("was cut short");
            killed += 1;
        }
        if interrupted > 0 && killed > 0 {
            break;
        }
    }
    println!("{interrupted} backups were interrupted and {killed} killed in the middle");
    assert!(interrupted > 0 && killed > 0, "no signal hit a backup in the middle");
    whole_still(site, &site.path("whole"));
}

/// Signals in the middle of a restore: there is no store then, and the next restore makes one.
pub fn an_interrupted_restore_is_none(site: &Site) {
    large(site);
    let saved = site.path("saved");
    site.run(&["backup", text(&saved)]).ok();
    let (mut interrupted, mut killed) = (0, 0);
    for nth in 0..TRIES_MAX {
        let elsewhere = site.elsewhere();
        let mut restore = elsewhere.spawn(&["restore", text(&saved)]);
        elsewhere.wait_for_restore();
        let code = if nth % 2 == 0 {
            let _ = restore.interrupt();
            restore.wait(LIMIT).unwrap().code()
        } else {
            restore.kill9().unwrap().code()
        };
        if code == Some(0) {
            elsewhere.run(&["doctor"]).ok();
            continue;
        }
        is_absent(&elsewhere);
        elsewhere.run(&["restore", text(&saved)]).ok();
        assert_eq!(elsewhere.exported(&[]).len(), 500);
        interrupted += u32::from(code == Some(130));
        killed += u32::from(code.is_none());
        if interrupted > 0 && killed > 0 {
            break;
        }
    }
    println!("{interrupted} restores were interrupted and {killed} killed in the middle");
    assert!(interrupted > 0 && killed > 0, "no signal hit a restore in the middle");
}

/// What was cut short before is in nobody's way.
fn whole_still(site: &Site, saved: &Path) {
    site.run(&["backup", text(saved)]).ok();
    let elsewhere = site.elsewhere();
    elsewhere.run(&["restore", text(saved)]).ok();
    let exported = elsewhere.exported_in_order(&[]);
    assert_eq!((exported.len(), exported), (500, site.exported_in_order(&[])));
}
