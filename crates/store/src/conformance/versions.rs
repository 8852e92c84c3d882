//! Replaceable and addressable events: one version of a key is visible, and never an older one.

use kukuri_core::{Act, Duplicate, Keep, Mark, MarkState, Outcome, Reason, State};
use kukuri_event::Kind;

use super::scene::{Scene, alice, article, bob, delete, draft, id, ids, key, signed, upsert};

fn mark(event: &kukuri_core::Admitted, state: MarkState) -> Mark {
    Mark { created_at: event.event().created_at(), event_id: id(event), state }
}

pub async fn a_newer_version_replaces_an_older_one(scene: Scene) {
    scene.carry("a").await;
    for kind in [0, 3, 10_002] {
        let old = signed(&alice(), &draft(kind, 1, "a"));
        let new = signed(&alice(), &draft(kind, 2, "a"));
        scene.given(&[&old]).await;
        let (outcome, rows) = scene.publish(&new).await;
        assert_eq!(outcome, Outcome::Accepted);
        let expected = [delete(&old, 'a', "", Reason::Superseded), upsert(&new, 'a', "")];
        assert_eq!(rows, expected);
        assert_eq!(scene.found(&format!(r#"{{"kinds":[{kind}]}}"#)).await, ids(&[&new]));
        let version = scene.version(&key(&new)).await.expect("the key is known");
        assert_eq!(version.mark, Some(mark(&new, MarkState::Effective)));
        assert_eq!(version.deleted_until, None);
        assert_eq!(version.body.as_ref(), Some(new.body()));
    }
}

pub async fn a_stale_version_is_remembered_and_not_stored(scene: Scene) {
    scene.carry("a").await;
    let (old, new) = (article("x", 1, "a"), article("x", 2, "a"));
    scene.given(&[&new]).await;
    let usage = scene.usage('a').await;
    for _ in 0..2 {
        let stale = Outcome::Duplicate(Duplicate::Stale);
        assert_eq!(scene.publish(&old).await, (stale, vec![]));
    }
    assert_eq!(scene.record(&old).await, None);
    let remembered = scene.dedupe(&old).await.expect("the id is remembered");
    assert_eq!((remembered.seq, remembered.seen_count), (None, 1));
    assert_eq!(scene.visible('a').await, ids(&[&new]));
    assert_eq!(scene.usage('a').await, usage);
}

pub async fn a_tie_goes_to_the_smaller_id(scene: Scene) {
    scene.carry("a").await;
    let mut pair = [1, 2].map(|n| signed(&alice(), &draft(0, 5, "a").content(n.to_string())));
    pair.sort_by_key(id);
    let [small, great] = pair;
    scene.given(&[&great, &small]).await;
    assert_eq!(scene.visible('a').await, ids(&[&small]));
    assert_eq!(scene.publish(&great).await.0, Outcome::Duplicate(Duplicate::Known));

    let mut pair = [1, 2].map(|n| signed(&bob(), &draft(0, 5, "a").content(n.to_string())));
    pair.sort_by_key(id);
    let [small, great] = pair;
    scene.given(&[&small]).await;
    assert_eq!(scene.publish(&great).await.0, Outcome::Duplicate(Duplicate::Stale));
    assert_eq!(scene.found(&author_filter(&small)).await, ids(&[&small]));
}

fn author_filter(event: &kukuri_core::Admitted) -> String {
    format!(r#"{{"authors":["{}"]}}"#, event.event().pubkey())
}

pub async fn versions_of_one_batch_leave_one_winner(scene: Scene) {
    scene.carry("a").await;
    let versions: Vec<_> = (1..=4).map(|nth| article("x", nth, "a")).collect();
    let order = [1, 0, 3, 2].map(|nth| Act::Publish(versions[nth].clone()));
    let decision = scene.batch(order.into()).await;
    let stale = Outcome::Duplicate(Duplicate::Stale);
    let outcomes = [Outcome::Accepted, stale.clone(), Outcome::Accepted, stale];
    assert_eq!(decision.outcomes, outcomes);
    let rows = [
        upsert(&versions[1], 'a', ""),
        delete(&versions[1], 'a', "", Reason::Superseded),
        upsert(&versions[3], 'a', ""),
    ];
    assert_eq!(super::scene::briefs(&decision.rows), rows);
    assert_eq!(scene.visible('a').await, ids(&[&versions[3]]));
    assert_eq!(scene.usage('a').await.events, 2, "the replaced version is kept for a while");
}

pub async fn addressable_events_are_kept_per_d(scene: Scene) {
    scene.carry("a").await;
    let (x1, x2, y1) = (article("x", 1, "a"), article("x", 3, "a"), article("y", 2, "a"));
    scene.given(&[&x1, &y1, &x2]).await;
    assert_eq!(scene.visible('a').await, ids(&[&x2, &y1]));
    let found = scene.found(r##"{"kinds":[30023],"#d":["y"]}"##).await;
    assert_eq!(found, ids(&[&y1]));
    let record = scene.record(&x2).await.expect("it is stored");
    assert_eq!(record.keep, Keep::Longer, "versions leave one by one");
}

pub async fn odd_d_values_are_keys_like_any_other(scene: Scene) {
    scene.carry("a").await;
    let long = "d".repeat(1024);
    let odd = ["", "\0", "a\0b", "a", "A", "ä", "a\u{308}", "括り", " ", "'; --", ":", &long];
    let mut newest = Vec::new();
    for d in odd {
        let (old, new) = (article(d, 1, "a"), article(d, 2, "a"));
        scene.given(&[&old, &new]).await;
        let version = scene.version(&key(&new)).await.expect("the key is known");
        assert_eq!(version.mark, Some(mark(&new, MarkState::Effective)), "{d:?}");
        newest.push(id(&new));
    }
    // A `d` tag without a value is the empty `d`.
    let mut bare = draft(30_023, 3, "a");
    bare.tags.push(vec!["d".to_owned()]);
    let bare = signed(&alice(), &bare);
    scene.given(&[&bare]).await;
    newest[0] = id(&bare);
    let mut visible = scene.visible('a').await;
    visible.sort_unstable();
    newest.sort_unstable();
    assert_eq!(visible, newest);
}

pub async fn kinds_and_authors_do_not_share_a_key(scene: Scene) {
    scene.carry("a").await;
    let events = [
        signed(&alice(), &draft(0, 1, "a")),
        signed(&bob(), &draft(0, 2, "a")),
        signed(&alice(), &draft(3, 3, "a")),
        signed(&alice(), &draft(30_023, 4, "a").tag("d", "")),
        signed(&alice(), &draft(30_024, 5, "a").tag("d", "")),
    ];
    scene.given(&events.each_ref()).await;
    let newest_first: Vec<_> = events.iter().rev().map(id).collect();
    assert_eq!(scene.visible('a').await, newest_first);
    assert_eq!(key(&events[2]).kind, Kind(3));
}

pub async fn a_replaced_version_is_known_and_hidden(scene: Scene) {
    scene.carry("ab").await;
    let (old, new) = (article("x", 1, "ab"), article("x", 2, "a"));
    scene.given(&[&old, &new]).await;
    let record = scene.record(&old).await.expect("it is kept for a while");
    assert_eq!((record.state, record.links.len()), (State::Superseded, 2));
    let again = Outcome::Duplicate(Duplicate::Known);
    assert_eq!(scene.publish(&old).await, (again, vec![]));
    assert_eq!(scene.visible('b').await, []);
    let hidden = vec![record.seq];
    assert_eq!(scene.store().bodies(hidden).await, Ok(vec![None]));
}

pub async fn a_version_on_two_topics_leaves_both(scene: Scene) {
    scene.carry("ab").await;
    let (old, new) = (article("x", 1, "ab"), article("x", 2, "b"));
    let (_, rows) = scene.publish(&old).await;
    assert_eq!(rows, [upsert(&old, 'a', ""), upsert(&old, 'b', "a")]);
    let (_, rows) = scene.publish(&new).await;
    let expected = [
        delete(&old, 'a', "b", Reason::Superseded),
        delete(&old, 'b', "", Reason::Superseded),
        upsert(&new, 'b', ""),
    ];
    assert_eq!(rows, expected);
    assert_eq!(scene.visible('a').await, []);
    assert_eq!(scene.visible('b').await, ids(&[&new]));
}
