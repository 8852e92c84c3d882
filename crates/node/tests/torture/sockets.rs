//! The running node under WebSocket load: killed in a loop, and with a PostgreSQL that goes away. What
//! was answered with OK true is there, nothing else is, and a listener that comes back with its cursor
//! is given everything exactly once.

use std::sync::Arc;

use kukuri_event::{EventId, Filter};
use kukuri_store::Store;
use kukuri_testkit::delivery::{judge, records};
use kukuri_testkit::generate::Dice;
use kukuri_testkit::postgres::{Cluster, Durability};
use serde_json::json;

use crate::checker::History;
use crate::door::{Heard, Node, Publisher};
use crate::load::{Load, NOW};
use crate::rig::{self, Home, Place, require_none};

const KILLS: usize = 20;
/// What a run must have hit, or it proves nothing.
const IN_FLIGHT_MIN: usize = 15;
const LINES_PER_KILL: usize = 400;
const ANSWERS_MAX: usize = 300;
/// How far back the next client may begin.
const OVERLAP_MAX: usize = 100;

/// How often PostgreSQL goes away.
const STOPS: usize = 4;
const LINES_PER_STOP: usize = 800;

async fn carried(place: &Place, load: &Load) {
    let store = place.open().await.expect("a new store opens");
    load.carry(&*store).await.expect("a new store takes topics");
}

/// What a listener of all topics must have been given, and the proof that it would be noticed if not.
async fn judge_listener(place: &Place, load: &Load, heard: &[EventId]) {
    let store: Arc<dyn Store> = place.open().await.expect("the store opens");
    let topics: Vec<String> = load.topics.iter().map(ToString::to_string).collect();
    let filters = [Filter::parse(&json!({ "#t": topics }).to_string()).expect("a filter")];
    let ids = load.lines.iter().map(|line| line.id);
    let records = records(&*store, ids).await.expect("the store is read");
    judge(&records, &filters, heard, NOW).unwrap_or_else(|why| panic!("{why}"));

    let effective =
        records.iter().find(|record| record.is_effective()).expect("something is there");
    let missing = effective.event().id();
    let without: Vec<EventId> = heard.iter().copied().filter(|id| *id != missing).collect();
    assert!(judge(&records, &filters, &without, NOW).is_err(), "a gap is noticed");
    let twice: Vec<EventId> = heard.iter().copied().chain([missing]).collect();
    assert!(judge(&records, &filters, &twice, NOW).is_err(), "a double is noticed");
}

/// Sends from a line on, and kills the node at a moment given by the answers so far. Returns where the
/// next one begins, and whether something was in flight.
async fn kill_once(
    place: &Place,
    load: &Arc<Load>,
    dice: &mut Dice,
    history: &mut History<'_>,
    heard: &mut Heard,
    from: usize,
) -> (usize, bool) {
    let mut node = Node::start(place);
    let lines: Vec<usize> = (from..load.lines.len()).collect();
    let mut publisher = Publisher::start(&node, load, lines).await;
    let listening = std::mem::take(heard).listen(node.connect().await, Arc::clone(load), false);
    let listening = tokio::spawn(listening);
    let answers = 1 + dice.below(ANSWERS_MAX);
    assert!(publisher.wait_for_answers(answers).await, "the node ended by itself");
    let in_flight = publisher.is_in_flight();
    node.process.kill9().expect("the node is alive");
    // The listener ends with the node.
    *heard = listening.await.expect("who listens is told nothing wrong");
    let answered = publisher.answered();
    publisher.end(history).await;
    (from + answered.saturating_sub(dice.below(OVERLAP_MAX)), in_flight)
}

