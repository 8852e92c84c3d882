//! What changes generations as wholes: building, switching, retiring, and what an operator asks for. Each
//! of them raises the fence of the generations it touches: whoever works on one notices with its next
//! commit, which does not happen.

use kukuri_core::{Cursor, Seq};

use super::{Ledger, Role, Wish};
use crate::{Desk, DeskError, Generation, Value};

impl Ledger {
    /// Adds a generation that is to be built from the state, and from the feed after `from`, where this row
    /// is. The caller makes its tables in the same transaction. None if one is being built already.
    pub async fn begin(
        &self,
        desk: &mut Desk,
        version: u32,
        (from, last_row): (Cursor, Option<Vec<u8>>),
    ) -> Result<Option<Generation>, DeskError> {
        let now = desk.dialect().now_ms();
        let (building, name) = (Role::Building.code(), self.name.as_str());
        // On PostgreSQL two who begin at once wait for each other here.
        desk.execute(
            "UPDATE consumer_states SET wish = wish WHERE consumer = $1",
            vec![name.into()],
        )
        .await?;
        // A generation that was given up may have had the same number: the clock keeps their fences apart.
        let sql = format!(
            "INSERT INTO consumer_offsets (consumer, generation, role, version, epoch, last_seq,
                last_row, start_seq, scan_seq, holder, fence, lease_until, suspect_until, kills,
                tried_seq, tries, halted, updated_at)
             SELECT $1, (SELECT COALESCE(max(generation), 0) + 1 FROM consumer_offsets
                    WHERE consumer = $1), {building}, $2, $3, $4,
                $5, $4, 0, NULL, {now}, 0, 0, 0, 0, 0, NULL, {now}
             WHERE NOT EXISTS (SELECT 1 FROM consumer_offsets
                WHERE consumer = $1 AND role = {building})
             RETURNING generation"
        );
        let values = vec![
            name.into(),
            i64::from(version).into(),
            from.epoch.0.into(),
            from.seq.0.into(),
            last_row.into(),
        ];
        let row = desk.row(&sql, values).await?;
        row.map(|row| Ok(Generation(row.int(0)?))).transpose()
    }

    /// Where the active generation stands, which it does not leave before the transaction ends.
    pub async fn lock_active(
        &self,
        desk: &mut Desk,
    ) -> Result<Option<(Generation, Seq)>, DeskError> {
        let active = Role::Active.code();
        let sql = format!(
            "UPDATE consumer_offsets SET updated_at = updated_at
             WHERE consumer = $1 AND role = {active} RETURNING generation, last_seq"
        );
        let row = desk.row(&sql, vec![self.name.as_str().into()]).await?;
        row.map(|row| Ok((Generation(row.int(0)?), Seq(row.int(1)?)))).transpose()
    }

    /// From the commit on, everybody reads this generation. The one before is retired.
    pub async fn switch(&self, desk: &mut Desk, to: Generation) -> Result<(), DeskError> {
        let (name, now) = (self.name.as_str(), desk.dialect().now_ms());
        let (active, retired) = (Role::Active.code(), Role::Retired.code());
        let retire = format!(
            "UPDATE consumer_offsets SET role = {retired}, fence = fence + 1, holder = NULL,
                halted = NULL, updated_at = {now} WHERE consumer = $1 AND role = {active}"
        );
        desk.execute(&retire, vec![name.into()]).await?;
        let sql = format!(
            "UPDATE consumer_offsets SET role = {active}, halted = NULL
             WHERE consumer = $1 AND generation = $2"
        );
        desk.execute(&sql, vec![name.into(), to.0.into()]).await?;
        let sql = "UPDATE consumer_states SET active = $2 WHERE consumer = $1";
        desk.execute(sql, vec![name.into(), to.0.into()]).await?;
        Ok(())
    }

    /// Forgets a generation that is not active. The caller drops its tables in the same transaction.
    pub async fn forget(&self, desk: &mut Desk, generation: Generation) -> Result<bool, DeskError> {
        let values = || -> Vec<Value> { vec![self.name.as_str().into(), generation.0.into()] };
        let active = Role::Active.code();
        let sql = format!(
            "DELETE FROM consumer_offsets WHERE consumer = $1 AND generation = $2
                AND role <> {active}"
        );
        if desk.execute(&sql, values()).await? == 0 {
            return Ok(false);
        }
        let sql = "DELETE FROM parked WHERE consumer = $1 AND generation = $2";
        desk.execute(sql, values()).await?;
        Ok(true)
    }

    /// Pauses a consumer, or lets it go on, also from where it had halted.
    pub async fn wish(&self, desk: &mut Desk, wish: Wish) -> Result<(), DeskError> {
        let code: i64 = match wish {
            Wish::Running => 1,
            Wish::Paused => 2,
        };
        let name = self.name.as_str();
        let sql = "UPDATE consumer_states SET wish = $2 WHERE consumer = $1";
        desk.execute(sql, vec![name.into(), code.into()]).await?;
        let halted = if wish == Wish::Running { "NULL" } else { "halted" };
        let sql = format!(
            "UPDATE consumer_offsets SET fence = fence + 1, holder = NULL, halted = {halted}
             WHERE consumer = $1"
        );
        desk.execute(&sql, vec![name.into()]).await?;
        Ok(())
    }

    /// Puts a generation back to after a feed row that it has passed. False if it has not.
    pub async fn rewind(
        &self,
        desk: &mut Desk,
        generation: Generation,
        to: Cursor,
    ) -> Result<bool, DeskError> {
        let sql = "UPDATE consumer_offsets SET last_seq = $3, last_row = NULL, fence = fence + 1,
                holder = NULL, halted = NULL, suspect_until = 0, kills = 0
            WHERE consumer = $1 AND generation = $2 AND last_seq >= $3 AND epoch = $4
                AND scan_seq IS NULL";
        let values = vec![
            self.name.as_str().into(),
            generation.0.into(),
            to.seq.0.into(),
            to.epoch.0.into(),
        ];
        Ok(desk.execute(sql, values).await? == 1)
    }

    /// Takes a generation out of the hands of whoever works on it, for the rest of the transaction.
    pub async fn depose(&self, desk: &mut Desk, generation: Generation) -> Result<(), DeskError> {
        let sql = "UPDATE consumer_offsets SET fence = fence + 1, holder = NULL
            WHERE consumer = $1 AND generation = $2";
        desk.execute(sql, vec![self.name.as_str().into(), generation.0.into()]).await?;
        Ok(())
    }

    /// Forgets that a row was parked. False if it was not.
    pub async fn unpark(
        &self,
        desk: &mut Desk,
        generation: Generation,
        seq: Seq,
    ) -> Result<bool, DeskError> {
        let sql = "DELETE FROM parked WHERE consumer = $1 AND generation = $2 AND seq = $3";
        let values = vec![self.name.as_str().into(), generation.0.into(), seq.0.into()];
        Ok(desk.execute(sql, values).await? == 1)
    }
}
