//! Partitions that hold nothing any more are dropped, whoever is in the way and wherever it was cut off.

use kukuri_core::{Act, Admitted, Duplicate, Outcome, Seq, UnixMillis, UnlinkReason};
use kukuri_store::conformance::dump;
use kukuri_store::{Space, Store, Tidied};
use kukuri_store_postgres::{Options, PostgresStore};
use kukuri_testkit::audit::audit;
use kukuri_testkit::condition::until;
use kukuri_testkit::postgres::{Cluster, Durability, Settings};
use sqlx::{Connection, PgConnection, raw_sql};

use crate::rig::{self, NOW, OPTIONS, apply, note, notes, publish, publish_at, store_with, topic};

const DAY: i64 = 24 * 60 * 60 * 1000;

const SMALL: Options = Options { partition_rows_min: 8, ..OPTIONS };

fn later(days: i64) -> UnixMillis {
    UnixMillis(UnixMillis::from(NOW).0 + days * DAY)
}

/// One step, or what is in the way.
pub async fn tidy(store: &PostgresStore) -> Tidied {
    store.tidy().await.unwrap()
}

/// Steps until there is nothing left to do.
pub async fn tidy_all(store: &PostgresStore) -> usize {
    let mut steps = 0;
    while tidy(store).await == Tidied::More {
        steps += 1;
    }
    assert_eq!(tidy(store).await, Tidied::Done);
    steps
}

/// Steps until somebody is in the way.
pub async fn tidy_what_can_be(store: &PostgresStore) {
    let mut last = Tidied::More;
    while last == Tidied::More {
        last = tidy(store).await;
    }
    assert!(matches!(last, Tidied::Blocked(_)), "{last:?}");
}

pub async fn purge(store: &PostgresStore, events: &[Admitted]) {
    let events = events.iter().map(|event| event.event().id()).collect();
    let reason = UnlinkReason::Before(UnixMillis(i64::MAX));
    let act = Act::Unlink { topic: topic(), events, reason };
    apply(store, later(70), vec![act]).await.unwrap();
}

fn partitions(cluster: &Cluster, name: &str, pattern: &str) -> Vec<String> {
    let sql = format!(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '{pattern}' ORDER BY oid"
    );
    cluster.sql(name, &sql).unwrap().lines().map(str::to_owned).collect()
}

const EVENTS: &str = "^events_standard_[0-9]+$";

/// What is stored holds together, and every partition counts what it holds. Nobody has forgotten a tag that leads to
/// no event.
pub async fn sound(cluster: &Cluster, name: &str, store: &PostgresStore) {
    let floor = store.bounds().await.unwrap().floor;
    assert_eq!(audit(&dump(store).await, floor), Ok(()));
    let wrong = "SELECT first_seq FROM cn_relay.event_partitions p WHERE events <> (
        SELECT count(*) FROM cn_relay.events e WHERE e.keep = 0
            AND e.tableoid = ('cn_relay.events_standard_' || p.first_seq)::REGCLASS)";
    assert_eq!(cluster.sql(name, wrong).unwrap(), "");
    assert_eq!(cluster.forgotten_tags(name).unwrap(), 0, "tags");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_dropped_when_its_last_event_has_left() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let old = notes(1, 8);
    publish(&store, &old).await.unwrap();
    publish_at(&store, later(70), &[note(2, 1)]).await.unwrap();
    purge(&store, &old[1..]).await;
    let full = store.space().await.unwrap();
    assert_eq!(full.vacant_bytes, 0, "one event is left");
    let before = partitions(&cluster, &name, EVENTS);
    assert_eq!(before[..3], ["events_standard_1", "events_standard_9", "events_standard_17"]);
    tidy_all(&store).await;
    assert_eq!(partitions(&cluster, &name, EVENTS), before, "one event is left");
    purge(&store, &old[..1]).await;
    sound(&cluster, &name, &store).await;
    for step in ["given up", "detached", "dropped"] {
        let Space { vacant_bytes, held_bytes } = store.space().await.unwrap();
        assert!(vacant_bytes > 0 && held_bytes < full.held_bytes, "before it is {step}");
        assert_eq!(tidy(&store).await, Tidied::More, "{step}");
    }
    assert_eq!(store.space().await.unwrap().vacant_bytes, 0);
    assert_eq!(tidy_all(&store).await, 0);
    // That of 17 to 24 holds no event either, but there are numbers to come.
    let left = partitions(&cluster, &name, EVENTS);
    assert_eq!(left[..2], ["events_standard_9", "events_standard_17"]);
    sound(&cluster, &name, &store).await;
    let again = publish_at(&store, later(70), &old[..1]).await.unwrap();
    assert_eq!(again, [Outcome::Duplicate(Duplicate::NotKept)]);
    // A clock that goes back changes nothing.
    assert_eq!(publish(&store, &[note(3, 1)]).await.unwrap(), [Outcome::Accepted]);
    sound(&cluster, &name, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_the_feed_are_dropped_below_the_floor() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    publish(&store, &notes(1, 40)).await.unwrap();
    let outbox = || partitions(&cluster, &name, "^events_outbox_[0-9]+$");
    let before = outbox();
    apply(&store, later(0), vec![Act::Trim(Seq(20))]).await.unwrap();
    sound(&cluster, &name, &store).await;
    tidy_all(&store).await;
    assert_eq!(outbox()[..3], before[2..], "rows 1 to 16 are gone, those of 17 to 24 are not");
    sound(&cluster, &name, &store).await;
    apply(&store, later(0), vec![Act::Trim(Seq(i64::MAX))]).await.unwrap();
    tidy_all(&store).await;
    store.close().await;
    // With every row gone the feed goes on where it was.
    let store = PostgresStore::open(&cluster.url(&name), SMALL).await.unwrap();
    assert_eq!(store.bounds().await.unwrap().head, Seq(40));
    let decision =
        apply(&store, later(0), notes(2, 30).into_iter().map(Act::Publish).collect()).await;
    assert_eq!(decision.unwrap().rows[0].seq, Seq(41));
    sound(&cluster, &name, &store).await;
}

