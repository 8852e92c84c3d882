//! Tags outlive their events for a while, are found by nobody, and go.

use std::sync::atomic::{AtomicBool, Ordering};

use kukuri_core::Admitted;
use kukuri_event::UnixSeconds;
use kukuri_store::Tidied;
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store_postgres::{Options, PostgresStore};
use kukuri_testkit::postgres::Cluster;
use sqlx::{Connection, PgConnection, raw_sql};

use crate::backup::{bring_back, save};
use crate::rig::{self, NOW, OPTIONS, note, publish, store_with, topic};
use crate::tidy::{purge, sound, tidy, tidy_all, tidy_what_can_be};

const SMALL: Options = Options { partition_rows_min: 8, ..OPTIONS };

/// With so many numbers that it is they that say how many tags may be left behind.
const LARGEST: Options = Options { partition_rows_min: 1 << 18, ..OPTIONS };

/// Partitions that are never empty in a test.
const LARGER: Options = Options { partition_rows_min: 64, ..OPTIONS };

/// As many as one event may have beside its topic.
const TAGS_MAX: usize = 1999;

/// A note with so many tags beside its topic.
fn tagged(nth: i64, tags: usize) -> Admitted {
    let mut draft = Draft::new(1, UnixSeconds(NOW.0 - 10_000 + nth)).tag("t", topic());
    for tag in 0..tags {
        draft = draft.tag("r", format!("{nth} {tag}"));
    }
    Author::numbered(4).admit(&draft, NOW)
}

fn number(cluster: &Cluster, name: &str, sql: &str) -> usize {
    cluster.sql(name, sql).unwrap().trim().parse().unwrap()
}

fn tags(cluster: &Cluster, name: &str) -> usize {
    number(cluster, name, "SELECT count(*) FROM cn_relay.event_tags")
}

/// Whether the nth note is found by one of its tags.
async fn is_found(store: &PostgresStore, nth: i64) -> bool {
    let filter = format!(r##"{{"#t":["{}"],"#r":["{nth} 2"]}}"##, topic());
    rig::found(store, &filter).await.len() == 1
}

/// They are there until the partition is gone. Those of events that stay are left alone.
#[tokio::test(flavor = "multi_thread")]
async fn tags_are_swept_with_their_partition() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let old: Vec<Admitted> = (0..8).map(|nth| tagged(nth, 3)).collect();
    let next: Vec<Admitted> = (8..16).map(|nth| tagged(nth, 3)).collect();
    publish(&store, &old).await.unwrap();
    publish(&store, &next).await.unwrap();
    publish(&store, &[note(2, 1)]).await.unwrap();
    purge(&store, &old[1..]).await;
    purge(&store, &next[..1]).await;
    tidy_all(&store).await;
    assert_eq!(tags(&cluster, &name), 48, "no partition is empty, and few have left");
    for (nth, found) in [(0, true), (1, false), (8, false), (9, true)] {
        assert_eq!(is_found(&store, nth).await, found, "{nth}");
    }
    sound(&cluster, &name, &store).await;
    purge(&store, &old[..1]).await;
    tidy_all(&store).await;
    assert_eq!(tags(&cluster, &name), 24, "those of the second partition are all there");
    purge(&store, &next[1..]).await;
    tidy_all(&store).await;
    assert_eq!(tags(&cluster, &name), 0);
    assert_eq!(cluster.sql(&name, "SELECT * FROM cn_relay.tag_sweeps").unwrap(), "");
    sound(&cluster, &name, &store).await;
}

/// Events that come and go in partitions that are never empty leave behind no more than so many.
#[tokio::test(flavor = "multi_thread")]
async fn so_many_tags_are_left_behind_and_no_more() {
    const MIN: usize = 32_768;
    let cluster = rig::cluster();
    for (options, is_more) in [(LARGER, false), (LARGEST, true)] {
        let (store, name) = store_with(&cluster, options).await;
        let of_rows = "SELECT sum(end_seq - first_seq)::BIGINT / 16 FROM cn_relay.event_partitions";
        publish(&store, &[tagged(52, 5)]).await.unwrap();
        let limit = number(&cluster, &name, of_rows).max(MIN);
        assert_eq!(limit > MIN, is_more);
        let (many, rest) = (limit / TAGS_MAX, limit % TAGS_MAX);
        let mut events = full(many);
        events.extend([tagged(50, rest - 1), tagged(51, 1)]);
        for some in events.chunks(4) {
            publish(&store, some).await.unwrap();
        }
        purge(&store, &events[..=many]).await;
        tidy_all(&store).await;
        assert_eq!(tags(&cluster, &name), 1 + 5 + limit - 1, "n - 1 of them");
        sound(&cluster, &name, &store).await;
        purge(&store, &events[many + 1..]).await;
        tidy_all(&store).await;
        assert_eq!(tags(&cluster, &name), 5, "n of them");
        sound(&cluster, &name, &store).await;
    }
}

/// As many notes, each with as many tags as it may have.
fn full(count: usize) -> Vec<Admitted> {
    (0..count).map(|nth| tagged(i64::try_from(nth).unwrap(), TAGS_MAX)).collect()
}

const PENDING: &str = "SELECT count(*) FROM cn_relay.tag_sweeps WHERE page BETWEEN 1 AND pages - 1";

