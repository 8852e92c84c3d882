//! One connection to a relay that is reconciled with.

use std::time::Duration;

use kukuri_event::{EventId, Filter};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::{Dated, ReconcileError, Reconciler, Step, SyncError};
use crate::message::{self, QuestionId, RelayMessage};
use crate::socket::{self, Connection, Frame};
use crate::{ConnectError, Prefix, Reason};

/// How long a relay may take.
#[derive(Clone, Copy, Debug)]
pub struct PeerConfig {
    pub connect_wait_max: Duration,
    /// For the answer to any question.
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

    /// Finds out how what the relay has differs from what we have.
    pub async fn reconcile(
        &mut self,
        filter: &Filter,
        own: impl IntoIterator<Item = Dated>,
    ) -> Result<Differences, SyncError> {
        let mut reconciler = Reconciler::new(own)?;
        let question = self.next_question();
        self.say(message::neg_open(question, filter, reconciler.first()))?;
        let mut differences = Differences::default();
        let ended = loop {
            match self.step(question, &mut reconciler).await {
                Err(error) => break Err(error),
                Ok(step) => {
                    differences.have += step.have.len();
                    differences.need.extend(step.need);
                    match step.next {
                        Some(next) => self.say(message::neg_msg(question, &next))?,
                        None => break Ok(differences),
                    }
                }
            }
        };
        // A relay that has closed it by itself does not mind.
        self.say(message::neg_close(question))?;
        ended
    }

    async fn step(
        &mut self,
        question: QuestionId,
        reconciler: &mut Reconciler,
    ) -> Result<Step, SyncError> {
        loop {
            let text = self.hear().await?;
            match RelayMessage::parse(&text) {
                Some(RelayMessage::NegMsg { question: of, answer }) if of == question => {
                    let unreadable = || ReconcileError::Unreadable("no hex".to_owned());
                    let answer = hex::decode(answer).map_err(|_| unreadable())?;
                    return Ok(reconciler.answered(&answer)?);
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

    /// The next thing that the relay says.
    pub(super) async fn hear(&mut self) -> Result<Utf8Bytes, SyncError> {
        let wait_max = self.config.answer_wait_max;
        let heard = async {
            loop {
                match self.connection.next().await {
                    Frame::Text(text) => return Ok(text),
                    Frame::Other => {}
                    Frame::End => return Err(SyncError::Lost),
                }
            }
        };
        let text =
            timeout(wait_max, heard).await.map_err(|_| SyncError::Unanswered(wait_max))??;
        self.traffic.received_bytes += text.len() as u64;
        Ok(text)
    }
}

pub(super) fn refused(reason: Reason) -> SyncError {
    // The words of NIP-77.
    let too_big = reason.prefix() == Prefix::Blocked && reason.text().contains("too big");
    if too_big { SyncError::TooBig(reason) } else { SyncError::Refused(reason) }
}
