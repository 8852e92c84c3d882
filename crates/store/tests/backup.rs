//! A directory is a backup when it holds all of it, and never before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kukuri_store::backup::{
    BackEnd, Backup, BackupError, Draft, FeedSpan, MANIFEST, Manifest, Monitor, Table, seal,
};
use tempfile::TempDir;

fn manifest() -> Manifest {
    Manifest {
        back_end: BackEnd::Sqlite,
        program: "0.0.0".to_owned(),
        made_at: 1,
        schema_version: 3,
        feed: FeedSpan { epoch: -7, floor_seq: 2, head_seq: 9 },
        tables: vec![Table {
            name: "events".to_owned(),
            rows: 5,
            columns: Vec::new(),
            file: None,
            partition: None,
        }],
        parts: Vec::new(),
    }
}

/// A backup of two parts, one of them written by somebody else.
fn make(directory: &Path) -> Manifest {
    let mut draft = Draft::begin(directory).unwrap();
    let mut part = draft.part("one.copy").unwrap();
    part.write(b"first ").unwrap();
    part.write(b"part").unwrap();
    draft.take(part).unwrap();
    fs::write(draft.place("two.db").unwrap(), vec![7; 3 << 20]).unwrap();
    draft.adopt("two.db", &Monitor::default()).unwrap();
    draft.finish(manifest()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, BackupError>, words: &str) {
    let error = result.expect_err(words).to_string();
    assert!(error.contains(words), "{words:?} is not in: {error}");
}

#[test]
fn what_was_written_is_read() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("deep/backup");
    let made = make(&directory);
    assert_eq!(names(&directory), [MANIFEST, "one.copy", "two.db"]);
    let backup = Backup::open(&directory).unwrap();
    assert_eq!(backup.manifest(), &made);
    assert_eq!((made.bytes(), made.rows("events"), made.rows("other")), (10 + (3 << 20), 5, 0));
    let monitor = Monitor::default();
    backup.verify(&monitor).unwrap();
    assert_eq!(monitor.progress().0, made.bytes());
    let mut part = backup.part("one.copy").unwrap();
    assert_eq!(part.next_chunk().unwrap(), Some(&b"first part"[..]));
    assert_eq!(part.next_chunk().unwrap(), None);
    // As `sha256sum` prints it.
    let sha256 = "686976f5a00b4a60a14abf9a2249c3484fb22d770b2ad8065156e4a996b12862";
    assert_eq!(made.parts[0].sha256, sha256);
}

#[test]
fn only_its_own_back_end_and_a_program_that_knows_the_schema_take_it() {
    let home = TempDir::new().unwrap();
    make(&home.path().join("b"));
    let backup = Backup::open(&home.path().join("b")).unwrap();
    backup.require(BackEnd::Sqlite, 3).unwrap();
    refused(backup.require(BackEnd::Sqlite, 2), "has schema 3, this program knows up to 2");
    refused(backup.require(BackEnd::Postgres, 3), "use `export` and `import`");
}

#[test]
fn a_draft_that_is_dropped_leaves_nothing() {
    let home = TempDir::new().unwrap();
    let (new, found) = (home.path().join("deep/new"), home.path().join("found"));
    fs::create_dir(&found).unwrap();
    for directory in [&new, &found] {
        let mut draft = Draft::begin(directory).unwrap();
        let part = draft.part("one.copy").unwrap();
        draft.take(part).unwrap();
        let mut part = draft.part("two.copy").unwrap();
        part.write(b"x").unwrap();
        assert!(Backup::open(directory).is_err());
        drop((part, draft));
    }
    assert_eq!(names(home.path()), ["found"], "directories that were made on the way go, too");
    assert!(names(&found).is_empty());
    make(&found);
}

/// What people wrote in closed topics was readable for everybody on the machine.
#[test]
fn only_its_maker_may_read_a_backup() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("deep/backup");
    make(&directory);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for made in [directory.clone(), home.path().join("deep")] {
        assert_eq!(mode(&made), 0o700, "{}", made.display());
    }
    for file in names(&directory) {
        assert_eq!(mode(&directory.join(&file)), 0o600, "{file}");
    }
    // A directory that somebody else made stays as it was.
    let found = home.path().join("found");
    fs::create_dir(&found).unwrap();
    fs::set_permissions(&found, fs::Permissions::from_mode(0o750)).unwrap();
    make(&found);
    assert_eq!(mode(&found), 0o750);
}

