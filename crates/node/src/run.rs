//! `run`: the node itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kukuri_api::{Api, ApiConfig, Finder};
use kukuri_client::sync::{FETCH_IDS_MAX, IDS_MAX, PeerConfig};
use kukuri_fanout::{Fanout, FanoutConfig};
use kukuri_feed::RunnerConfig;
use kukuri_index::Index;
use kukuri_lane::{Health, Lane};
use kukuri_relay::{About, OpenGate, Relay, RelayConfig, serve_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::RelayHost;
use crate::backfill::{Backfiller, Bounds, Puller};
use crate::cli::Common;
use crate::clock::steady;
use crate::config::{ClockTrust, Config, Layers, SearchMode, SearchSection};
use crate::consumers::{Consumers, Ground, registered};
use crate::exit::Exit;
use crate::gossip::{Gossiper, Gossiping, introduction};
use crate::open::{Opened, consumer_place, open};
use crate::search::RelaySearch;
use crate::signal::{Interrupts, Reloads};
use crate::upkeep::Keeper;
use crate::{admin, log};

/// How long connections may take to end, then leases, then what is queued, then the files: ten seconds in all.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(5);
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(2);
/// Chunks of fetched events in the lane: clients' events come in between.
const BACKFILL_CHUNKS_MAX: usize = 2;
/// Files that are open besides connections.
const FILES_BESIDE: u64 = 256;

pub async fn run(common: &Common, config: Config, layers: Layers) -> anyhow::Result<Exit> {
    log::start(&config.log);
    raise_files(u64::try_from(config.limits.connections_max).unwrap_or(u64::MAX));
    let (mut interrupts, reloads) = (Interrupts::listen()?, Reloads::listen()?);
    let (relay_listener, relay_address) = listen(config.relay.listen, "--listen").await?;
    let (admin_listener, admin_address) = listen(config.admin.listen, "--admin").await?;
    let opened = tokio::select! {
        opened = open(common) => opened?,
        _ = interrupts.next() => return Ok(Exit::Interrupted),
    };
    let (store, lane) = (Arc::clone(&opened.store), Arc::new(opened.lane()));
    // Before the first client comes.
    opened.look_at_disk(&opened.lookout(&lane, config.upkeep().disk_reserve_bytes)).await?;
    let fanout =
        Fanout::start(Arc::clone(&store), Arc::clone(&opened.clock), FanoutConfig::STANDARD);
    let fanout = Arc::new(fanout.await.context("cannot read the feed")?);
    let relay = relay(&opened, &lane, &fanout, &config, relay_address).await?;
    let ground = Ground {
        store: Arc::clone(&store),
        place: consumer_place(common),
        config: RunnerConfig {
            on_loss: config.search.on_loss(),
            ..opened.runner_config(config.upkeep().disk_reserve_bytes)
        },
    };
    let mut wanted = registered(&config.search.kinds().expect("settings are checked"));
    let finder = finder(&opened, &ground, &config.search);
    match &finder {
        Some(finder) => relay.offer_search(Arc::new(RelaySearch(Arc::clone(finder)))),
        None => wanted.retain(|consumer| consumer.name != Index::NAME),
    }
    let api = Api::new(
        Arc::new(RelayHost::new(Arc::clone(&relay))),
        Arc::clone(&store),
        finder,
        ApiConfig { network: common.network.clone(), scan_rows_max: config.limits.scan_rows_max },
    );
    let consumers = Consumers::start(wanted, &ground, Arc::clone(&opened.clock));
    let keeper = keeper(&opened, &lane, &config).hearing(consumers.lag_seconds());
    let holder = keeper.holder();
    let backfiller = backfiller(&opened, &lane, &config);
    let backfill_holder = backfiller.holder();
    let gossiper = Gossiper::new(&opened, &lane, &fanout, backfiller.gaps(), &config)?;
    let (gossip_holder, gossiping) = (gossiper.holder(), gossiper.state());
    let node = admin::Node {
        store,
        lane: Arc::clone(&lane),
        fanout: Arc::clone(&fanout),
        relay: Arc::clone(&relay),
        api: Arc::clone(&api),
        upkept: keeper.upkept(),
        backfilled: backfiller.state(),
        gossiping: gossiping.clone(),
        consumers: consumers.opened(),
        clock: Arc::clone(&opened.clock),
    };
    let mut keeping = tokio::spawn(keeper.run());
    let mut backfilling = tokio::spawn(backfiller.run());
    let gossip_stop = CancellationToken::new();
    let mut gossip_task = tokio::spawn(gossiper.run(gossip_stop.clone()));
    let mut serving = tokio::spawn(serve_with(Arc::clone(&relay), relay_listener, api.routes()));
    let mut administering = tokio::spawn(admin::serve(node, admin_listener));
    let reserve_bytes = config.upkeep().disk_reserve_bytes;
    banner(&opened, reserve_bytes, relay_address, admin_address, gossiping).await?;
    let ended = tokio::select! {
        ended = wait(&lane, &mut interrupts) => ended,
        () = follow(&relay, config, layers, reloads) => Ok(()),
        _ = &mut serving => Err(anyhow::anyhow!("the relay ended; start the node again")),
        _ = &mut administering => Err(anyhow::anyhow!("the admin listener ended; start the node again")),
        () = fanout.ended() => Err(anyhow::anyhow!("live delivery ended; start the node again")),
        _ = &mut keeping => Err(anyhow::anyhow!("upkeep ended; start the node again")),
        _ = &mut backfilling => Err(anyhow::anyhow!("backfill ended; start the node again")),
        _ = &mut gossip_task => Err(anyhow::anyhow!("gossip ended; start the node again")),
        () = relay.ended() => Err(anyhow::anyhow!("the relay follows its topics no longer; start the node again")),
    };
    let finish = async {
        gossip_stop.cancel();
        let goodbye = async {
            if !gossip_task.is_finished() {
                let _ = (&mut gossip_task).await;
            }
        };
        let _ = timeout(CLOSE_WAIT_MAX, async { tokio::join!(relay.close(), goodbye) }).await;
        serving.abort();
        keeping.abort();
        backfilling.abort();
        gossip_task.abort();
        let releases = async {
            tokio::join!(
                Keeper::release(&lane, holder),
                Backfiller::release(&lane, backfill_holder),
                Gossiper::release(&lane, gossip_holder),
                consumers.stop()
            )
        };
        let _ = timeout(RELEASE_WAIT_MAX, releases).await;
        lane.drain(DRAIN_WAIT_MAX).await
    };
    tokio::select! {
        drained = finish => if let Err(error) = drained {
            eprintln!("error: {error}");
            Exit::Failed.leave();
        },
        signal = interrupts.next() => {
            eprintln!("{signal} again: ending at once");
            Exit::Interrupted.leave();
        }
    }
    administering.abort();
    let exit = ended.map(|()| Exit::Done);
    exit.as_ref().unwrap_or(&Exit::Failed).leave_after(LEAVE_WAIT_MAX);
    exit
}

/// Who finds events by their words, unless nobody is to.
fn finder(opened: &Opened, ground: &Ground, search: &SearchSection) -> Option<Arc<Finder>> {
    let stale_from = Duration::from_secs(search.stale_seconds);
    let (store, clock) = (Arc::clone(&ground.store), Arc::clone(&opened.clock));
    let finder = || Finder::new(store, clock, ground.place.clone(), stale_from);
    (search.mode == SearchMode::On).then(|| Arc::new(finder()))
}

fn keeper(opened: &Opened, lane: &Arc<Lane>, config: &Config) -> Keeper {
    let (store, clock) = (Arc::clone(&opened.store), Arc::clone(&opened.clock));
    let keeper = Keeper::new(store, Arc::clone(lane), clock, config.upkeep(), opened.disk());
    match config.retention.clock {
        ClockTrust::Doubt => keeper.doubting(steady()),
        ClockTrust::Believe => keeper,
    }
}

/// Who asks other nodes for what was missed.
fn backfiller(opened: &Opened, lane: &Arc<Lane>, config: &Config) -> Backfiller {
    let settings = config.backfill.settings();
    let puller = Puller {
        store: Arc::clone(&opened.store),
        lane: Arc::clone(lane),
        clock: Arc::clone(&opened.clock),
        limits: config.limits.events.clone(),
        topicless: config.relay.topicless.into(),
        own: Bounds { rows_max: config.limits.scan_rows_max, ids_max: IDS_MAX },
        chunks_in_lane_max: BACKFILL_CHUNKS_MAX,
        question_ids_max: FETCH_IDS_MAX,
        waits: PeerConfig::STANDARD,
        allowed: settings.allowed,
        memory: Arc::default(),
    };
    Backfiller::new(puller, settings)
}

/// Every connection is a file: as many as the system lets this process have.
fn raise_files(connections_max: u64) {
    let wanted = connections_max.saturating_add(FILES_BESIDE);
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX).min(wanted);
    if limit.current.is_some_and(|current| current < allowed) {
        // What cannot be raised is told below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), ..limit });
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if current < wanted {
        tracing::warn!(
            files = current,
            wanted,
            "fewer connections than limits.connections_max are possible: raise the limit of open files (ulimit -n)"
        );
    }
}

/// The addresses by which clients on this machine know a relay that was given no other.
fn own_urls(address: SocketAddr) -> Vec<String> {
    if address.ip().is_unspecified() {
        tracing::warn!(
            "relay.urls is empty: clients cannot prove their keys here until it names the address they connect to"
        );
    }
    let local = address.ip().is_loopback().then(|| format!("ws://localhost:{}", address.port()));
    [format!("ws://{address}")].into_iter().chain(local).collect()
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is another node running? choose another {flag}")
    })?;
    let address = listener.local_addr().context("cannot tell where the node listens")?;
    Ok((listener, address))
}

