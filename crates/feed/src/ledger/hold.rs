//! Working on a generation: taking it, keeping it, moving it on, and giving it up.

use kukuri_core::{Cursor, Epoch, Op, Seq};

use super::{Ledger, Role, strange};
use crate::{Desk, DeskError, Generation, Row, Update, Value, What};

/// How many rows at most can have been under way when a holder ended, in numbers of feed rows. A chunk of
/// the state never spans more.
pub(crate) const FEED_WINDOW: i64 = 1000;
pub(crate) const STATE_WINDOW: i64 = 65_536;
/// Of how many rows a batch is after a holder has ended without a word.
pub(crate) const CAREFUL_ROWS: i64 = 32;

/// That a generation is this instance's to work on, and where it stands. It says nothing any more as soon
/// as somebody else has a newer fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub generation: Generation,
    pub fence: i64,
    pub role: Role,
    pub version: u32,
    pub cursor: Cursor,
    /// What the row at the cursor was; unknown where no row was handled yet.
    pub last_row: Option<Vec<u8>>,
    /// The feed row from which on the generation follows the feed.
    pub start: Seq,
    /// While the state is read: the number of the last event that is in.
    pub scan: Option<Seq>,
    suspect_until: Seq,
    kills: i64,
}

/// How carefully the next rows have to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    Usual,
    /// One holder has ended somewhere here.
    Few,
    /// Two have. Each row is marked before it is tried.
    Alone,
}

impl Hold {
    pub fn care(&self) -> Care {
        match self.kills {
            _ if self.suspect_until <= self.scan.unwrap_or(self.cursor.seq) => Care::Usual,
            0 => Care::Usual,
            1 => Care::Few,
            _ => Care::Alone,
        }
    }

    /// The hold after a batch.
    #[must_use]
    pub fn moved(mut self, mark: &Mark) -> Self {
        match mark {
            Mark::Feed { last_seq, last_row } => {
                self.cursor.seq = *last_seq;
                self.last_row = Some(last_row.clone());
            }
            Mark::State { scan } => self.scan = *scan,
        }
        self
    }
}

/// Where a generation stands after a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Feed {
        last_seq: Seq,
        last_row: Vec<u8>,
    },
    /// The state up to this event is in, or all of it.
    State {
        scan: Option<Seq>,
    },
}

const COLUMNS: &str = "fence, role, version, epoch, last_seq, last_row, start_seq, scan_seq,
    suspect_until, kills";

impl Ledger {
    /// Takes a generation, if nobody else has it and nothing forbids to work on it. A last holder that did
    /// not give it up is taken to have ended over one of the rows that come next.
    pub async fn acquire(
        &self,
        generation: Generation,
        holder: i64,
    ) -> Result<Option<Hold>, DeskError> {
        let mut writing = self.home.write().await?;
        let now = writing.desk().dialect().now_ms();
        let place = "COALESCE(scan_seq, last_seq)";
        let window =
            format!("CASE WHEN scan_seq IS NULL THEN {FEED_WINDOW} ELSE {STATE_WINDOW} END");
        let sql = format!(
            "UPDATE consumer_offsets SET fence = fence + 1, holder = $3, lease_until = {now} + $4,
                suspect_until = CASE
                    WHEN holder IS NULL THEN suspect_until
                    WHEN suspect_until <= {place} THEN {place} + {window}
                    WHEN scan_seq IS NULL AND suspect_until > last_seq + {CAREFUL_ROWS}
                        THEN last_seq + {CAREFUL_ROWS}
                    ELSE suspect_until END,
                kills = CASE
                    WHEN holder IS NULL THEN kills
                    WHEN suspect_until <= {place} THEN 1
                    ELSE kills + 1 END
             WHERE consumer = $1 AND generation = $2 AND halted IS NULL AND role <> {retired}
                AND (holder IS NULL OR holder = $3 OR lease_until <= {now}
                    OR lease_until > {now} + $4)
                AND EXISTS (SELECT 1 FROM consumer_states
                    WHERE consumer_states.consumer = $1 AND wish = 1)
             RETURNING {COLUMNS}",
            retired = Role::Retired.code(),
        );
        let values = vec![
            self.name.as_str().into(),
            generation.0.into(),
            holder.into(),
            self.lease_ms.into(),
        ];
        let row = writing.desk().row(&sql, values).await?;
        let hold = row.map(|row| hold(generation, &row)).transpose()?;
        writing.commit().await?;
        Ok(hold)
    }

    /// Where the generation stands, if it is still held with this fence: after a write of unknown outcome.
    pub async fn look(&self, held: &Hold) -> Result<Option<Hold>, DeskError> {
        let mut snapshot = self.home.read().await?;
        let sql = format!("SELECT {COLUMNS} FROM consumer_offsets {OWN}");
        let row = snapshot.desk().row(&sql, self.own(held)).await?;
        let found = row.map(|row| hold(held.generation, &row)).transpose();
        snapshot.end().await?;
        found
    }

    /// Keeps the generation for another lease. False if somebody else has it.
    pub async fn renew(&self, held: &Hold) -> Result<bool, DeskError> {
        let mut writing = self.home.write().await?;
        let now = writing.desk().dialect().now_ms();
        let lease = self.lease_ms;
        let sql = format!("UPDATE consumer_offsets SET lease_until = {now} + {lease} {OWN}");
        let kept = writing.desk().execute(&sql, self.own(held)).await? == 1;
        writing.commit().await?;
        Ok(kept)
    }

    /// Lets another instance go on at once.
    pub async fn release(&self, held: &Hold) -> Result<(), DeskError> {
        let mut writing = self.home.write().await?;
        let sql = format!("UPDATE consumer_offsets SET holder = NULL, lease_until = 0 {OWN}");
        writing.desk().execute(&sql, self.own(held)).await?;
        writing.commit().await
    }

