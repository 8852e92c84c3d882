//! A deletion and its target, at the same time, through two lanes on one store: whichever comes
//! first, the deletion is never lost. A check before the insert, as it is usually written, loses it;
//! that is kept here as the negative control.

use std::sync::Arc;

use kukuri_core::{Act, Outcome, TopicId, UnixMillis};
use kukuri_event::EventId;
use kukuri_lane::{Lane, LaneConfig};
use kukuri_store::Store;
use kukuri_store::conformance::signing::{Author, Draft, admit};
use kukuri_testkit::generate::{Dice, Seed};
use kukuri_testkit::postgres::{Cluster, Durability};
use sqlx::{Connection, PgConnection};

use crate::checker::{Answer, History};
use crate::load::{self, Line, Load, NOW};
use crate::rig::{self, Home, require_none};

const ROUNDS: u32 = 200;
/// How often each side must have come first.
const FIRST_MIN: usize = 10;

const ADDRESSABLE: u16 = 30_023;
const REPLACEABLE: u16 = 10_002;

/// One target and one deletion, and what has to be there before them.
struct Round {
    before: Option<Line>,
    target: Line,
    deletion: Line,
    /// Whether the deletion is meant for the target, and not only for what was before.
    hits: bool,
}

impl Round {
    /// Every round has an author of its own, so that rounds do not meet.
    fn new(number: u32, topic: &TopicId, dice: &mut Dice) -> Round {
        let author = Author::numbered(number);
        let sign = |draft: Draft| load::line(author.sign(&draft.tag("t", topic)));
        let at = |seconds: i64| NOW.saturating_sub(seconds);
        let request = |seconds| Draft::new(5, at(seconds));
        let version = |kind, seconds| match kind {
            ADDRESSABLE => Draft::new(kind, at(seconds)).tag("d", "x"),
            _ => Draft::new(kind, at(seconds)),
        };
        let kind = *dice.pick(&[1, 1, REPLACEABLE, ADDRESSABLE]);
        let target = sign(version(kind, 10));
        let by_id = kind == 1 || dice.chance(30);
        let d = if kind == ADDRESSABLE { "x" } else { "" };
        let address = format!("{kind}:{}:{d}", author.pubkey());
        // Later than the target, of the same second, or between it and an older version.
        let limit = *dice.pick(&[5, 10, 12]);
        let deletion = match by_id {
            true => request(5).tag("e", target.id),
            false => request(limit).tag("a", address),
        };
        let hits = by_id || limit <= 10;
        let before = (kind != 1 && dice.chance(50)).then(|| sign(version(kind, 15)));
        Round { before, target, deletion: sign(deletion), hits }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.before.iter().chain([&self.target, &self.deletion])
    }
}

fn lane(store: &Arc<dyn Store>) -> Lane {
    let clock = Arc::new(|| UnixMillis::from(NOW));
    Lane::start(Arc::clone(store), clock, LaneConfig::STANDARD)
}

async fn publish(lane: &Lane, line: &Line) -> Outcome {
    let admitted = admit(&line.text, NOW).expect("the event is good");
    lane.run(Act::Publish(admitted)).await.expect("a healthy store answers")
}

fn answer(line: &Line, outcome: &Outcome) -> Answer {
    let id = Some(line.id.to_hex());
    Answer { line: 1, id, ok: outcome.is_ok(), message: outcome.message() }
}

