//! Other paths on the relay's address go by its rules.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use kukuri_core::admission::{Rate, Verdict};
use kukuri_relay::{Allowance, AuthPolicy, Authed, OpenGate, RelayConfig, RelayLimits, serve_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::rig::{Rig, author, config, limited, topic_id};

/// How long a connection may take to say what it wants.
const WAIT: Duration = Duration::from_millis(100);
/// Less than answers are given.
const PATIENCE: Duration = Duration::from_secs(10);

/// Listens for a relay once more, with other paths.
async fn listen(rig: &Rig, others: Router) -> (std::net::SocketAddr, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(serve_with(Arc::clone(&rig.relay), listener, others));
    (address, serving)
}

/// The status and all the rest of an answer.
async fn ask(address: std::net::SocketAddr, path: &str, forwarded_for: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {forwarded_for}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    (status, answer)
}

#[tokio::test]
async fn questions_cost_whoever_asks_by_whichever_door() {
    let once = Allowance { per_minute: 1, burst: 2 };
    let config = limited(|limits| RelayLimits { requests_per_ip: once, ..limits });
    let trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let rig = Rig::with(RelayConfig { trusted_proxies, ..config }, OpenGate).await;
    let relay = Arc::clone(&rig.relay);
    let other = get(async move |request: Parts| match relay.charge(&request) {
        Rate::Within => "within",
        Rate::Exceeded => "exceeded",
    });
    let (address, _serving) = listen(&rig, Router::new().route("/other", other)).await;
    for (from, expected) in [
        ("198.51.100.1", "within"),
        ("198.51.100.1", "within"),
        ("198.51.100.1", "exceeded"),
        ("198.51.100.2", "within"),
    ] {
        let (status, answer) = ask(address, "/other", from).await;
        assert!(status == 200 && answer.ends_with(expected), "{from}: {answer}");
    }
    assert_eq!(ask(address, "/", "198.51.100.1").await.0, 429, "it is one account");
    let nobody = axum::http::Request::new(()).into_parts().0;
    assert_eq!(rig.relay.charge(&nobody), Rate::Exceeded);
}

#[tokio::test]
async fn the_gate_is_asked_about_readers_of_other_paths() {
    let nobody = Authed::new();
    let open = Rig::start().await;
    assert_eq!(open.relay.may_read(&nobody, &[topic_id(1)]), Verdict::Admit);
    let config = RelayConfig { auth: AuthPolicy::REQUIRED, ..config() };
    let closed = Rig::with(config, OpenGate).await;
    assert_eq!(closed.relay.may_read(&nobody, &[topic_id(1)]), Verdict::AuthRequired);
    let somebody = Authed::from([author(1).pubkey()]);
    assert_eq!(closed.relay.may_read(&somebody, &[topic_id(1)]), Verdict::Admit);
}

/// A connection that has lasted for as long as it may was closed in the middle of an answer.
#[tokio::test]
async fn an_answer_that_is_on_its_way_arrives() {
    let config = limited(|limits| RelayLimits { handshake_wait_max: WAIT, ..limits });
    let rig = Rig::with(config, OpenGate).await;
    let (asked, time_is_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = get({
        let (asked, time_is_up) = (Arc::clone(&asked), Arc::clone(&time_is_up));
        async move || {
            asked.notify_one();
            time_is_up.notified().await;
            "at last"
        }
    });
    let (address, _serving) = listen(&rig, Router::new().route("/slow", slow)).await;
    let later = async {
        asked.notified().await;
        // When the time of who came later and says nothing is up, so is that of who asks.
        let mut silent = TcpStream::connect(address).await.unwrap();
        let _ = silent.read_to_end(&mut Vec::new()).await;
        time_is_up.notify_one();
    };
    let both = async { tokio::join!(ask(address, "/slow", "x"), later) };
    let ((status, answer), ()) = timeout(PATIENCE, both).await.expect("both end");
    assert!(status == 200 && answer.ends_with("at last"), "{answer}");
}

/// Only answers get more time: who says nothing, or half of something, is not waited for.
#[tokio::test]
async fn who_asks_nothing_gets_no_more_time() {
    let config = limited(|limits| RelayLimits { handshake_wait_max: WAIT, ..limits });
    let rig = Rig::with(config, OpenGate).await;
    let quick = get(async || "quick");
    let (address, _serving) = listen(&rig, Router::new().route("/quick", quick)).await;
    for said in ["", "GET /qu", "GET /quick HTTP/1.1\r\nHost: x\r\n\r\nGET /qu"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let closed = timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
        let _ = closed.unwrap_or_else(|_| panic!("{said:?}: still open"));
    }
}