    /// Says, durably, that a row is about to be tried alone. How often it was, this time included, but for
    /// times that were survived: this one stands for the last one if that was; none if somebody else has the
    /// generation.
    pub async fn try_alone(
        &self,
        held: &Hold,
        seq: Seq,
        survived: bool,
    ) -> Result<Option<i64>, DeskError> {
        let mut writing = self.home.write().await?;
        let sql = format!(
            "UPDATE consumer_offsets SET tried_seq = $4,
                tries = CASE WHEN tried_seq = $4 THEN tries + $5 ELSE 1 END
             {OWN} RETURNING tries"
        );
        let mut values = self.own(held);
        values.extend([Value::from(seq.0), i64::from(!survived).into()]);
        let row = writing.desk().row(&sql, values).await?;
        let tries = row.map(|row| row.int(0)).transpose()?;
        writing.commit().await?;
        Ok(tries)
    }

    /// Whether the generation is still held, which does not change before the transaction ends.
    pub async fn lock_own(&self, desk: &mut Desk, held: &Hold) -> Result<bool, DeskError> {
        let sql = format!("UPDATE consumer_offsets SET updated_at = updated_at {OWN}");
        Ok(desk.execute(&sql, self.own(held)).await? == 1)
    }

    /// Moves a generation on, in the transaction of the effects. False if somebody else has it, or if it
    /// does not stand where it is thought to: then nothing of the transaction may be committed.
    pub async fn advance(
        &self,
        desk: &mut Desk,
        held: &Hold,
        mark: &Mark,
    ) -> Result<bool, DeskError> {
        let (now, lease) = (desk.dialect().now_ms(), self.lease_ms);
        let (set, place): (_, i64) = match mark {
            Mark::Feed { last_seq, .. } => ("last_seq = $6, last_row = $7", last_seq.0),
            Mark::State { scan: Some(scan) } => ("scan_seq = $6, last_row = $7", scan.0),
            Mark::State { scan: None } => ("scan_seq = NULL, last_row = $7", i64::MAX),
        };
        let last_row = match mark {
            Mark::Feed { last_row, .. } => Some(last_row.clone()),
            Mark::State { .. } => held.last_row.clone(),
        };
        let sql = format!(
            "UPDATE consumer_offsets SET {set}, lease_until = {now} + {lease}, updated_at = {now},
                kills = CASE WHEN suspect_until <= $6 THEN 0 ELSE kills END,
                suspect_until = CASE WHEN suspect_until <= $6 THEN 0 ELSE suspect_until END,
                tried_seq = 0, tries = 0
             {OWN} AND last_seq = $4 AND COALESCE(scan_seq, -1) = $5"
        );
        let mut values = self.own(held);
        let scan = held.scan.map_or(-1, |scan| scan.0);
        values.extend([Value::from(held.cursor.seq.0), scan.into(), place.into(), last_row.into()]);
        Ok(desk.execute(&sql, values).await? == 1)
    }

    /// Puts an update aside, in the transaction that moves past it.
    pub async fn park(
        &self,
        desk: &mut Desk,
        held: &Hold,
        update: &Update,
        (reason, tries): (&str, i64),
    ) -> Result<(), DeskError> {
        let now = desk.dialect().now_ms();
        let sql = format!(
            "INSERT INTO parked (consumer, generation, seq, event_id, topic_id, op, reason, tries,
                parked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {now})
             ON CONFLICT (consumer, generation, seq) DO UPDATE
                SET reason = excluded.reason, tries = excluded.tries,
                    parked_at = excluded.parked_at"
        );
        let op = match update.what {
            What::Delete { .. } => Op::Delete,
            What::Upsert { .. } | What::Gone => Op::Upsert,
        };
        let values = vec![
            self.name.as_str().into(),
            held.generation.0.into(),
            update.seq.0.into(),
            update.event_id.as_bytes().as_slice().into(),
            update.topic_id.as_str().into(),
            i64::from(op.code()).into(),
            // PostgreSQL has no NUL in texts.
            reason.replace('\0', "\u{fffd}").into(),
            tries.into(),
        ];
        desk.execute(&sql, values).await?;
        Ok(())
    }

    /// Stands still from now on, until somebody has had a look.
    pub async fn halt(&self, held: &Hold, why: &str) -> Result<(), DeskError> {
        let mut writing = self.home.write().await?;
        let sql = format!(
            "UPDATE consumer_offsets SET halted = $4, holder = NULL, lease_until = 0 {OWN}"
        );
        let mut values = self.own(held);
        values.push(why.replace('\0', "\u{fffd}").into());
        writing.desk().execute(&sql, values).await?;
        writing.commit().await
    }

    fn own(&self, held: &Hold) -> Vec<Value> {
        vec![self.name.as_str().into(), held.generation.0.into(), held.fence.into()]
    }
}

/// Only the row of who holds the generation.
const OWN: &str = "WHERE consumer = $1 AND generation = $2 AND fence = $3";

fn hold(generation: Generation, row: &Row) -> Result<Hold, DeskError> {
    let version = row.int(2)?;
    Ok(Hold {
        generation,
        fence: row.int(0)?,
        role: Role::from_code(row.int(1)?)?,
        version: version.try_into().map_err(|_| strange("version", version))?,
        cursor: Cursor { epoch: Epoch(row.int(3)?), seq: Seq(row.int(4)?) },
        last_row: row.blob_or_null(5)?,
        start: Seq(row.int(6)?),
        scan: row.int_or_null(7)?.map(Seq),
        suspect_until: Seq(row.int(8)?),
        kills: row.int(9)?,
    })
}
