//! `run`: the node itself.

use kukuri_lane::Health;
use tokio::sync::watch;

use crate::cli::Common;
use crate::exit::Exit;
use crate::open::{DRAIN_WAIT_MAX, Opened, open};
use crate::signal::Interrupts;

pub async fn run(common: &Common) -> anyhow::Result<Exit> {
    let mut interrupts = Interrupts::listen()?;
    let opened = open(common).await?;
    let lane = opened.lane();
    banner(&opened).await?;
    let mut health = lane.health();
    let ended = loop {
        tokio::select! {
            signal = interrupts.next() => {
                eprintln!("{signal}: finishing what is queued");
                break Ok(());
            }
            known = health.changed() => match known {
                Ok(()) => tell(&health),
                Err(_) => break Err(anyhow::anyhow!("the write lane ended; start the node again")),
            },
        }
    };
    lane.drain(DRAIN_WAIT_MAX).await?;
    ended.map(|()| Exit::Done)
}

async fn banner(opened: &Opened) -> anyhow::Result<()> {
    let bounds = opened.store.bounds().await?;
    let topics = opened.store.topics().await?;
    let enabled = topics.iter().filter(|(topic, _)| topic.enabled).count();
    eprintln!("kukuri-node {}", env!("CARGO_PKG_VERSION"));
    eprintln!("  store    {}", opened.place);
    eprintln!("  feed     rows {} to {}", bounds.floor.next(), bounds.head);
    eprintln!("  topics   {enabled} carried of {} known: kukuri-node topic list", topics.len());
    eprintln!("  network  the relay, gossip and API doors are not part of this version yet");
    eprintln!("           events come in by: kukuri-node import FILE");
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