async fn race(test: &str, home: Home, seed: Seed) {
    let mut dice = seed.dice();
    let topic = topic(seed);
    let rounds: Vec<Round> = (0..ROUNDS).map(|n| Round::new(n, &topic, &mut dice)).collect();
    let lines = rounds.iter().flat_map(Round::lines).cloned().collect();
    let load = Load::of(lines, vec![topic]);
    let mut history = History::new(&load);
    history.offer(&load.lines);

    let stores = [home.place.open().await, home.place.open().await];
    let stores = stores.map(|store| store.expect("the store opens"));
    load.carry(&*stores[0]).await.expect("a new store takes topics");
    let lanes = stores.each_ref().map(lane);
    let (mut target_first, mut deletion_first) = (0, 0);
    for round in &rounds {
        let (one, other) = if dice.chance(50) { (0, 1) } else { (1, 0) };
        if let Some(line) = &round.before {
            let outcome = publish(&lanes[one], line).await;
            history.answer(std::slice::from_ref(line), &[answer(line, &outcome)]);
        }
        let target = publish(&lanes[one], &round.target);
        let deletion = publish(&lanes[other], &round.deletion);
        // What is named first begins first.
        let (target, deletion) = if dice.chance(50) {
            tokio::join!(target, deletion)
        } else {
            let (deletion, target) = tokio::join!(deletion, target);
            (target, deletion)
        };
        for (line, outcome) in [(&round.target, &target), (&round.deletion, &deletion)] {
            history.answer(std::slice::from_ref(line), &[answer(line, outcome)]);
        }
        match target {
            Outcome::Refused(_) => deletion_first += 1,
            _ => target_first += usize::from(round.hits),
        }
    }
    println!("{test}: the target came first {target_first} times, the deletion {deletion_first}");
    require_none(test, &history.check(&*stores[1]).await);
    assert!(target_first.min(deletion_first) >= FIRST_MIN, "one side always came first");
}

fn topic(seed: Seed) -> TopicId {
    let digits = EventId::from_bytes(seed.dice().bytes());
    TopicId::parse(&format!("kukuri:{digits}")).expect("64 hex digits make a topic")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_races_its_target_on_sqlite() {
    let test = "race::a_deletion_races_its_target_on_sqlite";
    for seed in rig::seed(test).rounds() {
        race(test, Home::sqlite(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_races_its_target_on_postgres() {
    let test = "race::a_deletion_races_its_target_on_postgres";
    for seed in rig::seed(test).rounds() {
        race(test, Home::postgres(Durability::Fast), seed).await;
    }
}

/// Both sides look before they write, in transactions of the usual isolation, and neither sees the
/// other.
#[tokio::test]
async fn a_naive_check_before_the_insert_loses_a_deletion() {
    let cluster = Cluster::start(Durability::Fast).expect("PostgreSQL starts");
    let tables = "CREATE TABLE stored (id INT PRIMARY KEY, hidden BOOL NOT NULL);
        CREATE TABLE tombstones (id INT PRIMARY KEY)";
    cluster.sql("postgres", tables).expect("the tables are new");
    let url = cluster.url("postgres");
    let connect = || async { PgConnection::connect(&url).await.expect("the server takes us") };
    let (mut deleter, mut writer) = (connect().await, connect().await);

    let mut deletion = deleter.begin().await.expect("a transaction begins");
    let hidden = run(&mut deletion, "UPDATE stored SET hidden = TRUE WHERE id = 1").await;
    assert_eq!(hidden, 0, "the target is not there yet");
    run(&mut deletion, "INSERT INTO tombstones VALUES (1)").await;
    let mut target = writer.begin().await.expect("a transaction begins");
    let insert = "INSERT INTO stored
        SELECT 1, FALSE WHERE NOT EXISTS (SELECT FROM tombstones WHERE id = 1)";
    assert_eq!(run(&mut target, insert).await, 1, "the deletion is not there yet");
    target.commit().await.expect("the target commits");
    deletion.commit().await.expect("the deletion commits");

    let lost = "SELECT count(*) FROM stored JOIN tombstones USING (id) WHERE NOT hidden";
    assert_eq!(cluster.sql("postgres", lost).expect("rows are read"), "1", "deleted and visible");
}

async fn run(connection: &mut PgConnection, sql: &'static str) -> u64 {
    sqlx::query(sql).execute(connection).await.expect("the statement is good").rows_affected()
}
