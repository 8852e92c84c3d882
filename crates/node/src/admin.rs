//! The operator's listener: whether the node lives, whether it can serve, and its numbers.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kukuri_api::Api;
use kukuri_core::Storage;
use kukuri_fanout::Fanout;
use kukuri_lane::{Health, Lane};
use kukuri_relay::Relay;
use kukuri_store::{Clock, Store, node_state};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::backfill::Backfilled;
use crate::consumers::{Opened, write_metrics};
use crate::gossip::{Gossiping, State as GossipState};
use crate::upkeep::Upkept;

/// How long a store that is asked whether it is there may take.
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

/// What there is to tell about.
pub struct Node {
    pub store: Arc<dyn Store>,
    pub lane: Arc<Lane>,
    pub fanout: Arc<Fanout>,
    pub relay: Arc<Relay>,
    pub api: Arc<Api>,
    pub upkept: watch::Receiver<Upkept>,
    pub backfilled: watch::Receiver<Backfilled>,
    pub gossiping: watch::Receiver<Gossiping>,
    pub consumers: Opened,
    pub clock: Clock,
}

pub async fn serve(node: Node, listener: TcpListener) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(node));
    axum::serve(listener, router).await
}

/// That it answers is the answer; a restart would help against nothing else.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether clients can be sent here.
async fn readyz(State(node): State<Arc<Node>>) -> Response {
    let (store, lane) = (store(&node).await, lane(&node));
    let relay = match node.relay.is_closing() {
        true => Err("ending".to_owned()),
        false => Ok(()),
    };
    let live = node.fanout.trouble().borrow().clone().map_or(Ok(()), Err);
    let ready = [&store, &lane, &relay, &live].into_iter().all(Result::is_ok);
    let word = |part: &Result<(), String>| match part {
        Ok(()) => Value::from("ok"),
        Err(why) => Value::from(why.as_str()),
    };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (store, lane, relay, live) = (word(&store), word(&lane), word(&relay), word(&live));
    let mut body =
        json!({ "ready": ready, "store": store, "lane": lane, "relay": relay, "live": live });
    // Clients can be sent here whether it gossips or not.
    let gossiping = node.gossiping.borrow().clone();
    if gossiping.state != GossipState::Off {
        body["gossip"] = word(&gossiping.trouble());
    }
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

async fn store(node: &Node) -> Result<(), String> {
    match timeout(STORE_WAIT_MAX, node.store.bounds()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {STORE_WAIT_MAX:?}")),
    }
}

fn lane(node: &Node) -> Result<(), String> {
    match &*node.lane.health().borrow() {
        Health::Running => Ok(()),
        Health::Failed(error) | Health::Corrupt(error) => Err(error.to_string()),
    }
}

/// The text format of Prometheus.
async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let (relay, lane, fanout) = (node.relay.stats(), node.lane.stats(), node.fanout.stats());
    let mut out = Metrics(String::new());
    out.gauge("relay_connections", "Open WebSockets.", relay.connections);
    out.counter(
        "relay_connections_refused",
        "Connections over a limit.",
        relay.connections_refused,
    );
    out.counter("relay_messages", "Messages of clients.", relay.messages);
    out.counter("relay_events_submitted", "Events handed to the lane.", relay.events_submitted);
    out.counter("relay_requests", "REQ and COUNT.", relay.requests);
    out.counter("relay_neg_messages", "Messages of reconciliations.", relay.neg_messages);
    out.gauge("relay_neg_sessions", "Open reconciliations.", relay.neg_sessions);
    out.counter(
        "relay_subscriptions_too_slow",
        "Subscriptions closed because they fell too far behind.",
        relay.subscriptions_too_slow,
    );
    out.gauge(
        "relay_outbound_bytes_peak",
        "The most that ever waited to be sent on a connection that has ended.",
        relay.outbound_bytes_peak,
    );
    let api = node.api.stats();
    out.counter(
        "api_requests",
        "Requests over HTTP, but for the page and the NIP-11 document.",
        api.requests,
    );
    out.counter("api_refused", "Those that were refused.", api.refused);
    out.counter("api_unavailable", "Those that could not be answered.", api.unavailable);
    out.counter("lane_batches", "Batches committed.", lane.batches);
    out.counter("lane_commands", "Commands in them.", lane.commands);
    out.counter("lane_batches_failed", "Batches answered with an error.", lane.batches_failed);
    out.counter("lane_conflicts", "Tries lost to another writer.", lane.conflicts);
    out.counter("lane_retries", "Tries repeated while the store was away.", lane.retries);
    out.counter("lane_sightings_dropped", "Sightings not written.", lane.sightings_dropped);
    out.counter(
        "lane_ephemerals_dropped",
        "Ephemeral events that slow listeners missed.",
        lane.ephemerals_dropped,
    );
    out.gauge("fanout_position", "The last feed row delivered.", fanout.position);
    out.gauge("fanout_subscriptions", "Live subscriptions.", fanout.subscriptions);
    out.counter("fanout_deliveries", "Events given to subscriptions.", fanout.deliveries);
    out.counter("fanout_overflows", "How often a mailbox was full.", fanout.overflows);
    out.gauge("feed_head", "The last feed row.", *node.store.heads().borrow());
    upkeep(&mut out, &node).await;
    backfill(&mut out, &node.backfilled.borrow());
    gossip(&mut out, &node.gossiping.borrow());
    write_metrics(&mut out.0, &node.consumers, (node.clock)()).await;
    out.gauge("lane_running", "Whether commits are possible.", u8::from(self::lane(&node).is_ok()));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], out.0).into_response()
}

