//! A small consumer with tables of its own: what visible posts say, by event and topic, and how often each
//! row was handled. The latter is what no consumer should do, because it makes rows that are handled twice
//! or not at all visible.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use kukuri_event::{EventId, Kind};
use kukuri_feed::{
    Column, Consumer, ConsumerName, Desk, DeskError, Digest, Generation, Given, Poison, Sample,
    Update, What,
};

pub const NAME: ConsumerName = ConsumerName::new("notes");

/// Contents with which a row misbehaves.
pub const POISON: &str = "poison";
pub const PANIC: &str = "panic";
pub const REFUSED: &str = "refused";
pub const KILL: &str = "kill";
pub const AWAY: &str = "away";

#[derive(Clone, Default)]
pub struct Notes {
    /// How often a row has ended its worker.
    pub kills: Arc<AtomicU64>,
    /// How often the tables are yet to be away when one that says so is written.
    pub absences: Arc<AtomicU64>,
    /// Whether rows that cannot be handled can be, after all.
    pub healed: Arc<AtomicBool>,
    /// Whether events are left out from now on, as a mistake in a projection would do.
    pub forgetful: Arc<AtomicBool>,
    pub version: u32,
}

pub type Key = (EventId, String);

pub struct Effects {
    /// The last word on every key: a text, or that there is none.
    notes: BTreeMap<Key, Option<String>>,
    handled: Vec<i64>,
    /// Whether a text that no column takes is among them, or one that ends the worker.
    refused: bool,
    kills: bool,
    away: bool,
}

#[async_trait]
impl Consumer for Notes {
    type Effects = Effects;

    fn name(&self) -> ConsumerName {
        NAME
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn wants(&self, kind: Kind) -> bool {
        wants(kind)
    }

    fn project(&self, updates: &[Update]) -> Result<Effects, Poison> {
        let healed = self.healed.load(Ordering::Relaxed);
        let mut notes = BTreeMap::new();
        let (mut refused, mut kills, mut away) = (false, false, false);
        for update in updates {
            let key = (update.event_id, update.topic_id.as_str().to_owned());
            let text = match &update.what {
                What::Upsert { body, .. } => body.event().content().to_owned(),
                What::Gone => continue,
                What::Delete { .. } => {
                    notes.insert(key, None);
                    continue;
                }
            };
            match text.as_str() {
                _ if healed => {}
                text if text.starts_with(POISON) => {
                    return Err(Poison("cannot make sense of it".into()));
                }
                PANIC => panic!("no idea"),
                REFUSED => refused = true,
                KILL => kills = true,
                AWAY => away = true,
                _ => {}
            }
            if !self.forgetful.load(Ordering::Relaxed) {
                notes.insert(key, Some(text));
            }
        }
        let handled = updates.iter().map(|update| update.seq.0).collect();
        Ok(Effects { notes, handled, refused, kills, away })
    }

    async fn create(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        let (notes, handled) = (generation.table("notes"), generation.table("handled"));
        let blob = desk.dialect().blob();
        desk.script(&format!(
            "CREATE TABLE {notes} (event_id {blob} NOT NULL, topic_id TEXT NOT NULL,
                content {blob} NOT NULL, PRIMARY KEY (event_id, topic_id));
             CREATE TABLE {handled} (seq BIGINT NOT NULL PRIMARY KEY, times BIGINT NOT NULL)"
        ))
        .await
    }

    async fn apply(
        &self,
        desk: &mut Desk,
        generation: Generation,
        effects: Effects,
    ) -> Result<(), DeskError> {
        let (notes, handled) = (generation.table("notes"), generation.table("handled"));
        let (kept, gone): (Vec<_>, Vec<_>) =
            effects.notes.into_iter().partition(|(_, text)| text.is_some());
        let keys = |rows: &[(Key, Option<String>)]| {
            let events: Column = rows.iter().map(|((id, _), _)| id.as_bytes().to_vec()).collect();
            let topics: Column = rows.iter().map(|((_, topic), _)| topic.clone()).collect();
            [("event_id", events), ("topic_id", topics)]
        };
        let delete = format!(
            "DELETE FROM {notes} WHERE (event_id, topic_id) IN
                (SELECT event_id, topic_id FROM given)"
        );
        desk.bulk(&delete, Given::new(keys(&gone))).await?;
        let texts: Column =
            kept.iter().map(|(_, text)| text.clone().unwrap_or_default().into_bytes()).collect();
        let columns = keys(&kept).into_iter().chain([("content", texts)]);
        let upsert = format!(
            "INSERT INTO {notes} (event_id, topic_id, content)
             SELECT event_id, topic_id, content FROM given WHERE TRUE
             ON CONFLICT (event_id, topic_id) DO UPDATE SET content = excluded.content"
        );
        desk.bulk(&upsert, Given::new(columns)).await?;
        let count = format!(
            "INSERT INTO {handled} (seq, times) SELECT seq, 1 FROM given WHERE TRUE
             ON CONFLICT (seq) DO UPDATE SET times = {handled}.times + 1"
        );
        desk.bulk(&count, Given::new([("seq", effects.handled.into_iter().collect())])).await?;
        if effects.refused {
            desk.execute(&format!("INSERT INTO {handled} (seq) VALUES ($1)"), vec![(-1i64).into()])
                .await?;
        }
        let absent = || {
            let left = |left: u64| left.checked_sub(1);
            self.absences.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
        };
        if effects.away && absent() {
            return Err(DeskError::Unavailable("as the test wants it".into()));
        }
        if effects.kills {
            self.kills.fetch_add(1, Ordering::Relaxed);
            panic!("a row that ends who works on it");
        }
        Ok(())
    }

    async fn digest(
        &self,
        desk: &mut Desk,
        generation: Generation,
        sample: Sample,
    ) -> Result<Digest, DeskError> {
        let notes = read_notes(desk, generation).await?;
        let sampled = notes.iter().filter(|((id, _), _)| sample.takes(id));
        let hash = sampled.fold(0u64, |hash, ((id, topic), text)| {
            let bytes = id.as_bytes().iter().chain(topic.as_bytes()).chain(text);
            bytes.fold(hash, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)))
        });
        Ok(Digest { rows: notes.len() as u64, hash })
    }

    async fn discard(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        let (notes, handled) = (generation.table("notes"), generation.table("handled"));
        desk.script(&format!("DROP TABLE IF EXISTS {notes}; DROP TABLE IF EXISTS {handled}")).await
    }
}

/// Everything but reactions.
pub fn wants(kind: Kind) -> bool {
    kind != Kind(7)
}

pub async fn read_notes(
    desk: &mut Desk,
    generation: Generation,
) -> Result<BTreeMap<Key, Vec<u8>>, DeskError> {
    let sql = format!("SELECT event_id, topic_id, content FROM {}", generation.table("notes"));
    let rows = desk.rows(&sql, vec![]).await?;
    rows.iter()
        .map(|row| {
            let id = row.blob(0)?.try_into().map_err(|_| DeskError::Broken("an id".into()))?;
            Ok(((EventId::from_bytes(id), row.text(1)?), row.blob(2)?))
        })
        .collect()
}

pub async fn read_handled(
    desk: &mut Desk,
    generation: Generation,
) -> Result<BTreeMap<i64, i64>, DeskError> {
    let sql = format!("SELECT seq, times FROM {}", generation.table("handled"));
    let rows = desk.rows(&sql, vec![]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect()
}
