//! What a node tells its direct neighbours of itself: where its WebSocket relay is, so that they can ask it
//! for what they have missed. It is believed of peers that the operator has named, and of nobody else: who
//! joins a swarm could otherwise have us connect wherever they like.

use serde::{Deserialize, Serialize};

/// No event begins like this, and no envelope of the earlier client is as short.
const MARK: &[u8] = b"kukuri-hello\n";
const HELLO_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The address of the sender's relay.
    pub relay: String,
    /// The library takes the same bytes twice for one message.
    nonce: u64,
}

impl Hello {
    pub fn new(relay: String) -> Self {
        Self { relay, nonce: rand::random() }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        [MARK, &serde_json::to_vec(self).expect("a hello is plain data")].concat()
    }

    /// `None` if it is none, or one that nobody could use.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MARK).filter(|_| bytes.len() <= HELLO_BYTES_MAX)?;
        let hello: Self = serde_json::from_slice(rest).ok()?;
        let host = hello.relay.strip_prefix("ws://")?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '#' | '?');
        (!host.is_empty() && !host.starts_with('/') && host.chars().all(plain)).then_some(hello)
    }

    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_names_a_relay_and_nothing_else() {
        let hello = Hello::new("ws://127.0.0.1:7777".to_owned());
        assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        let long = "x".repeat(HELLO_BYTES_MAX);
        for relay in ["", "ws://", "ws:///", "wss://a", "http://a", "ws://u@a", "ws://a b", &long] {
            let bytes = Hello::new(relay.to_owned()).to_bytes();
            assert!(Hello::is_one(&bytes) && Hello::parse(&bytes).is_none(), "{relay}");
        }
        for bytes in [&b"{}"[..], b"kukuri-hello\n", b"kukuri-hello\n[]", b""] {
            assert_eq!(Hello::parse(bytes), None);
        }
    }
}
