//! What the ledger says, for everybody.

use kukuri_core::{Cursor, Epoch, FeedRow, Op, Seq, TopicId, UnixMillis};
use kukuri_event::EventId;

use super::{Ledger, strange};
use crate::{Desk, DeskError, Generation, Home, Row};

/// What is wanted of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Running,
    Paused,
}

/// What a generation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is being made from the state, and follows the feed until it can take over.
    Building,
    /// It is the one that is read.
    Active,
    /// It was the one that is read. It goes when nobody can be reading it any more.
    Retired,
}

impl Role {
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Building => 1,
            Self::Active => 2,
            Self::Retired => 3,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Active => "active",
            Self::Retired => "retired",
        }
    }

    pub(crate) fn from_code(code: i64) -> Result<Self, DeskError> {
        [Self::Building, Self::Active, Self::Retired]
            .into_iter()
            .find(|role| role.code() == code)
            .ok_or_else(|| strange("role", code))
    }
}

/// A generation as its row tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationState {
    pub generation: Generation,
    pub role: Role,
    pub version: u32,
    /// The last feed row that is in it.
    pub cursor: Cursor,
    /// The feed row from which on it follows the feed.
    pub start: Seq,
    /// While the state is read: the number of the last event that is in it.
    pub scan: Option<Seq>,
    /// Whether somebody works on it.
    pub held: bool,
    pub fence: i64,
    /// Why it stands still until somebody has a look.
    pub halted: Option<String>,
    pub updated_at: UnixMillis,
    pub parked: u64,
}

/// The generation that is to be read, as of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    pub generation: Generation,
    /// Of the consumer that made it: who reads looks whether it can make sense of the tables.
    pub version: u32,
    pub cursor: Cursor,
}

/// A row that a generation could not handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub generation: Generation,
    pub seq: Seq,
    pub event_id: EventId,
    pub topic_id: TopicId,
    pub op: Op,
    pub reason: String,
    pub tries: u32,
    pub parked_at: UnixMillis,
}

/// Everything that the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub wish: Wish,
    pub active: Option<Generation>,
    /// The oldest first.
    pub generations: Vec<GenerationState>,
    /// The database's clock.
    pub now: UnixMillis,
}

impl View {
    pub fn with_role(&self, role: Role) -> Option<&GenerationState> {
        self.generations.iter().find(|state| state.role == role)
    }
}

impl Ledger {
    pub async fn view(&self) -> Result<View, DeskError> {
        let mut snapshot = self.home.read().await?;
        let view = self.view_at(snapshot.desk()).await?;
        snapshot.end().await?;
        Ok(view)
    }

    pub async fn view_at(&self, desk: &mut Desk) -> Result<View, DeskError> {
        let now = desk.dialect().now_ms();
        let name = self.name.as_str();
        let sql = format!("SELECT active, wish, {now} FROM consumer_states WHERE consumer = $1");
        let row = desk.row(&sql, vec![name.into()]).await?;
        let row = row.ok_or_else(|| DeskError::Broken(format!("{name} is not registered")))?;
        let wish = match row.int(1)? {
            1 => Wish::Running,
            2 => Wish::Paused,
            other => return Err(strange("wish", other)),
        };
        let (active, now) = (row.int_or_null(0)?.map(Generation), UnixMillis(row.int(2)?));
        let sql = "SELECT generation, role, version, epoch, last_seq, start_seq, scan_seq, holder,
                lease_until, fence, halted, updated_at,
                (SELECT count(*) FROM parked WHERE parked.consumer = consumer_offsets.consumer
                    AND parked.generation = consumer_offsets.generation)
            FROM consumer_offsets WHERE consumer = $1 ORDER BY generation";
        let rows = desk.rows(sql, vec![name.into()]).await?;
        let generations = rows.iter().map(|row| state(row, now)).collect::<Result<_, _>>()?;
        Ok(View { wish, active, generations, now })
    }

    pub async fn parked(&self, rows_max: usize) -> Result<Vec<Parked>, DeskError> {
        let mut snapshot = self.home.read().await?;
        let sql = "SELECT generation, seq, event_id, topic_id, op, reason, tries, parked_at
            FROM parked WHERE consumer = $1 ORDER BY generation, seq LIMIT $2";
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let values = vec![self.name.as_str().into(), limit.into()];
        let rows = snapshot.desk().rows(sql, values).await?;
        let parked = rows.iter().map(parked).collect();
        snapshot.end().await?;
        parked
    }
}

impl Home {
    /// The generation to read, as of the snapshot that the desk belongs to; none before the first one is
    /// built.
    pub async fn active(&self, desk: &mut Desk) -> Result<Option<Active>, DeskError> {
        let sql = "SELECT active, epoch, last_seq, version FROM consumer_states
            JOIN consumer_offsets ON consumer_offsets.consumer = consumer_states.consumer
                AND consumer_offsets.generation = consumer_states.active
            WHERE consumer_states.consumer = $1";
        let row = desk.row(sql, vec![self.name().as_str().into()]).await?;
        row.map(|row| {
            let cursor = Cursor { epoch: Epoch(row.int(1)?), seq: Seq(row.int(2)?) };
            let version = version(row.int(3)?)?;
            Ok(Active { generation: Generation(row.int(0)?), version, cursor })
        })
        .transpose()
    }
}

fn state(row: &Row, now: UnixMillis) -> Result<GenerationState, DeskError> {
    Ok(GenerationState {
        generation: Generation(row.int(0)?),
        role: Role::from_code(row.int(1)?)?,
        version: version(row.int(2)?)?,
        cursor: Cursor { epoch: Epoch(row.int(3)?), seq: Seq(row.int(4)?) },
        start: Seq(row.int(5)?),
        scan: row.int_or_null(6)?.map(Seq),
        held: row.int_or_null(7)?.is_some() && row.int(8)? > now.0,
        fence: row.int(9)?,
        halted: row.text_or_null(10)?,
        updated_at: UnixMillis(row.int(11)?),
        parked: row.int(12)?.try_into().unwrap_or(0),
    })
}

fn version(number: i64) -> Result<u32, DeskError> {
    number.try_into().map_err(|_| strange("version", number))
}

fn parked(row: &Row) -> Result<Parked, DeskError> {
    let id = row.blob(2)?;
    let id: [u8; 32] = id.try_into().map_err(|_| strange("an id of another length", 0))?;
    let topic = row.text(3)?;
    let (op, tries) = (row.int(4)?, row.int(6)?);
    Ok(Parked {
        generation: Generation(row.int(0)?),
        seq: Seq(row.int(1)?),
        event_id: EventId::from_bytes(id),
        topic_id: TopicId::parse(&topic)
            .map_err(|_| DeskError::Broken(format!("no topic: {topic}")))?,
        op: i16::try_from(op).ok().and_then(Op::from_code).ok_or_else(|| strange("op", op))?,
        reason: row.text(5)?,
        tries: tries.try_into().map_err(|_| strange("tries", tries))?,
        parked_at: UnixMillis(row.int(7)?),
    })
}

/// What tells a row from that of another feed with the same number.
pub(crate) fn digest_of_row(row: &FeedRow) -> Vec<u8> {
    let mut digest = row.event_id.as_bytes().to_vec();
    digest.extend_from_slice(&row.ingested_at.0.to_be_bytes());
    digest.extend_from_slice(&row.op.code().to_be_bytes());
    digest
}
