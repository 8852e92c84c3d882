//! Where an answer goes on: after which score and document, as of which moment.

use std::fmt;

use kukuri_core::Seq;
use kukuri_event::UnixSeconds;

use crate::document::Number;
use crate::rank::Score;

const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 + 8 + 8 + 4 + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error("not a cursor of a search: pass on what the last page said, unchanged")]
    Bad,
    #[error("the cursor belongs to another question: start without one")]
    OtherQuestion,
}

/// The last result of a page. Further pages rank as of the same time, without what was added since, so
/// that pages neither overlap nor leave anything out unless what is ranked changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) digest: u64,
    pub(crate) now: UnixSeconds,
    pub(crate) seq_max: Seq,
    pub(crate) score: Score,
    pub(crate) number: Number,
}

impl Cursor {
    pub fn parse(text: &str) -> Result<Self, CursorError> {
        let mut bytes = [0; BYTES];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| CursorError::Bad)?;
        let mut rest = &bytes[..];
        let version = take::<1>(&mut rest);
        let cursor = Self {
            digest: u64::from_be_bytes(take(&mut rest)),
            now: UnixSeconds(i64::from_be_bytes(take(&mut rest))),
            seq_max: Seq(i64::from_be_bytes(take(&mut rest))),
            score: Score(u32::from_be_bytes(take(&mut rest))),
            number: Number(i64::from_be_bytes(take(&mut rest))),
        };
        if version == [VERSION] { Ok(cursor) } else { Err(CursorError::Bad) }
    }

    pub(crate) fn check(&self, digest: u64) -> Result<(), CursorError> {
        if self.digest == digest { Ok(()) } else { Err(CursorError::OtherQuestion) }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (first, more) = rest.split_first_chunk().expect("the fields add up to the whole");
    *rest = more;
    *first
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.digest.to_be_bytes());
        bytes.extend(self.now.0.to_be_bytes());
        bytes.extend(self.seq_max.0.to_be_bytes());
        bytes.extend(self.score.0.to_be_bytes());
        bytes.extend(self.number.0.to_be_bytes());
        f.write_str(&hex::encode(bytes))
    }
}
