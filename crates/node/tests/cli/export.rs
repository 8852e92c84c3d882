use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::site::{NOW, Site, ended, id, ids, note, notes, signed};

pub fn filters_choose_events(site: &Site) {
    let reaction = signed(2, 7, 3, &[("e", &id(&note(1)))]);
    site.import(&[note(1), note(2), reaction.clone()]).ok();
    let only = |filter: &str| site.exported(&["--filter", filter]);
    assert_eq!(only("{}").len(), 3);
    assert_eq!(only(r#"{"kinds":[7]}"#), [id(&reaction)]);
    assert_eq!(only(&format!(r##"{{"#e":["{}"]}}"##, id(&note(1)))), [id(&reaction)]);
    assert_eq!(only(r##"{"#t":["kukuri:global"],"kinds":[1]}"##), ids(&notes(2)));
    assert_eq!(only(&format!(r#"{{"until":{}}}"#, NOW.0 - 3)), [id(&reaction)]);
    assert_eq!(only(r##"{"#t":["rust"]}"##), [""; 0]);
    site.run(&["export", "--filter", r#"{"kind":1}"#]).code(2).says("unknown filter field");
    site.run(&["export", "--filter", "kinds"]).code(2).says("--filter");
}

pub fn a_limit_gives_the_newest_first(site: &Site) {
    site.import(&notes(9)).ok();
    let newest =
        |limit: usize| -> Vec<String> { (1..=9).take(limit).map(|age| id(&note(age))).collect() };
    for limit in [0, 1, 4, 9, 100] {
        let filter = format!(r#"{{"limit":{limit}}}"#);
        assert_eq!(site.exported_in_order(&["--filter", &filter]), newest(limit));
        assert_eq!(site.exported_in_order(&["--filter", &filter, "--after", "0"]), newest(limit));
    }
}

pub fn events_after_a_number(site: &Site) {
    site.import(&notes(6)).ok();
    let by_file: Vec<String> = notes(6).iter().map(|line| id(line)).collect();
    assert_eq!(site.exported_in_order(&["--after", "4"]), by_file[4..]);
    // The newest two of those after the fourth: the file has the newest first.
    let filter = r#"{"limit":1}"#;
    assert_eq!(site.exported_in_order(&["--after", "4", "--filter", filter]), by_file[4..5]);
    assert_eq!(site.exported_in_order(&["--after", "6"]), [""; 0]);
}

pub fn expired_events_are_not_exported(site: &Site) {
    let end = (NOW.0 + 100).to_string();
    let passing = signed(1, 1, 5, &[("expiration", &end)]);
    site.import(&[note(1), passing.clone()]).ok();
    assert_eq!(site.exported(&[]), ids(&[note(1), passing]));
    for args in [&["export"][..], &["export", "--filter", r#"{"limit":9}"#]] {
        let mut later = site.command_now(args);
        let exported = ended(later.arg("--now").arg(&end)).ok().stdout;
        assert_eq!(exported.lines().map(id).collect::<Vec<_>>(), [id(&note(1))]);
    }
}

pub fn a_reader_that_leaves_is_no_failure(site: &Site) {
    site.import(&notes(2000)).ok();
    for args in [&["export"][..], &["feed"]] {
        let mut command = site.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        // The pipe holds less than there is to say, so the program is still writing.
        BufReader::with_capacity(64, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
        let stderr = String::from_utf8(ended.stderr).unwrap();
        assert!(!stderr.contains("error"), "{stderr}");
    }
}