/// A large table takes several steps. Programs end between them, and somebody writes the table anew.
#[tokio::test(flavor = "multi_thread")]
async fn sweeping_goes_on_where_it_was_cut_off() {
    let cluster = rig::cluster();
    for anew in ["SELECT", "VACUUM FULL cn_relay.event_tags"] {
        let (store, name) = store_with(&cluster, LARGER).await;
        let events = full(70);
        for some in events.chunks(4) {
            publish(&store, some).await.unwrap();
        }
        purge(&store, &events[1..69]).await;
        let pending = || number(&cluster, &name, PENDING) > 0;
        while !pending() {
            assert_eq!(tidy(&store).await, Tidied::More);
        }
        let (before, all) = (tags(&cluster, &name), events.len() * TAGS_MAX);
        assert!(before < all && before > 2 * TAGS_MAX, "{before} of {all}");
        store.close().await;
        cluster.sql(&name, anew).unwrap();
        let store = PostgresStore::open(&cluster.url(&name), LARGER).await.unwrap();
        // What leaves from there on is deleted as well.
        purge(&store, &events[69..]).await;
        assert!(pending());
        tidy_all(&store).await;
        assert_eq!(tags(&cluster, &name), TAGS_MAX, "{anew}");
        assert_eq!([is_found(&store, 0).await, is_found(&store, 69).await], [true, false]);
        sound(&cluster, &name, &store).await;
    }
}

async fn sweep_until(store: &PostgresStore, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        tidy(store).await;
    }
}

/// Two programs sweep while a third publishes and lets go: what comes meanwhile keeps its tags.
#[tokio::test(flavor = "multi_thread")]
async fn tags_are_swept_beside_events_that_come() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, LARGER).await;
    let events = full(80);
    let others = [rig::open(&cluster.url(&name)).await, rig::open(&cluster.url(&name)).await];
    let over = AtomicBool::new(false);
    let coming = async {
        let mut swept = false;
        for (nth, some) in events.chunks(4).enumerate() {
            publish(&store, some).await.unwrap();
            swept |= tags(&cluster, &name) < (nth + 1) * 4 * TAGS_MAX;
            purge(&store, &some[..3]).await;
        }
        over.store(true, Ordering::SeqCst);
        swept
    };
    let [one, other] = &others;
    let (swept, (), ()) = tokio::join!(coming, sweep_until(one, &over), sweep_until(other, &over));
    assert!(swept, "nothing was swept beside those who publish");
    tidy_all(&store).await;
    sound(&cluster, &name, &store).await;
    for nth in 0..80 {
        assert_eq!(is_found(&store, nth).await, nth % 4 == 3, "{nth}");
    }
}

/// Who reads for long holds up dropping, and not sweeping.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_the_way_does_not_hold_up_sweeping() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let events = full(8);
    publish(&store, &events).await.unwrap();
    publish(&store, &[note(2, 1)]).await.unwrap();
    purge(&store, &events).await;
    let mut reader = PgConnection::connect(&cluster.url(&name)).await.unwrap();
    let read = "BEGIN; SELECT count(*) FROM cn_relay.events";
    raw_sql(read).execute(&mut reader).await.unwrap();
    tidy_what_can_be(&store).await;
    assert_eq!(tags(&cluster, &name), 0);
    raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    tidy_all(&store).await;
    sound(&cluster, &name, &store).await;
}

/// Events that somebody has taken out of sight by hand are found by their tags when they are back.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_detached_by_hand_keeps_its_tags() {
    let cluster = rig::cluster();
    for sweeping in [false, true] {
        let (store, name) = store_with(&cluster, LARGER).await;
        let mut events = full(70);
        // The last tags of the table are those of an event that stays.
        events.swap(0, 62);
        for some in events.chunks(4) {
            publish(&store, some).await.unwrap();
        }
        purge(&store, &events[..62]).await;
        while sweeping && number(&cluster, &name, PENDING) == 0 {
            assert_eq!(tidy(&store).await, Tidied::More);
        }
        let parted = "cn_relay.events_standard";
        let alter =
            |what: &str| cluster.sql(&name, &format!("ALTER TABLE {parted} {what}")).unwrap();
        alter(&format!("DETACH PARTITION {parted}_1"));
        tidy_all(&store).await;
        alter(&format!("ATTACH PARTITION {parted}_1 FOR VALUES FROM (1) TO (65)"));
        assert!(is_found(&store, 0).await, "it has lost its tags");
        tidy_all(&store).await;
        assert_eq!(tags(&cluster, &name), 8 * TAGS_MAX);
        assert!(is_found(&store, 0).await);
        sound(&cluster, &name, &store).await;
    }
}

/// What was looked for in the middle of a table when it was saved is looked for in all of the restored one.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_sweeps_its_own_pages() {
    let cluster = rig::cluster();
    let (store, name) = store_with(&cluster, SMALL).await;
    let events: Vec<Admitted> = (0..16).map(|nth| tagged(nth, 3)).collect();
    publish(&store, &events).await.unwrap();
    purge(&store, &events[..8]).await;
    assert_eq!(tidy(&store).await, Tidied::More, "given up");
    cluster.sql(&name, "UPDATE cn_relay.tag_sweeps SET page = 1, pages = 2").unwrap();
    let saved = tempfile::tempdir().unwrap();
    let (saved, new) = (saved.path().join("saved"), cluster.create_database());
    save(&cluster.url(&name), &saved).await.unwrap();
    bring_back(&saved, &new).await.unwrap();
    let restored = PostgresStore::open(&new, SMALL).await.unwrap();
    let new = rig::database(&new);
    assert_eq!(tags(&cluster, &new), 48);
    tidy_all(&restored).await;
    assert_eq!(tags(&cluster, &new), 24);
    sound(&cluster, &new, &restored).await;
}
