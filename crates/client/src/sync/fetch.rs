//! Fetching events by their ids, in bounded questions, a few of them at once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use kukuri_event::{Event, EventId, Filter};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::peer::refused;
use super::{Group, Peer, SyncError};
use crate::message::{self, QuestionId, RelayMessage};
use crate::{Prefix, Reason};

/// Ids of one question: with its topic, a filter that standard relays take.
pub const FETCH_IDS_MAX: usize = 450;
/// Questions that are open at once: one is answered while the next is on its way.
const QUESTIONS_MAX: usize = 3;
/// The pause after which a relay that wants it slower is asked again, and how often it is in a row.
const SLOWER_PAUSE: Duration = Duration::from_millis(500);
const SLOWER_TRIES_MAX: usize = 120;

/// What is to be fetched.
pub struct Fetch<'a> {
    /// Whose tags the events have besides: relays want topics named. Nothing else of it is said again, since
    /// ids say it better, and kinds would count among the values that a relay takes.
    pub filter: &'a Filter,
    pub ids: &'a [EventId],
    /// Ids of one question, at most [`FETCH_IDS_MAX`]: the fewer, the less is on its way when whoever
    /// takes the events is slow.
    pub question_ids: usize,
    /// Where the events go, as they came: nobody has looked at their signatures.
    pub into: mpsc::Sender<Vec<String>>,
    /// Counts those that have gone there, however it ends.
    pub came: &'a mut u64,
}

/// A question that is open.
struct Asked {
    ids: usize,
    missing: HashSet<EventId>,
    group: Group,
}

/// What something that a relay said was.
#[derive(PartialEq, Eq)]
enum Heard {
    /// Part of an answer: there are so many of these as there are ids and questions.
    Answer,
    Other,
}

struct Fetching<'a> {
    fetch: Fetch<'a>,
    waiting: VecDeque<Vec<EventId>>,
    open: BTreeMap<QuestionId, Asked>,
    /// How often it wanted it slower since it has last answered a question: as long as it goes on, it goes on.
    slower: usize,
}

impl Peer {
    /// Fetches events. Those that the relay does not have any more do not come.
    pub async fn fetch(&mut self, fetch: Fetch<'_>) -> Result<(), SyncError> {
        let size = fetch.question_ids.clamp(1, FETCH_IDS_MAX);
        let waiting = fetch.ids.chunks(size).map(<[_]>::to_vec).collect();
        let mut fetching = Fetching { fetch, waiting, open: BTreeMap::new(), slower: 0 };
        let ended = fetching.run(self).await;
        if !matches!(ended, Ok(()) | Err(SyncError::Unwanted)) {
            // What came before it broke is wanted as well.
            for asked in std::mem::take(&mut fetching.open).into_values() {
                fetching.hand_on(asked.group).await?;
            }
        }
        ended
    }

    fn ask(&mut self, filter: &Filter, ids: &[EventId]) -> Result<QuestionId, SyncError> {
        let question = self.next_question();
        // Without a limit, some relays have one of their own.
        let limit = Some(ids.len());
        let ids = Some(ids.iter().copied().collect());
        let filter = Filter { ids, limit, tags: filter.tags.clone(), ..Filter::default() };
        self.say(message::req(question, &[filter], None))?;
        Ok(question)
    }
}

impl Fetching<'_> {
    async fn run(&mut self, peer: &mut Peer) -> Result<(), SyncError> {
        let mut due_at = peer.due_at();
        loop {
            while self.open.len() < QUESTIONS_MAX
                && let Some(ids) = self.waiting.pop_front()
            {
                let question = peer.ask(self.fetch.filter, &ids)?;
                let (count, missing) = (ids.len(), ids.into_iter().collect());
                self.open.insert(question, Asked { ids: count, missing, group: Group::default() });
            }
            if self.open.is_empty() {
                return Ok(());
            }
            let text = peer.hear(due_at).await?;
            if self.heard(&text, peer).await? == Heard::Answer {
                // The time in which nobody has taken what came is not the relay's.
                due_at = peer.due_at();
            }
        }
    }

    async fn heard(&mut self, text: &str, peer: &mut Peer) -> Result<Heard, SyncError> {
        match RelayMessage::parse(text) {
            Some(RelayMessage::Event { question, event, .. }) => self.event(question, event).await,
            Some(RelayMessage::Eose { question, .. }) => {
                let Some(asked) = self.open.remove(&question) else { return Ok(Heard::Other) };
                peer.say(message::close(question))?;
                self.slower = 0;
                let brought_some = asked.missing.len() < asked.ids;
                if brought_some && !asked.missing.is_empty() {
                    // A relay that answers with fewer events than were asked for may have the rest.
                    self.waiting.push_back(asked.missing.into_iter().collect());
                }
                self.hand_on(asked.group).await?;
                Ok(Heard::Answer)
            }
            Some(RelayMessage::Closed { question, reason }) => {
                let Some(asked) = self.open.remove(&question) else { return Ok(Heard::Other) };
                self.hand_on(asked.group).await?;
                let again = again(asked.missing, reason, &mut self.slower).await?;
                self.waiting.extend(again);
                Ok(Heard::Answer)
            }
            _ => Ok(Heard::Other),
        }
    }

    /// What was not asked for is not looked at.
    async fn event(&mut self, question: QuestionId, text: &str) -> Result<Heard, SyncError> {
        let Some(asked) = self.open.get_mut(&question) else { return Ok(Heard::Other) };
        let id = Event::parse(text).map(|event| event.id());
        if !id.is_ok_and(|id| asked.missing.remove(&id)) {
            return Ok(Heard::Other);
        }
        asked.group.push(text.to_owned());
        if asked.group.is_full() {
            let full = std::mem::take(&mut asked.group);
            self.hand_on(full).await?;
        }
        Ok(Heard::Answer)
    }

    async fn hand_on(&mut self, group: Group) -> Result<(), SyncError> {
        if group.is_empty() {
            return Ok(());
        }
        let events = group.into_events();
        let count = events.len() as u64;
        self.fetch.into.send(events).await.map_err(|_| SyncError::Unwanted)?;
        *self.fetch.came += count;
        Ok(())
    }
}

/// The questions to ask in place of one that was refused: the same a little later, or smaller ones.
async fn again(
    missing: HashSet<EventId>,
    reason: Reason,
    slower: &mut usize,
) -> Result<Vec<Vec<EventId>>, SyncError> {
    let missing: Vec<EventId> = missing.into_iter().collect();
    match reason.prefix() {
        _ if reason.is_passing() && *slower < SLOWER_TRIES_MAX => {
            *slower += 1;
            sleep(SLOWER_PAUSE).await;
            Ok(vec![missing])
        }
        Prefix::Invalid if missing.len() > 1 => {
            let half = missing.len().div_ceil(2);
            Ok(missing.chunks(half).map(<[_]>::to_vec).collect())
        }
        _ => Err(refused(reason)),
    }
}
