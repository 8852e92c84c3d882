use kukuri_event::{Event, EventId};

use crate::{Prefix, Reason, message};

use super::Signs;

/// Who the relay knows we are, on this connection (NIP-42).
pub(super) struct Auth {
    signs: Signs,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The relay has not asked.
    Unasked,
    Signing,
    Proving(EventId),
    Proved,
    Refused,
}

/// Who we were to the relay when something was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    No,
}

/// What a refusal is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Final,
    /// It was said to nobody in particular, and we have a name by now.
    SayAgain,
    /// We are about to have a name.
    Wait,
}

impl Auth {
    pub fn new(signs: Signs) -> Self {
        Self { signs, stage: Stage::Unasked }
    }

    pub fn known(&self) -> Known {
        if self.stage == Stage::Proved { Known::Yes } else { Known::No }
    }

    /// Whether a challenge is to be signed.
    #[must_use]
    pub fn challenged(&mut self) -> bool {
        if self.signs == Signs::No {
            return false;
        }
        self.stage = Stage::Signing;
        true
    }

    /// What is to be sent, if the signer made something of the challenge.
    pub fn signed(&mut self, proof: Option<String>) -> Option<String> {
        if self.stage != Stage::Signing {
            // The connection that asked is gone.
            return None;
        }
        match proof.map(|text| (Event::parse(&text), text)) {
            Some((Ok(event), text)) => {
                self.stage = Stage::Proving(event.id());
                Some(message::auth(&text))
            }
            Some((Err(_), _)) | None => {
                self.stage = Stage::Refused;
                None
            }
        }
    }

    /// Whether an OK was about our proof.
    #[must_use]
    pub fn answered(&mut self, id: EventId, accepted: bool) -> bool {
        let ours = self.stage == Stage::Proving(id);
        if ours {
            self.stage = if accepted { Stage::Proved } else { Stage::Refused };
        }
        ours
    }

    /// What a refusal of something sent as `sent` means now.
    pub fn judge(&self, reason: &Reason, sent: Known) -> Verdict {
        match (reason.prefix(), sent, self.signs, self.stage) {
            (Prefix::AuthRequired, Known::No, Signs::Yes, Stage::Proved) => Verdict::SayAgain,
            (Prefix::AuthRequired, Known::No, Signs::Yes, Stage::Refused) => Verdict::Final,
            (Prefix::AuthRequired, Known::No, Signs::Yes, _) => Verdict::Wait,
            _ => Verdict::Final,
        }
    }
}
