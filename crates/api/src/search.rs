//! `GET /v1/search`: what is found by its words, in one topic.

use std::sync::Arc;

use axum::extract::State;
use axum::http::request::Parts;
use kukuri_core::TopicId;
use kukuri_event::{Event, EventId, Filter, TagLetter, Values};
use kukuri_index::{Ask, Cursor, Hit, Start, excerpt};
use kukuri_store::{Query, among};
use serde_json::value::RawValue;
use utoipa::IntoParams;

use crate::answer::{Reply, SearchAnswer, SearchItem};
use crate::finder::{Finder, Found, Unavailable};
use crate::parameters::Parameters;
use crate::refusal::{Refusal, RefusalBody};
use crate::router::Api;

/// Results of a page.
pub const SEARCH_ITEMS_MAX: usize = 50;
pub const SEARCH_ITEMS_DEFAULT: usize = 20;

/// A score is told as a part of this.
const SCORE_WHOLE: f64 = 1_000_000.0;

/// What can be asked.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what is read one by one")]
pub(crate) struct SearchParameters {
    /// The id of the topic to search in.
    #[param(example = "kukuri:global")]
    topic: String,
    /// Words, "phrases", #tags and @keys, all of which a result has; there are no operators.
    #[param(max_length = 256)]
    q: String,
    #[param(minimum = 1, maximum = 50, default = 20)]
    limit: Option<usize>,
    /// `next_cursor` of the page before, with the same `topic` and `q`.
    cursor: Option<String>,
}

/// Finds events of a topic by their words.
///
/// The same events in the same order as NIP-50 over the relay.
#[utoipa::path(
    get,
    path = "/v1/search",
    tag = "search",
    params(SearchParameters),
    responses(
        (status = 200, description = "A page of results", body = SearchAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_TOPIC, INVALID_QUERY or INVALID_CURSOR", body = RefusalBody),
        (status = 401, description = "AUTH_REQUIRED", body = RefusalBody),
        (status = 403, description = "ACCESS_DENIED", body = RefusalBody),
        (status = 404, description = "TOPIC_NOT_HANDLED or SEARCH_OFF", body = RefusalBody),
        (status = 429, description = "RATE_LIMITED", body = RefusalBody),
        (status = 503, description = "UNAVAILABLE", body = RefusalBody),
    )
)]
pub(crate) async fn search(
    State(api): State<Arc<Api>>,
    request: Parts,
) -> Result<Reply<SearchAnswer>, Refusal> {
    let finder = api.finder.as_ref().ok_or(Refusal::SearchOff)?;
    let given = Parameters::read(request.uri.query(), &["topic", "q", "limit", "cursor"])?;
    let topic = TopicId::parse(given.require("topic")?).map_err(|_| Refusal::Topic)?;
    let items_max = given.limit(SEARCH_ITEMS_DEFAULT, SEARCH_ITEMS_MAX)?;
    let start = match given.get("cursor") {
        Some(text) => Start::After(Cursor::parse(text)?),
        None => Start::First { now: finder.now().seconds() },
    };
    let query = given.require("q")?;
    let ask = Ask::new(query, vec![topic.clone()], start)?;
    // Before it is told whether the topic is carried: where people have to say who they are, that is not
    // for everyone.
    Refusal::of(api.host.may_read(&request, std::slice::from_ref(&topic)))?;
    if !api.host.carries(&topic) {
        return Err(Refusal::TopicNotHandled);
    }
    let found = finder.find(&ask).await?;
    let shown = api.visible(finder, &topic, &found.hits, items_max).await?;
    Ok(Reply(SearchAnswer {
        next_cursor: next(&ask, &found, &shown, items_max).map(|cursor| cursor.to_string()),
        items: shown.iter().filter_map(|(hit, json)| item(&ask, hit, json)).collect(),
        index_lag_seconds: found.lag.map(|lag| lag.as_secs()),
        topic: topic.to_string(),
        query: query.to_owned(),
    }))
}

/// Where the next page begins: behind the last result that is shown, if anything may come after it.
fn next(ask: &Ask, found: &Found, shown: &[(&Hit, String)], items_max: usize) -> Option<Cursor> {
    let (last, _) = shown.last().filter(|_| shown.len() == items_max)?;
    let more = found.hits.last().is_some_and(|hit| hit != *last);
    more.then(|| ask.after(last, found.as_of.seq))
}

fn item(ask: &Ask, hit: &Hit, json: &str) -> Option<SearchItem> {
    // What the store holds was parsed when it came.
    let event = Event::parse(json).ok()?;
    Some(SearchItem {
        snippet: excerpt(&ask.query, &event).into(),
        score: f64::from(hit.score.0) / SCORE_WHOLE,
        event: RawValue::from_string(json.to_owned()).ok()?,
    })
}

impl Api {
    /// The first results that are visible now, with their JSON: an index that is behind shows nothing that
    /// is gone.
    async fn visible<'a>(
        &self,
        finder: &Finder,
        topic: &TopicId,
        hits: &'a [Hit],
        items_max: usize,
    ) -> Result<Vec<(&'a Hit, String)>, Unavailable> {
        let mut filter = Filter::default();
        filter.tags.insert(TagLetter::TOPIC, Values::from([topic.to_string()]));
        let mut shown = Vec::new();
        for hits in hits.chunks(SEARCH_ITEMS_MAX) {
            if shown.len() >= items_max {
                break;
            }
            let query = Query {
                filters: vec![filter.clone()],
                after: None,
                now: finder.now().seconds(),
                limit_max: SEARCH_ITEMS_MAX,
                rows_max: self.config.scan_rows_max,
                bodies_max: SEARCH_ITEMS_MAX,
            };
            let ids: Vec<EventId> = hits.iter().map(|hit| hit.event_id).collect();
            let found = among(&*self.store, query, &ids).await.map_err(|error| {
                tracing::warn!(%error, "what a search has found could not be read");
                Unavailable::Away
            })?;
            let hit_of = |id: EventId| hits.iter().find(|hit| hit.event_id == id);
            shown.extend(found.into_iter().filter_map(|(id, json)| Some((hit_of(id)?, json))));
        }
        shown.truncate(items_max);
        Ok(shown)
    }
}
