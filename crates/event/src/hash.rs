use std::fmt;

/// Why a text is not one of the fixed-size hex values of Nostr.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} lowercase hex digits")]
pub struct HexError {
    pub expected: usize,
}

/// Lowercase only: upper-case hex would give one event two spellings, and only one of them was
/// hashed.
fn decode<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let (mut bytes, mut seen) = ([0; N], 0);
    // Several of these are read for every event: a table, and one look at the end for what is wrong.
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        *byte = high << 4 | low;
        seen |= high | low;
    }
    if pairs.len() != N || !rest.is_empty() || seen == NO_DIGIT {
        return Err(HexError { expected: 2 * N });
    }
    Ok(bytes)
}

const NO_DIGIT: u8 = 0xff;

/// What each byte stands for as a digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

macro_rules! fixed_bytes {
    ($(#[$doc:meta])* $name:ident, $size:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $size]);

        impl $name {
            pub const fn from_bytes(bytes: [u8; $size]) -> Self {
                Self(bytes)
            }

            /// The value in a column or a message; `None` when the length is wrong.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            pub fn parse(text: &str) -> Result<Self, HexError> {
                decode(text).map(Self)
            }

            pub const fn as_bytes(&self) -> &[u8; $size] {
                &self.0
            }

            pub fn to_hex(&self) -> String {
                hex::encode(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.to_hex())
            }
        }

        impl std::str::FromStr for $name {
            type Err = HexError;
            fn from_str(text: &str) -> Result<Self, HexError> {
                Self::parse(text)
            }
        }
    };
}

fixed_bytes!(
    /// The SHA-256 of an event's NIP-01 array: the key by which an event is known everywhere.
    EventId, 32
);
fixed_bytes!(
    /// An author: the x-only public key.
    Pubkey, 32
);
fixed_bytes!(
    /// A BIP-340 signature of the event id.
    Signature, 64
);

impl EventId {
    /// The first eight bytes as an integer that sorts as the bytes do. Indexes carry it in place of
    /// the whole id; equal prefixes are told apart by the whole id.
    pub fn prefix(&self) -> i64 {
        ordered_prefix(&self.0)
    }
}

impl Pubkey {
    /// As [`EventId::prefix`].
    pub fn prefix(&self) -> i64 {
        ordered_prefix(&self.0)
    }
}

fn ordered_prefix(bytes: &[u8; 32]) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    // Flipping the top bit maps the unsigned order of bytes to the signed order of SQL integers.
    (u64::from_be_bytes(first) ^ (1 << 63)) as i64
}
