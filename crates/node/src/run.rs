//! `run`: the node itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kukuri_core::admission::Topicless;
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_lane::{Health, Lane};
use kukuri_relay::{About, AuthGate, Gate, OpenGate, Relay, RelayConfig, RelayLimits, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cli::{AuthChoice, Common, RunArgs, TopiclessChoice};
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, Opened, open};
use crate::signal::Interrupts;

/// How long connections may take to end.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(3);

pub async fn run(common: &Common, args: RunArgs) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    if args.auth == AuthChoice::Required && args.url.is_empty() && args.listen.ip().is_unspecified()
    {
        anyhow::bail!(
            "--auth required needs --url: proofs are bound to the address that clients know, and {} is none",
            args.listen.ip()
        );
    }
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!(
            "cannot listen on {}: is another node running? choose another --listen",
            args.listen
        )
    })?;
    let address = listener.local_addr().context("cannot tell where the node listens")?;
    let opened = open(common).await?;
    let lane = Arc::new(opened.lane());
    let relay = relay(&opened, &lane, args, address).await?;
    let mut serving = tokio::spawn(serve(Arc::clone(&relay), listener));
    banner(&opened, address).await?;
    let ended = tokio::select! {
        ended = wait(&lane, &mut interrupts) => ended,
        _ = &mut serving => Err(anyhow::anyhow!("the relay ended; start the node again")),
    };
    tokio::select! {
        _ = timeout(CLOSE_WAIT_MAX, relay.close()) => {}
        signal = interrupts.next() => {
            eprintln!("{signal} again: ending at once");
            return Ok(Exit::Interrupted);
        }
    }
    serving.abort();
    lane.drain(DRAIN_WAIT_MAX - CLOSE_WAIT_MAX).await?;
    ended.map(|()| Exit::Done)
}

async fn relay(
    opened: &Opened,
    lane: &Arc<Lane>,
    args: RunArgs,
    address: SocketAddr,
) -> anyhow::Result<Arc<Relay>> {
    let (store, clock) = (&opened.store, &opened.clock);
    let fanout = Fanout::start(Arc::clone(store), Arc::clone(clock), FanoutConfig::STANDARD);
    let fanout = Arc::new(fanout.await.context("cannot read the feed")?);
    let gate: Arc<dyn Gate> = match args.auth {
        AuthChoice::Off => Arc::new(OpenGate),
        AuthChoice::Required => Arc::new(AuthGate),
    };
    let config = RelayConfig {
        limits: RelayLimits::STANDARD,
        topicless: match args.topicless {
            TopiclessChoice::Reject => Topicless::Reject,
            TopiclessChoice::Global => Topicless::Global,
        },
        urls: if args.url.is_empty() { vec![format!("ws://{address}")] } else { args.url },
        trusted_proxies: args.trusted_proxy,
        about: About {
            name: args.name,
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..About::default()
        },
    };
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let relay = Relay::start(store, Arc::clone(lane), fanout, gate, clock, config);
    relay.await.context("cannot read the topics")
}

/// Until somebody asks for the end, or nothing can be written any more.
async fn wait(lane: &Lane, interrupts: &mut Interrupts) -> anyhow::Result<()> {
    let mut health = lane.health();
    loop {
        tokio::select! {
            signal = interrupts.next() => {
                eprintln!("{signal}: finishing what is queued");
                return Ok(());
            }
            known = health.changed() => match known {
                Ok(()) => tell(&health),
                Err(_) => anyhow::bail!("the write lane ended; start the node again"),
            },
        }
    }
}

async fn banner(opened: &Opened, address: SocketAddr) -> anyhow::Result<()> {
    let bounds = opened.store.bounds().await?;
    let topics = opened.store.topics().await?;
    let enabled = topics.iter().filter(|(topic, _)| topic.enabled).count();
    eprintln!("kukuri-node {}", env!("CARGO_PKG_VERSION"));
    eprintln!("  store    {}", opened.place);
    eprintln!("  feed     rows {} to {}", bounds.floor.next(), bounds.head);
    eprintln!("  topics   {enabled} carried of {} known: kukuri-node topic list", topics.len());
    eprintln!("  relay    ws://{address} for clients, http://{address} for browsers");
    eprintln!("ready; Ctrl-C ends it");
    Ok(())
}

fn tell(health: &watch::Receiver<Health>) {
    match &*health.borrow() {
        Health::Running => eprintln!("storage works again"),
        Health::Failed(error) => {
            eprintln!("error: {error}; nothing is acknowledged until it can be opened again");
        }
        Health::Corrupt(error) => {
            eprintln!("error: {error}; nothing is taken in any more: stop the node, run doctor");
        }
    }
}
