//! What somebody asks for: words, "phrases", #tags and @keys, all of which a document must have.
//! Everything else that is typed is data: there are no operators, and none of it reaches a database
//! as anything but a term.

use kukuri_event::Pubkey;

use crate::fold::fold;
use crate::text::{hash, hashtag_term, occurrences, stamp};
use crate::units::{Shape, Unit, Units, tag};

/// Characters of a question.
pub const QUERY_CHARS_MAX: usize = 256;
/// Terms of a question: what has to be looked up.
pub const QUERY_TERMS_MAX: usize = 64;

/// Extensions of NIP-50, which a relay that does not have them leaves out of account.
const EXTENSIONS: [&str; 5] = ["include:", "domain:", "language:", "sentiment:", "nsfw:"];

/// Why a question is not answered. The texts are for who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("nothing to search for: no word, tag or sign in the question")]
    Empty,
    #[error("the question is too long: {QUERY_CHARS_MAX} characters at most")]
    TooLong,
    #[error("too many words: what has to be looked up is {QUERY_TERMS_MAX} terms at most")]
    TooManyTerms,
}

/// A question that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    chunks: Vec<Chunk>,
    terms: Vec<String>,
}

/// Units that must stand together, or a single tag or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    terms: Vec<String>,
    stamps: Vec<u16>,
    /// As they are in the units of a text; none for tags and keys.
    pub units: Vec<String>,
}

impl Query {
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.chars().nth(QUERY_CHARS_MAX).is_some() {
            return Err(QueryError::TooLong);
        }
        let mut chunks: Vec<Chunk> = Vec::new();
        for chunk in pieces(text).iter().filter_map(Piece::chunk) {
            if !chunks.contains(&chunk) {
                chunks.push(chunk);
            }
        }
        let mut terms: Vec<String> = chunks.iter().flat_map(|chunk| chunk.terms.clone()).collect();
        terms.sort_unstable();
        terms.dedup();
        match terms.len() {
            0 => Err(QueryError::Empty),
            1..=QUERY_TERMS_MAX => Ok(Self { chunks, terms }),
            _ => Err(QueryError::TooManyTerms),
        }
    }

    /// The terms that a document must have to be looked at, distinct and sorted.
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Tells words apart that are looked for.
    pub(crate) fn digest(&self) -> u64 {
        let parts = self.chunks.iter().flat_map(|chunk| chunk.terms.iter().chain(&chunk.units));
        parts.fold(0, |digest, part| hash(format!("{digest} {part}").as_bytes()))
    }
}

impl Chunk {
    /// How often it stands in a trail. A tag or key is there or not, which its term has said.
    pub(crate) fn occurrences(&self, trail: &[u8]) -> usize {
        if self.stamps.is_empty() { 1 } else { occurrences(trail, &self.stamps) }
    }

    fn single(term: String) -> Self {
        Self { terms: vec![term], stamps: Vec::new(), units: Vec::new() }
    }

    /// `None` when there is nothing in the text that could be looked for.
    fn together(text: &str) -> Option<Self> {
        let units = Units::of(text);
        let texts: Vec<String> = units.list.iter().map(|unit| units.text(unit).into()).collect();
        let stamps = texts.iter().map(|text| stamp(text)).collect();
        let chunk = Self { terms: lookups(&units), stamps, units: texts };
        (!chunk.terms.is_empty()).then_some(chunk)
    }
}

/// The fewest terms that cover all units. Of a run of characters these are pairs side by side, since
/// the trail says whether they stand together: 東京都庁 is looked up as 東京 and 都庁.
fn lookups(units: &Units) -> Vec<String> {
    let mut terms = Vec::new();
    let mut rest: &[Unit] = &units.list;
    while let [first, more @ ..] = rest {
        let joined = more.iter().take_while(|unit| unit.shape == Shape::CharAfterChar).count();
        let run = &rest[..=joined];
        rest = &rest[run.len()..];
        if run.len() == 1 {
            terms.push(units.text(first).to_owned());
        }
        let pairs = run.chunks(2).zip(1..).map(|(pair, count)| match pair {
            [_, _] => units.pair(&pair[0], &pair[1]),
            _ if count > 1 => units.pair(&run[run.len() - 2], &run[run.len() - 1]),
            _ => None,
        });
        terms.extend(pairs.flatten().map(str::to_owned));
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// A part of the question as it was typed.
enum Piece<'a> {
    Word(&'a str),
    Quoted(&'a str),
}

impl Piece<'_> {
    fn chunk(&self) -> Option<Chunk> {
        match self {
            Piece::Quoted(text) => Chunk::together(text),
            Piece::Word(text) if EXTENSIONS.iter().any(|start| text.starts_with(start)) => None,
            Piece::Word(text) => {
                hashtag(text).or_else(|| mention(text)).or_else(|| Chunk::together(text))
            }
        }
    }
}

fn hashtag(word: &str) -> Option<Chunk> {
    let glyphs = fold(word);
    let (_, rest) = glyphs.split_first().filter(|(sign, _)| sign.char == '#')?;
    let tag = tag(rest);
    // Half a tag would be another one.
    let whole = rest.len() == tag.chars().count() && !tag.is_empty();
    whole.then(|| Chunk::single(hashtag_term(&tag)))
}

/// A key that documents mention, in hex or as NIP-19 writes it.
fn mention(word: &str) -> Option<Chunk> {
    let key = word.strip_prefix('@').or_else(|| word.strip_prefix("nostr:"))?;
    let key = Pubkey::parse(key).ok().or_else(|| {
        let (prefix, bytes) = bech32::decode(key).ok()?;
        if prefix.as_str() == "npub" { Pubkey::from_slice(&bytes) } else { None }
    })?;
    Some(Chunk::single(mention_term(&key)))
}

pub(crate) fn mention_term(key: &Pubkey) -> String {
    format!("@{key}")
}

/// Cuts a question at blanks and quotation marks. A quotation that does not end lasts to the end.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let quote = |char: char| matches!(char, '"' | '“' | '”' | '„' | '＂');
    let mut pieces = Vec::new();
    for (place, part) in text.split(quote).enumerate() {
        if place % 2 == 1 {
            pieces.push(Piece::Quoted(part));
        } else {
            pieces.extend(part.split_whitespace().map(Piece::Word));
        }
    }
    pieces
}
