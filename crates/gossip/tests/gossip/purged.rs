//! What a node has purged is said to it again by those who still have it, and stays away.

use std::collections::BTreeSet;
use std::sync::Arc;

use kukuri_core::{Act, Admitted, Command, Outcome, TopicId, UnixMillis, UnlinkReason};
use kukuri_event::{EventId, Filter};
use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_store::{Query, Store};
use kukuri_testkit::generate::World;

use crate::rig::{Homes, Node, Stranger, note, say, topic};

/// How often the stranger says each again.
const SPELLINGS: usize = 20;

/// What leaves: something, something that its author wants deleted, and the request for that.
struct Gone {
    note: Admitted,
    regretted: Admitted,
    request: Admitted,
}

impl Gone {
    fn new(t: &TopicId) -> Self {
        let regretted = note(std::slice::from_ref(t), "regretted");
        let request = Draft::new(5, World::NOW).tag("t", t).tag("e", regretted.event().id());
        let request = Author::numbered(1).admit(&request, World::NOW);
        Self { note: note(std::slice::from_ref(t), "gone"), regretted, request }
    }

    fn all(&self) -> [&Admitted; 3] {
        [&self.note, &self.regretted, &self.request]
    }

    /// A node that has had all of it before anyone was there to hear of it, and lets go of it while it runs.
    async fn let_go(&self, store: Arc<dyn Store>, t: &TopicId) -> Node {
        let publish = self.all().map(|event| Act::Publish(event.clone()));
        let acts = [Act::carry(t.clone(), "")].into_iter().chain(publish);
        let at = UnixMillis::from(World::NOW);
        let taken_in = store.apply(acts.map(|act| Command { at, act }).collect()).await.unwrap();
        assert_eq!(
            taken_in.outcomes[1..],
            [Outcome::Accepted, Outcome::Accepted, Outcome::Accepted]
        );
        let node = Node::over(store, std::slice::from_ref(t), &[]).await;
        let events = self.all().map(|event| event.event().id()).to_vec();
        let reason = UnlinkReason::Before(UnixMillis(at.0 + 1));
        let left = node.lane.run(Act::Unlink { topic: t.clone(), events, reason }).await;
        assert!(matches!(left, Ok(Outcome::Removed(removed)) if removed.gone.events == 3));
        assert_eq!(visible(&node, t).await, BTreeSet::new());
        node
    }
}

/// What a client of the node is shown.
async fn visible(node: &Node, t: &TopicId) -> BTreeSet<EventId> {
    let filter = format!("{{\"#t\":[\"{t}\"]}}");
    let query = Query {
        filters: vec![Filter::parse(&filter).unwrap()],
        after: None,
        now: World::NOW,
        limit_max: 1000,
        rows_max: 100_000,
        bodies_max: 0,
    };
    node.store.query(query).await.unwrap().hits.iter().map(|hit| hit.id).collect()
}

/// The same event in another spelling, so that the library does not know it again.
fn spelled(event: &Admitted, nth: usize) -> String {
    event.body().json().replacen('{', &format!("{{\"x\":{nth},"), 1)
}

async fn stays_away(one: Arc<dyn Store>, two: Arc<dyn Store>) {
    let t = [topic('a')];
    let gone = Gone::new(&t[0]);
    let node = gone.let_go(one, &t[0]).await;
    let rows = node.rows().await;
    let neighbour = Node::over(two, &t, &[&node]).await;
    node.until_joined(&t[0], 1).await;
    neighbour.until_joined(&t[0], 1).await;

    // Clients give it to a neighbour, to whom it is new.
    neighbour.publish(&gone.note).await;
    node.until_stats("what was purged", |stats| stats.duplicates == 1).await;
    neighbour.publish(&gone.regretted).await;
    node.until_stats("what was deleted", |stats| stats.refused == 1).await;
    neighbour.publish(&gone.request).await;
    node.until_stats("the request", |stats| stats.duplicates == 2).await;

    // A stranger says it as often as it likes.
    let stranger = Stranger::new().await;
    let (sender, _receiver) = stranger.join(&node, &t[0]).await;
    for nth in 0..SPELLINGS {
        for event in gone.all() {
            say(&sender, spelled(event, nth)).await;
        }
    }
    let (known, refused) = (2 + 2 * SPELLINGS as u64, 1 + SPELLINGS as u64);
    node.until_stats("all of it again", |stats| {
        (stats.duplicates, stats.refused) == (known, refused)
    })
    .await;
    assert_eq!((node.stats().accepted, node.stats().mutes), (0, 0), "{:?}", node.stats());
    assert_eq!(node.rows().await, rows, "nothing has happened");
    assert_eq!(visible(&node, &t[0]).await, BTreeSet::new());

    // The node hears those who have said it as before.
    let last = note(&t, "new");
    neighbour.publish(&last).await;
    node.until_holds(&last).await;
    assert_eq!(node.rows().await.len(), rows.len() + 1);
    assert_eq!(visible(&node, &t[0]).await, BTreeSet::from([last.event().id()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_purged_does_not_come_back_by_gossip() {
    let homes = Homes::new();
    for [one, two, _] in homes.three_of_each().await {
        stays_away(one, two).await;
    }
}
