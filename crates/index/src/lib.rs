//! Full-text search: what is a word, what matches a question, and in which order. A read model of the
//! feed. Knows no sockets and no lane, and nothing of who may ask.
//!
//! Words are made here and not by a database, so both back ends hold the same terms, find the same
//! documents and rank them by the same function; a database keeps which document has which term, in
//! tables that are the same in both.
//!
//! ```text
//! event ─text_of→ Text{terms, trail} ─Projection→ Effects ─apply→ tables
//! question ─Query::parse→ Query ─terms→ candidates, newest first ─Ranking→ Page
//! ```

mod block;
mod consumer;
mod cursor;
mod departed;
mod digest;
mod document;
mod effects;
mod endorsement;
mod find;
mod fold;
mod kinds;
mod merge;
mod model;
mod names;
mod query;
mod rank;
mod script;
mod search;
mod searcher;
mod segments;
mod snippet;
mod tables;
mod text;
mod units;
mod voices;
mod write;

pub use consumer::Index;
pub use cursor::{Cursor, CursorError};
pub use document::{Document, DocumentKey, NUMBERS_PER_DOCUMENT, Number, Target, text_of};
pub use effects::{Departure, DocumentEffect, Effects, Projection};
pub use endorsement::{Endorsement, Sort as EndorsementSort};
pub use kinds::{KINDS_DEFAULT, Kinds, KindsError};
pub use model::Model;
pub use names::{NameCursor, NamePage, NameQuery, NamedTopic, Names};
pub use query::{QUERY_CHARS_MAX, QUERY_TERMS_MAX, Query, QueryError};
pub use rank::{
    FRESHNESS_HALF_LIFE_SECONDS, FRESHNESS_WEIGHT, POPULARITY_MAX, POPULARITY_WEIGHT, Score,
    TEXT_WEIGHT,
};
pub use search::{
    Ask, AskError, CANDIDATES_MAX, Candidate, Hit, LOOKUPS_MAX, PAGE_HITS_MAX, Page, ROWS_MAX,
    Ranking, Start, TopicKey,
};
pub use searcher::{Answer, SearchError, Searcher};
pub use snippet::{Excerpt, SNIPPET_CHARS_MAX, Snippet, excerpt, snippet};
pub use text::{Term, Text, Trail, UNITS_MAX};
