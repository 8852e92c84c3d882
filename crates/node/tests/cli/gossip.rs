//! Nodes that gossip, as programs, and clients that listen to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use kukuri_core::TopicId;
use kukuri_event::UnixSeconds;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::port::lasting_port;
use serde_json::Value;
use tokio_tungstenite::tungstenite;

use crate::running::{Running, patient};
use crate::site::{LIMIT, Site, ended, id, system_time};

/// The command of a node that gossips with these.
fn gossiping(site: &Site, peers: &[String]) -> Command {
    let mut command = patient(site);
    command.env("KUKURI_GOSSIP_LISTEN", "127.0.0.1:0").env("KUKURI_GOSSIP_PEERS", peers.join(","));
    command
}

/// How others can name the node that runs here.
fn hint(site: &Site) -> String {
    let info = ended(&mut site.command_now(&["gossip", "info"])).ok();
    let hint = info.stdout.lines().next().unwrap().to_owned();
    assert!(hint.contains("@127.0.0.1:"), "{hint}");
    hint
}

fn status(site: &Site) -> Value {
    ended(&mut site.command_now(&["gossip", "status", "--json"])).ok().json().remove(0)
}

fn until_joined(site: &Site, neighbours: usize) {
    let joined = || {
        let status = status(site);
        let topics = status["status"]["topics"].as_array()?;
        let enough = |topic: &Value| topic["neighbours"].as_array().unwrap().len() >= neighbours;
        (!topics.is_empty() && topics.iter().all(enough)).then_some(())
    };
    wait_for("neighbours", LIMIT, joined).unwrap_or_else(|late| panic!("{late}: {}", status(site)));
}

fn signed(kind: u16, age: i64, tags: &[(&str, &str)]) -> String {
    let draft = Draft::new(kind, UnixSeconds(system_time().0 - age)).tag("t", TopicId::global());
    let draft = tags.iter().fold(draft, |draft, (name, value)| draft.tag(name, value));
    Author::numbered(1).sign(&draft.content(format!("{kind} {age}")))
}

fn publish(to: &Running, event: &str) {
    let (mut socket, _) = tungstenite::connect(&to.url).unwrap();
    socket.send(format!("[\"EVENT\",{event}]").into()).unwrap();
    let answer = socket.read().unwrap().to_string();
    assert!(answer.starts_with(&format!("[\"OK\",\"{}\",true", id(event))), "{answer}");
}

