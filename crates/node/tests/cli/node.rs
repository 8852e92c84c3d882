use std::time::Duration;

use kukuri_testkit::condition::wait_for;

use crate::site::{LIMIT, Site, ended, note};

pub fn running_says_where_everything_is_and_ends_when_asked(site: &Site) {
    for (args, signal) in [(&["run"][..], "SIGTERM"), (&[], "SIGINT")] {
        let mut node = site.spawn(args);
        wait_for("the banner", LIMIT, || node.stderr().contains("ready").then_some(())).unwrap();
        let banner = node.stderr();
        assert!(banner.contains("ws://127.0.0.1:"), "{banner}");
        assert!(banner.contains("events.db") || banner.contains("postgres://"), "{banner}");
        // Every other command works beside it.
        site.import(&[note(1)]).ok();
        match signal {
            "SIGTERM" => node.terminate().unwrap(),
            _ => node.interrupt().unwrap(),
        }
        let status = node.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(status.code(), Some(0), "{}", node.stderr());
        assert!(node.stderr().contains(signal), "{}", node.stderr());
    }
}

pub fn wrong_command_lines_are_code_2(site: &Site) {
    let wrong: &[&[&str]] = &[
        &["imprt", "x"],
        &["import"],
        &["feed", "--after", "x"],
        &["topic", "add", "x", "--mapping", "v3"],
        &["topic", "list", "--network", "kukuri:Main:"],
        &["doctor", "--all", "--sample", "3"],
        &["run", "--url", "relay.example"],
        &["run", "--trusted-proxy", "10.0.0.0/33"],
    ];
    for args in wrong {
        site.run(args).code(2);
    }
    let mut command = Site::sqlite().command_now(&["topic", "list"]);
    // The message must not repeat what may be a password.
    let refused = ended(command.env("KUKURI_DATABASE", "mysql://secret")).code(2);
    assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    refused.says("expected postgres://user@host/database");
    let help = site.run(&["import", "--help"]).ok().stdout;
    assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
}
