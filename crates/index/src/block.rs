//! Postings as they are kept: sorted, close together, in blocks small enough for a row of a page.
//!
//! A block begins with a number, in eight bytes, that none of its documents is below. Then come lists: how
//! far their key is from the one before (the first is that of the block), how many documents there are,
//! and each document's distance from the one before it, all in as few bytes of seven bits as it takes.

use kukuri_feed::DeskError;

use crate::document::{Number, SAME_SECOND_BITS};
use crate::search::TopicKey;
use crate::text::Term;

/// PostgreSQL keeps rows up to this size as they are, four in a page; SQLite two.
const BLOCK_BYTES_MAX: usize = 1900;
/// The most that a distance or a count takes.
const VARINT_BYTES_MAX: usize = 10;
const BASE_BYTES: usize = 8;
/// What the numbers of a list may take to be in one block.
const LIST_BYTES_MAX: usize = BLOCK_BYTES_MAX - BASE_BYTES - 2 * VARINT_BYTES_MAX;

const TERM_BITS: u32 = 40;
const TOPIC_BITS: u32 = 20;
/// Documents of about an hour share a list of those that are in a segment.
const PRESENCE_SECONDS_BITS: u32 = 12;

/// A term in a topic. Those of a term lie side by side, whatever the topic, and those of one topic are
/// read without the others. The rare topic that shares its bits is told apart by its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PostingKey(pub i64);

impl PostingKey {
    pub(crate) const MIN: Self = Self(i64::MIN);
    pub(crate) const MAX: Self = Self(i64::MAX);
    /// How many keys a term has.
    pub(crate) const TOPICS: i64 = 1 << TOPIC_BITS;

    pub(crate) fn new(topic: TopicKey, term: Term) -> Self {
        Self::first(term).within(topic)
    }

    /// The first of a term.
    pub(crate) fn first(term: Term) -> Self {
        Self((term.0 >> (u64::BITS - TERM_BITS) << TOPIC_BITS) as i64)
    }

    /// That of the same term in a topic, from the first one.
    pub(crate) fn within(self, topic: TopicKey) -> Self {
        Self(self.0 | Self::topic(topic).0)
    }

    /// What each document is listed under that is in a segment at all, whatever its terms, by its time.
    /// These come before all terms.
    pub(crate) fn presence(number: Number) -> Self {
        Self(i64::MIN | number.0 >> (SAME_SECOND_BITS + PRESENCE_SECONDS_BITS))
    }

    pub(crate) fn is_presence(self) -> bool {
        self.0 < 0
    }

    /// The part of a topic that is in keys.
    pub(crate) fn topic(topic: TopicKey) -> TopicKey {
        TopicKey(topic.0 & (Self::TOPICS - 1))
    }

    /// The first of the same term, and the topic.
    pub(crate) fn parts(self) -> (Self, TopicKey) {
        let topic = Self::topic(TopicKey(self.0));
        (Self(self.0 - topic.0), topic)
    }
}

/// That a document has a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Posting {
    pub key: PostingKey,
    pub number: Number,
}

/// The postings from a key on, up to where the next block begins. What has more documents than fit has
/// blocks of its own, its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub key: PostingKey,
    pub part: i64,
    pub bytes: Vec<u8>,
}

/// Cuts sorted postings, each there once, into blocks.
pub(crate) fn cut(postings: &[Posting]) -> Vec<Block> {
    let base = postings.iter().map(|posting| posting.number).min().unwrap_or(Number(0));
    let mut cutter = Cutter { base, blocks: Vec::new(), open: None, list: Vec::new() };
    for list in postings.chunk_by(|one, other| one.key == other.key) {
        cutter.take(list);
    }
    cutter.close();
    cutter.blocks
}

struct Cutter {
    base: Number,
    blocks: Vec<Block>,
    /// The block with room for more, and the last key in it.
    open: Option<(Block, PostingKey)>,
    /// The numbers of the list at hand.
    list: Vec<u8>,
}

impl Cutter {
    fn take(&mut self, postings: &[Posting]) {
        let key = postings[0].key;
        let (mut before, mut count, mut part) = (self.base, 0, 0);
        for posting in postings {
            if self.list.len() + VARINT_BYTES_MAX > LIST_BYTES_MAX {
                self.close();
                self.add(key, part, count);
                self.close();
                (before, count, part) = (self.base, 0, part + 1);
            }
            put(&mut self.list, posting.number.0.abs_diff(before.0));
            (before, count) = (posting.number, count + 1);
        }
        if part > 0 {
            self.close();
        }
        self.add(key, part, count);
        if part > 0 {
            self.close();
        }
    }