/// A client that listens to what comes live on a node's global topic.
struct Ear {
    heard: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Ear {
    fn at(node: &Running) -> Self {
        Self::listening(node, Arc::default())
    }

    fn listening(node: &Running, heard: Arc<Mutex<BTreeMap<String, usize>>>) -> Self {
        let (mut socket, _) = tungstenite::connect(&node.url).unwrap();
        socket.send("[\"REQ\",\"ear\",{\"#t\":[\"kukuri:global\"]}]".into()).unwrap();
        let into = Arc::clone(&heard);
        // What was said before does not count.
        while !socket.read().unwrap().to_string().starts_with("[\"EOSE\"") {}
        thread::spawn(move || {
            while let Ok(message) = socket.read() {
                let Ok(message) = serde_json::from_str::<Value>(&message.to_string()) else {
                    continue;
                };
                if message[0] == "EVENT" {
                    let id = message[2]["id"].as_str().unwrap().to_owned();
                    *into.lock().unwrap().entry(id).or_default() += 1;
                }
            }
        });
        Self { heard }
    }

    fn until_heard(&self, events: &[String]) {
        let all = || {
            let heard = self.heard.lock().unwrap();
            events.iter().all(|event| heard.contains_key(&id(event))).then_some(())
        };
        wait_for("live events", LIMIT, all).unwrap();
    }

    /// These, once each, and nothing else.
    fn heard_once(&self, events: &[String]) {
        assert_eq!(once(&self.heard.lock().unwrap(), events), Ok(()));
    }
}

/// Whether these were heard once each, and nothing else.
fn once(heard: &BTreeMap<String, usize>, events: &[String]) -> Result<(), String> {
    let expected: BTreeMap<String, usize> = events.iter().map(|event| (id(event), 1)).collect();
    if *heard == expected { Ok(()) } else { Err(format!("{heard:?} instead of {expected:?}")) }
}

/// Hearing twice, not at all, or something else is noticed.
pub fn an_event_that_is_heard_twice_is_noticed(site: &Site) {
    let node = Running::spawn(&mut patient(&site.elsewhere()));
    // A client with two ears on one node: what is said once is heard twice.
    let (ear, events) = (Ear::at(&node), [signed(1, 1, &[]), signed(1, 2, &[])]);
    let second = Ear::listening(&node, Arc::clone(&ear.heard));
    events.iter().for_each(|event| publish(&node, event));
    let twice = || (ear.heard.lock().unwrap().values().sum::<usize>() == 4).then_some(());
    wait_for("both ears", LIMIT, twice).unwrap();
    assert!(once(&ear.heard.lock().unwrap(), &events).is_err());
    drop(second);
    let heard = |events: &[String]| events.iter().map(|event| (id(event), 1)).collect();
    assert_eq!(once(&heard(&events), &events), Ok(()));
    assert!(once(&heard(&events[..1]), &events).is_err());
    assert!(once(&heard(&events), &events[..1]).is_err());
    node.end();
}

fn exported(site: &Site) -> BTreeSet<String> {
    let export = ended(&mut site.command_now(&["export"])).ok();
    export.stdout.lines().map(id).collect()
}

/// In a line and in a ring: what is published at one is live at all, once each; stored once per node; and
/// each event was broadcast once.
pub fn an_event_is_live_once_at_every_node(site: &Site) {
    for ring in [false, true] {
        let sites = [site.elsewhere(), site.elsewhere(), site.elsewhere()];
        let one = Running::spawn(&mut gossiping(&sites[0], &[]));
        let two = Running::spawn(&mut gossiping(&sites[1], &[hint(&sites[0])]));
        let known = [hint(&sites[1]), hint(&sites[0])];
        let three = Running::spawn(&mut gossiping(&sites[2], &known[..1 + usize::from(ring)]));
        let nodes = [one, two, three];
        sites.iter().for_each(|site| until_joined(site, 1));
        until_joined(&sites[1], 2);
        let ears: Vec<Ear> = nodes.iter().map(Ear::at).collect();
        let events: Vec<String> = (0..9).map(|age| signed(1, age, &[])).collect();
        for (event, node) in events.iter().zip(nodes.iter().cycle()) {
            publish(node, event);
        }
        ears.iter().for_each(|ear| ear.until_heard(&events));
        for (ear, site) in ears.iter().zip(&sites) {
            ear.heard_once(&events);
            let feed = ended(&mut site.command_now(&["feed"])).ok();
            let rows = feed.json();
            assert_eq!(rows.len(), 9, "each event has one row");
            assert_eq!(rows.iter().filter(|row| row["source"] == "ws").count(), 3);
            assert!(rows.iter().all(|row| row["source"] == "ws" || row["via"] == "kukuri:global"));
        }
        for node in &nodes {
            let counted = || {
                let broadcast = node.metric("kukuri_gossip_broadcasts_total")?;
                let accepted = node.metric("kukuri_gossip_accepted_total")?;
                (broadcast == 3.0 && accepted == 6.0).then_some(())
            };
            wait_for("three sent, six taken in", LIMIT, counted).unwrap();
            assert_eq!(node.metric("kukuri_gossip_received_total"), Some(6.0));
        }
        nodes.into_iter().for_each(Running::end);
    }
}

/// A node that stood still for so long that others gave it up has everything again when it goes on: what was
/// published, replaced and deleted meanwhile, and each of it once for who listens to it.
pub fn a_node_that_was_cut_off_is_whole_again(site: &Site) {
    let (home, away) = (site.elsewhere(), site.elsewhere());
    let one = Running::spawn(&mut gossiping(&home, &[]));
    let mut command = gossiping(&away, &[hint(&home)]);
    // Nothing but the gap that gossip notices brings it to ask.
    command.env("KUKURI_BACKFILL_FROM", &one.url).env("KUKURI_BACKFILL_INTERVAL_SECONDS", "36000");
    let two = Running::spawn(&mut command);
    until_joined(&home, 1);
    until_joined(&away, 1);
    let ear = Ear::at(&two);
    let (doomed, old) = (signed(1, 50, &[]), signed(30_023, 40, &[("d", "x")]));
    let first = [doomed.clone(), old];
    first.iter().for_each(|event| publish(&one, event));
    ear.until_heard(&first);
    two.node.stop().unwrap();
    let alone = || (one.metric("kukuri_gossip_topics_joined") == Some(0.0)).then_some(());
    wait_for("it is given up", LIMIT, alone).unwrap();
    let missed = [
        signed(30_023, 30, &[("d", "x")]),
        signed(5, 20, &[("e", &id(&doomed))]),
        signed(1, 10, &[]),
        signed(1, 9, &[]),
    ];
    missed.iter().for_each(|event| publish(&one, event));
    two.node.cont().unwrap();
    ear.until_heard(&missed);
    until_joined(&away, 1);
    until_joined(&home, 1);
    let last = signed(1, 1, &[]);
    publish(&one, &last);
    ear.until_heard(std::slice::from_ref(&last));
    assert_eq!(exported(&away), exported(&home));
    ear.heard_once(&[&first[..], &missed, &[last]].concat());
    one.end();
    two.end();
}

/// Whoever has named a peer that says where its relay is needs no setting to have everything: what was there before
/// it came, and what it has missed later.
pub fn a_peer_that_says_where_its_relay_is_is_asked_there(site: &Site) {
    let (home, away) = (site.elsewhere(), site.elsewhere());
    let address = format!("127.0.0.1:{}", lasting_port().unwrap());
    let mut command = gossiping(&home, &[]);
    command.env("KUKURI_RELAY_LISTEN", &address);
    command.env("KUKURI_RELAY_URLS", format!("ws://{address}"));
    let one = Running::spawn(&mut command);
    let before = [signed(1, 50, &[]), signed(1, 49, &[])];
    before.iter().for_each(|event| publish(&one, event));
    let two = Running::spawn(&mut gossiping(&away, &[hint(&home)]));
    let all = || (exported(&away) == exported(&home)).then_some(());
    wait_for("what was there before", LIMIT, all).unwrap();

    two.node.stop().unwrap();
    let alone = || (one.metric("kukuri_gossip_topics_joined") == Some(0.0)).then_some(());
    wait_for("it is given up", LIMIT, alone).unwrap();
    publish(&one, &signed(1, 30, &[]));
    two.node.cont().unwrap();
    wait_for("what it has missed", LIMIT, all).unwrap();
    assert_eq!(exported(&away).len(), 3);
    one.end();
    two.end();
}

/// What a node has purged does not come back when it meets others again, by whatever way.
pub fn a_node_that_has_purged_stays_so(site: &Site) {
    let (home, away) = (site.elsewhere(), site.elsewhere());
    let one = Running::spawn(&mut gossiping(&home, &[]));
    let start = || {
        let mut command = gossiping(&away, &[hint(&home)]);
        command.env("KUKURI_BACKFILL_FROM", &one.url);
        Running::spawn(&mut command)
    };
    let two = start();
    until_joined(&away, 1);
    let old: Vec<String> = (10..15).map(|age| signed(1, age, &[])).collect();
    old.iter().for_each(|event| publish(&one, event));
    let all = || (exported(&away).len() == old.len()).then_some(());
    wait_for("all of it", LIMIT, all).unwrap();
    two.end();
    let at = (system_time().0 + 1).to_string();
    ended(&mut away.command_now(&["purge", "--before", &at])).ok();
    assert!(exported(&away).is_empty());
    let two = start();
    until_joined(&away, 1);
    let new = signed(1, 1, &[]);
    publish(&one, &new);
    let ids = BTreeSet::from([id(&new)]);
    let asked = || {
        let passes = two.metric("kukuri_backfill_passes_total")?;
        (passes >= 1.0 && exported(&away) == ids).then_some(())
    };
    wait_for("what is new, and nothing else", LIMIT, asked).unwrap();
    assert_eq!(two.metric("kukuri_backfill_passes_failed_total"), Some(0.0));
    assert_eq!(exported(&away), ids);
    two.end();
    one.end();
}

/// A node that is killed is the same node when it is started again, and finds its peers, and they find it,
/// without anyone's help.
pub fn a_node_that_was_killed_finds_its_peers_again(site: &Site) {
    let (home, away) = (site.elsewhere(), site.elsewhere());
    let one = Running::spawn(&mut gossiping(&home, &[]));
    let peers = [hint(&home)];
    let mut two = Running::spawn(&mut gossiping(&away, &peers));
    until_joined(&away, 1);
    let own = hint(&away);
    for round in 0..2 {
        two.node.kill9().unwrap();
        let mut again = gossiping(&away, &peers);
        // At the same address, as an operator would have it; or at another one.
        if round == 0 {
            again.env("KUKURI_GOSSIP_LISTEN", own.split_once('@').unwrap().1);
        }
        two = Running::spawn(&mut again);
        // The role of the one that was killed is free soon.
        let joined = || (two.metric("kukuri_gossip_topics_joined") == Some(1.0)).then_some(());
        wait_for("it is back", LIMIT, joined).unwrap();
        let (name, now) = (own.split('@').next().unwrap(), hint(&away));
        assert!(now.starts_with(name), "{now} is another node than {own}");
        assert_eq!(round == 0, now == own);
        let ears = [Ear::at(&one), Ear::at(&two)];
        let events = [signed(1, 10 + round, &[]), signed(1, 20 + round, &[])];
        publish(&one, &events[0]);
        publish(&two, &events[1]);
        ears.iter().for_each(|ear| ear.until_heard(&events));
    }
    one.end();
    two.end();
}

/// Topics are followed while the node runs, what it says of itself is true, and one process does it for all.
pub fn the_operator_sees_how_the_node_gossips(site: &Site) {
    let (home, other) = (site.elsewhere(), site.elsewhere());
    let idle = Running::spawn(&mut patient(&other));
    assert!(
        idle.node.stderr().contains("set gossip.listen or gossip.peers"),
        "{}",
        idle.node.stderr()
    );
    assert_eq!(idle.metric("kukuri_gossip_running"), Some(0.0));
    idle.end();
    assert_eq!(status(&other)["state"], "not_running");
    let id_line = ended(&mut other.command_now(&["gossip", "info"])).ok();
    assert_eq!(id_line.stdout.trim().len(), 64, "{}", id_line.stdout);
    let id_line = id_line.says("until gossip.listen is set").stdout;
    let one = Running::spawn(&mut gossiping(&home, &[]));
    assert!(one.node.stderr().contains(&hint(&home)), "{}", one.node.stderr());
    let two = Running::spawn(&mut gossiping(&other, &[hint(&home)]));
    assert!(hint(&other).starts_with(id_line.trim()), "the key was made once");
    until_joined(&other, 1);
    let ready = Running::get(&two.admin, "/readyz", "*/*").1;
    assert!(ready.contains("\"gossip\":\"ok\""), "{ready}");
    for site in [&home, &other] {
        ended(&mut site.command_now(&["topic", "add", "tea"])).ok();
    }
    let tea = |site: &Site| {
        let status = status(site);
        let topics = status["status"]["topics"].as_array()?.clone();
        (topics.len() == 2 && topics.iter().all(|topic| topic["state"] == "joined")).then_some(())
    };
    wait_for("two swarms", LIMIT, || tea(&other)).unwrap();
    ended(&mut other.command_now(&["topic", "disable", "tea"])).ok();
    let left = || (two.metric("kukuri_gossip_topics") == Some(1.0)).then_some(());
    wait_for("one is left", LIMIT, left).unwrap();
    let said = ended(&mut other.command_now(&["gossip", "status"])).ok().stdout;
    assert!(said.contains("1 of 1 joined") && said.contains("kukuri:global"), "{said}");
    // Another process on the same store waits for its turn, and has it when the first one ends.
    let standby = Running::spawn(&mut gossiping(&other, &[hint(&home)]));
    assert!(standby.node.stderr().contains("standing by"), "{}", standby.node.stderr());
    two.end();
    let turn = || (standby.metric("kukuri_gossip_topics_joined") == Some(1.0)).then_some(());
    wait_for("its turn", LIMIT, turn).unwrap();
    standby.end();
    one.end();
}

/// An instance that could not listen kept the role all the same, and no other one gossiped.
pub fn an_instance_that_cannot_begin_leaves_it_to_another(site: &Site) {
    let home = site.elsewhere();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = gossiping(&home, &[]);
    command.env("KUKURI_GOSSIP_LISTEN", &address);
    let unlucky = Running::spawn(&mut command);
    let why = || {
        let ready = Running::get(&unlucky.admin, "/readyz", "*/*").1;
        ready.contains("cannot listen for other nodes").then_some(())
    };
    wait_for("it says why", LIMIT, why).unwrap();
    let lucky = Running::spawn(&mut gossiping(&home, &[]));
    let turn = || (lucky.metric("kukuri_gossip_running") == Some(1.0)).then_some(());
    wait_for("the turn of another", LIMIT, turn).unwrap();
    assert_eq!(unlucky.metric("kukuri_gossip_running"), Some(0.0));
    // Clients are served by both meanwhile.
    for (node, age) in [(&unlucky, 1), (&lucky, 2)] {
        publish(node, &signed(1, age, &[]));
    }
    unlucky.end();
    lucky.end();
    drop(taken);
}

/// At the limit a topic is carried, and one more is not.
pub fn a_node_carries_so_many_topics_and_not_one_more(site: &Site) {
    let run = |args: &[&str]| {
        let mut command = site.command_now(args);
        ended(command.env("KUKURI_LIMITS_NODE_TOPICS_MAX", "3"))
    };
    run(&["topic", "add", "tea"]).ok();
    run(&["topic", "add", "coffee"]).ok();
    run(&["topic", "add", "coffee"]).ok();
    run(&["topic", "add", "water"]).code(1).says("may carry 3 (limits.node_topics_max)");
    run(&["topic", "disable", "tea"]).ok();
    run(&["topic", "add", "water"]).ok();
    run(&["topic", "enable", "tea"]).code(1).says("limits.node_topics_max");
    run(&["topic", "disable", "water"]).ok();
    run(&["topic", "enable", "tea"]).ok();
}
