//! Listening: HTTP with a bounded head and a bounded wait, and its upgrade to a WebSocket.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use kukuri_core::admission::Rate;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::address::{Sender, origin};
use crate::census::{Presence, Refused};
use crate::relay::{Relay, add_one};
use crate::upgrade::Upgrade;
use crate::{connection, nip11};

/// The head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long an answer that is on its way may take when its connection has lasted for long enough, and when
/// the relay ends.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(20);
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after a connection could not be taken, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until the relay closes.
pub async fn serve(relay: Arc<Relay>, listener: TcpListener) {
    serve_with(relay, listener, Router::new()).await;
}

/// The same, with other paths on the same address. Who serves them asks the relay what may be asked.
pub async fn serve_with(relay: Arc<Relay>, listener: TcpListener, others: Router) {
    let router = Router::new().route("/", get(root)).with_state(Arc::clone(&relay)).merge(others);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = relay.closing.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => match relay.knock(peer.ip()) {
                Ok(presence) => {
                    let router = router.clone().layer(Extension(ConnectInfo(peer)));
                    relay.tasks.spawn(talk(Arc::clone(&relay), stream, router, presence));
                }
                // There is no time to say why to everyone.
                Err(_) => add_one(&relay.counters.connections_refused),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Speaks HTTP until the connection ends or becomes a WebSocket.
async fn talk(relay: Arc<Relay>, stream: TcpStream, router: Router, _knocking: Presence) {
    // Small answers must not wait for the acknowledgement of the ones before.
    let _ = stream.set_nodelay(true);
    let wait_max = relay.config.limits.handshake_wait_max;
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_BYTES_MAX).header_read_timeout(wait_max).timer(TokioTimer::new());
    let service = TowerToHyperService::new(router);
    let talk = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut talk = pin!(talk);
    tokio::select! {
        // An upgraded connection ends here at once and goes on by itself.
        _ = &mut talk => return,
        () = sleep(wait_max) => {}
        () = relay.closing.cancelled() => {}
    }
    // What is being answered is answered; nothing more is asked.
    talk.as_mut().graceful_shutdown();
    let wait_max = if relay.is_closing() { CLOSING_WAIT_MAX } else { ANSWER_WAIT_MAX };
    let _ = timeout(wait_max, talk).await;
}

async fn root(
    State(relay): State<Arc<Relay>>,
    Extension(ConnectInfo(peer)): Extension<ConnectInfo<SocketAddr>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let sender = sender(peer.ip(), &headers, &relay.config.trusted_proxies);
    match Upgrade::asked(request) {
        Some(upgrade) => upgraded(relay, sender, upgrade),
        None if relay.may_look(sender) == Rate::Exceeded => refuse(Refused::TooOften),
        None => describe(&relay, &headers),
    }
}

fn upgraded(relay: Arc<Relay>, sender: Sender, upgrade: Upgrade) -> Response {
    let presence = match relay.admit(sender) {
        Ok(presence) => presence,
        Err(refused) => {
            add_one(&relay.counters.connections_refused);
            return refuse(refused);
        }
    };
    let (response, opened) = upgrade.accept();
    let tasks = relay.tasks.clone();
    tasks.spawn(async move {
        if let Some(opened) = opened.await {
            connection::run(opened, relay, presence, challenge()).await;
        }
    });
    response
}

pub(crate) fn sender(peer: IpAddr, headers: &HeaderMap, trusted: &[crate::Network]) -> Sender {
    // What is no text is no address either, but does not hide what a proxy wrote beside it.
    let lines = headers.get_all("x-forwarded-for").iter();
    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    Sender::from(origin(peer, lines.iter().map(AsRef::as_ref), trusted))
}

fn refuse(refused: Refused) -> Response {
    let (status, why) = match refused {
        Refused::TooOften => (StatusCode::TOO_MANY_REQUESTS, "too many requests"),
        Refused::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many connections"),
        Refused::Full => (StatusCode::SERVICE_UNAVAILABLE, "this relay is full"),
    };
    (status, [(header::RETRY_AFTER, "60")], why).into_response()
}

fn describe(relay: &Relay, headers: &HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let cors = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
    ];
    if accept.is_some_and(|accept| accept.contains("application/nostr+json")) {
        let json = [(header::CONTENT_TYPE, "application/nostr+json")];
        return (cors, json, nip11::document(relay).to_string()).into_response();
    }
    let policy =
        [(header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'")];
    (policy, Html(nip11::page(relay))).into_response()
}

/// Thirty-two random bytes.
fn challenge() -> String {
    let bytes: [u8; 32] = rand::random();
    kukuri_event::EventId::from_bytes(bytes).to_hex()
}
