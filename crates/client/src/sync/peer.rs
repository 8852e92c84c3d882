//! One connection to a relay that is reconciled with.

use std::time::Duration;

use kukuri_event::{EventId, Filter};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::{Dated, ReconcileError, Reconciler, SyncError};
use crate::message::{self, QuestionId, RelayMessage};
use crate::socket::{self, Connection, Frame};
use crate::{ConnectError, Prefix, Reason};

/// How long a relay may take.
#[derive(Clone, Copy, Debug)]
pub struct PeerConfig {
    pub connect_wait_max: Duration,
    /// For the answer to any question, whatever else it says meanwhile; and for the next event of an answer
    /// that has many.
    pub answer_wait_max: Duration,
}

impl PeerConfig {
    pub const STANDARD: Self = Self {
        connect_wait_max: Duration::from_secs(10),
        answer_wait_max: Duration::from_secs(30),
    };
}

/// How many bytes of messages went each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

impl Traffic {
    /// Both ways.
    pub fn bytes(&self) -> u64 {
        self.sent_bytes + self.received_bytes
    }
}

/// What a reconciliation came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// How many events the relay has not.
    pub have: usize,
    /// What the relay has and we have not.
    pub need: Vec<EventId>,
}

/// A relay, until the connection ends.
pub struct Peer {
    connection: Connection,
    config: PeerConfig,
    asked: u64,
    traffic: Traffic,
}

impl Peer {
    pub async fn connect(url: &str, config: PeerConfig) -> Result<Self, ConnectError> {
        let socket = socket::dial(url.to_owned(), config.connect_wait_max).await?;
        let connection = Connection::new(socket);
        Ok(Self { connection, config, asked: 0, traffic: Traffic::default() })
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Finds out how what the relay has differs from what we have. What is known by the time it breaks is in
    /// `differences` all the same.
    pub async fn reconcile(
        &mut self,
        filter: &Filter,
        own: Vec<Dated>,
        differences: &mut Differences,
    ) -> Result<(), SyncError> {
        let mut reconciler = aside(move || Reconciler::new(own)).await??;
        let question = self.next_question();
        self.say(message::neg_open(question, filter, reconciler.first()))?;
        let ended = loop {
            let answer = match self.answer(question).await {
                Ok(answer) => answer,
                Err(error) => break Err(error),
            };
            let (back, step) = aside(move || {
                let step = reconciler.answered(&answer);
                (reconciler, step)
            })
            .await?;
            reconciler = back;
            match step {
                Err(error) => break Err(error.into()),
                Ok(step) => {
                    differences.have += step.have.len();
                    differences.need.extend(step.need);
                    match step.next {
                        Some(next) => self.say(message::neg_msg(question, &next))?,
                        None => break Ok(()),
                    }
                }
            }
        };
        // A relay that has closed it by itself does not mind.
        self.say(message::neg_close(question))?;
        ended
    }

    /// The relay's next message of a reconciliation.
    async fn answer(&mut self, question: QuestionId) -> Result<Vec<u8>, SyncError> {
        let due_at = self.due_at();
        loop {
            let text = self.hear(due_at).await?;
            match RelayMessage::parse(&text) {
                Some(RelayMessage::NegMsg { question: of, answer }) if of == question => {
                    let unreadable = |_| ReconcileError::Unreadable("no hex".to_owned());
                    return Ok(hex::decode(answer).map_err(unreadable)?);
                }
                Some(RelayMessage::NegErr { question: of, reason }) if of == question => {
                    return Err(refused(reason));
                }
                // Relays that know nothing of it say so, or nothing.
                Some(RelayMessage::Notice { text }) => return Err(SyncError::Unsupported(text)),
                _ => {}
            }
        }
    }

    pub(super) fn next_question(&mut self) -> QuestionId {
        self.asked += 1;
        QuestionId(self.asked)
    }

    pub(super) fn say(&mut self, text: String) -> Result<(), SyncError> {
        self.traffic.sent_bytes += text.len() as u64;
        self.connection.send(Message::text(text)).map_err(|_| SyncError::Lost)
    }

    /// Listens while nothing is asked, so that the relay hears that somebody is there. Ends with the
    /// connection.
    pub async fn stay(&mut self) -> SyncError {
        loop {
            match self.connection.next().await {
                Frame::Text(text) => self.traffic.received_bytes += text.len() as u64,
                Frame::Other => {}
                Frame::End => return SyncError::Lost,
            }
        }
    }

    /// Until when an answer that is waited for from now on may take.
    pub(super) fn due_at(&self) -> Instant {
        Instant::now() + self.config.answer_wait_max
    }

    /// The next thing that the relay says, if it says it in time.
    pub(super) async fn hear(&mut self, due_at: Instant) -> Result<Utf8Bytes, SyncError> {
        let unanswered = SyncError::Unanswered(self.config.answer_wait_max);
        // A relay that never pauses would never be found late by the timer alone.
        if Instant::now() >= due_at {
            return Err(unanswered);
        }
        let heard = async {
            loop {
                match self.connection.next().await {
                    Frame::Text(text) => return Ok(text),
                    Frame::Other if Instant::now() >= due_at => return Err(None),
                    Frame::Other => {}
                    Frame::End => return Err(Some(SyncError::Lost)),
                }
            }
        };
        let text = match timeout_at(due_at, heard).await {
            Ok(Ok(text)) => text,
            Ok(Err(Some(error))) => return Err(error),
            Ok(Err(None)) | Err(_) => return Err(unanswered),
        };
        self.traffic.received_bytes += text.len() as u64;
        Ok(text)
    }
}

/// Works on a thread of its own: comparing half a million ids takes longer than others should wait.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SyncError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The program ends.
            Err(_) => Err(SyncError::Lost),
        },
    }
}

/// How relays say that they compare no more at once: the words of NIP-77, and those of the first relay that
/// spoke it.
const TOO_BIG: [&str; 2] = ["too big", "too many query results"];

pub(super) fn refused(reason: Reason) -> SyncError {
    let too_big = reason.prefix() == Prefix::Blocked
        && TOO_BIG.iter().any(|words| reason.text().contains(words));
    if too_big { SyncError::TooBig(reason) } else { SyncError::Refused(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_big_is_told_from_other_refusals() {
        for (said, is_too_big) in [
            ("blocked: this query is too big", true),
            ("blocked: too many query results", true),
            ("blocked: you are", false),
            ("error: too big", false),
            ("rate-limited: too many query results", false),
        ] {
            let told = refused(Reason(said.to_owned()));
            assert_eq!(matches!(told, SyncError::TooBig(_)), is_too_big, "{said}");
        }
    }
}
