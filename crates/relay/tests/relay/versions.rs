//! Events that replace others and events that delete others, as relay-tester requires them.
//! Deletions by id are in `events.rs` as well.

use kukuri_event::Kind;
use kukuri_store::conformance::signing::Draft;
use serde_json::{Value, json};

use crate::rig::{Client, Rig, ago, author, draft, id, signed, signed_by};

const NONE: [Value; 0] = [];
const DELETED: &str = "blocked: deleted by its author";
const STALE: &str = "duplicate: a newer version is stored";

/// Versions of the same thing: what is replaced by kind and author, and what by `d` as well.
const VERSIONED: [(u16, Option<&str>); 6] = [
    (0, None),
    (3, None),
    (10_003, None),
    (30_000, Some("d")),
    (39_999, Some("")),
    (30_023, Some("a:b:c")),
];

fn version(kind: u16, d: Option<&str>, content: &str) -> Draft {
    let draft = draft(kind, content, &[]);
    d.into_iter().fold(draft, |draft, d| draft.tag("d", d))
}

/// What is found of the first author's events of a kind.
async fn found(client: &mut Client, kind: u16) -> Vec<Value> {
    client.stored(json!({"authors": [author(1).pubkey().to_hex()], "kinds": [kind]})).await
}

async fn by_id(client: &mut Client, event: &Value) -> Vec<Value> {
    client.stored(json!({"ids": [id(event)]})).await
}

#[tokio::test]
async fn the_newest_version_replaces_the_others_in_any_order() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for (kind, d) in VERSIONED {
        let of_age = |age: i64| signed(&ago(age, version(kind, d, &age.to_string())));
        let (older, old, new) = (of_age(30), of_age(20), of_age(10));
        let other = signed_by(2, &version(kind, d, "someone else's"));
        client.publish_ok(&other).await;
        client.publish_ok(&old).await;
        assert_eq!(found(&mut client, kind).await, std::slice::from_ref(&old));
        client.publish_ok(&new).await;
        assert_eq!(found(&mut client, kind).await, std::slice::from_ref(&new));
        // The old one is not found by its id either, and does not come back.
        assert_eq!(client.publish(&older).await, (true, STALE.to_owned()));
        assert!(client.publish(&old).await.1.starts_with("duplicate: "));
        for gone in [&older, &old] {
            assert_eq!(by_id(&mut client, gone).await, NONE);
        }
        assert_eq!(found(&mut client, kind).await, [new]);
        assert_eq!(by_id(&mut client, &other).await, [other]);
    }
}

/// Of two versions of one second the one with the smaller id stays, whichever comes first.
#[tokio::test]
async fn of_two_versions_of_one_second_the_smaller_id_stays() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for (kind, d) in VERSIONED {
        let mut versions: Vec<Value> =
            (0..3).map(|nth| signed(&version(kind, d, &nth.to_string()))).collect();
        versions.sort_unstable_by_key(id);
        client.publish_ok(&versions[1]).await;
        assert_eq!(client.publish(&versions[2]).await, (true, STALE.to_owned()));
        assert_eq!(found(&mut client, kind).await, [versions[1].clone()]);
        client.publish_ok(&versions[0]).await;
        assert_eq!(found(&mut client, kind).await, [versions[0].clone()]);
    }
}

/// The first `d` tag names the thing, whatever else the event has; things of different names do not
/// replace each other.
#[tokio::test]
async fn things_of_different_names_stand_beside_each_other() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    let mut things = Vec::new();
    for (age, d) in ["", "d", "D", "d ", "30000", "é"].into_iter().enumerate() {
        let draft = version(30_000, Some(d), "").tag("d", "another");
        let event = signed(&ago(i64::try_from(age).unwrap(), draft));
        client.publish_ok(&event).await;
        things.push(event);
    }
    assert_eq!(found(&mut client, 30_000).await, things);
    let newer = signed(&ago(-1, version(30_000, Some("d"), "")));
    client.publish_ok(&newer).await;
    things.remove(1);
    things.insert(0, newer);
    assert_eq!(found(&mut client, 30_000).await, things);
    client.refused(&signed(&draft(30_000, "", &[])), "invalid: missing d").await;
}

/// A request to delete, by `e` or `a`, written so many seconds ago.
fn deletion(age: i64, targets: &[(&str, &str)]) -> Draft {
    let request = ago(age, draft(5, "", &[]));
    targets.iter().fold(request, |request, (name, value)| request.tag(name, value))
}

