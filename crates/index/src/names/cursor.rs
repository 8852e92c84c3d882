//! Where a list of names goes on: behind which one.

use std::fmt;

use kukuri_core::TopicId;

use super::KEY_BYTES_MAX;
use crate::cursor::CursorError;

const VERSION: u8 = 1;

/// The last topic of a page, by its place in the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameCursor {
    /// The same for all places that are compared.
    pub(super) digest: u64,
    pub(super) class: u8,
    pub(super) key: String,
    pub(super) topic_id: TopicId,
}

impl NameCursor {
    pub fn parse(text: &str) -> Result<Self, CursorError> {
        let bytes = hex::decode(text).map_err(|_| CursorError::Bad)?;
        Self::read(&bytes).ok_or(CursorError::Bad)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[version], rest) = bytes.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (&[class, key_bytes], rest) = rest.split_first_chunk()?;
        let (key, topic) = rest.split_at_checked(key_bytes.into())?;
        let key = std::str::from_utf8(key).ok().filter(|key| key.len() <= KEY_BYTES_MAX)?;
        let topic_id = TopicId::parse(std::str::from_utf8(topic).ok()?).ok()?;
        let cursor =
            Self { digest: u64::from_be_bytes(*digest), class, key: key.to_owned(), topic_id };
        (version == VERSION).then_some(cursor)
    }
}

impl fmt::Display for NameCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.digest.to_be_bytes());
        let key_bytes = u8::try_from(self.key.len()).expect("a key has 64 bytes at most");
        bytes.extend([self.class, key_bytes]);
        bytes.extend(self.key.as_bytes());
        bytes.extend(self.topic_id.as_str().as_bytes());
        f.write_str(&hex::encode(bytes))
    }
}