async fn relay(
    opened: &Opened,
    lane: &Arc<Lane>,
    fanout: &Arc<Fanout>,
    config: &Config,
    address: SocketAddr,
) -> anyhow::Result<Arc<Relay>> {
    let section = config.relay.clone();
    let proxies = section.trusted_proxies.iter().map(|text| text.parse());
    let config = RelayConfig {
        limits: config.limits.clone(),
        topicless: section.topicless.into(),
        urls: if section.urls.is_empty() { own_urls(address) } else { section.urls },
        trusted_proxies: proxies.collect::<Result<_, _>>().expect("settings are checked"),
        auth: config.auth.policy(),
        about: About {
            name: section.name,
            description: section.description,
            contact: section.contact,
            pubkey: section.pubkey,
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
        },
    };
    let (store, clock) = (Arc::clone(&opened.store), Arc::clone(&opened.clock));
    let gate = Arc::new(OpenGate);
    let relay = Relay::start(store, Arc::clone(lane), Arc::clone(fanout), gate, clock, config);
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

/// Reads the settings again whenever it is asked to. Those about proofs take effect; of others it
/// says that they wait for a restart. Settings that are wrong change nothing.
async fn follow(relay: &Relay, mut config: Config, layers: Layers, mut reloads: Reloads) {
    loop {
        reloads.next().await;
        let new = match layers.load() {
            Ok(new) => new,
            Err(error) => {
                tracing::error!(%error, "the settings are as they were");
                continue;
            }
        };
        relay.set_auth(new.auth.policy());
        config.auth = new.auth.clone();
        if config == new {
            tracing::info!(auth = ?new.auth.mode, "the settings were read again");
        } else {
            tracing::warn!(auth = ?new.auth.mode, "the settings were read again; those outside of [auth] wait for a restart");
        }
    }
}

async fn banner(
    opened: &Opened,
    reserve_bytes: u64,
    relay: SocketAddr,
    admin: SocketAddr,
    gossiping: watch::Receiver<Gossiping>,
) -> anyhow::Result<()> {
    let bounds = opened.store.bounds().await?;
    let topics = opened.store.topics().await?;
    let enabled = topics.iter().filter(|(topic, _)| topic.enabled).count();
    eprintln!("kukuri-node {}", env!("CARGO_PKG_VERSION"));
    eprintln!("  store    {}", opened.place);
    if opened.disk().is_none() && reserve_bytes > 0 {
        eprintln!(
            "  disk     the server's, without a reserve: set capacity.database_directory if it is this machine's"
        );
    }
    eprintln!("  feed     rows {} to {}", bounds.floor.next(), bounds.head);
    eprintln!("  topics   {enabled} carried of {} known: kukuri-node topic list", topics.len());
    eprintln!(
        "  relay    ws://{relay} for clients, http://{relay} for browsers, /v1/openapi.json for programs"
    );
    eprintln!("  gossip   {}", introduction(gossiping).await);
    eprintln!("  admin    http://{admin}/healthz, /readyz, /metrics");
    eprintln!("ready; Ctrl-C ends it");
    Ok(())
}

fn tell(health: &watch::Receiver<Health>) {
    match &*health.borrow() {
        Health::Running => tracing::info!("storage works again"),
        Health::Failed(error) => {
            tracing::error!(%error, "nothing is acknowledged until storage can be opened again");
        }
        Health::Corrupt(error) => {
            tracing::error!(%error, "nothing is taken in any more: stop the node, run doctor");
        }
    }
}