fn address(author_number: u32, kind: u16, d: &str) -> String {
    format!("{}:{}:{d}", Kind(kind), author(author_number).pubkey())
}

/// A deletion by address takes the versions up to its own time, of its author and of that name, and
/// no others; what is newer is taken in.
#[tokio::test]
async fn a_deletion_by_address_takes_what_is_not_newer() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for (kind, d) in VERSIONED {
        let name = d.unwrap_or_default();
        let of_age = |age: i64| signed(&ago(age, version(kind, d, &age.to_string())));
        let (old, theirs) = (of_age(20), signed_by(2, &ago(20, version(kind, d, "theirs"))));
        client.publish_ok(&old).await;
        client.publish_ok(&theirs).await;
        let (mine, not_mine) = (address(1, kind, name), address(2, kind, name));
        // Someone else's request, and one for another name, do nothing.
        client.publish_ok(&signed_by(2, &deletion(0, &[("a", &mine)]))).await;
        client.publish_ok(&signed(&deletion(0, &[("a", &address(1, kind, "other"))]))).await;
        assert_eq!(found(&mut client, kind).await, std::slice::from_ref(&old));
        let request = signed(&deletion(10, &[("a", &mine), ("a", &not_mine)]));
        client.publish_ok(&request).await;
        assert_eq!(by_id(&mut client, &request).await, std::slice::from_ref(&request));
        assert_eq!(found(&mut client, kind).await, NONE);
        assert_eq!(by_id(&mut client, &theirs).await, std::slice::from_ref(&theirs));
        for gone in [old, of_age(15), of_age(10)] {
            client.refused(&gone, DELETED).await;
            assert_eq!(by_id(&mut client, &gone).await, NONE);
        }
        let newer = of_age(9);
        client.publish_ok(&newer).await;
        assert_eq!(found(&mut client, kind).await, [newer]);
    }
}

/// A deletion by id holds for what comes after it, of its author alone: whoever knows the id of an
/// event that is not here yet cannot keep it out.
#[tokio::test]
async fn a_deletion_by_id_holds_for_what_is_not_here_yet() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    let (mine, wanted) = (signed(&draft(1, "regretted", &[])), signed(&draft(1, "wanted", &[])));
    let (mine_id, wanted_id) = (id(&mine), id(&wanted));
    client.publish_ok(&signed_by(2, &deletion(0, &[("e", &mine_id), ("e", &wanted_id)]))).await;
    client.publish_ok(&wanted).await;
    assert_eq!(by_id(&mut client, &wanted).await, std::slice::from_ref(&wanted));
    // Of a request with many targets each is treated by itself.
    let foreign = signed_by(2, &draft(1, "not yours", &[]));
    client.publish_ok(&foreign).await;
    let foreign_id = id(&foreign);
    let request = signed(&deletion(0, &[("e", &foreign_id), ("e", "no id"), ("e", &mine_id)]));
    client.publish_ok(&request).await;
    client.refused(&mine, DELETED).await;
    assert_eq!(by_id(&mut client, &mine).await, NONE);
    assert_eq!(by_id(&mut client, &foreign).await, [foreign]);
    // A request cannot be taken back by deleting it.
    let request_id = id(&request);
    client.publish_ok(&signed(&deletion(0, &[("e", &request_id)]))).await;
    assert_eq!(by_id(&mut client, &request).await, [request]);
    client.refused(&mine, DELETED).await;
}

/// When the newest version is deleted by its id, the ones before it do not come back.
#[tokio::test]
async fn what_was_replaced_stays_away_when_its_successor_is_deleted() {
    let rig = Rig::general().await;
    let mut client = rig.client().await;
    for (kind, d) in VERSIONED {
        let of_age = |age: i64| signed(&ago(age, version(kind, d, &age.to_string())));
        let (old, new) = (of_age(20), of_age(10));
        client.publish_ok(&old).await;
        client.publish_ok(&new).await;
        let target = id(&new);
        client.publish_ok(&signed(&deletion(0, &[("e", &target)]))).await;
        assert_eq!(found(&mut client, kind).await, NONE);
        client.refused(&new, DELETED).await;
        assert!(client.publish(&old).await.1.starts_with("duplicate: "));
        assert_eq!(client.publish(&of_age(15)).await, (true, STALE.to_owned()));
        assert_eq!(found(&mut client, kind).await, NONE);
        let newest = of_age(5);
        client.publish_ok(&newest).await;
        assert_eq!(found(&mut client, kind).await, [newest]);
    }
}
