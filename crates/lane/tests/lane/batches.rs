//! Batches form by themselves, keep the order, and are answered after their commit.

use std::sync::Arc;
use std::time::Duration;

use kukuri_core::{Act, Admitted, Outcome, needs};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_lane::{BatchLimits, LaneConfig, LaneError};
use kukuri_store::conformance::signing::{Author, Draft};

use crate::rig::{NOW, Rig, ids, lane, note, notes, publish, publish_all};

const CONFIG: LaneConfig = LaneConfig::STANDARD;

#[tokio::test(start_paused = true)]
async fn what_queues_during_a_commit_is_the_next_batch() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let first = lane.submit(publish(&note(0))).await.unwrap();
    rig.called(1).await;
    let mut tickets = Vec::new();
    for nth in 1..=300 {
        tickets.push(lane.submit(publish(&note(nth))).await.unwrap());
    }
    rig.let_through(2);
    assert_eq!(first.await, Ok(Outcome::Accepted));
    for ticket in tickets {
        assert_eq!(ticket.await, Ok(Outcome::Accepted));
    }
    assert_eq!(rig.batch_sizes(), [1, 300]);
    let stats = lane.stats();
    assert_eq!((stats.batches, stats.commands), (2, 301));
    assert_eq!(stats.batch_commands_max, 300);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_before_its_commit() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    let mut ticket = lane.submit(publish(&note(0))).await.unwrap();
    rig.called(1).await;
    let early = tokio::time::timeout(Duration::from_secs(20), &mut ticket).await;
    assert!(early.is_err(), "answered while the commit was held back");
    assert!(rig.rows().await.is_empty());
    rig.let_through(1);
    assert_eq!(ticket.await, Ok(Outcome::Accepted));
    assert_eq!(rig.rows().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn parcels_are_cut_into_batches_and_answered_whole() {
    let rig = Rig::open();
    let commands_max = 7;
    let batch = BatchLimits { commands_max, ..BatchLimits::STANDARD };
    let lane = lane(&rig, LaneConfig { batch, ..CONFIG }).await;
    let events = notes(40);
    let (one, two) = events.split_at(25);
    let one = lane.submit_all(publish_all(one)).await.unwrap();
    let two = lane.submit_all(publish_all(two)).await.unwrap();
    assert_eq!(one.await, vec![Ok(Outcome::Accepted); 25]);
    assert_eq!(two.await, vec![Ok(Outcome::Accepted); 15]);
    assert_eq!(rig.batch_sizes(), [7, 7, 7, 7, 7, 5]);
    let fed: Vec<EventId> = rig.rows().await.iter().map(|row| row.event_id).collect();
    assert_eq!(fed, ids(&events), "the order of submission is the order of the feed");
}

#[tokio::test(start_paused = true)]
async fn batches_keep_their_bounds_of_bytes_and_keys() {
    let rig = Rig::open();
    let batch = BatchLimits { commands_max: 1000, bytes_max: 4000, keys_max: 60 };
    let lane = lane(&rig, LaneConfig { batch, ..CONFIG }).await;
    let mut acts = publish_all(&notes(30));
    acts.extend((0..5).map(|nth| publish(&deletion(nth))));
    acts.push(Act::Expire(ids(&notes(20))));
    let size = acts.len();
    let answers = lane.submit_all(acts).await.unwrap().await;
    assert!(answers.iter().all(Result::is_ok) && answers.len() == size);
    let batches = rig.batches();
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), size);
    for batch in &batches {
        let bytes: usize = batch.iter().map(|command| bytes(&command.act)).sum();
        let within = needs(batch).len() <= 60 && bytes <= 4000;
        assert!(within || batch.len() == 1);
    }
    let (smallest, largest) = (batches.len(), rig.batch_sizes().into_iter().max());
    assert!(smallest > 1 && largest > Some(5), "{:?}", rig.batch_sizes());
}

