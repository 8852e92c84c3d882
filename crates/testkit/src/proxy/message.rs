//! As much of PostgreSQL's wire protocol as is needed to tell messages apart.

use std::io::{self, Read};

/// No message of a test comes near this size; a larger length means that the stream is not
/// PostgreSQL's.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

const ENCRYPTION_BY_TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();
const ENCRYPTION_BY_GSSAPI: [u8; 4] = 80_877_104_u32.to_be_bytes();

/// What a client sends before it speaks in messages; it has a length but no type.
#[derive(Debug)]
pub(super) enum Opening {
    /// A question that the server answers with one letter; another opening follows.
    Encryption(Vec<u8>),
    Session(Vec<u8>),
}

impl Opening {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Opening::Encryption(bytes) | Opening::Session(bytes) => bytes,
        }
    }
}

/// A type letter, a length and a body.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a client's message is the simple query COMMIT.
    pub(super) fn commits(&self) -> bool {
        self.says(b"COMMIT")
    }

    pub(super) fn rolls_back(&self) -> bool {
        self.says(b"ROLLBACK")
    }

    fn says(&self, word: &[u8]) -> bool {
        let text = self.simple_query().unwrap_or_default();
        let statement = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
        statement.eq_ignore_ascii_case(word)
    }

    /// The name of the statement that a client's message prepares, and whether it writes.
    pub(super) fn prepared(&self) -> Option<(&[u8], bool)> {
        let (name, rest) = self.words(b'P')?;
        let statement = rest.to_ascii_uppercase();
        let has = |words: &[u8]| statement.windows(words.len()).any(|part| part == words);
        Some((name, has(b"INSERT INTO ") || has(b"UPDATE ") || has(b"DELETE FROM ")))
    }

    /// The name of the prepared statement that a client's message binds values to.
    pub(super) fn bound(&self) -> Option<&[u8]> {
        let (_portal, rest) = self.words(b'B')?;
        rest.split(|byte| *byte == 0).next()
    }

    pub(super) fn syncs(&self) -> bool {
        self.bytes[0] == b'S'
    }

    /// The first word of a message of this type, and what follows it.
    fn words(&self, kind: u8) -> Option<(&[u8], &[u8])> {
        let body = (self.bytes[0] == kind).then(|| &self.bytes[5..])?;
        let end = body.iter().position(|byte| *byte == 0)?;
        Some((&body[..end], &body[end + 1..]))
    }

    /// Whether the transaction that a client's message begins only reads; `None` when it begins
    /// none.
    pub(super) fn begins_to_read(&self) -> Option<bool> {
        let statement = self.simple_query()?.to_ascii_uppercase();
        statement.starts_with(b"BEGIN").then(|| statement.ends_with(b"READ ONLY"))
    }

    fn simple_query(&self) -> Option<&[u8]> {
        let text = self.bytes[5..].strip_suffix(&[0])?;
        (self.bytes[0] == b'Q').then(|| text.trim_ascii())
    }

    /// Whether the server ends its answer to this client's message with ReadyForQuery: a simple
    /// query, a Sync or a function call.
    pub(super) fn asks_for_an_answer(&self) -> bool {
        matches!(self.bytes[0], b'Q' | b'S' | b'F')
    }

    /// Whether this server's message is ReadyForQuery.
    pub(super) fn ends_an_answer(&self) -> bool {
        self.bytes[0] == b'Z'
    }
}

pub(super) fn read_opening(stream: &mut impl Read) -> io::Result<Opening> {
    let bytes = read_with_length(stream, Vec::new())?;
    let encryption = bytes
        .get(4..8)
        .is_some_and(|code| code == ENCRYPTION_BY_TLS || code == ENCRYPTION_BY_GSSAPI);
    Ok(if encryption { Opening::Encryption(bytes) } else { Opening::Session(bytes) })
}

/// The server's letter; it must decline, because the proxy cannot read what is encrypted.
pub(super) fn read_answer_to_encryption(stream: &mut impl Read) -> io::Result<[u8; 1]> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer == *b"N" { Ok(answer) } else { Err(io::Error::other("the server would encrypt")) }
}

pub(super) fn read_message(stream: &mut impl Read) -> io::Result<Message> {
    let mut kind = vec![0];
    stream.read_exact(&mut kind)?;
    Ok(Message { bytes: read_with_length(stream, kind)? })
}

/// Reads a length, which counts itself, and as many bytes; returns all of them after `before`.
fn read_with_length(stream: &mut impl Read, before: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let size = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
    if !(length.len()..=MESSAGE_BYTES_MAX).contains(&size) {
        return Err(io::Error::other(format!("a message of {size} bytes")));
    }
    let mut bytes = before;
    bytes.extend(length);
    let start = bytes.len();
    bytes.resize(start + size - length.len(), 0);
    stream.read_exact(&mut bytes[start..])?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn message(kind: u8, body: &[u8]) -> Message {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        let bytes = [&[kind][..], &length, body].concat();
        let read = read_message(&mut bytes.as_slice()).unwrap();
        assert_eq!(read.bytes(), bytes);
        read
    }

    #[test]
    fn commit_is_a_simple_query_and_nothing_else() {
        assert!(message(b'Q', b"COMMIT\0").commits());
        assert!(message(b'Q', b" commit ; \0").commits());
        assert!(!message(b'Q', b"COMMIT PREPARED 'x'\0").commits());
        assert!(!message(b'Q', b"SELECT 'COMMIT'\0").commits());
        assert!(!message(b'P', b"COMMIT\0").commits());
        assert!(!message(b'X', b"").commits());
    }

    #[test]
    fn a_transaction_that_only_reads_says_so_at_its_beginning() {
        assert_eq!(message(b'Q', b"BEGIN\0").begins_to_read(), Some(false));
        assert_eq!(message(b'Q', b"begin read only\0").begins_to_read(), Some(true));
        assert_eq!(message(b'Q', b"SELECT 'BEGIN READ ONLY'\0").begins_to_read(), None);
        assert_eq!(message(b'P', b"BEGIN READ ONLY\0").begins_to_read(), None);
        assert_eq!(message(b'X', b"").begins_to_read(), None);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        assert!(read_message(&mut &b"Q\0\0\0\x03"[..]).is_err());
        assert!(read_message(&mut &b"Q\xff\xff\xff\xff"[..]).is_err());
    }

    #[test]
    fn openings_are_told_apart() {
        let encryption = [8_u32.to_be_bytes(), ENCRYPTION_BY_TLS].concat();
        assert!(matches!(read_opening(&mut encryption.as_slice()), Ok(Opening::Encryption(_))));
        let session = [8_u32.to_be_bytes(), 196_608_u32.to_be_bytes()].concat();
        assert!(matches!(read_opening(&mut session.as_slice()), Ok(Opening::Session(_))));
    }
}
