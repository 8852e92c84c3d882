use std::time::Duration;

use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use tokio_tungstenite::tungstenite;

use crate::running::Running;
use crate::site::{LIMIT, Site, ended, note, system_time};

pub fn running_says_where_everything_is_and_ends_when_asked(site: &Site) {
    for (args, signal) in [(&["run"][..], "SIGTERM"), (&[], "SIGINT")] {
        let mut node = site.spawn(args);
        wait_for("the banner", LIMIT, || node.stderr().contains("ready").then_some(())).unwrap();
        let banner = node.stderr();
        assert!(banner.contains("ws://127.0.0.1:"), "{banner}");
        assert!(banner.contains("events.db") || banner.contains("postgres://"), "{banner}");
        // Nobody is to believe in a reserve that is not there.
        let without = banner.contains("capacity.database_directory");
        assert_eq!(without, !site.has_own_disk(), "{banner}");
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

/// A store that does not let go of a batch holds up an orderly end, and not a second signal.
pub fn a_second_signal_ends_at_once() {
    let site = Site::sqlite();
    let mut running = Running::start(&site, &[]);
    let rival = rusqlite::Connection::open(site.path("data").join("events.db")).unwrap();
    rival.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (mut socket, _) = tungstenite::connect(&running.url).unwrap();
    let note = Draft::new(1, system_time()).tag("t", "kukuri:global");
    let event = Author::numbered(1).sign(&note);
    socket.send(format!("[\"EVENT\",{event}]").into()).unwrap();
    let submitted = || {
        let metrics = Running::get(&running.admin, "/metrics", "*/*").1;
        metrics.contains("relay_events_submitted_total 1").then_some(())
    };
    wait_for("the event is in the lane", LIMIT, submitted).unwrap();
    running.node.terminate().unwrap();
    let finishing = || running.node.stderr().contains("finishing what is queued").then_some(());
    wait_for("the first signal", LIMIT, finishing).unwrap();
    running.node.terminate().unwrap();
    let status = running.node.wait(LIMIT).unwrap();
    assert_eq!(status.code(), Some(130), "{}", running.node.stderr());
    rival.execute_batch("ROLLBACK").unwrap();
    assert!(site.exported(&[]).is_empty(), "what was never acknowledged is not there");
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
