//! The shapes of answers.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use kukuri_index::Excerpt;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// An answer, as JSON.
pub(crate) struct Reply<T>(pub T);

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self.0).expect("answers are plain data");
        ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// A page of results.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SearchAnswer {
    pub topic: String,
    pub query: String,
    /// The best first.
    pub items: Vec<SearchItem>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// By how many seconds the index is behind; absent unless that is many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_lag_seconds: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SearchItem {
    #[schema(value_type = SignedEvent)]
    pub event: Box<RawValue>,
    /// From 0 to 1: how well the text fits, how fresh and how popular it is.
    pub score: f64,
    pub snippet: SnippetAnswer,
}

/// The part of an event that shows why it was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SnippetAnswer {
    /// `content`, or the name of the tag that it is of.
    #[schema(example = "content")]
    pub field: &'static str,
    /// Data, never markup.
    pub text: String,
    /// Where the matches are in `text`: from the first character (Unicode code point) up to before the last
    /// number, in order.
    #[schema(example = json!([[3, 5]]))]
    pub matches: Vec<[usize; 2]>,
    /// Whether something was left out before and after.
    pub cut_before: bool,
    pub cut_after: bool,
}

impl From<Excerpt> for SnippetAnswer {
    fn from(Excerpt { field, snippet }: Excerpt) -> Self {
        let matches = snippet.matches.iter().map(|range| [range.start, range.end]).collect();
        let (cut_before, cut_after) = (snippet.cut_before, snippet.cut_after);
        Self { field, text: snippet.text, matches, cut_before, cut_after }
    }
}

/// An event of Nostr (NIP-01), as its author has signed it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is passed on as it is stored")]
pub(crate) struct SignedEvent {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pubkey: String,
    created_at: i64,
    kind: u16,
    tags: Vec<Vec<String>>,
    content: String,
    #[schema(pattern = "^[0-9a-f]{128}$")]
    sig: String,
}

/// A page of topics.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicsAnswer {
    /// What fits best first, otherwise in the order of names.
    pub items: Vec<TopicItem>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicItem {
    #[schema(example = "kukuri:global")]
    pub topic_id: String,
    /// Empty when nobody has named it.
    pub name: String,
}
