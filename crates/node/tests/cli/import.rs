use std::fs;
use std::io::Write;

use kukuri_event::Event;
use kukuri_store::conformance::signing::{Author, Draft};
use serde_json::Value;

use crate::site::{LIMIT, NOW, Site, ended, id, ids, note, notes, signed, text};

pub fn what_is_imported_can_be_exported(site: &Site) {
    let lines = notes(700);
    let ended = site.import(&lines).ok();
    assert!(ended.stdout.is_empty());
    let ended = ended.says("import.jsonl: 700 events").says("accepted                    700");
    assert!(!ended.stderr.contains("line "), "{}", ended.stderr);
    let exported = site.run(&["export"]).ok();
    let expected: Vec<String> = lines.iter().map(|l| Event::parse(l).unwrap().to_json()).collect();
    let got: Vec<&str> = exported.stdout.lines().collect();
    assert_eq!(got, expected, "canonical, and in the order of the file");
    let other = Site::sqlite();
    other.import(&expected).ok();
    assert_eq!(other.run(&["export"]).ok().stdout, exported.stdout);
}

pub fn hostile_lines_are_refused_by_number_and_the_rest_goes_in(site: &Site) {
    let good = notes(3);
    let unsigned = note(4).replace("\"kind\":1", "\"kind\":2");
    let draft = Draft::new(1, NOW);
    let sign = |draft: &Draft| Author::numbered(1).sign(draft);
    let large = sign(&draft.clone().tag("t", "kukuri:global").content("x".repeat(70_000)));
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (good[0].clone().into_bytes(), ""),
        (b"not json".to_vec(), "invalid: malformed event: "),
        (b"\xff\xfe".to_vec(), "invalid: malformed event: not UTF-8 at byte 1"),
        (b"{}".to_vec(), "invalid: malformed event: "),
        (good[1].clone().into_bytes(), ""),
        (b"   ".to_vec(), "blank"),
        (large.into_bytes(), "invalid: event too large"),
        (unsigned.into_bytes(), "invalid: id does not match"),
        (forged(5, 6).into_bytes(), "invalid: bad signature"),
        (deep.into_bytes(), "invalid: malformed event"),
        (sign(&draft).into_bytes(), "invalid: missing topic"),
        (sign(&draft.clone().tag("t", "kukuri:x")).into_bytes(), "invalid: bad topic"),
        (sign(&draft.tag("t", topic())).into_bytes(), "restricted: topic not handled here"),
        (signed(1, 1, -3600, &[]).into_bytes(), "invalid: created_at too far in the future"),
        (signed(1, 30_023, 1, &[]).into_bytes(), "invalid: missing d"),
        (signed(1, 1, 1, &[("expiration", "7")]).into_bytes(), "invalid: expired"),
        (signed(1, 22_242, 1, &[]).into_bytes(), "invalid: auth events are not stored"),
        (signed(1, 39_020, 1, &[("d", "")]).into_bytes(), "blocked: p2p-only"),
        (good[2].clone().into_bytes(), ""),
    ];
    let file = site.path("hostile.jsonl");
    let bytes: Vec<&[u8]> = cases.iter().map(|(line, _)| line.as_slice()).collect();
    fs::write(&file, bytes.join(&b'\n')).unwrap();
    let ended = site.run(&["import", text(&file)]).code(3).says("accepted                      3");
    for (nth, (_, message)) in cases.iter().enumerate() {
        let line = format!("line {}: ", nth + 1);
        let said = ended.stderr.lines().find(|said| said.starts_with(&line));
        match *message {
            "" | "blank" => assert_eq!(said, None),
            message => {
                let said = said.unwrap_or_else(|| panic!("no {line}in {}", ended.stderr));
                assert!(said.starts_with(&format!("{line}{message}")), "{said}");
            }
        }
    }
    ended.says("  refused                      15").says("    malformed                   4");
    assert_eq!(site.exported(&[]), ids(&good));
}

