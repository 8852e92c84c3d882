//! Fetching events by their ids, in bounded questions, a few of them at once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use kukuri_event::{Event, EventId, Filter};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::peer::refused;
use super::{Peer, SyncError};
use crate::message::{self, QuestionId, RelayMessage};
use crate::{Prefix, Reason};

/// Ids of one question: with its topic, a filter that standard relays take.
pub const FETCH_IDS_MAX: usize = 450;
/// Questions that are open at once: one is answered while the next is on its way.
const QUESTIONS_MAX: usize = 3;
/// Events that are handed on together.
const GROUP_EVENTS_MAX: usize = 256;
/// The pause after which a relay that wants it slower is asked again, and how often it is.
const SLOWER_PAUSE: Duration = Duration::from_millis(500);
const SLOWER_TRIES_MAX: usize = 120;

/// What is to be fetched.
pub struct Fetch<'a> {
    /// What the events match besides: relays want topics named.
    pub filter: &'a Filter,
    pub ids: &'a [EventId],
    /// Ids of one question, at most [`FETCH_IDS_MAX`]: the fewer, the less is on its way when whoever
    /// takes the events is slow.
    pub question_ids: usize,
    /// Where the events go, as they came: nobody has looked at their signatures.
    pub into: mpsc::Sender<Vec<String>>,
}

/// A question that is open.
struct Asked {
    missing: HashSet<EventId>,
    group: Vec<String>,
}

impl Peer {
    /// Fetches events. Those that the relay does not have any more do not come; says how many came.
    pub async fn fetch(&mut self, fetch: Fetch<'_>) -> Result<usize, SyncError> {
        let size = fetch.question_ids.clamp(1, FETCH_IDS_MAX);
        let mut waiting: VecDeque<Vec<EventId>> =
            fetch.ids.chunks(size).map(<[_]>::to_vec).collect();
        let mut open: BTreeMap<QuestionId, Asked> = BTreeMap::new();
        let (mut came, mut slower) = (0, 0);
        loop {
            while open.len() < QUESTIONS_MAX
                && let Some(ids) = waiting.pop_front()
            {
                let question = self.ask(fetch.filter, &ids)?;
                open.insert(
                    question,
                    Asked { missing: ids.into_iter().collect(), group: Vec::new() },
                );
            }
            if open.is_empty() {
                return Ok(came);
            }
            let text = self.hear().await?;
            match RelayMessage::parse(&text) {
                Some(RelayMessage::Event { question, event, .. }) => {
                    let Some(asked) = open.get_mut(&question) else { continue };
                    // What was not asked for is not looked at.
                    let id = Event::parse(event).map(|event| event.id());
                    if id.is_ok_and(|id| asked.missing.remove(&id)) {
                        asked.group.push(event.to_owned());
                        came += 1;
                    }
                    if asked.group.len() >= GROUP_EVENTS_MAX {
                        hand_on(&fetch.into, std::mem::take(&mut asked.group)).await?;
                    }
                }
                Some(RelayMessage::Eose { question, .. }) => {
                    let Some(asked) = open.remove(&question) else { continue };
                    self.say(message::close(question))?;
                    hand_on(&fetch.into, asked.group).await?;
                }
                Some(RelayMessage::Closed { question, reason }) => {
                    let Some(asked) = open.remove(&question) else { continue };
                    hand_on(&fetch.into, asked.group).await?;
                    waiting.extend(again(asked.missing, reason, &mut slower).await?);
                }
                _ => {}
            }
        }
    }

    fn ask(&mut self, filter: &Filter, ids: &[EventId]) -> Result<QuestionId, SyncError> {
        let question = self.next_question();
        let ids = Some(ids.iter().copied().collect());
        let filter = Filter { ids, limit: None, since: None, until: None, ..filter.clone() };
        self.say(message::req(question, &[filter], None))?;
        Ok(question)
    }
}

async fn hand_on(into: &mpsc::Sender<Vec<String>>, group: Vec<String>) -> Result<(), SyncError> {
    if group.is_empty() {
        return Ok(());
    }
    into.send(group).await.map_err(|_| SyncError::Unwanted)
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