/// The program ends after any number of steps, and another one finishes.
#[tokio::test(flavor = "multi_thread")]
async fn tidying_goes_on_where_it_was_cut_off() {
    let cluster = rig::cluster();
    for steps in 0..6 {
        let (store, name) = store_with(&cluster, SMALL).await;
        let old = notes(1, 30);
        publish(&store, &old).await.unwrap();
        publish_at(&store, later(20), &[note(2, 1)]).await.unwrap();
        purge(&store, &old).await;
        apply(&store, later(20), vec![Act::Trim(Seq(17))]).await.unwrap();
        for _ in 0..steps {
            assert_eq!(tidy(&store).await, Tidied::More);
        }
        sound_mostly(&store).await;
        store.close().await;
        let store = PostgresStore::open(&cluster.url(&name), SMALL).await.unwrap();
        assert_eq!(
            publish_at(&store, later(20), &[note(2, 2)]).await.unwrap(),
            [Outcome::Accepted]
        );
        tidy_all(&store).await;
        sound(&cluster, &name, &store).await;
        let left = partitions(&cluster, &name, EVENTS);
        assert_eq!(left[0], "events_standard_25", "after {steps}: {left:?}");
    }
}

async fn sound_mostly(store: &PostgresStore) {
    let floor = store.bounds().await.unwrap().floor;
    assert_eq!(audit(&dump(store).await, floor), Ok(()));
}

/// Who reads for long is not disturbed, and holds up neither writers nor other readers.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_the_way_is_waited_for_later() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let old = notes(1, 8);
    publish(&store, &old).await.unwrap();
    publish_at(&store, later(20), &[note(2, 1)]).await.unwrap();
    purge(&store, &old).await;
    let mut reader = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let read = "BEGIN; SELECT count(*) FROM cn_relay.events";
    raw_sql(read).execute(&mut reader).await.unwrap();
    tidy_what_can_be(&store).await;
    assert!(matches!(tidy(&store).await, Tidied::Blocked(_)), "it is not waited for for ever");
    assert_eq!(publish_at(&store, later(20), &[note(2, 2)]).await.unwrap(), [Outcome::Accepted]);
    sound_mostly(&store).await;
    raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    tidy_all(&store).await;
    let left = partitions(&cluster, &name, EVENTS);
    assert!(!left.contains(&"events_standard_1".to_owned()), "{left:?}");
    sound(&cluster, &name, &store).await;
}

/// How often the server's autovacuum has been at a table.
fn vacuums(cluster: &Cluster, name: &str, table: &str) -> u64 {
    let sql = format!("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = '{table}'");
    cluster.sql(name, &sql).unwrap().parse().unwrap()
}