/// Three targets by `e`, two by `a`, one of them in vain.
fn deletion(nth: u32) -> Admitted {
    let author = Author::numbered(1);
    let address = format!("30023:{}:{nth}", author.pubkey());
    let draft = Draft::new(5, UnixSeconds(NOW.0 - 60)).tag("t", "kukuri:global");
    let draft = ids(&notes(3)).iter().fold(draft, |draft, id| draft.tag("e", id));
    author.admit(&draft.tag("a", address).tag("a", "no address"), NOW)
}

fn bytes(act: &Act) -> usize {
    match act {
        Act::Publish(event) => event.body().json().len(),
        _ => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn commands_of_a_batch_share_the_time_at_which_it_was_formed() {
    let rig = Rig::open();
    let lane = lane(&rig, CONFIG).await;
    let answers = lane.submit_all(publish_all(&notes(3))).await.unwrap().await;
    assert_eq!(answers.len(), 3);
    for command in rig.batches()[0].iter() {
        assert_eq!(command.at, NOW.into());
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_parcel_is_answered_at_once() {
    let rig = Rig::closed();
    let lane = lane(&rig, CONFIG).await;
    assert_eq!(lane.submit_all(Vec::new()).await.unwrap().await, []);
    assert_eq!(rig.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_lets_senders_wait_and_then_says_overloaded() {
    let rig = Rig::closed();
    let queue_commands_max = 10;
    let config = LaneConfig { queue_commands_max, ..CONFIG };
    let lane = lane(&rig, config).await;
    let first = lane.submit(publish(&note(100))).await.unwrap();
    rig.called(1).await;
    let queued = lane.submit_all(publish_all(&notes(10))).await.unwrap();
    let started = tokio::time::Instant::now();
    let refused = lane.run(publish(&note(11))).await;
    assert_eq!(refused, Err(LaneError::Overloaded));
    assert_eq!(refused.unwrap_err().to_string(), "error: overloaded");
    assert_eq!(started.elapsed(), CONFIG.submit_wait_max);
    rig.let_through(3);
    assert_eq!(first.await, Ok(Outcome::Accepted));
    assert_eq!(queued.await.len(), 10);
    assert_eq!(lane.run(publish(&note(12))).await, Ok(Outcome::Accepted));
}

#[tokio::test(start_paused = true)]
async fn bytes_fill_the_queue_as_commands_do() {
    let rig = Rig::closed();
    let queue_bytes_max = 1000;
    let config = LaneConfig { queue_bytes_max, ..CONFIG };
    let lane = lane(&rig, config).await;
    let first = lane.submit(publish(&note(100))).await.unwrap();
    rig.called(1).await;
    // More than the whole queue: it takes all of it, and does not wait for ever.
    let large = lane.submit_all(publish_all(&notes(9))).await.unwrap();
    let refused = lane.run(publish(&note(10))).await;
    assert_eq!(refused, Err(LaneError::Overloaded));
    rig.let_through(2);
    assert_eq!(first.await, Ok(Outcome::Accepted));
    assert_eq!(large.await, vec![Ok(Outcome::Accepted); 9]);
}

/// Real threads: each sender's events stay in its order, whatever the others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_senders_are_all_answered_each_in_its_order() {
    let rig = Rig::open();
    let lane = Arc::new(lane(&rig, CONFIG).await);
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..8 {
        let lane = Arc::clone(&lane);
        senders.spawn(async move {
            let events: Vec<Admitted> = (0..50).map(|nth| note(sender * 1000 + nth)).collect();
            let mut tickets = Vec::new();
            for event in &events {
                tickets.push(lane.submit(publish(event)).await.unwrap());
            }
            for ticket in tickets {
                assert_eq!(ticket.await, Ok(Outcome::Accepted));
            }
            ids(&events)
        });
    }
    let sent = senders.join_all().await;
    let fed: Vec<EventId> = rig.rows().await.iter().map(|row| row.event_id).collect();
    assert_eq!(fed.len(), 400);
    for events in sent {
        let kept: Vec<&EventId> = fed.iter().filter(|id| events.contains(id)).collect();
        assert!(kept.into_iter().eq(&events));
    }
}