    /// Adds the list at hand to the block with room for it.
    fn add(&mut self, key: PostingKey, part: i64, count: u64) {
        let needed = self.list.len() + 2 * VARINT_BYTES_MAX;
        if self.open.as_ref().is_some_and(|(one, _)| one.bytes.len() + needed > BLOCK_BYTES_MAX) {
            self.close();
        }
        let base = self.base;
        let (block, last) = self.open.get_or_insert_with(|| {
            (Block { key, part, bytes: base.0.to_be_bytes().to_vec() }, key)
        });
        put(&mut block.bytes, key.0.abs_diff(last.0));
        put(&mut block.bytes, count);
        block.bytes.append(&mut self.list);
        *last = key;
    }

    fn close(&mut self) {
        self.blocks.extend(self.open.take().map(|(block, _)| block));
    }
}

/// Reads a block up to a key: the documents of those for which `wanted` has something, which comes with
/// each.
pub(crate) fn read<T: Copy>(
    block: (PostingKey, &[u8]),
    last: PostingKey,
    wanted: impl Fn(PostingKey) -> Option<T>,
    mut found: impl FnMut(T, Number),
) -> Result<(), DeskError> {
    let (mut key, bytes) = block;
    let (base, mut rest) = bytes.split_first_chunk::<BASE_BYTES>().ok_or_else(broken)?;
    while !rest.is_empty() {
        key.0 = key.0.checked_add_unsigned(take(&mut rest)?).ok_or_else(broken)?;
        if key > last {
            break;
        }
        let count = take(&mut rest)?;
        let Some(wanted) = wanted(key) else {
            skip(&mut rest, count)?;
            continue;
        };
        let mut number = i64::from_be_bytes(*base);
        for _ in 0..count {
            number = number.checked_add_unsigned(take(&mut rest)?).ok_or_else(broken)?;
            found(wanted, Number(number));
        }
    }
    Ok(())
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &mut &[u8]) -> Result<u64, DeskError> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(broken)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(broken())
}

fn skip(bytes: &mut &[u8], count: u64) -> Result<(), DeskError> {
    let mut left = count;
    for (place, byte) in bytes.iter().enumerate() {
        if left == 0 {
            *bytes = &bytes[place..];
            return Ok(());
        }
        left -= u64::from(byte & 0x80 == 0);
    }
    *bytes = &[];
    if left == 0 { Ok(()) } else { Err(broken()) }
}

fn broken() -> DeskError {
    DeskError::Broken("a block of postings cannot be read".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(blocks: &[Block]) -> Result<Vec<Posting>, DeskError> {
        let mut postings = Vec::new();
        for block in blocks {
            read((block.key, &block.bytes), PostingKey::MAX, Some, |key, number| {
                postings.push(Posting { key, number });
            })?;
        }
        Ok(postings)
    }

    proptest! {
        #[test]
        fn what_is_cut_is_read_again(
            lists in prop::collection::btree_map(
                prop_oneof![0_i64..1 << 60, i64::MIN..i64::MIN + (1 << 22)],
                prop_oneof![
                    prop::collection::btree_set(0..i64::MAX, 1..4),
                    prop::collection::btree_set(0..i64::MAX, 1..900),
                ],
                0..40,
            ),
        ) {
            let mut postings = Vec::new();
            for (key, numbers) in &lists {
                let posting = |number: &i64| {
                    Posting { key: PostingKey(*key), number: Number(*number) }
                };
                postings.extend(numbers.iter().map(posting));
            }
            let blocks = cut(&postings);
            prop_assert!(blocks.iter().all(|block| block.bytes.len() <= BLOCK_BYTES_MAX));
            // Who looks for a key reads the last blocks that begin at it or before, and no others.
            for (key, numbers) in &lists {
                let first = blocks.iter().map(|block| block.key.0).filter(|first| first <= key).max();
                let mut found = Vec::new();
                for block in blocks.iter().filter(|block| Some(block.key.0) == first) {
                    let wanted = |one: PostingKey| (one.0 == *key).then_some(());
                    let block = (block.key, &block.bytes[..]);
                    read(block, PostingKey(*key), wanted, |(), number| found.push(number.0)).unwrap();
                }
                prop_assert!(found.iter().eq(numbers), "{key}");
            }
            let mut places: Vec<_> = blocks.iter().map(|block| (block.key, block.part)).collect();
            places.dedup();
            prop_assert!(places.is_sorted() && places.len() == blocks.len());
            prop_assert_eq!(all(&blocks).unwrap(), postings);
        }

        #[test]
        fn a_spoiled_block_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let block = (PostingKey(i64::MAX - 5), &bytes[..]);
            let _ = read(block, PostingKey::MAX, Some, |_, _| {});
            let _ = read(block, PostingKey::MAX, |_| None::<()>, |(), _| {});
        }
    }

    #[test]
    fn a_block_that_ends_too_soon_is_an_error() {
        let postings =
            [1, 1 << 40].map(|number| Posting { key: PostingKey(7), number: Number(number) });
        let mut blocks = cut(&postings);
        blocks[0].bytes.pop();
        assert!(all(&blocks).is_err());
    }
}