fn topic() -> String {
    format!("kukuri:{}", "0".repeat(64))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the relay takes, `import` takes: a node could not read its own export otherwise.
pub fn importing_goes_by_the_settings(site: &Site) {
    let sign = |draft: &Draft| Author::numbered(1).sign(draft);
    let large = Draft::new(1, NOW).tag("t", "kukuri:global").content("x".repeat(70_000));
    let topicless = Draft::new(1, NOW).content("no topic");
    let file = site.file("settings.jsonl", &[sign(&large), sign(&topicless)]);
    site.run(&["import", text(&file)])
        .code(3)
        .says("line 1: invalid: event too large")
        .says("line 2: invalid: missing topic");
    let mut command = site.command(&["import", text(&file)]);
    command.env("KUKURI_LIMITS_EVENTS_EVENT_BYTES_MAX", "100000");
    command.env("KUKURI_LIMITS_MESSAGE_BYTES_MAX", "200000");
    ended(command.env("KUKURI_RELAY_TOPICLESS", "global")).ok();
    assert_eq!(site.exported(&[]).len(), 2);
}

pub fn importing_again_changes_nothing(site: &Site) {
    let lines = notes(600);
    site.import(&lines[..400]).ok();
    site.import(&lines)
        .ok()
        .says("accepted                    200")
        .says("duplicate                   400");
    let feed = site.run(&["feed"]).ok().stdout;
    site.import(&lines)
        .ok()
        .says("accepted                      0")
        .says("duplicate                   600");
    assert_eq!(site.run(&["feed"]).ok().stdout, feed);
    site.run(&["doctor", "--all"]).ok();
    // What is known is answered by its id, before anybody looks at a signature.
    site.import(&[forged(1, 2)]).ok().says("duplicate                     1");
    site.import(&[forged(601, 2)]).code(3).says("bad signature");
}

/// The note of one age with the signature of another.
fn forged(age: i64, other_age: i64) -> String {
    let sig = |age| hex(Event::parse(&note(age)).unwrap().sig().as_bytes());
    note(age).replace(&sig(age), &sig(other_age))
}

pub fn stdin_can_be_imported(site: &Site) {
    let mut import = site.spawn(&["import", "-"]);
    let mut stdin = import.stdin().unwrap();
    stdin.write_all(b"\xef\xbb\xbf").unwrap();
    // Windows line ends, and no end of the last line.
    stdin.write_all(format!("{}\r\n\r\n{}", note(1), note(2)).as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(0), "{}", import.stderr());
    assert!(import.stderr().contains("stdin: 2 events"), "{}", import.stderr());
    assert_eq!(site.exported(&[]), ids(&notes(2)));
}

pub fn a_report_has_every_line(site: &Site) {
    let old = signed(1, 0, 50, &[]);
    let new = signed(1, 0, 40, &[]);
    let lines = [note(1), "[]".to_owned(), String::new(), note(1), new.clone(), old.clone()];
    let file = site.file("in.jsonl", &lines);
    let report = site.path("report.jsonl");
    site.run(&["import", text(&file), "--report", text(&report)]).code(3);
    let report = fs::read_to_string(report).unwrap();
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let got: Vec<Value> = report.lines().map(parse).collect();
    let entry = |line: u64, id: Option<String>, ok: bool, message: &str| serde_json::json!({ "line": line, "id": id, "ok": ok, "message": message });
    let malformed = got[1]["message"].as_str().unwrap();
    assert!(malformed.starts_with("invalid: malformed event: "), "{malformed}");
    let expected = [
        entry(1, Some(id(&lines[0])), true, ""),
        entry(2, None, false, malformed),
        entry(4, Some(id(&lines[0])), true, "duplicate: already have this event"),
        entry(5, Some(id(&new)), true, ""),
        entry(6, Some(id(&old)), true, "duplicate: a newer version is stored"),
    ];
    assert_eq!(got, expected);
    assert!(report.starts_with("{\"line\":1,\"id\":\""), "{report}");
    let again = site.run(&["import", text(&file), "--report", "-"]).code(3).json();
    assert_eq!(again.len(), 5);
    assert_eq!(again[0]["message"], "duplicate: already have this event");
}

pub fn old_events_need_any_age(site: &Site) {
    const DAY: i64 = 86_400;
    let lines = [note(179 * DAY), note(179 * DAY + 1)];
    site.import(&lines).code(3).says("line 2: invalid: created_at too old");
    let file = site.path("import.jsonl");
    site.run(&["import", "--any-age", text(&file)]).ok();
    assert_eq!(site.exported(&[]), ids(&lines));
    // At the system's time they are all too old.
    ended(&mut site.command_now(&["import", text(&file)])).code(3).says("too_old");
}

pub fn an_interrupted_import_finishes_what_it_began(site: &Site) {
    let mut import = site.spawn(&["import", "-", "--report", "-"]);
    let mut stdin = import.stdin().unwrap();
    // More than a chunk, so that some are answered while the input is still open.
    for line in notes(300) {
        writeln!(stdin, "{line}").unwrap();
    }
    let first = import.line(LIMIT).unwrap();
    assert!(first.contains("\"ok\":true"), "{first}");
    import.interrupt().unwrap();
    assert_eq!(import.wait(LIMIT).unwrap().code(), Some(130), "{}", import.stderr());
    assert!(import.stderr().contains("interrupted after line 2"), "{}", import.stderr());
    let acknowledged = 1 + import.lines_so_far().len();
    assert_eq!(site.exported(&[]).len(), acknowledged);
    drop(stdin);
    site.import(&notes(300)).ok();
    assert_eq!(site.exported(&[]), ids(&notes(300)));
}

pub fn a_deleted_event_stays_deleted(site: &Site) {
    let gone = note(9);
    let deletion = signed(1, 5, 5, &[("e", &id(&gone))]);
    let foreign = signed(2, 5, 5, &[("e", &id(&note(8)))]);
    let lines = [gone.clone(), note(8), deletion.clone(), foreign.clone(), gone];
    site.import(&lines).code(3).says("line 5: blocked: deleted by its author");
    assert_eq!(site.exported(&[]), ids(&[note(8), deletion, foreign]));
}

pub fn unreadable_inputs_are_named(site: &Site) {
    site.run(&["import", "/nowhere/x.jsonl"]).code(1).says("cannot open /nowhere/x.jsonl");
    let dir = site.path("");
    site.run(&["import", text(&dir)]).code(1).says("is a directory");
    let file = site.file("in.jsonl", &notes(1));
    let report = site.run(&["import", text(&file), "--report", "/nowhere/r"]).code(1);
    report.says("cannot write the report /nowhere/r");
    site.topics();
    assert!(site.exported(&[]).is_empty());
}
