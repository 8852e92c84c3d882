//! Who endorses what. Each event that does so has a row, and each voice, an author in one sort of
//! endorsement of one target, has how many of them there are: so a target is counted by looking at as many
//! voices as count, however often one of them has spoken.

use std::collections::{BTreeMap, BTreeSet};

use kukuri_event::EventId;
use kukuri_feed::{Column, Desk, DeskError, Given};

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

impl Tables {
    /// Returns those targets whose voices have changed.
    pub(crate) async fn replace_endorsements(
        &self,
        desk: &mut Desk,
        effects: &Effects,
    ) -> Result<BTreeSet<i64>, DeskError> {
        let events: Vec<i64> = effects.endorsements.keys().map(EventId::prefix).collect();
        if events.is_empty() {
            return Ok(BTreeSet::new());
        }
        let table = &self.endorsements;
        let (rows, value) = list(desk.dialect(), 1, &events);
        let sql = format!("SELECT target, author, sort FROM {table} WHERE event IN {rows}");
        let mut changes: BTreeMap<Voice, i64> = BTreeMap::new();
        for row in desk.rows(&sql, vec![value.clone().into()]).await? {
            let voice = Voice { target: row.int(0)?, author: row.int(1)?, sort: row.int(2)? };
            *changes.entry(voice).or_default() -= 1;
        }
        let sql = format!("DELETE FROM {table} WHERE event IN {rows}");
        desk.execute(&sql, vec![value.into()]).await?;

        let new: Vec<&Endorsement> = effects.endorsements.values().flatten().collect();
        let voices: Vec<Voice> = new.iter().map(|one| Voice::of(one)).collect();
        for voice in &voices {
            *changes.entry(*voice).or_default() += 1;
        }
        let event = |one: &&Endorsement| one.event_id.prefix();
        let [target, author, sort] = columns(&voices);
        let given = Given::new([("event", new.iter().map(event).collect()), target, author, sort]);
        let sql = format!(
            "INSERT INTO {table} (event, target, author, sort)
                 SELECT event, target, author, sort FROM given"
        );
        desk.bulk(&sql, given).await?;
        changes.retain(|_, change| *change != 0);
        self.change_voices(desk, &changes).await?;
        Ok(changes.keys().map(|voice| voice.target).collect())
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
