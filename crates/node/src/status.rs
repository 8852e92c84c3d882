//! `status`: what the node holds and allows, topic by topic, without a running node.

use anyhow::Context;
use indicatif::{HumanBytes, HumanDuration};
use kukuri_core::ladder::{Move, Step};
use kukuri_core::{
    Allowance, Belief, Capacity, FeedBounds, NodeState, NodeTopic, Retention, Storage, Task,
    UnixMillis, Usage,
};
use kukuri_store::{Extent, node_state};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::exit::Exit;
use crate::open::open_existing;
use crate::output::Output;
use crate::topic::{label, listed};
use crate::upkeep::belief_at_start;

struct Status {
    place: String,
    now: UnixMillis,
    /// What a node that starts now thinks of its clock.
    clock: Belief,
    feed: FeedBounds,
    node: NodeState,
    topics: Vec<(NodeTopic, Usage)>,
    extents: Vec<Extent>,
}

pub async fn run(common: &Common, as_json: bool) -> anyhow::Result<Exit> {
    let opened = open_existing(common).await?;
    let store = &*opened.store;
    let now = (opened.clock)();
    let status = Status {
        now,
        clock: belief_at_start(store, now).await.context("cannot read the feed")?,
        feed: store.bounds().await.context("cannot read the feed's bounds")?,
        node: node_state(store).await.context("cannot read what the node holds")?,
        topics: store.topics().await.context("cannot read the topics")?,
        extents: store.extents().await.context("cannot read the sizes of files and tables")?,
        place: opened.place,
    };
    let mut out = Output::stdout();
    if as_json {
        out.json(&status.json())?;
    } else {
        status.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

impl Status {
    /// Until when an instance does upkeep, if one does.
    fn upkept_until(&self) -> Option<UnixMillis> {
        self.node.leases.held_until(Task::Upkeep, self.now)
    }

    /// The same for backfill.
    fn backfilled_until(&self) -> Option<UnixMillis> {
        self.node.leases.held_until(Task::Backfill, self.now)
    }

    /// The step of the ladder, and how the node came there.
    fn ladder(&self) -> String {
        let step = self.node.allowance.step.as_str();
        match &self.node.past.last_move {
            Some(Move { from, at, reason, .. }) => {
                let ago = HumanDuration(at.until(self.now));
                format!("{step}, from {} {ago} ago: {reason}", from.as_str())
            }
            None => step.to_owned(),
        }
    }

    fn json(&self) -> Value {
        let NodeState { usage, allowance, .. } = &self.node;
        let extent = |extent: &Extent| json!({ "name": extent.name, "bytes": extent.bytes });
        json!({
            "store": self.place,
            "feed": { "epoch": self.feed.epoch.0, "floor": self.feed.floor.0, "head": self.feed.head.0 },
            "events": usage.events,
            "bytes": usage.bytes,
            "allowance": allowance,
            "ladder_step": allowance.step.as_str(),
            "ladder_move": self.node.past.last_move,
            "upkept_until": self.upkept_until(),
            "backfilled_until": self.backfilled_until(),
            "clock_ahead_seconds": match self.clock {
                Belief::Plausible => 0,
                Belief::Ahead { by } => by.as_secs(),
            },
            "topics": self.topics.iter().map(|(topic, usage)| listed(topic, *usage)).collect::<Vec<_>>(),
            "extents": self.extents.iter().map(extent).collect::<Vec<_>>(),
        })
    }

    fn rows(&self) -> String {
        let FeedBounds { floor, head, .. } = self.feed;
        match floor < head {
            true => format!("rows {} to {head}", floor.next()),
            false => format!("no rows; the next one is {}", head.next()),
        }
    }

    fn lines(&self) -> Vec<String> {
        let NodeState { usage, allowance, .. } = &self.node;
        let storage = match allowance.storage {
            Storage::Open => "open".to_owned(),
            Storage::Full { reserve_bytes } => {
                let reserve = HumanBytes(reserve_bytes);
                format!("closed but for deletions: less than {reserve} free on the disk")
            }
            Storage::Spent { reserve_bytes } => {
                format!("closed: less than {} free on the disk", HumanBytes(reserve_bytes))
            }
        };
        let upkeep = match self.upkept_until() {
            Some(_) => "a running node does it",
            None => "nobody does it: no node runs",
        };
        let backfill = match self.backfilled_until() {
            _ if allowance.step >= Step::StopBackfill => "stopped by the ladder",
            Some(_) => "a running node does it",
            None => "nobody does it: no node runs, or backfill.from is empty",
        };
        let mut lines = vec![
            format!("store    {}", self.place),
            format!("feed     {}", self.rows()),
            format!("holds    {} events, {}", usage.events, HumanBytes(usage.bytes)),
            format!("keeps    {}", keeps(allowance)),
            format!("storage  {storage}"),
            format!("ladder   {}", self.ladder()),
            format!("upkeep   {upkeep}"),
            format!("backfill {backfill}"),
            String::new(),
            format!("{:<9} {:>10} {:>14}  topic", "state", "events", "bytes"),
        ];
        if let Belief::Ahead { by } = self.clock {
            let line = format!("clock    doubted: the feed ended {} ago", HumanDuration(by));
            lines.insert(lines.len() - 2, line);
        }
        for (topic, usage) in &self.topics {
            let state = if topic.enabled { "carried" } else { "disabled" };
            let policy = serde_json::to_string(&topic.ingest_policy).unwrap_or_default();
            let policy = if policy == "{}" { String::new() } else { format!("  {policy}") };
            let (events, bytes) = (usage.events, usage.bytes);
            lines.push(format!("{state:<9} {events:>10} {bytes:>14}  {}{policy}", label(topic)));
        }
        lines.push(String::new());
        for Extent { name, bytes } in &self.extents {
            lines.push(format!("{:>12}  {name}", HumanBytes(*bytes).to_string()));
        }
        lines
    }
}

/// What holds where a topic says nothing else.
fn keeps(allowance: &Allowance) -> String {
    let Retention { regular_days, history_days, deletion_days } = allowance.retention;
    let Capacity { max_events, max_bytes } = allowance.capacity;
    let mut text = format!(
        "events {regular_days} days, replaced versions {history_days}, requests for deletion {deletion_days}"
    );
    let bounds = [
        max_events.map(|events| format!("{events} events")),
        max_bytes.map(|bytes| HumanBytes(bytes).to_string()),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    if !bounds.is_empty() {
        text.push_str(&format!("; at most {}", bounds.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use kukuri_core::ladder::{Cause, Reason};
    use kukuri_core::{Epoch, Past, Seq};

    use super::*;

    #[test]
    fn what_holds_everywhere_is_told() {
        let told = "events 30 days, replaced versions 7, requests for deletion 180";
        assert_eq!(keeps(&Allowance::STANDARD), told);
        let capacity = Capacity { max_events: Some(10), max_bytes: Some(2048) };
        let bounded = Allowance { capacity, ..Allowance::STANDARD };
        assert_eq!(keeps(&bounded), format!("{told}; at most 10 events, 2.00 KiB"));
    }

    #[test]
    fn the_last_move_of_the_ladder_is_told() {
        let (from, to) = (Step::None, Step::StopBackfill);
        let reason = Reason::Pressure(Cause::Events { events: 10, events_max: 9 });
        let moved = Move { from, to, at: UnixMillis(60_000), reason };
        let allowance = Allowance { step: to, ..Allowance::STANDARD };
        let past = Past { last_move: Some(moved), ..Past::default() };
        let status = Status {
            place: String::new(),
            now: UnixMillis(180_000),
            clock: Belief::Plausible,
            feed: FeedBounds { epoch: Epoch(1), floor: Seq::ZERO, head: Seq::ZERO },
            node: NodeState { allowance, past, ..NodeState::FRESH },
            topics: Vec::new(),
            extents: Vec::new(),
        };
        let told =
            "ladder   stop_backfill, from none 2 minutes ago: 10 events are stored, more than 9";
        assert!(status.lines().contains(&told.to_owned()), "{:?}", status.lines());
        let json = status.json();
        assert_eq!(json["ladder_move"]["at"], 60_000);
        assert_eq!(json["ladder_move"]["reason"]["pressure"]["events"]["events"], 10);
    }
}
