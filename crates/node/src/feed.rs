//! `feed`: one JSON line per row.

use std::time::Duration;

use anyhow::Context;
use kukuri_core::{Cursor, FeedRow, Seq};
use kukuri_feed::{FeedError, POLL_INTERVAL, Tail};
use kukuri_store::StoreError;
use serde::Serialize;

use crate::cli::{Common, FeedArgs};
use crate::exit::Exit;
use crate::open::open_existing;
use crate::output::Output;

/// Rows per read.
const ROWS_MAX: usize = 1000;
/// The pause before a follower asks a store again that was away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A row as it is printed: these fields, in this order.
#[derive(Serialize)]
struct Line<'a> {
    seq: i64,
    op: &'static str,
    event_id: String,
    topic_id: &'a str,
    prior: Vec<&'a str>,
    kind: u16,
    pubkey: String,
    created_at: i64,
    ingested_at: i64,
    effective_key: Option<String>,
    reason: Option<&'static str>,
    source: &'static str,
    via: Option<&'a str>,
}

impl<'a> From<&'a FeedRow> for Line<'a> {
    fn from(row: &'a FeedRow) -> Self {
        Self {
            seq: row.seq.0,
            op: row.op.as_str(),
            event_id: row.event_id.to_hex(),
            topic_id: row.topic_id.as_str(),
            prior: row.prior.iter().map(|topic| topic.as_str()).collect(),
            kind: row.kind.0,
            pubkey: row.pubkey.to_hex(),
            created_at: row.created_at.0,
            ingested_at: row.ingested_at.0,
            effective_key: row.effective_key.as_ref().map(|key| key.to_text()),
            reason: row.reason.map(|reason| reason.as_str()),
            source: row.source.as_str(),
            via: row.via.as_ref().map(|topic| topic.as_str()),
        }
    }
}

pub async fn run(common: &Common, args: FeedArgs) -> anyhow::Result<Exit> {
    let opened = open_existing(common).await?;
    let bounds = opened.store.bounds().await.context("cannot read the feed's bounds")?;
    let after = Cursor { seq: args.after.map_or(bounds.floor, Seq), ..bounds.start() };
    let mut tail = Tail::new(opened.store, after, POLL_INTERVAL);
    let mut out = Output::stdout();
    loop {
        let rows = match args.follow {
            true => follow(&mut tail).await,
            false => tail.rows_so_far(ROWS_MAX).await,
        };
        let rows = rows.with_context(|| {
            format!("cannot read the feed of {} after row {}", opened.place, tail.cursor().seq)
        })?;
        if rows.is_empty() {
            return Ok(Exit::Done);
        }
        for row in &rows {
            out.json(&Line::from(row))?;
        }
        out.flush()?;
    }
}

/// A follower outlives a store that is away for a while.
async fn follow(tail: &mut Tail) -> Result<Vec<FeedRow>, FeedError> {
    let mut told = false;
    loop {
        match tail.next_rows(ROWS_MAX).await {
            Err(FeedError::Store(error @ StoreError::Unavailable(_))) => {
                if !told {
                    eprintln!("{error}; trying again until it is back");
                }
                told = true;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}