async fn kill(test: &str, home: impl Fn() -> Home) {
    for seed in rig::seed(test).rounds() {
        let home = home();
        let place = &home.place;
        let load = Arc::new(Load::new(seed, KILLS * LINES_PER_KILL));
        let (mut dice, mut heard, mut from) = (seed.part(1).dice(), Heard::default(), 0);
        carried(place, &load).await;
        let mut history = History::new(&load);
        let mut hit = 0;
        for _ in 0..KILLS {
            let (next, in_flight) =
                kill_once(place, &load, &mut dice, &mut history, &mut heard, from).await;
            (from, hit) = (next, hit + usize::from(in_flight));
            require_none(test, &place.check(&history).await);
        }
        println!(
            "{test}, seed {seed}: {KILLS} kills, {hit} in flight, {} heard",
            heard.events.len()
        );
        assert!(hit >= IN_FLIGHT_MIN, "only {hit} kills hit events in flight");

        let node = Node::start(place);
        let rest: Vec<usize> = (0..load.lines.len()).collect();
        let mut publisher = Publisher::start(&node, &load, rest).await;
        assert!(publisher.wait_for_answers(load.lines.len()).await, "the node ended by itself");
        let failed = publisher.leave(&mut history).await;
        assert!(failed.is_empty(), "nothing fails without a fault: {failed:?}");
        let heard = heard.listen(node.connect().await, Arc::clone(&load), true).await;
        node.end();
        assert_eq!(history.unanswered(), 0);
        require_none(test, &place.check(&history).await);
        require_none(test, &place.doctor());
        judge_listener(place, &load, &heard.events).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_the_node_on_sqlite() {
    kill("sockets::kill_the_node_on_sqlite", Home::sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_the_node_on_postgres() {
    kill("sockets::kill_the_node_on_postgres", || Home::postgres(Durability::Durable)).await;
}

/// The node recovers by itself, on the same connections: events that were answered with an error are
/// taken when they are sent again, and who listens misses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_goes_away_under_the_node() {
    let test = "sockets::postgres_goes_away_under_the_node";
    let seed = rig::seed(test);
    let mut cluster = Cluster::start(Durability::Durable).expect("PostgreSQL starts");
    let place = Place::Postgres(cluster.create_database());
    let load = Arc::new(Load::new(seed, STOPS * LINES_PER_STOP));
    carried(&place, &load).await;
    let mut history = History::new(&load);
    let mut dice = seed.part(1).dice();
    let node = Node::start(&place);
    let listening = Heard::default().listen(node.connect().await, Arc::clone(&load), false);
    let listening = tokio::spawn(listening);
    let mut rest: Vec<usize> = (0..load.lines.len()).collect();
    let mut hit = 0;
    for nth in 0..STOPS {
        let lines: Vec<usize> = rest.drain(..rest.len().min(LINES_PER_STOP)).collect();
        let count = lines.len();
        let mut publisher = Publisher::start(&node, &load, lines).await;
        assert!(publisher.wait_for_answers(1 + dice.below(count / 2)).await);
        hit += usize::from(publisher.is_in_flight());
        match nth % 2 {
            0 => cluster.stop_immediate(),
            _ => cluster.stop_fast(),
        }
        .expect("the server stops");
        cluster.start_again().expect("the server starts");
        // Every event gets its answer, be it an error.
        assert!(publisher.wait_for_answers(count).await, "the node ended by itself");
        rest.extend(publisher.leave(&mut history).await);
    }
    println!("{test}, seed {seed}: {STOPS} stops, {hit} in flight, {} to send again", rest.len());
    assert!(hit >= STOPS - 1, "only {hit} stops hit events in flight");
    while !rest.is_empty() {
        let count = rest.len();
        let mut publisher = Publisher::start(&node, &load, std::mem::take(&mut rest)).await;
        assert!(publisher.wait_for_answers(count).await, "the node ended by itself");
        rest = publisher.leave(&mut history).await;
    }
    node.end();
    let heard = listening.await.expect("who listens is told nothing wrong");
    println!("{} of {} heard live", heard.events.len(), history.accepted());
    assert!(heard.events.len() > history.accepted() / 2, "live delivery goes on after a stop");
    let node = Node::start(&place);
    let heard = heard.listen(node.connect().await, Arc::clone(&load), true).await;
    node.end();
    assert_eq!(history.unanswered(), 0);
    require_none(test, &place.check(&history).await);
    judge_listener(&place, &load, &heard.events).await;
}