/// A process that is killed takes nothing away.
#[test]
fn what_a_killed_backup_leaves_is_no_backup() {
    let home = TempDir::new().unwrap();
    let mut draft = Draft::begin(home.path()).unwrap();
    let part = draft.part("one.copy").unwrap();
    draft.take(part).unwrap();
    std::mem::forget(draft);
    refused(Backup::open(home.path()), "was cut short or is still being made: use another one");
    refused(Draft::begin(home.path()), "remove this one if no backup is running");
    assert_eq!(names(home.path()).len(), 2, "who is refused takes nothing away");
}

#[test]
fn nothing_is_overwritten() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("b");
    make(&directory);
    refused(Draft::begin(&directory), "holds a backup already: name another directory");
    Backup::open(&directory).unwrap().verify(&Monitor::default()).unwrap();
    fs::remove_file(directory.join(MANIFEST)).unwrap();
    refused(Draft::begin(&directory), "is not empty: name another directory");
    refused(Backup::open(&directory), "there is no backup in");
    refused(Backup::open(&home.path().join("nowhere")), "there is no backup in");
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    refused(Draft::begin(&file), "cannot look into");
}

/// One flipped bit, one byte less and one more, in each part: every one is noticed.
#[test]
fn every_damage_is_noticed() {
    let home = TempDir::new().unwrap();
    for file in ["one.copy", "two.db"] {
        for damage in 0..3 {
            let directory = home.path().join(format!("{file}{damage}"));
            make(&directory);
            let path = directory.join(file);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                0 => *bytes.last_mut().unwrap() ^= 1,
                1 => drop(bytes.pop()),
                _ => bytes.push(0),
            }
            fs::write(&path, bytes).unwrap();
            let backup = Backup::open(&directory).unwrap();
            refused(backup.verify(&Monitor::default()), &format!("{file} is damaged"));
        }
        let directory = home.path().join(format!("{file}gone"));
        make(&directory);
        fs::remove_file(directory.join(file)).unwrap();
        let backup = Backup::open(&directory).unwrap();
        refused(backup.verify(&Monitor::default()), &format!("{file}: No such file"));
    }
}

#[test]
fn a_manifest_that_is_wrong_is_refused() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("b");
    make(&directory);
    let path = directory.join(MANIFEST);
    let (file, good) = (
        fs::read_to_string(&path).unwrap(),
        serde_json::to_string(Backup::open(&directory).unwrap().manifest()).unwrap(),
    );
    assert!(file.contains("\"format\": 1"));
    let cases = [
        (file[..file.len() / 2].to_owned(), "manifest.json is damaged"),
        (file.replace("\"format\": 1", "\"format\": 2"), "was made by a newer program"),
        (file.replace("\"format\": 1", "\"format\": 0"), "manifest.json is damaged"),
        (good.clone(), "manifest.json is damaged"),
        (seal(&good.replace("head_seq", "head")), "manifest.json is damaged"),
        (seal(&good.replace("one.copy", "../one.copy")), "is no name of a part"),
        (seal(&good.replace("one.copy", "")), "is no name of a part"),
        (seal(&good.replace("one.copy", "two.db")), "is named twice"),
    ];
    for (text, words) in cases {
        fs::write(&path, text).unwrap();
        refused(Backup::open(&directory), words);
    }
    fs::write(&path, seal(&good)).unwrap();
    Backup::open(&directory).unwrap();
    fs::write(&path, b"\xff").unwrap();
    refused(Backup::open(&directory), "it is no text");
}

/// A manifest with fewer tables or other numbers was taken for what had been saved.
#[test]
fn every_change_of_a_manifest_is_noticed() {
    let home = TempDir::new().unwrap();
    let made = make(home.path());
    let path = home.path().join(MANIFEST);
    let text = fs::read(&path).unwrap();
    for at in 0..text.len() {
        let mut flipped = text.clone();
        flipped[at] ^= 1;
        fs::write(&path, flipped).unwrap();
        // Space between words may have become other space.
        if let Ok(backup) = Backup::open(home.path()) {
            assert!(text[at].is_ascii_whitespace(), "{at}");
            assert_eq!(backup.manifest(), &made);
        }
    }
}

#[test]
fn who_watches_can_end_it() {
    let monitor = Monitor::default();
    monitor.expect(10);
    monitor.advance(4).unwrap();
    assert_eq!(monitor.progress(), (4, 10));
    monitor.end();
    assert!(matches!(monitor.advance(1), Err(BackupError::Interrupted)));
}
