//! The envelope in which the earlier client wraps events (bincode 2, `config::standard()`):
//! `id` 32 bytes · `type` · `payload` · `timestamp` · `sender` · `signature`. Only the payload is of use:
//! who wrote it is proved by the event's own signature, and everything else in the envelope by nothing.

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    NostrEvent,
    TopicSync,
    PeerExchange,
    Heartbeat,
}

/// A message of the earlier client, as far as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub subject: Subject,
    pub payload: &'a [u8],
}

/// Why bytes are no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("it ends too early")]
    Short,
    #[error("it is of no known type")]
    Subject,
    #[error("a number is not written as bincode writes it")]
    Number,
    #[error("something follows it")]
    Long,
}

const ID_BYTES: usize = 32;

impl<'a> Envelope<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Self, EnvelopeError> {
        let mut rest = Rest(bytes);
        rest.take(ID_BYTES)?;
        let subject = match rest.number()? {
            0 => Subject::NostrEvent,
            1 => Subject::TopicSync,
            2 => Subject::PeerExchange,
            3 => Subject::Heartbeat,
            _ => return Err(EnvelopeError::Subject),
        };
        let payload = rest.bytes()?;
        let _timestamp = rest.number()?;
        let _sender = rest.bytes()?;
        let _signature = rest.bytes()?;
        if rest.0.is_empty() { Ok(Self { subject, payload }) } else { Err(EnvelopeError::Long) }
    }
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], EnvelopeError> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(EnvelopeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number below 251 is one byte; the others follow a mark of their size, little end first.
    fn number(&mut self) -> Result<u64, EnvelopeError> {
        let (size, least) = match self.take(1)?[0] {
            small @ 0..=250 => return Ok(small.into()),
            251 => (2, 251),
            252 => (4, 1 << 16),
            253 => (8, 1 << 32),
            _ => return Err(EnvelopeError::Number),
        };
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(self.take(size)?);
        // Every number has one form.
        Some(u64::from_le_bytes(wide)).filter(|n| *n >= least).ok_or(EnvelopeError::Number)
    }

    fn bytes(&mut self) -> Result<&'a [u8], EnvelopeError> {
        let size = self.number()?;
        self.take(usize::try_from(size).map_err(|_| EnvelopeError::Short)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written by the layout, not by the decoder: the sizes stand here as bytes.
    #[test]
    fn golden_vectors() {
        let mut heartbeat = vec![7; 32];
        heartbeat.extend([3, 0, 0, 0, 0]);
        let mut event = vec![0xAA; 32];
        event.extend([0, 2]);
        event.extend(b"{}");
        // The time 1 700 000 000 000 is written as 3 400 000 000 000 (zig-zag).
        event.extend([253, 0x00, 0x40, 0x68, 0x9f, 0x17, 0x03, 0, 0]);
        event.extend([3, b'a', b'b', b'c', 0]);
        let mut long = vec![1; 32];
        long.extend([0, 251, 0x2c, 0x01]);
        long.extend([b'x'; 300]);
        long.extend([251, 0xff, 0x00, 0, 4, 1, 2, 3, 4]);
        let mut longest = vec![1; 32];
        longest.extend([0, 252, 0x00, 0x00, 0x01, 0x00]);
        longest.extend(vec![b'y'; 65_536]);
        longest.extend([252, 0, 0, 1, 0, 0, 0]);
        let vectors: [(&[u8], Subject, usize); 4] = [
            (&heartbeat, Subject::Heartbeat, 0),
            (&event, Subject::NostrEvent, 2),
            (&long, Subject::NostrEvent, 300),
            (&longest, Subject::NostrEvent, 65_536),
        ];
        for (bytes, subject, size) in vectors {
            let envelope = Envelope::decode(bytes).unwrap();
            assert_eq!((envelope.subject, envelope.payload.len()), (subject, size));
        }
    }

    /// As the earlier client does it; `u128` and its mark 254 appear nowhere.
    pub fn encode(subject: u8, payload: &[u8], timestamp: i64, sender: &[u8]) -> Vec<u8> {
        fn number(out: &mut Vec<u8>, n: u64) {
            match n {
                0..251 => out.push(n as u8),
                251..0x1_0000 => (out.push(251), out.extend((n as u16).to_le_bytes())).1,
                0x1_0000..0x1_0000_0000 => (out.push(252), out.extend((n as u32).to_le_bytes())).1,
                _ => (out.push(253), out.extend(n.to_le_bytes())).1,
            }
        }
        let mut out = vec![9; 32];
        out.push(subject);
        number(&mut out, payload.len() as u64);
        out.extend(payload);
        number(&mut out, ((timestamp << 1) ^ (timestamp >> 63)) as u64);
        number(&mut out, sender.len() as u64);
        out.extend(sender);
        number(&mut out, 0);
        out
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_and_any_part_of_it_is_not(
            subject in 0..4_u8,
            payload in proptest::collection::vec(any::<u8>(), 0..600),
            timestamp in any::<i64>(),
            sender in proptest::collection::vec(any::<u8>(), 0..300),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = encode(subject, &payload, timestamp, &sender);
            prop_assert_eq!(Envelope::decode(&bytes).map(|e| e.payload), Ok(&payload[..]));
            prop_assert_eq!(Envelope::decode(&bytes[..cut.index(bytes.len())]), Err(EnvelopeError::Short));
            let more = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Envelope::decode(&more), Err(EnvelopeError::Long));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(envelope) = Envelope::decode(&bytes) {
                prop_assert!(envelope.payload.len() < bytes.len());
            }
        }
    }
}
