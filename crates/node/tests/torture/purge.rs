//! `kill -9` of a node while upkeep lets go of what has aged: what is stored holds together, and the next
//! node goes on until nothing but what is kept is left. On PostgreSQL this goes for the partitions as well, one of
//! which is half gone when a node is killed.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Act, Command, Op, Reason, Record, Seq, Shelf, UnixMillis};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::conformance::dump;
use kukuri_store::conformance::signing::admit;
use kukuri_store::{Entry, Store};
use kukuri_testkit::audit::{audit, effective};
use kukuri_testkit::condition::{wait_for, wait_for_async};
use kukuri_testkit::generate::Dice;
use kukuri_testkit::postgres::Durability;
use sqlx::{Connection, Executor, PgConnection};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::door::Node;
use crate::import::SILENCE_MAX;
use crate::load::{Load, NOW};
use crate::rig::{self, Home, Place, require_none};

const LINES: usize = 9_000;
const LINES_PER_BATCH: usize = 500;
const KILLS: usize = 5;
/// The most rows of the feed that a kill waits for; all kills together leave something to do.
const ROWS_MAX: usize = 1_200;

/// So few numbers that many partitions hold nothing any more in the end.
const ROWS_PER_PARTITION: u32 = 512;
const PARTITIONS_MIN: usize = 10;
/// The most kills while partitions go, after the one that leaves one half gone.
const PARTITION_KILLS_MAX: usize = 3;

const DAY: i64 = 24 * 60 * 60;
/// By then regular events and history have aged, and deletions have not.
const PURGE_AT: UnixSeconds = UnixSeconds(NOW.0 + 40 * DAY);
/// Longer than the lease of a node that was killed.
const LEASE_OVER_SECONDS: i64 = 60;

struct Purge {
    place: Place,
    store: Arc<dyn Store>,
    now: UnixSeconds,
}

impl Purge {
    async fn prepare(place: &Place, load: &Load) -> Purge {
        let store = place.open_parted(ROWS_PER_PARTITION).await.expect("a new store opens");
        load.carry(&*store).await.expect("a new store takes topics");
        for lines in load.lines.chunks(LINES_PER_BATCH) {
            let command = |line: &crate::load::Line| Command {
                at: UnixMillis::from(NOW),
                act: Act::Publish(admit(&line.text, NOW).expect("the load is valid")),
            };
            store.apply(lines.iter().map(command).collect()).await.expect("there is room");
        }
        Purge { place: place.clone(), store, now: PURGE_AT }
    }

    fn start(&mut self) -> Node {
        self.now = self.now.saturating_add(LEASE_OVER_SECONDS);
        Node::start_at(&self.place, self.now)
    }

    fn head(&self) -> Seq {
        let bounds = block_in_place(|| Handle::current().block_on(self.store.bounds()));
        bounds.expect("it can be read").head
    }

    /// Kills a node that has let go of some. Says whether it was still at it.
    fn kill(&mut self, rows: usize) -> bool {
        let from = self.head().0;
        let mut node = self.start();
        wait_for("a purge", SILENCE_MAX, || {
            let done = usize::try_from(self.head().0 - from).unwrap_or(0);
            (done >= rows).then_some(())
        })
        .expect("the node lets go of what has aged");
        node.process.kill9().expect("the child can be collected");
        block_in_place(|| Handle::current().block_on(self.kept())).is_none()
    }

    /// Kills a node while it lets go of a partition: somebody who reads keeps it from going on.
    async fn kill_amid_a_partition(&mut self, test: &str, server: &mut Server) {
        let reading = server.read().await;
        let mut node = self.start();
        let begun = async |server: &mut Server| server.count(HALF_GONE).await > 0;
        server.wait_until("a partition that is half gone", begun).await;
        node.process.kill9().expect("the child can be collected");
        assert!(server.count(HALF_GONE).await > 0, "it stays so");
        self.check(test).await;
        drop(reading);
    }

    /// Kills nodes that have given up one partition more, and says how many of them had more to give up.
    async fn kill_amid_partitions(&mut self, test: &str, server: &mut Server) -> usize {
        let mut working = 0;
        for _ in 0..PARTITION_KILLS_MAX {
            let gone = server.gone().await;
            let mut node = self.start();
            let one_more = async |server: &mut Server| server.gone().await > gone;
            server.wait_until("a partition that goes", one_more).await;
            node.process.kill9().expect("the child can be collected");
            self.check(test).await;
            let is_over = server.count(IDLE).await == 0 && self.kept().await.is_some();
            if is_over {
                break;
            }
            working += 1;
        }
        working
    }

    /// What is stored, if nothing of it has aged.
    async fn kept(&self) -> Option<BTreeSet<EventId>> {
        let mut kept = BTreeSet::new();
        for record in records(&dump(&*self.store).await) {
            if !self.is_kept(record) {
                return None;
            }
            kept.insert(record.event().id());
        }
        Some(kept)
    }

    fn is_kept(&self, record: &Record) -> bool {
        let expired = record.expires_at().is_some_and(|end| end <= self.now);
        match Shelf::of(record) {
            Shelf::Current => !expired,
            Shelf::Deletion => true,
            Shelf::Regular | Shelf::History => false,
        }
    }

    async fn check(&self, test: &str) {
        self.place.wait_for_the_dead().await;
        let floor = self.store.bounds().await.expect("it can be read").floor;
        assert_eq!(audit(&dump(&*self.store).await, floor), Ok(()));
        require_none(test, &self.place.doctor());
    }
}

