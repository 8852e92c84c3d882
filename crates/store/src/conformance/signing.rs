//! Signed events made to order. The text is built here from the words of NIP-01 and not by the
//! `event` crate, so that a mistake there shows.

use kukuri_core::admission::{Age, Checked, Door, Rate, Topicless, Verdict, screen};
use kukuri_core::{Admitted, Limits, Rejection, Source, UnixMillis};
use kukuri_event::{EventId, Kind, Pubkey, UnixSeconds};
use secp256k1::{Keypair, SECP256K1, SecretKey};
use sha2::{Digest, Sha256};

/// Someone who signs events. The same number is always the same key.
#[derive(Clone, Debug)]
pub struct Author {
    keypair: Keypair,
    pubkey: Pubkey,
}

impl Author {
    pub fn numbered(number: u32) -> Self {
        let secret = Sha256::digest(format!("kukuri test author {number}"));
        let secret = SecretKey::from_slice(&secret).expect("a hash is a valid key");
        let keypair = Keypair::from_secret_key(SECP256K1, &secret);
        let pubkey = Pubkey::from_bytes(keypair.x_only_public_key().0.serialize());
        Self { keypair, pubkey }
    }

    pub fn pubkey(&self) -> Pubkey {
        self.pubkey
    }

    /// The event's JSON, its fields in alphabetical order as other relays export them. The same draft
    /// always gives the same text.
    pub fn sign(&self, draft: &Draft) -> String {
        let tags = serde_json::to_string(&draft.tags).expect("strings are JSON");
        let content = serde_json::to_string(&draft.content).expect("strings are JSON");
        let (created_at, kind, pubkey) = (draft.created_at, draft.kind, self.pubkey);
        let array = format!(r#"[0,"{pubkey}",{created_at},{kind},{tags},{content}]"#);
        let hash: [u8; 32] = Sha256::digest(array.as_bytes()).into();
        let sig = SECP256K1.sign_schnorr_no_aux_rand(&hash, &self.keypair);
        let id = EventId::from_bytes(hash);
        format!(
            r#"{{"content":{content},"created_at":{created_at},"id":"{id}","kind":{kind},"pubkey":"{pubkey}","sig":"{sig}","tags":{tags}}}"#
        )
    }

    /// The event's values, signed and admitted by a door that handles every topic.
    pub fn admit(&self, draft: &Draft, now: UnixSeconds) -> Admitted {
        admit(&self.sign(draft), now).unwrap_or_else(|no| panic!("{draft:?}: {no}"))
    }
}

/// What an event says before it is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub kind: Kind,
    pub created_at: UnixSeconds,
    pub tags: Vec<Vec<String>>,
    pub content: String,
}

impl Draft {
    pub fn new(kind: u16, created_at: UnixSeconds) -> Self {
        Self { kind: Kind(kind), created_at, tags: Vec::new(), content: String::new() }
    }

    #[must_use]
    pub fn tag(mut self, name: &str, value: impl ToString) -> Self {
        self.tags.push(vec![name.to_owned(), value.to_string()]);
        self
    }

    #[must_use]
    pub fn content(mut self, content: impl Into<String>) -> Self {
        self.content = content.into();
        self
    }
}

/// A text's way through the checks that every event passes, as far as its signature. The door
/// handles every topic: which topics are handled is for the lane to know.
pub fn check(text: &str, now: UnixSeconds) -> Result<Checked, Rejection> {
    check_by(text, now, Age::Bounded)
}

/// The same through a door that may take events of any age.
pub fn check_by(text: &str, now: UnixSeconds, age: Age) -> Result<Checked, Rejection> {
    let door = Door {
        limits: &Limits::STANDARD,
        topicless: Topicless::Reject,
        age,
        now: UnixMillis::from(now),
        handles: &|_| true,
    };
    screen(text, Rate::Within, &door)?.verify()
}

/// The whole way, as a client's event.
pub fn admit(text: &str, now: UnixSeconds) -> Result<Admitted, Rejection> {
    check(text, now)?.admit(Verdict::Admit, Source::Ws, None)
}

/// The same event, come through another door.
pub fn admit_from(admitted: &Admitted, source: Source) -> Admitted {
    let now = admitted.event().created_at().saturating_add(1);
    let checked = check(admitted.body().json(), now).expect("it was admitted before");
    checked.admit(Verdict::Admit, source, None).expect("the verdict is to admit")
}
