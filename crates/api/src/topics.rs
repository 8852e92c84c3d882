//! `GET /v1/topics`: what is spoken about here.

use std::sync::Arc;

use axum::extract::State;
use axum::http::request::Parts;
use kukuri_index::{NameCursor, NameQuery};
use utoipa::IntoParams;

use crate::answer::{Reply, TopicItem, TopicsAnswer};
use crate::parameters::Parameters;
use crate::refusal::{Refusal, RefusalBody};
use crate::router::Api;

/// Topics of a page.
pub const TOPICS_MAX: usize = 200;
pub const TOPICS_DEFAULT: usize = 50;

/// What can be asked.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what is read one by one")]
pub(crate) struct TopicsParameters {
    /// Words of a name or the beginnings of some, a whole name, or an id. Without it, all public topics are
    /// listed.
    #[param(max_length = 256)]
    q: Option<String>,
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// `next_cursor` of the page before, with the same `q`.
    cursor: Option<String>,
}

/// Lists the public topics of this node, or finds some by their names.
#[utoipa::path(
    get,
    path = "/v1/topics",
    tag = "topics",
    params(TopicsParameters),
    responses(
        (status = 200, description = "A page of topics", body = TopicsAnswer),
        (status = 400, description = "INVALID_REQUEST, INVALID_QUERY or INVALID_CURSOR", body = RefusalBody),
        (status = 401, description = "AUTH_REQUIRED", body = RefusalBody),
        (status = 403, description = "ACCESS_DENIED", body = RefusalBody),
        (status = 429, description = "RATE_LIMITED", body = RefusalBody),
    )
)]
pub(crate) async fn topics(
    State(api): State<Arc<Api>>,
    request: Parts,
) -> Result<Reply<TopicsAnswer>, Refusal> {
    let given = Parameters::read(request.uri.query(), &["q", "limit", "cursor"])?;
    let topics_max = given.limit(TOPICS_DEFAULT, TOPICS_MAX)?;
    let query =
        given.get("q").map(|text| NameQuery::parse(text, &api.config.network)).transpose()?;
    let after = given.get("cursor").map(NameCursor::parse).transpose()?;
    Refusal::of(api.host.may_read(&request, &[]))?;
    let page = api.host.names().find(query.as_ref(), after.as_ref(), topics_max)?;
    let items = page
        .topics
        .into_iter()
        .map(|topic| TopicItem { topic_id: topic.topic_id.to_string(), name: topic.name });
    let next_cursor = page.next.map(|cursor| cursor.to_string());
    Ok(Reply(TopicsAnswer { items: items.collect(), next_cursor }))
}
