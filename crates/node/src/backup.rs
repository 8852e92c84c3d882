//! `backup` and `restore`: a copy of the store as of one moment, and a store made from one.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use indicatif::HumanBytes;
use kukuri_store::backup::{Backup, BackupError, Manifest, Monitor};

use crate::cli::Common;
use crate::exit::Exit;
use crate::open;
use crate::progress;
use crate::signal::Interrupts;

/// How often the bar is drawn.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub async fn back_up(common: &Common, to: &Path) -> anyhow::Result<Exit> {
    let monitor = Arc::new(Monitor::default());
    let work = open::back_up(common, to, Arc::clone(&monitor));
    let Some((manifest, place)) = attend(&monitor, work).await? else {
        eprintln!("interrupted: there is no backup in {}; run it again", to.display());
        return Ok(Exit::Interrupted);
    };
    eprintln!("backed up {place} to {}: {}", to.display(), summary(&manifest));
    eprintln!(
        "restore it with: kukuri-node {} restore {}",
        common.place_option("NEW"),
        to.display()
    );
    Ok(Exit::Done)
}

pub async fn restore(common: &Common, from: &Path) -> anyhow::Result<Exit> {
    let monitor = Arc::new(Monitor::default());
    let backup = Arc::new(Backup::open(from)?);
    let work = open::restore(common, Arc::clone(&backup), Arc::clone(&monitor));
    let Some(restored) = attend(&monitor, work).await? else {
        eprintln!("interrupted: nothing was restored; run it again");
        return Ok(Exit::Interrupted);
    };
    let place = &restored.place;
    for name in restored.left_out {
        eprintln!("warning: the table {name} belongs to no store of this program: left out");
    }
    eprintln!("restored {} to {place}: {}", from.display(), summary(backup.manifest()));
    eprintln!("its feed has begun a new life: who follows it is told so, and starts over");
    let option = common.place_option(place);
    eprintln!("check it with: kukuri-node {option} doctor");
    eprintln!("then run it with: kukuri-node {option}");
    Ok(Exit::Done)
}

fn summary(manifest: &Manifest) -> String {
    let (feed, events) = (manifest.feed, manifest.rows("events"));
    let rows = match feed.head_seq - feed.floor_seq {
        0 => "no feed rows".to_owned(),
        _ => format!("feed rows {} to {}", feed.floor_seq + 1, feed.head_seq),
    };
    format!("{rows}, {events} events, {}", HumanBytes(manifest.bytes()))
}

/// Shows how far the work has come, and ends it when somebody asks for that. `None` if it ended so.
async fn attend<T>(
    monitor: &Monitor,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    let mut interrupts = Interrupts::listen()?;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let bar = progress::bytes(0);
    let mut work = pin!(work);
    let mut interrupted = false;
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            _ = looks.tick() => {
                let (done, total) = monitor.progress();
                bar.set_length(total);
                bar.set_position(done);
            }
            _ = interrupts.next() => {
                if interrupted {
                    bar.suspend(|| eprintln!("interrupted twice: leaving"));
                    Exit::Interrupted.leave();
                }
                interrupted = true;
                monitor.end();
                bar.suspend(|| eprintln!("interrupted: cleaning up; again to leave at once"));
            }
        }
    };
    bar.finish_and_clear();
    match ended {
        Err(error) if matches!(error.downcast_ref(), Some(BackupError::Interrupted)) => Ok(None),
        ended => ended.map(Some),
    }
}