async fn upkeep(out: &mut Metrics, node: &Node) {
    let upkept = node.upkept.borrow().clone();
    out.counter("upkeep_rounds", "Rounds of upkeep.", upkept.rounds);
    out.counter("upkeep_rounds_failed", "Rounds that ended early.", upkept.rounds_failed);
    out.counter("upkeep_expired_events", "Events hidden when they expired.", upkept.expired_events);
    out.counter(
        "upkeep_removed_links",
        "Events that left a topic by retention or capacity.",
        upkept.removed_links,
    );
    out.counter("upkeep_forgotten", "Ids and deletions forgotten.", upkept.forgotten);
    out.gauge(
        "upkeep_clock_ahead_seconds",
        "How much further ahead the clock is than can be; upkeep waits meanwhile.",
        upkept.clock_ahead.as_secs(),
    );
    out.gauge("upkeep_holds", "Whether this process does upkeep.", u8::from(upkept.holds));
    // What cannot be read now is left out, as a gap in the curve.
    if let Ok(Ok(state)) = timeout(STORE_WAIT_MAX, node_state(&*node.store)).await {
        out.gauge("store_events", "Stored events.", state.usage.events);
        out.gauge("store_bytes", "Bytes of stored events.", state.usage.bytes);
        out.gauge("ladder_step", "What the node has given up.", state.allowance.step.code());
        let open = state.allowance.storage == Storage::Open;
        out.gauge("store_open", "Whether the disk has room for events.", u8::from(open));
    }
    if let Ok(Ok(bounds)) = timeout(STORE_WAIT_MAX, node.store.bounds()).await {
        out.gauge("feed_floor", "The last feed row that is no longer kept.", bounds.floor);
    }
}

fn backfill(out: &mut Metrics, backfilled: &Backfilled) {
    out.counter("backfill_passes", "Reconciliations with other nodes.", backfilled.passes);
    out.counter("backfill_passes_failed", "Those that ended early.", backfilled.passes_failed);
    out.counter("backfill_named", "Ids that others had and we did not show.", backfilled.named);
    out.counter("backfill_fetched", "Events fetched for them.", backfilled.fetched);
    out.counter("backfill_accepted", "Those that were taken in.", backfilled.accepted);
    out.counter("backfill_refused", "Those that were refused.", backfilled.refused);
    out.counter(
        "backfill_gaps_dropped",
        "Gaps that were left to the schedule.",
        backfilled.gaps_dropped,
    );
    out.gauge(
        "backfill_gaps_waiting",
        "Topics with a gap while another process does it, or nobody may.",
        backfilled.gaps_waiting,
    );
    out.gauge("backfill_holds", "Whether this process does it.", u8::from(backfilled.holds));
    out.gauge("backfill_stopped", "Whether the ladder stops it.", u8::from(backfilled.stopped));
}

fn gossip(out: &mut Metrics, gossiping: &Gossiping) {
    let Some(status) = &gossiping.status else {
        out.gauge("gossip_running", "Whether this process is in the swarms.", 0);
        return;
    };
    let stats = &status.stats;
    out.gauge("gossip_running", "Whether this process is in the swarms.", 1);
    out.gauge("gossip_topics", "Swarms of topics.", status.topics.len());
    out.gauge("gossip_topics_joined", "Those with neighbours.", status.joined());
    out.gauge("gossip_topics_left_out", "Topics without a swarm.", status.left_out);
    out.gauge(
        "gossip_out_lag_rows",
        "Rows of the feed that the slowest swarm has not been told of.",
        status.out_lag_rows,
    );
    out.gauge("gossip_connected", "Nodes that are connected.", status.connected.len());
    out.gauge("gossip_muted", "Nodes that are not listened to.", status.muted.len());
    let counters = [
        ("received", "Messages of neighbours.", stats.received),
        ("accepted", "Those that were taken in.", stats.accepted),
        ("duplicates", "Those that were known.", stats.duplicates),
        ("refused", "Those that the rules refuse.", stats.refused),
        ("foreign", "Those without the topic of their swarm.", stats.foreign),
        ("unreadable", "Those that hold no event.", stats.unreadable),
        ("oversized", "Those that are too large.", stats.oversized),
        ("bad_signatures", "Those that nobody has signed.", stats.bad_signatures),
        ("over_rate", "Those that came too fast.", stats.over_rate),
        ("from_muted", "Those of muted neighbours.", stats.from_muted),
        ("overloaded", "Those for which the lane had no room.", stats.overloaded),
        ("mutes", "How often a neighbour was muted.", stats.mutes),
        ("broadcasts", "Events sent to swarms.", stats.broadcasts),
        ("unheard", "Events for swarms without neighbours.", stats.unheard),
        ("kept_back", "Events that are protected or too large.", stats.kept_back),
        ("out_dropped", "Events for which a queue was full.", stats.out_dropped),
        ("lags", "How often messages were lost because we were slow.", stats.lags),
        ("rejoins", "Subscriptions that were made again.", stats.rejoins),
        ("dials", "Connections that were tried.", stats.dials),
        ("dials_failed", "Those that failed.", stats.dials_failed),
        ("connections_refused", "Connections that were refused.", stats.connections_refused),
    ];
    for (name, help, value) in counters {
        out.counter(&format!("gossip_{name}"), help, value);
    }
}

struct Metrics(String);

impl Metrics {
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("gauge", name, help, &value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("counter", &format!("{name}_total"), help, &value);
    }

    fn metric(&mut self, sort: &str, name: &str, help: &str, value: &dyn Display) {
        let _ = writeln!(
            self.0,
            "# HELP kukuri_{name} {help}\n# TYPE kukuri_{name} {sort}\nkukuri_{name} {value}"
        );
    }
}