async fn vacuumed(cluster: &Cluster, name: &str, table: &str, times: u64) {
    let what = format!("vacuum {times} of {table}");
    until(&what, || vacuums(cluster, name, table) >= times).await;
}

/// Dropping a million events took a second: an autovacuum was at work on what had just left, and gives way only
/// to who has waited for so long. What lies behind the head is not vacuumed any more.
#[tokio::test(flavor = "multi_thread")]
async fn autovacuum_leaves_alone_what_lies_behind_the_head() {
    let mut settings = Settings::new(Durability::Fast);
    for (option, value) in [
        ("autovacuum_naptime", "1s"),
        ("autovacuum_vacuum_threshold", "5"),
        ("autovacuum_vacuum_scale_factor", "0"),
    ] {
        settings.options.push((option.into(), value.into()));
    }
    let cluster = Cluster::start_with(&settings).unwrap();
    let (store, name) = store_with(&cluster, Options { partition_rows_min: 200, ..OPTIONS }).await;
    let (past, now) = ("events_standard_1", "events_standard_201");
    let old = notes(1, 200);
    publish(&store, &old).await.unwrap();
    let new = notes(2, 30);
    publish_at(&store, later(70), &new).await.unwrap();
    purge(&store, &old[..10]).await;
    vacuumed(&cluster, &name, past, 1).await;
    tidy_all(&store).await;
    let before = vacuums(&cluster, &name, past);
    purge(&store, &old[10..20]).await;
    // The server has looked at all tables again when it has come back to one of them twice.
    for nth in 0..2 {
        let times = vacuums(&cluster, &name, now);
        purge(&store, &new[nth * 10..][..10]).await;
        vacuumed(&cluster, &name, now, times + 1).await;
    }
    assert_eq!(vacuums(&cluster, &name, past), before);
    purge(&store, &old[20..]).await;
    tidy_all(&store).await;
    assert!(!partitions(&cluster, &name, EVENTS).contains(&past.to_owned()));
    sound(&cluster, &name, &store).await;
}

/// Where events are still put, the space of those that leave is used again.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_head_has_not_passed_is_vacuumed() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let unvacuumed = || {
        let sql = "SELECT relname FROM pg_class WHERE relkind = 'r'
            AND reloptions @> '{autovacuum_enabled=off}' ORDER BY relname";
        cluster.sql(&name, sql).unwrap()
    };
    publish(&store, &notes(1, 7)).await.unwrap();
    tidy_all(&store).await;
    assert_eq!(unvacuumed(), "");
    publish_at(&store, later(-70), &[note(2, 1)]).await.unwrap();
    tidy_all(&store).await;
    assert_eq!(unvacuumed(), "events_standard_1");
}

/// The kinds that statements take for versions are those that the rules take for versions.
#[tokio::test(flavor = "multi_thread")]
async fn versions_are_told_by_their_kind() {
    use kukuri_core::{Cutoffs, IngestPolicy, Retention};
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, OPTIONS).await;
    publish(&store, &[note(1, 1)]).await.unwrap();
    let fill = "INSERT INTO cn_relay.event_topics (created_at, tie, author, seq, ingested_at,
            topic_no, kind, keep, event_id, pubkey)
        SELECT created_at, kinds, author, seq, ingested_at, topic_no, kinds, keep,
            decode(lpad(to_hex(kinds), 64, '0'), 'hex'), pubkey
        FROM cn_relay.event_topics, generate_series(0, 65535) AS kinds";
    cluster.sql(&name, fill).unwrap();
    let aged = async |cutoffs: Cutoffs| store.aged(topic(), cutoffs, usize::MAX).await.unwrap();
    let none = Cutoffs { regular: None, deletion: None, history: None, current: None };
    let now = Some(later(0));
    let current = aged(Cutoffs { current: now, ..none }).await;
    let versions = (0..=u16::MAX).filter(|kind| {
        use kukuri_event::{Class, Kind};
        matches!(Kind(*kind).class(), Class::Replaceable | Class::Addressable)
    });
    assert_eq!(current.len(), versions.count());
    assert_eq!(aged(Cutoffs { deletion: now, ..none }).await.len(), 1);
    let all = Retention::STANDARD.cutoffs(&IngestPolicy::default(), later(400));
    assert_eq!(aged(all).await.len(), 65_537 - current.len());
}
