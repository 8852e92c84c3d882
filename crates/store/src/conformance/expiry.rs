//! NIP-40: what has expired is not there, swept or not.

use kukuri_core::{Act, Admitted, Duplicate, MarkState, Outcome, Reason, Rejection, State};
use kukuri_event::UnixSeconds;

use super::scene::{
    NOW, PLENTY, Scene, alice, delete, draft, filter, id, ids, key, note, removed, signed, unlinked,
};

fn in_seconds(seconds: i64) -> UnixSeconds {
    NOW.saturating_add(seconds)
}

/// A note that ends so many seconds from now.
fn brief_note(nth: i64, ends_in: i64) -> Admitted {
    signed(&alice(), &draft(1, nth, "a").tag("expiration", in_seconds(ends_in)))
}

async fn visible_at(scene: &Scene, now: UnixSeconds) -> Vec<kukuri_event::EventId> {
    let hits = scene.hits_at(now, vec![filter("{}")]).await;
    hits.iter().map(|hit| hit.id).collect()
}

pub async fn what_expires_is_hidden_before_it_is_swept(scene: Scene) {
    scene.carry("a").await;
    let (brief, lasting) = (brief_note(2, 10), note(1, "a"));
    scene.given(&[&brief, &lasting]).await;
    assert_eq!(visible_at(&scene, in_seconds(9)).await, ids(&[&brief, &lasting]));
    assert_eq!(visible_at(&scene, in_seconds(10)).await, ids(&[&lasting]));
}

pub async fn the_sweep_announces_what_expired(scene: Scene) {
    scene.carry("a").await;
    let (brief, lasting) = (brief_note(2, 10), note(1, "a"));
    scene.given(&[&brief, &lasting]).await;
    let due = scene.store().expired(in_seconds(10), PLENTY).await;
    assert_eq!(due, Ok(ids(&[&brief])));
    let sweep = Act::Expire(ids(&[&brief, &lasting]));
    let (outcome, rows) = scene.act_at(in_seconds(10), sweep.clone()).await;
    assert_eq!(outcome, unlinked(&[&brief]));
    assert_eq!(rows, [delete(&brief, 'a', "", Reason::Expiration)]);
    let record = scene.record(&brief).await.expect("it is kept until retention");
    assert_eq!(record.state, State::Expired);
    // A clock that went back does not bring it back.
    assert_eq!(visible_at(&scene, NOW).await, ids(&[&lasting]));
    assert_eq!(scene.act_at(in_seconds(11), sweep).await, (removed(&[]), vec![]));
    assert_eq!(scene.store().expired(in_seconds(99), PLENTY).await, Ok(vec![]));
    let expired = Outcome::Refused(Rejection::Expired);
    assert_eq!(scene.publish(&brief).await, (expired, vec![]));
}

pub async fn nothing_expires_before_its_time(scene: Scene) {
    scene.carry("a").await;
    let brief = brief_note(1, 10);
    scene.given(&[&brief]).await;
    let early = Act::Expire(ids(&[&brief]));
    assert_eq!(scene.act_at(in_seconds(9), early).await, (removed(&[]), vec![]));
    assert_eq!(scene.visible('a').await, ids(&[&brief]));
    assert_eq!(scene.store().expired(in_seconds(9), PLENTY).await, Ok(vec![]));
}

pub async fn an_event_that_arrives_expired_is_refused(scene: Scene) {
    scene.carry("a").await;
    let brief = brief_note(1, 10);
    let before = super::dump(scene.store()).await;
    let expired = (Outcome::Refused(Rejection::Expired), vec![]);
    let publish = Act::Publish(brief.clone());
    assert_eq!(scene.act_at(in_seconds(10), publish).await, expired);
    assert_eq!(super::dump(scene.store()).await, before);
    scene.given(&[&brief]).await;
}

pub async fn an_expired_winner_keeps_its_mark(scene: Scene) {
    scene.carry("a").await;
    let version = |nth, ends: Option<i64>| {
        let draft = draft(10_002, nth, "a");
        let ends = ends.map(in_seconds);
        signed(&alice(), &ends.into_iter().fold(draft, |draft, end| draft.tag("expiration", end)))
    };
    let (old, winner, newer) = (version(1, None), version(2, Some(10)), version(3, None));
    scene.given(&[&winner]).await;
    let sweep = Act::Expire(ids(&[&winner]));
    let _ = scene.act_at(in_seconds(10), sweep).await;
    let state = scene.version(&key(&winner)).await.expect("the key is known");
    let mark = state.mark.expect("the mark stays");
    assert_eq!((mark.event_id, mark.state), (id(&winner), MarkState::Expired));
    assert_eq!(state.body, None);
    let stale = Outcome::Duplicate(Duplicate::Stale);
    assert_eq!(scene.publish(&old).await, (stale, vec![]));
    scene.given(&[&newer]).await;
    assert_eq!(scene.visible('a').await, ids(&[&newer]));
}

pub async fn overdue_events_come_longest_first(scene: Scene) {
    scene.carry("a").await;
    let (late, early) = (brief_note(1, 20), brief_note(2, 10));
    let (tie_first, tie_second) = (brief_note(4, 15), brief_note(3, 15));
    scene.given(&[&late, &early, &tie_first, &tie_second]).await;
    let expired = async |now, most| scene.store().expired(now, most).await.expect("it is listed");
    let all = [&early, &tie_first, &tie_second, &late];
    assert_eq!(expired(in_seconds(60), PLENTY).await, ids(&all));
    assert_eq!(expired(in_seconds(60), 2).await, ids(&all[..2]));
    assert_eq!(expired(in_seconds(15), PLENTY).await, ids(&all[..3]));
    assert_eq!(expired(in_seconds(60), 0).await, []);
}
