//! What another node has named and is not known here, on its way in: what is at hand is read, and the rest
//! is fetched.

use anyhow::Context;
use kukuri_client::sync::{Fetch, Group, SyncError};
use kukuri_core::backfill::Window;
use kukuri_event::EventId;
use kukuri_store::Store;
use tokio::sync::mpsc;

use super::errand::Errand;
use super::fault::Fault;
use super::known::{Found, Lookup, bodies};
use super::pulled::{Ended, Pulled};

/// Groups of events that may wait to be checked; then nothing more is read from the other node.
const GROUPS_WAITING_MAX: usize = 2;
/// Events at hand that are read at once.
const AT_HAND_READ_IDS: usize = 16;
/// Ids that are looked up before what is unknown of them is fetched.
const PORTION_IDS: usize = 16_384;

impl Errand<'_> {
    /// Takes in those of the ids that are not known, as many as one reconciliation may. They are looked up in
    /// portions: another relay may be asked about the topic at the same time, and what has come from it is not
    /// fetched again. So that the two do not go the same way side by side, each begins anywhere.
    pub(super) async fn fetch(
        &mut self,
        window: &Window,
        mut needed: Vec<EventId>,
        pulled: &mut Pulled,
    ) -> Result<(), Fault> {
        let portions = needed.len().div_ceil(PORTION_IDS);
        if portions > 1 {
            needed.rotate_left(rand::random_range(0..portions) * PORTION_IDS);
        }
        for portion in needed.chunks(PORTION_IDS) {
            self.fetch_portion(window, portion, pulled).await?;
            if pulled.ended != Ended::Done {
                break;
            }
        }
        Ok(())
    }

    async fn fetch_portion(
        &mut self,
        window: &Window,
        needed: &[EventId],
        pulled: &mut Pulled,
    ) -> Result<(), Fault> {
        let lookup = Lookup {
            store: &*self.puller.store,
            memory: &self.puller.memory,
            from: &self.from,
            topic: &self.topic.topic_id,
            topicless: self.puller.topicless,
        };
        let halted = self.halted();
        let found = tokio::select! {
            found = lookup.find(needed) => found.context("cannot look up ids")?,
            why = halted => {
                pulled.ended = why;
                return Ok(());
            }
        };
        let Found { mut unknown, mut at_hand, known } = found;
        pulled.known += known;
        let spent = pulled.fetched + pulled.at_hand;
        let room = self.puller.allowed.events_max.saturating_sub(spent);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let is_over = at_hand.len() + unknown.len() > room;
        at_hand.truncate(room);
        unknown.truncate(room - at_hand.len());
        if !unknown.is_empty() || !at_hand.is_empty() {
            self.take_in(window, &unknown, &at_hand, pulled).await?;
        }
        if is_over && pulled.ended == Ended::Done {
            pulled.ended = Ended::OverBudget;
        }
        Ok(())
    }

    async fn take_in(
        &mut self,
        window: &Window,
        ids: &[EventId],
        at_hand: &[EventId],
        pulled: &mut Pulled,
    ) -> Result<(), Fault> {
        self.watch.bar.inc_length((ids.len() + at_hand.len()) as u64);
        self.watch.bar.set_message("fetching");
        let halted = self.halted();
        let Self { puller, peer, from, topic, watch, .. } = self;
        let intake = puller.intake(topic, from, watch, pulled.came()).await?;
        let (into, coming) = mpsc::channel(GROUPS_WAITING_MAX);
        let (filter, question_ids) = (window.filter(), puller.question_ids());
        let (fetched, linked) = (&mut pulled.fetched, &mut pulled.at_hand);
        let work = async {
            let reading = AtHand { store: &*puller.store, ids: at_hand, group_ids: question_ids };
            tokio::select! {
                read = reading.read(&into, linked) => read?,
                lost = peer.stay() => return Err(Fault::from(lost)),
            }
            let fetch = Fetch { filter: &filter, ids, question_ids, into, came: fetched };
            Ok(peer.fetch(fetch).await?)
        };
        let work = async {
            tokio::select! {
                done = work => done.map(|()| None),
                why = halted => Ok(Some(why)),
            }
        };
        let (done, taken) = tokio::join!(work, intake.take(coming));
        // Events that came before it broke are in.
        pulled.add(taken)?;
        match done {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                pulled.ended = why;
                Ok(())
            }
            // Whoever takes no more has said why.
            Err(Fault::Relay(SyncError::Unwanted)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// Events that are here and are to be linked.
struct AtHand<'a> {
    store: &'a dyn Store,
    ids: &'a [EventId],
    /// As many as a question would bring at once.
    group_ids: usize,
}

impl AtHand<'_> {
    /// Reads them little by little: there may be more than fit into memory.
    async fn read(&self, into: &mpsc::Sender<Vec<String>>, count: &mut u64) -> Result<(), Fault> {
        let mut group = Group::default();
        let read_ids = AT_HAND_READ_IDS.min(self.group_ids);
        let mut parts = self.ids.chunks(read_ids).peekable();
        let mut pending = 0;
        while let Some(ids) = parts.next() {
            let bodies = bodies(self.store, ids).await.context("cannot read what is at hand")?;
            pending += bodies.len();
            bodies.into_iter().for_each(|body| group.push(body));
            let is_due = group.is_full() || pending + read_ids > self.group_ids;
            if !group.is_empty() && (is_due || parts.peek().is_none()) {
                let events = std::mem::take(&mut group).into_events();
                into.send(events).await.map_err(|_| SyncError::Unwanted)?;
                *count += std::mem::take(&mut pending) as u64;
            }
        }
        Ok(())
    }
}
