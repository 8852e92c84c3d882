//! Which path leads where, and what holds for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kukuri_core::NetworkId;
use kukuri_core::admission::Rate;
use kukuri_store::Store;
use tokio::time::timeout;

use crate::document::openapi;
use crate::finder::{Finder, Unavailable};
use crate::host::Host;
use crate::refusal::Refusal;
use crate::search::search;
use crate::topics::topics;

/// No request takes longer, whatever the node waits for.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(18);

/// For how long browsers need not ask again what they may ask.
const PREFLIGHT_SECONDS: &str = "86400";

/// How the interface behaves.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// The network whose names of topics are meant.
    pub network: NetworkId,
    /// Index rows that a question may cost.
    pub scan_rows_max: usize,
}

/// Numbers for people who watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiStats {
    pub requests: u64,
    /// For what is wrong with them, or who sent them.
    pub refused: u64,
    /// For want of an answer.
    pub unavailable: u64,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

/// The interface, with all that is behind it.
pub struct Api {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) store: Arc<dyn Store>,
    /// None where nothing is searched.
    pub(crate) finder: Option<Arc<Finder>>,
    pub(crate) config: ApiConfig,
    counters: Counters,
}

impl Api {
    pub fn new(
        host: Arc<dyn Host>,
        store: Arc<dyn Store>,
        finder: Option<Arc<Finder>>,
        config: ApiConfig,
    ) -> Arc<Self> {
        Arc::new(Self { host, store, finder, config, counters: Counters::default() })
    }

    /// Its paths, and what is said of all that there is not.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/v1/search", get(search).options(preflight))
            .route("/v1/topics", get(topics).options(preflight))
            .route("/v1/openapi.json", get(openapi).options(preflight))
            .method_not_allowed_fallback(async || Refusal::Method)
            .fallback(async || Refusal::NotFound)
            .layer(from_fn_with_state(Arc::clone(self), attend))
            .with_state(Arc::clone(self))
    }

    pub fn stats(&self) -> ApiStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ApiStats {
            requests: read(&self.counters.requests),
            refused: read(&self.counters.refused),
            unavailable: read(&self.counters.unavailable),
        }
    }
}

/// What holds for every request: it costs, it is answered in time, and browsers may show the answer on any
/// page, since it tells nobody more than they could ask themselves.
async fn attend(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let count = |counter: &AtomicU64| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    count(&api.counters.requests);
    let (parts, body) = request.into_parts();
    let mut response = match api.host.charge(&parts) {
        Rate::Exceeded => Refusal::RateLimited.into_response(),
        Rate::Within => {
            let answer = timeout(ANSWER_WAIT_MAX, next.run(Request::from_parts(parts, body)));
            answer.await.unwrap_or_else(|_| Refusal::Unavailable(Unavailable::Away).into_response())
        }
    };
    match response.status() {
        status if status.is_server_error() => count(&api.counters.unavailable),
        status if status.is_client_error() => count(&api.counters.refused),
        _ => {}
    }
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "retry-after"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What a browser asks before a page of somebody else's asks something.
async fn preflight() -> Response {
    let allowed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, *"),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}
