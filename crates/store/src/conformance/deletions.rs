//! Kind 5: by `e` and by `a`, before and after, one's own and others'.

use kukuri_core::{
    Admitted, Duplicate, MarkState, Outcome, Reason, Rejection, State, Tombstone, UnixMillis,
};
use kukuri_event::Kind;

use super::scene::{
    NOW, Scene, alice, article, bob, delete, draft, id, ids, key, note, second, signed, upsert,
};
use super::signing::{Author, Draft};

fn deleted() -> Outcome {
    Outcome::Refused(Rejection::Deleted)
}

/// A request on topic `a` that names events.
fn request(author: &Author, nth: i64, targets: &[&Admitted]) -> Admitted {
    let draft = draft(5, nth, "a");
    let draft = targets.iter().fold(draft, |draft, target| draft.tag("e", id(target)));
    signed(author, &draft)
}

/// A request on topic `a` that names all versions of an event.
fn request_of_versions(author: &Author, nth: i64, of: &Admitted) -> Admitted {
    signed(author, &draft(5, nth, "a").tag("a", key(of).to_text()))
}

pub async fn a_deletion_hides_its_target(scene: Scene) {
    scene.carry("a").await;
    let (target, other) = (note(1, "a"), note(2, "a"));
    let request = request(&alice(), 3, &[&target]);
    scene.given(&[&target, &other]).await;
    let usage = scene.usage('a').await;
    let (outcome, rows) = scene.publish(&request).await;
    assert_eq!(outcome, Outcome::Accepted);
    let expected = [upsert(&request, 'a', ""), delete(&target, 'a', "", Reason::Nip09)];
    assert_eq!(rows, expected);
    assert_eq!(scene.visible('a').await, ids(&[&request, &other]));
    let record = scene.record(&target).await.expect("it is kept for audit");
    assert_eq!(record.state, State::Deleted);
    assert_eq!(scene.usage('a').await.events, usage.events + 1);
    assert_eq!(scene.publish(&target).await, (deleted(), vec![]));
    let hits = scene.found(&format!(r#"{{"ids":["{}"]}}"#, id(&target))).await;
    assert_eq!(hits, []);
}

pub async fn a_deletion_comes_before_its_target(scene: Scene) {
    scene.carry("a").await;
    let target = note(1, "a");
    let request = request(&alice(), 2, &[&target]);
    scene.given(&[&request]).await;
    for _ in 0..2 {
        assert_eq!(scene.publish(&target).await, (deleted(), vec![]));
    }
    assert_eq!(scene.record(&target).await, None);
    assert_eq!(scene.dedupe(&target).await, None, "a refused event leaves no dedupe row");
    assert_eq!(scene.visible('a').await, ids(&[&request]));
}

pub async fn nobody_deletes_what_is_not_theirs(scene: Scene) {
    scene.carry("a").await;
    let (before, after) = (note(1, "a"), note(2, "a"));
    scene.given(&[&before]).await;
    let foreign = request(&bob(), 3, &[&before, &after]);
    let (outcome, rows) = scene.publish(&foreign).await;
    assert_eq!((outcome, rows), (Outcome::Accepted, vec![upsert(&foreign, 'a', "")]));
    scene.given(&[&after]).await;
    assert_eq!(scene.visible('a').await, ids(&[&foreign, &after, &before]));
    assert_eq!(scene.tombstone(&before, &alice()).await, None);
}

pub async fn deletions_cannot_be_deleted(scene: Scene) {
    scene.carry("a").await;
    let target = note(1, "a");
    let early = request(&alice(), 2, &[&target]);
    let late = request(&alice(), 3, &[]);
    let of_both = request(&alice(), 4, &[&early, &late]);
    scene.given(&[&target, &early, &of_both, &late]).await;
    assert_eq!(scene.visible('a').await, ids(&[&of_both, &late, &early]));
    assert_eq!(scene.publish(&target).await.0, deleted());
}

pub async fn a_deleted_event_on_two_topics_leaves_both(scene: Scene) {
    scene.carry("abc").await;
    let target = note(1, "abc");
    scene.given(&[&target]).await;
    let request = request(&alice(), 2, &[&target]);
    let (_, rows) = scene.publish(&request).await;
    let expected = [
        upsert(&request, 'a', ""),
        delete(&target, 'a', "bc", Reason::Nip09),
        delete(&target, 'b', "c", Reason::Nip09),
        delete(&target, 'c', "", Reason::Nip09),
    ];
    assert_eq!(rows, expected);
}

pub async fn an_address_deletes_versions_up_to_its_time(scene: Scene) {
    scene.carry("a").await;
    let [old, same, newer] = [1, 2, 3].map(|nth| article("x", nth, "a"));
    scene.given(&[&old]).await;
    let request = request_of_versions(&alice(), 2, &old);
    let (_, rows) = scene.publish(&request).await;
    let expected = [upsert(&request, 'a', ""), delete(&old, 'a', "", Reason::Nip09)];
    assert_eq!(rows, expected);
    assert_eq!(scene.publish(&same).await, (deleted(), vec![]));
    assert_eq!(scene.publish(&newer).await.0, Outcome::Accepted);
    assert_eq!(scene.visible('a').await, ids(&[&newer, &request]));
    let version = scene.version(&key(&newer)).await.expect("the key is known");
    assert_eq!(version.deleted_until, Some(second(2)));
}

pub async fn an_address_of_another_author_is_ignored(scene: Scene) {
    scene.carry("a").await;
    let event = article("x", 1, "a");
    scene.given(&[&event]).await;
    let foreign = request_of_versions(&bob(), 2, &event);
    scene.given(&[&foreign]).await;
    assert_eq!(scene.visible('a').await, ids(&[&foreign, &event]));
    let version = scene.version(&key(&event)).await.expect("the key is known");
    assert_eq!(version.deleted_until, None);
}

pub async fn an_address_that_names_no_version_is_ignored(scene: Scene) {
    scene.carry("a").await;
    let event = note(1, "a");
    let profile = signed(&alice(), &draft(0, 1, "a"));
    scene.given(&[&event, &profile]).await;
    let key = alice().pubkey();
    let bad = [
        format!("1:{key}:"),
        format!("0:{key}"),
        format!("0:{key}:d"),
        format!("+0:{key}:"),
        format!("0:{}:", key.to_hex().to_uppercase()),
        "30023".to_owned(),
        String::new(),
    ];
    let request = bad.iter().fold(draft(5, 2, "a"), |draft, a| draft.tag("a", a));
    let request = signed(&alice(), &request.tag("e", "not an id").tag("e", ""));
    let (outcome, rows) = scene.publish(&request).await;
    assert_eq!((outcome, rows), (Outcome::Accepted, vec![upsert(&request, 'a', "")]));
    assert_eq!(scene.visible('a').await.len(), 3);
}

pub async fn a_winner_deleted_before_it_arrives_beats_the_older_version(scene: Scene) {
    scene.carry("a").await;
    let [old, winner] = [1, 2].map(|nth| article("x", nth, "a"));
    let request = request(&alice(), 3, &[&winner]);
    scene.given(&[&old, &request]).await;
    let (outcome, rows) = scene.publish(&winner).await;
    assert_eq!(outcome, deleted());
    assert_eq!(rows, [delete(&old, 'a', "", Reason::Superseded)]);
    assert_eq!(scene.visible('a').await, ids(&[&request]));
    let version = scene.version(&key(&winner)).await.expect("the key is known");
    let mark = version.mark.expect("the refused winner is the mark");
    assert_eq!((mark.event_id, mark.state), (id(&winner), MarkState::Deleted));
    assert_eq!(version.body, None);
    assert_eq!(scene.publish(&winner).await, (deleted(), vec![]));
}

pub async fn an_older_version_does_not_come_back(scene: Scene) {
    scene.carry("a").await;
    let [oldest, old, winner] = [1, 2, 3].map(|nth| article("x", nth, "a"));
    scene.given(&[&old, &winner, &request(&alice(), 4, &[&winner])]).await;
    assert_eq!(scene.found(r#"{"kinds":[30023]}"#).await, []);
    let stale = (Outcome::Duplicate(Duplicate::Stale), vec![]);
    assert_eq!(scene.publish(&oldest).await, stale);
    let known = (Outcome::Duplicate(Duplicate::Known), vec![]);
    assert_eq!(scene.publish(&old).await, known);
    assert_eq!(scene.found(r#"{"kinds":[30023]}"#).await, []);
}

pub async fn a_limit_stands_when_it_is_asked_for_less(scene: Scene) {
    scene.carry("a").await;
    let [first, second_version, third] = [1, 2, 3].map(|nth| article("x", nth, "a"));
    let late = request_of_versions(&alice(), 2, &first);
    let early = request_of_versions(&alice(), 1, &first);
    scene.given(&[&late, &early]).await;
    let version = scene.version(&key(&first)).await.expect("the key is known");
    assert_eq!((version.mark, version.deleted_until), (None, Some(second(2))));
    assert_eq!(scene.publish(&second_version).await.0, deleted());
    scene.given(&[&third]).await;
    let later = request_of_versions(&alice(), 3, &first);
    scene.given(&[&later]).await;
    assert_eq!(scene.visible('a').await, ids(&[&later, &late, &early]));
}

pub async fn a_deletion_takes_what_a_stale_version_left(scene: Scene) {
    scene.carry("a").await;
    let [old, new] = [1, 2].map(|nth| article("x", nth, "a"));
    scene.given(&[&new]).await;
    let stale = Outcome::Duplicate(Duplicate::Stale);
    assert_eq!(scene.publish(&old).await.0, stale);
    let request = request(&alice(), 3, &[&old]);
    assert_eq!(scene.publish(&request).await.1, [upsert(&request, 'a', "")]);
    assert_eq!(scene.publish(&old).await, (deleted(), vec![]));
    assert_eq!(scene.visible('a').await, ids(&[&request, &new]));
}

pub async fn a_deletion_reaches_a_replaced_version(scene: Scene) {
    scene.carry("a").await;
    let [old, new] = [1, 2].map(|nth| article("x", nth, "a"));
    scene.given(&[&old, &new]).await;
    let request = request(&alice(), 3, &[&old]);
    assert_eq!(scene.publish(&request).await.1, [upsert(&request, 'a', "")]);
    let record = scene.record(&old).await.expect("it is kept for audit");
    assert_eq!(record.state, State::Deleted);
    assert_eq!(scene.publish(&old).await, (deleted(), vec![]));
    assert_eq!(scene.visible('a').await, ids(&[&request, &new]));
}

pub async fn a_tombstone_says_when_it_was_applied(scene: Scene) {
    scene.carry("a").await;
    let [here, later] = [1, 2].map(|nth| note(nth, "a"));
    scene.given(&[&here]).await;
    let first = request(&alice(), 3, &[&here, &later]);
    let second_request = request(&alice(), 4, &[&here, &later]);
    scene.given(&[&first, &second_request]).await;
    let tombstone = |applied_at| Tombstone {
        deletion_event_id: id(&first),
        requested_at: second(3),
        recorded_at: UnixMillis::from(NOW),
        applied_at,
    };
    let applied = tombstone(Some(UnixMillis::from(NOW)));
    assert_eq!(scene.tombstone(&here, &alice()).await, Some(applied));
    assert_eq!(scene.tombstone(&later, &alice()).await, Some(tombstone(None)));
    assert_eq!(scene.publish(&later).await.0, deleted());
    assert_eq!(scene.tombstone(&later, &alice()).await, Some(applied));
}

pub async fn a_deletion_of_many_targets_is_one_event(scene: Scene) {
    scene.carry("a").await;
    let notes: Vec<Admitted> = (1..=40).map(|nth| note(nth, "a")).collect();
    let articles = ["x", "y", ""].map(|d| article(d, 50, "a"));
    for event in notes.iter().chain(&articles) {
        scene.given(&[event]).await;
    }
    // Named twice, and by `e` as well as by `a`, an event still leaves once.
    let twice = notes.iter().chain(&notes).chain(&articles);
    let request = twice.fold(Draft::new(5, second(60)), |draft, event| {
        let draft = draft.tag("e", id(event));
        match event.event().kind() {
            Kind(1) => draft,
            _ => draft.tag("a", key(event).to_text()),
        }
    });
    let request = signed(&alice(), &request.tag("t", super::scene::topic('a')));
    let (outcome, rows) = scene.publish(&request).await;
    assert_eq!(outcome, Outcome::Accepted);
    assert_eq!(rows.len(), 1 + notes.len() + articles.len());
    assert_eq!(scene.visible('a').await, ids(&[&request]));
}