/// The numbers of all partitions of events, those that are about to go included.
const PARTITIONS: &str = "SELECT substr(relname, length('events_standard_') + 1)::BIGINT
    FROM pg_class WHERE relnamespace = 'cn_relay'::REGNAMESPACE
        AND relname ~ '^events_standard_[0-9]+$' AND relkind = 'r'";

/// Those that readers who come now do not see, and others still do.
const HALF_GONE: &str = "SELECT count(*) FROM pg_inherits
    WHERE inhparent = 'cn_relay.events_standard'::REGCLASS AND inhdetachpending";

/// Those that hold nothing and get nothing any more, whatever has become of them so far.
const IDLE: &str = "SELECT count(*) FROM pg_class c
        LEFT JOIN cn_relay.event_partitions p ON c.relname = 'events_standard_' || p.first_seq
    WHERE relnamespace = 'cn_relay'::REGNAMESPACE AND relname ~ '^events_standard_[0-9]+$'
        AND relkind = 'r' AND (p.first_seq IS NULL OR p.events = 0 AND p.end_seq <= (
            SELECT seq + 1 FROM cn_relay.events_outbox ORDER BY seq DESC LIMIT 1))";

/// The server of a store that is parted.
struct Server {
    url: String,
    connection: PgConnection,
    /// Its partitions before anything is purged. Later ones are not counted.
    first: BTreeSet<i64>,
}

impl Server {
    async fn of(place: &Place) -> Option<Server> {
        let Place::Postgres(url) = place else { return None };
        let connection = PgConnection::connect(url).await.expect("the server is there");
        let mut server = Server { url: url.clone(), connection, first: BTreeSet::new() };
        server.first = server.partitions().await;
        Some(server)
    }

    async fn partitions(&mut self) -> BTreeSet<i64> {
        let all = sqlx::query_scalar(PARTITIONS).fetch_all(&mut self.connection).await;
        all.expect("the server answers").into_iter().collect()
    }

    /// How many have gone.
    async fn gone(&mut self) -> usize {
        let partitions = self.partitions().await;
        self.first.difference(&partitions).count()
    }

    async fn count(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.connection).await.expect("the server answers")
    }

    async fn wait_until(&mut self, what: &str, is: impl AsyncFn(&mut Server) -> bool) {
        let probe = async || is(self).await.then_some(());
        wait_for_async(what, SILENCE_MAX, probe).await.expect("upkeep lets go of partitions");
    }

    /// Somebody who reads for as long as this is held.
    async fn read(&self) -> PgConnection {
        let mut reading = PgConnection::connect(&self.url).await.expect("the server is there");
        let lock = "BEGIN; LOCK TABLE cn_relay.events IN ACCESS SHARE MODE";
        reading.execute(lock).await.expect("nobody is in the way");
        reading
    }
}

fn records(entries: &[Entry]) -> impl Iterator<Item = &Record> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Record(record) => Some(record),
        _ => None,
    })
}

/// How many links left, each announced by a row.
fn announced(entries: &[Entry]) -> usize {
    let left = entries.iter().filter(|entry| {
        matches!(entry, Entry::Row(row) if row.op == Op::Delete
            && matches!(row.reason, Some(Reason::Retention | Reason::Expiration))
            && row.ingested_at >= PURGE_AT.into())
    });
    left.count()
}

async fn kill(test: &str, home: Home) {
    let seed = rig::seed(test);
    let mut dice: Dice = seed.part(1).dice();
    let mut purge = Purge::prepare(&home.place, &Load::new(seed, LINES)).await;
    let mut server = Server::of(&home.place).await;
    let before = dump(&*purge.store).await;
    let expected: BTreeSet<EventId> = records(&before)
        .filter(|record| purge.is_kept(record))
        .map(|record| record.event().id())
        .collect();
    let mut working = 0;
    for _ in 0..KILLS {
        let rows = 1 + dice.below(ROWS_MAX);
        working += usize::from(purge.kill(rows));
        purge.check(test).await;
    }
    println!("{test}, seed {seed}: {working} of {KILLS} kills hit a purge at work");
    assert!(working > 0, "no kill hit a purge at work");
    if let Some(server) = &mut server {
        purge.kill_amid_a_partition(test, server).await;
        let working = purge.kill_amid_partitions(test, server).await;
        println!("{working} kills left partitions that were to go");
        assert!(working > 0, "all partitions went at once");
    }
    let node = purge.start();
    wait_for("the end of the purge", SILENCE_MAX, || {
        block_in_place(|| Handle::current().block_on(purge.kept()))
    })
    .expect("the next node finishes");
    if let Some(server) = &mut server {
        let over = async |server: &mut Server| server.count(IDLE).await == 0;
        server.wait_until("the end of the partitions", over).await;
        let gone = server.gone().await;
        println!("{gone} of {} partitions have gone", server.first.len());
        assert!(gone >= PARTITIONS_MIN, "too few partitions have gone");
    }
    node.end();
    assert_eq!(purge.kept().await, Some(expected));
    let after = dump(&*purge.store).await;
    let links = |entries: &[Entry]| effective(entries).values().map(BTreeSet::len).sum::<usize>();
    assert_eq!(announced(&after), links(&before) - links(&after), "each that left, once");
    purge.check(test).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_a_purge_on_sqlite() {
    kill("purge::kill_a_purge_on_sqlite", Home::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_a_purge_on_postgres() {
    kill("purge::kill_a_purge_on_postgres", Home::postgres(Durability::Durable)).await;
}
