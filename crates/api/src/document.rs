//! What this interface says of itself (OpenAPI), made from the code that answers.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;

use crate::refusal::RefusalBody;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "kukuri community node",
        description = "Questions to a community node. Publishing and live subscriptions are on the same address over WebSocket (Nostr).",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(crate::search::search, crate::topics::topics, self::openapi)
)]
struct Document;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = Document::openapi().to_pretty_json();
    document.expect("the document is plain data") + "\n"
});

/// The document, as JSON.
pub fn document() -> &'static str {
    &DOCUMENT
}

/// This document.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "document",
    responses(
        (status = 200, description = "The document", content_type = "application/json"),
        (status = 429, description = "RATE_LIMITED", body = RefusalBody),
    )
)]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document()).into_response()
}
