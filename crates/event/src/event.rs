use std::sync::Arc;

use secp256k1::{SECP256K1, XOnlyPublicKey, schnorr};

use crate::{Body, EventId, Kind, ParseError, Pubkey, Signature, Tags, UnixSeconds, json};

/// A Nostr event of the right shape. Whether its id and signature hold is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub(crate) id: EventId,
    pub(crate) pubkey: Pubkey,
    pub(crate) created_at: UnixSeconds,
    pub(crate) kind: Kind,
    pub(crate) tags: Tags,
    pub(crate) content: String,
    pub(crate) sig: Signature,
}

/// The id in the event is not the hash of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("id does not match")]
pub struct IdMismatch;

/// The signature is not the author's signature of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad signature")]
pub struct BadSignature;

impl Event {
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        json::parse(text)
    }

    pub fn id(&self) -> EventId {
        self.id
    }

    pub fn pubkey(&self) -> Pubkey {
        self.pubkey
    }

    pub fn created_at(&self) -> UnixSeconds {
        self.created_at
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    pub fn content(&self) -> &str {
        &self.content
    }

    pub fn sig(&self) -> Signature {
        self.sig
    }

    /// The canonical JSON: what is stored and sent.
    pub fn to_json(&self) -> String {
        json::write(self)
    }

    /// Recomputes the id from the values that will be stored.
    pub fn identify(self) -> Result<Identified, IdMismatch> {
        if json::hash(&self) == self.id { Ok(Identified(self)) } else { Err(IdMismatch) }
    }
}

/// An event whose id is the hash of its values.
#[derive(Clone, Debug)]
pub struct Identified(Event);

impl Identified {
    pub fn event(&self) -> &Event {
        &self.0
    }

    /// Checks the BIP-340 signature and fixes the bytes that will be stored.
    pub fn verify(self) -> Result<Verified, BadSignature> {
        let author =
            XOnlyPublicKey::from_slice(self.0.pubkey.as_bytes()).map_err(|_| BadSignature)?;
        let sig =
            schnorr::Signature::from_slice(self.0.sig.as_bytes()).map_err(|_| BadSignature)?;
        SECP256K1.verify_schnorr(&sig, self.0.id.as_bytes(), &author).map_err(|_| BadSignature)?;
        Ok(Verified(Arc::new(Body::new(self.0))))
    }

    /// Like `verify`, but for nothing if `seen` is the same event, whose signature was checked when it
    /// came: the id stands for everything but the signature.
    pub fn verify_unless(self, seen: Option<Arc<Body>>) -> Result<Verified, BadSignature> {
        let same = |seen: &Arc<Body>| {
            let seen = seen.event();
            seen.id == self.0.id && seen.sig == self.0.sig
        };
        match seen.filter(same) {
            Some(seen) => Ok(Verified(seen)),
            None => self.verify(),
        }
    }
}

/// An event whose id and signature hold, with its canonical JSON.
#[derive(Clone, Debug)]
pub struct Verified(Arc<Body>);

impl Verified {
    pub fn event(&self) -> &Event {
        self.0.event()
    }

    pub fn into_body(self) -> Arc<Body> {
        self.0
    }
}
