//! The year finds what is wrong: a policy that is another one, and stores that do not name all that has to
//! leave, or let go of more.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{Act, Command, Cutoffs, Decision, TopicId, UnixMillis};
use kukuri_event::{EventId, UnixSeconds};
use kukuri_store::conformance::double::Double;
use kukuri_store::{Dated, Forgettable, Scope, Store, StoreError};

use super::Year;
use super::oracle::Oracle;
use super::policy::{self, NODE, NodeRules};
use crate::home::Home;
use crate::rig;

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Does not name what has aged in one topic.
    Aged,
    /// Gives up the newest first.
    Oldest,
    /// Names nothing that has expired: it is hidden from readers all the same.
    Expired,
    Forgettable,
    /// Cuts one row of the feed too many.
    Trim,
}

struct Faulty {
    store: Arc<dyn Store>,
    wrong: Wrong,
}

#[async_trait]
impl Double for Faulty {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let batch = match self.wrong {
            Wrong::Trim => batch.iter().cloned().map(too_far).collect(),
            _ => batch,
        };
        self.store.apply(batch).await
    }

    async fn aged(
        &self,
        topic: TopicId,
        cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        if self.wrong == Wrong::Aged && topic == rig::topic('c') {
            return Ok(Vec::new());
        }
        self.store.aged(topic, cutoffs, events_max).await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        let mut oldest = self.store.oldest(of, events_max).await?;
        if self.wrong == Wrong::Oldest {
            oldest.reverse();
        }
        Ok(oldest)
    }

    async fn expired(
        &self,
        now: UnixSeconds,
        events_max: usize,
    ) -> Result<Vec<EventId>, StoreError> {
        match self.wrong {
            Wrong::Expired => Ok(Vec::new()),
            _ => self.store.expired(now, events_max).await,
        }
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        match self.wrong {
            Wrong::Forgettable => Ok(Forgettable::default()),
            _ => self.store.forgettable(before, max).await,
        }
    }
}

fn too_far(command: Command) -> Command {
    let Command { at, act } = command;
    let act = match act {
        Act::Trim(seq) => Act::Trim(seq.next()),
        Act::Fenced { task, fence, act } => {
            let Command { act, .. } = too_far(Command { at, act: *act });
            Act::Fenced { task, fence, act: Box::new(act) }
        }
        act => act,
    };
    Command { at, act }
}

async fn ends(wrong: Wrong, oracle: Oracle) -> Result<(), String> {
    let home = Home::model();
    let store = Arc::new(Faulty { store: home.open().await, wrong });
    let seed = rig::seed("year::sabotage::faults_of_stores_are_found");
    Year::begin(home, store, seed, oracle).await.run().await
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_stores_are_found() {
    let right = || Oracle::new(policy::topics(), NODE);
    assert_eq!(ends(Wrong::Nothing, right()).await, Ok(()));
    let all = [Wrong::Aged, Wrong::Oldest, Wrong::Expired, Wrong::Forgettable, Wrong::Trim];
    for wrong in all {
        let found = ends(wrong, right()).await;
        println!("{wrong:?}: {found:?}");
        assert!(found.is_err(), "{wrong:?} was not found");
    }
}

/// Years in which a policy that is off by a day must be found.
const YEARS_MAX: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn another_policy_is_found() {
    let mut other = policy::topics();
    other.get_mut(&'b').expect("it is carried").retention_days = Some(4);
    let history = NodeRules { history_days: 8, ..NODE };
    let memory = NodeRules { memory_days: 181, ..NODE };
    // The node cuts a day more of its feed than that.
    let feed = NodeRules { feed_days: 31, ..NODE };
    let nodes = [history, memory, feed].map(|node| (policy::topics(), node));
    for (topics, node) in nodes.into_iter().chain([(other, NODE)]) {
        // Not every year has an event that comes again on the one day that differs.
        let mut found = Ok(());
        for _ in 0..YEARS_MAX {
            found = ends(Wrong::Nothing, Oracle::new(topics.clone(), node)).await;
            println!("{found:?}");
            if found.is_err() {
                break;
            }
        }
        assert!(found.is_err(), "{node:?} was taken for the policy");
    }
}
