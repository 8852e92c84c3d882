//! What has left a running node and is offered again: the answer says what became of it, and it stays away.

use std::collections::BTreeSet;
use std::net::TcpStream;

use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{WebSocket, connect};

use crate::running::{Running, patient};
use crate::site::{LIMIT, Site, ended, id, system_time, text};

const GLOBAL: &str = "kukuri:global";

/// What is said to an event: the word `OK` has, and the text.
type Answer = (bool, &'static str);

const ACCEPTED: Answer = (true, "");
const NOT_KEPT: Answer = (true, "duplicate: seen before, no longer kept");
const DELETED: Answer = (false, "blocked: deleted by its author");
const EXPIRED: Answer = (false, "invalid: expired");

/// One that asks and publishes over a connection of its own.
struct Client(WebSocket<MaybeTlsStream<TcpStream>>);

impl Client {
    fn at(node: &Running) -> Self {
        Self(connect(&node.url).unwrap().0)
    }

    fn next(&mut self) -> Value {
        serde_json::from_str(self.0.read().unwrap().to_text().unwrap()).unwrap()
    }

    fn publish(&mut self, event: &str) -> (bool, String) {
        self.0.send(format!("[\"EVENT\",{event}]").into()).unwrap();
        let answer = self.next();
        assert_eq!((&answer[0], &answer[1]), (&json!("OK"), &json!(id(event))), "{answer}");
        (answer[2].as_bool().unwrap(), answer[3].as_str().unwrap().to_owned())
    }

    /// What is stored of these, and what comes from then on.
    fn subscribe(&mut self, filter: &Value) -> BTreeSet<String> {
        self.0.send(json!(["REQ", "any", filter]).to_string().into()).unwrap();
        let mut stored = BTreeSet::new();
        loop {
            let told = self.next();
            match told[0].as_str() {
                Some("EVENT") => stored.insert(told[2]["id"].as_str().unwrap().to_owned()),
                Some("EOSE") => return stored,
                _ => panic!("a question was answered {told}"),
            };
        }
    }
}

fn signed(kind: u16, age: i64, topic: &str, tags: &[(&str, &str)]) -> String {
    let draft = Draft::new(kind, UnixSeconds(system_time().0 - age)).tag("t", topic);
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).sign(&draft)
}

/// What the log of changes says, row by row.
fn feed(site: &Site) -> Vec<Value> {
    site.run(&["feed"]).ok().json()
}

fn until_gone(site: &Site, reason: &str) {
    let gone = || feed(site).iter().any(|row| row["reason"] == reason).then_some(());
    wait_for(reason, LIMIT, gone).unwrap();
}

fn exported(site: &Site) -> BTreeSet<String> {
    ended(&mut site.command_now(&["export"])).ok().stdout.lines().map(id).collect()
}

/// Publishes what is about to leave, each for another reason, and waits until all of it has left. With each is what
/// is said to it from then on.
fn gone(site: &Site, client: &mut Client, full: &str) -> Vec<(String, Answer)> {
    let (note, profile) = (signed(1, 20, GLOBAL, &[]), signed(0, 20, GLOBAL, &[]));
    let (regretted, article) =
        (signed(1, 19, GLOBAL, &[]), signed(30_023, 19, GLOBAL, &[("d", "x")]));
    let author = Author::numbered(1).pubkey().to_hex();
    let (by_id, by_key) = (id(&regretted), format!("30023:{author}:x"));
    let request = signed(5, 18, GLOBAL, &[("e", &by_id), ("a", &by_key)]);
    let crowded = signed(1, 17, full, &[]);
    let lines = [&note, &profile, &regretted, &article, &request, &crowded];
    for line in lines {
        assert_eq!(client.publish(line), (ACCEPTED.0, ACCEPTED.1.to_owned()), "{line}");
    }
    // On a slow machine its time may be over before it is taken in: then it is given more.
    let expiring = [2, 8, 32].into_iter().find_map(|seconds| {
        let end = (system_time().0 + seconds).to_string();
        let line = signed(1, 16, GLOBAL, &[("expiration", &end)]);
        client.publish(&line).0.then_some(line)
    });
    let expiring = expiring.expect("it expired before it was taken in");
    until_gone(site, "expiration");
    let at = (system_time().0 + 1).to_string();
    let purge = ["purge", "--topic", GLOBAL, "--before", &at];
    ended(&mut site.command_now(&purge)).ok().says("purged 6 events");
    [note, profile, request, crowded]
        .map(|line| (line, NOT_KEPT))
        .into_iter()
        .chain([regretted, article].map(|line| (line, DELETED)))
        .chain([(expiring, EXPIRED)])
        .collect()
}

pub fn what_has_left_does_not_come_back(site: &Site) {
    let full = site.run(&["topic", "add", "full"]).ok().stdout.trim_end().to_owned();
    site.run(&["topic", "policy", "full", "--max-events", "1"]).ok();
    let running = Running::spawn(&mut patient(site));
    let (mut client, mut listener) = (Client::at(&running), Client::at(&running));
    let gone = gone(site, &mut client, &full);
    // The node's own upkeep lets the older one go.
    let kept = [signed(1, 5, GLOBAL, &[]), signed(1, 5, &full, &[])];
    kept.iter().for_each(|line| assert!(client.publish(line).0, "{line}"));
    until_gone(site, "capacity");
    let visible: BTreeSet<String> = kept.iter().map(|line| id(line)).collect();
    let topics = json!({ "#t": [GLOBAL, full] });
    assert_eq!(listener.subscribe(&topics), visible);
    let before = feed(site);

    for (line, (ok, message)) in &gone {
        assert_eq!(client.publish(line), (*ok, (*message).to_owned()), "{line}");
    }
    assert_eq!(imported(site, &gone), answers(&gone));

    let of_gone: Vec<String> = gone.iter().map(|(line, _)| id(line)).collect();
    let by_id = json!({ "#t": [GLOBAL, full], "ids": of_gone });
    assert_eq!(client.subscribe(&by_id), BTreeSet::new());
    assert_eq!(client.subscribe(&topics), visible);
    assert_eq!(exported(site), visible);
    assert_eq!(feed(site), before, "nothing has happened");
    // What comes live comes in order: nothing came before this.
    let last = signed(1, 4, GLOBAL, &[]);
    assert!(Client::at(&running).publish(&last).0);
    assert_eq!(listener.next()[2]["id"], json!(id(&last)));
    running.end();
    site.run(&["doctor", "--all"]).ok();
}

/// What an import is told of these, beside the node that runs.
fn imported(site: &Site, gone: &[(String, Answer)]) -> Vec<Value> {
    let lines: Vec<String> = gone.iter().map(|(line, _)| line.clone()).collect();
    let file = site.file("again.jsonl", &lines);
    let mut import = site.command_now(&["import", text(&file), "--report", "-"]);
    ended(&mut import).code(3).says("accepted                      0").json()
}

fn answers(gone: &[(String, Answer)]) -> Vec<Value> {
    let answer = |(nth, (line, (ok, message))): (usize, &(String, Answer))| json!({ "line": nth + 1, "id": id(line), "ok": ok, "message": message });
    gone.iter().enumerate().map(answer).collect()
}
