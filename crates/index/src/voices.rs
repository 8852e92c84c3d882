//! Who endorses what. Each event that does so has a row, and each voice, an author in one sort of
//! endorsement of one target, has how many of them there are: so a target is counted by looking at as many
//! voices as count, however often one of them has spoken.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_event::EventId;
use kukuri_feed::{Column, Desk, DeskError, Given, Row};

use crate::effects::Effects;
use crate::endorsement::Endorsement;
use crate::rank::POPULARITY_MAX;
use crate::tables::{Tables, list};

/// As it is in the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Voice {
    target: i64,
    author: i64,
    sort: i64,
}

impl Voice {
    fn of(endorsement: &Endorsement) -> Self {
        let Endorsement { target, author, sort, .. } = endorsement;
        Self { target: target.prefix(), author: author.prefix(), sort: sort.code().into() }
    }
}

/// What an event that endorses is known by: so much of its id that nobody finds another that begins alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventKey {
    event: i64,
    rest: i64,
}

impl EventKey {
    fn of(id: &EventId) -> Self {
        let rest = id.as_bytes()[8..].first_chunk().expect("an id has 32 bytes");
        Self { event: id.prefix(), rest: i64::from_be_bytes(*rest) }
    }
}

impl Tables {
    /// Returns those targets whose voices have changed.
    pub(crate) async fn replace_endorsements(
        &self,
        desk: &mut Desk,
        effects: &Effects,
    ) -> Result<BTreeSet<i64>, DeskError> {
        let here = self.endorsing(desk, effects).await?;
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        for (id, effect) in &effects.endorsements {
            let key = EventKey::of(id);
            match (effect, here.get(&key)) {
                (Some(endorsement), None) => new.push((key, Voice::of(endorsement))),
                (None, Some(voice)) => gone.push((key, *voice)),
                // The same event endorses the same.
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        let mut changes: BTreeMap<Voice, i64> = BTreeMap::new();
        for (voices, change) in [(&new, 1), (&gone, -1)] {
            voices.iter().for_each(|(_, voice)| *changes.entry(*voice).or_default() += change);
        }
        let table = &self.endorsements;
        let sql =
            format!("DELETE FROM {table} WHERE (event, rest) IN (SELECT event, rest FROM given)");
        let (keys, _): (Vec<EventKey>, Vec<Voice>) = gone.into_iter().unzip();
        desk.bulk(&sql, Given::new(key_columns(&keys))).await?;
        let sql = format!(
            "INSERT INTO {table} (event, rest, target, author, sort)
                 SELECT event, rest, target, author, sort FROM given"
        );
        let (keys, voices): (Vec<EventKey>, Vec<Voice>) = new.into_iter().unzip();
        let ([event, rest], [target, author, sort]) = (key_columns(&keys), columns(&voices));
        desk.bulk(&sql, Given::new([event, rest, target, author, sort])).await?;
        changes.retain(|_, change| *change != 0);
        self.change_voices(desk, &changes).await?;
        Ok(changes.keys().map(|voice| voice.target).collect())
    }

    /// Those events of a batch that endorse something already, and perhaps others that begin alike.
    async fn endorsing(
        &self,
        desk: &mut Desk,
        effects: &Effects,
    ) -> Result<BTreeMap<EventKey, Voice>, DeskError> {
        let events: Vec<i64> = effects.endorsements.keys().map(EventId::prefix).collect();
        if events.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (rows, value) = list(desk.dialect(), 1, &events);
        let sql = format!(
            "SELECT event, rest, target, author, sort FROM {} WHERE event IN {rows}",
            self.endorsements
        );
        let endorsing = |row: &Row| {
            let key = EventKey { event: row.int(0)?, rest: row.int(1)? };
            Ok((key, Voice { target: row.int(2)?, author: row.int(3)?, sort: row.int(4)? }))
        };
        desk.rows(&sql, vec![value.into()]).await?.iter().map(endorsing).collect()
    }

    /// Adds to how often each has spoken. Those that are not heard any more leave.
    async fn change_voices(
        &self,
        desk: &mut Desk,
        changes: &BTreeMap<Voice, i64>,
    ) -> Result<(), DeskError> {
        let table = &self.voices;
        let (voices, events): (Vec<Voice>, Vec<i64>) = changes.iter().unzip();
        let [target, author, sort] = columns(&voices);
        let events = ("events", events.into_iter().collect());
        let sql = format!(
            "INSERT INTO {table} (target, author, sort, events)
                 SELECT target, author, sort, events FROM given WHERE TRUE
                 ON CONFLICT (target, author, sort)
                     DO UPDATE SET events = {table}.events + excluded.events"
        );
        desk.bulk(&sql, Given::new([target, author, sort, events])).await?;
        let fewer: Vec<Voice> =
            changes.iter().filter(|(_, change)| **change < 0).map(|(voice, _)| *voice).collect();
        let sql = format!(
            "DELETE FROM {table} WHERE events = 0
                 AND (target, author, sort) IN (SELECT target, author, sort FROM given)"
        );
        desk.bulk(&sql, Given::new(columns(&fewer))).await?;
        Ok(())
    }

    /// Counts again how popular documents are, those of new documents that have been endorsed already
    /// and those whose endorsements have changed.
    pub(crate) async fn count(
        &self,
        desk: &mut Desk,
        new: BTreeSet<i64>,
        changed: BTreeSet<i64>,
    ) -> Result<(), DeskError> {
        let mut targets = self.endorsed(desk, new).await?;
        targets.extend(changed);
        if targets.is_empty() {
            return Ok(());
        }
        let Self { documents, voices, .. } = self;
        let targets: Vec<i64> = targets.into_iter().collect();
        let (rows, value) = list(desk.dialect(), 1, &targets);
        let sql = format!(
            "UPDATE {documents} SET popularity = (SELECT COUNT(*) FROM
                 (SELECT 1 FROM {voices} WHERE {voices}.target = {documents}.target
                      LIMIT {POPULARITY_MAX}) AS heard)
                 WHERE target IN {rows}"
        );
        desk.execute(&sql, vec![value.into()]).await?;
        Ok(())
    }

    /// Those of some targets that anybody endorses.
    async fn endorsed(
        &self,
        desk: &mut Desk,
        targets: BTreeSet<i64>,
    ) -> Result<BTreeSet<i64>, DeskError> {
        if targets.is_empty() {
            return Ok(targets);
        }
        let targets: Vec<i64> = targets.into_iter().collect();
        let (rows, value) = list(desk.dialect(), 1, &targets);
        let sql = format!(
            "SELECT sought.value FROM {rows} AS sought
                 WHERE EXISTS (SELECT 1 FROM {} WHERE target = sought.value)",
            self.voices
        );
        let found = desk.rows(&sql, vec![value.into()]).await?;
        found.iter().map(|row| row.int(0)).collect()
    }
}

fn columns(voices: &[Voice]) -> [(&'static str, Column); 3] {
    [
        ("target", voices.iter().map(|voice| voice.target).collect()),
        ("author", voices.iter().map(|voice| voice.author).collect()),
        ("sort", voices.iter().map(|voice| voice.sort).collect()),
    ]
}

fn key_columns(keys: &[EventKey]) -> [(&'static str, Column); 2] {
    [
        ("event", keys.iter().map(|key| key.event).collect()),
        ("rest", keys.iter().map(|key| key.rest).collect()),
    ]
}
