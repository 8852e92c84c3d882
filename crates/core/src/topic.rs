//! Topics: the names people use, the ids everything else uses, and the mappings between them.

use std::fmt;
use std::sync::Arc;

use kukuri_event::Pubkey;
use unicode_normalization::UnicodeNormalization;

use crate::{IngestPolicy, UnixMillis};

const PREFIX: &str = "kukuri:";
const USER_PREFIX: &str = "user:";
const GLOBAL: &str = "kukuri:global";

/// Why a text names no topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    #[error("a topic name must not be empty")]
    Empty,
    #[error(
        "{0:?} is not a topic id: expected kukuri:<64 lowercase hex>, kukuri:global or kukuri:user:<64 lowercase hex>"
    )]
    NotCanonical(String),
    #[error("{0:?} is not a network id: expected kukuri:<name>: such as kukuri:main:")]
    BadNetwork(String),
}

/// A canonical topic id: `kukuri:<64 hex>`, `kukuri:global` or `kukuri:user:<64 hex pubkey>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(Arc<str>);

impl TopicId {
    pub fn global() -> Self {
        Self(GLOBAL.into())
    }

    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let canonical = text.strip_prefix(PREFIX).is_some_and(|rest| {
            rest == "global"
                || Pubkey::parse(rest.strip_prefix(USER_PREFIX).unwrap_or(rest)).is_ok()
        });
        if canonical {
            Ok(Self(text.into()))
        } else {
            Err(TopicError::NotCanonical(text.to_owned()))
        }
    }

    /// The id of the topic that people call `name`. A name that is an id already stays as it is.
    pub fn from_name(
        name: &str,
        network: &NetworkId,
        mapping: Mapping,
    ) -> Result<Self, TopicError> {
        let name = name.trim();
        if name.is_empty() {
            return Err(TopicError::Empty);
        }
        if name.starts_with(PREFIX) {
            return Self::parse(name);
        }
        let normal = match mapping {
            Mapping::V1 => name.to_lowercase(),
            Mapping::V2 => name.nfkc().collect::<String>().trim().to_lowercase(),
        };
        let hash = blake3::hash(format!("{}{normal}", network.0).as_bytes());
        Ok(Self(format!("{PREFIX}{}", hash.to_hex()).into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TopicId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for TopicId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({})", self.0)
    }
}

/// Keeps the topics of different networks apart: it is hashed with every name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkId(String);

impl NetworkId {
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let name = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(':'));
        let valid = name.is_some_and(|name| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(TopicError::BadNetwork(text.to_owned())) }
    }
}

impl Default for NetworkId {
    fn default() -> Self {
        Self("kukuri:main:".to_owned())
    }
}

/// How a name becomes an id. V2 folds compatibility forms first, so that full-width and half-width
/// spellings name one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    V1,
    V2,
}

/// The 32 bytes under which the topic's swarm meets.
pub fn gossip_topic(topic: &TopicId) -> [u8; 32] {
    let hashed = topic.0.strip_prefix(PREFIX).and_then(|rest| Pubkey::parse(rest).ok());
    match hashed {
        Some(bytes) => *bytes.as_bytes(),
        None => *blake3::hash(topic.0.as_bytes()).as_bytes(),
    }
}

/// A node-level subscription: a topic this node carries or has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTopic {
    pub topic_id: TopicId,
    /// The name for people; empty when only the id is known.
    pub name: String,
    /// Whether the node takes in and serves the topic now.
    pub enabled: bool,
    /// Whether the operator wants it, subscribers or not.
    pub pinned: bool,
    /// How many active subscribers want it.
    pub wanted: u32,
    pub ingest_policy: IngestPolicy,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str, mapping: Mapping) -> TopicId {
        TopicId::from_name(name, &NetworkId::default(), mapping).unwrap()
    }

    #[test]
    fn the_published_vectors_of_gossip_topics_hold() {
        let user = format!("kukuri:user:{}", "a".repeat(64));
        let hashed = format!("kukuri:{}", "0f".repeat(32));
        let vectors = [
            ("kukuri:global", "6040b66666984ed2b45873182432d1c1378f8430cfc1ecb718f61468b6c60b1b"),
            (&user, "e73d412064093f289d78c27d9f34cfcd642c08fc3fa664085fe97be0cb9d14fc"),
            (&hashed, &"0f".repeat(32)),
        ];
        for (id, expected) in vectors {
            assert_eq!(hex::encode(gossip_topic(&TopicId::parse(id).unwrap())), expected, "{id}");
        }
    }

    #[test]
    fn a_name_is_trimmed_lowercased_and_hashed_with_its_network() {
        let expected = blake3::hash("kukuri:main:bitcoin".as_bytes()).to_hex();
        assert_eq!(name("  BitCoin ", Mapping::V1).as_str(), format!("kukuri:{expected}"));
        let dev = NetworkId::parse("kukuri:dev:").unwrap();
        let other = TopicId::from_name("bitcoin", &dev, Mapping::V1).unwrap();
        assert_ne!(other, name("bitcoin", Mapping::V1));
    }

    #[test]
    fn an_id_is_never_hashed_again() {
        for id in [
            GLOBAL.to_owned(),
            format!("kukuri:{}", "0a".repeat(32)),
            format!("kukuri:user:{}", "0a".repeat(32)),
        ] {
            assert_eq!(name(&id, Mapping::V1).as_str(), id);
            assert_eq!(name(&id, Mapping::V2).as_str(), id);
        }
    }

    #[test]
    fn only_v2_folds_full_width_and_half_width_forms() {
        let (half, full) = ("ﾋﾞｯﾄｺｲﾝ", "ビットコイン");
        assert_ne!(name(half, Mapping::V1), name(full, Mapping::V1));
        assert_eq!(name(half, Mapping::V2), name(full, Mapping::V2));
        assert_eq!(name("ＡＢＣ", Mapping::V2), name("abc", Mapping::V2));
        assert_eq!(name(full, Mapping::V1), name(full, Mapping::V2));
    }

    #[test]
    fn anything_else_is_refused() {
        let upper = format!("kukuri:{}", "0A".repeat(32));
        let short = format!("kukuri:{}", "0a".repeat(31));
        for bad in
            ["", "global", "kukuri:", "kukuri:Global", "kukuri:user:", "kukuri:foo", &upper, &short]
        {
            assert!(TopicId::parse(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "  ", "\u{3000}"] {
            assert_eq!(
                TopicId::from_name(bad, &NetworkId::default(), Mapping::V1),
                Err(TopicError::Empty)
            );
        }
        assert!(TopicId::from_name("kukuri:foo", &NetworkId::default(), Mapping::V2).is_err());
        for bad in ["", "main", "kukuri:", "kukuri::", "kukuri:Main:", "kukuri:a b:"] {
            assert!(NetworkId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
