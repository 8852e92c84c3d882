use kukuri_core::{Epoch, FeedBounds, Seq};
use serde::{Deserialize, Serialize};

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the layout of backups.
    pub format: u32,
    pub back_end: BackEnd,
    /// The version of the program that made it.
    pub program: String,
    /// Unix time in milliseconds.
    pub made_at: i64,
    pub schema_version: u32,
    pub feed: FeedSpan,
    pub tables: Vec<Table>,
    pub parts: Vec<Part>,
}

impl Manifest {
    /// The layout of backups that this program writes and reads.
    pub const FORMAT: u32 = 1;

    /// The number of rows in a table and all its partitions.
    pub fn rows(&self, table: &str) -> u64 {
        let within = self.tables.iter().filter(|one| one.is_within(table));
        within.map(|one| one.rows).sum()
    }

    /// The size of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// Who wrote the parts, and who alone can read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackEnd {
    Sqlite,
    Postgres,
}

impl std::fmt::Display for BackEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// The feed as of the moment of the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSpan {
    pub epoch: i64,
    pub floor_seq: i64,
    pub head_seq: i64,
}

impl FeedSpan {
    /// Whether a feed has the same rows, in whatever life.
    pub fn spans(&self, bounds: FeedBounds) -> bool {
        (self.floor_seq, self.head_seq) == (bounds.floor.0, bounds.head.0)
    }
}

impl From<FeedBounds> for FeedSpan {
    fn from(bounds: FeedBounds) -> Self {
        let FeedBounds { epoch: Epoch(epoch), floor: Seq(floor_seq), head: Seq(head_seq) } = bounds;
        Self { epoch, floor_seq, head_seq }
    }
}

/// A table that holds rows itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub name: String,
    pub rows: u64,
    /// In the order of the part, where a part holds this table alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
}

impl Table {
    /// Whether it is this table, or a partition of it.
    fn is_within(&self, name: &str) -> bool {
        let partition = self.partition.as_ref();
        self.name == name
            || partition.is_some_and(|partition| partition.of.iter().any(|of| of == name))
    }
}

/// Where a table belongs that is a part of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// The tables it is a part of, the nearest first.
    pub of: Vec<String>,
    /// Which rows it takes, as the server says it.
    pub values: String,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub file: String,
    pub bytes: u64,
    /// Of the whole file, in hex, as `sha256sum` prints it.
    pub sha256: String,
}

impl Part {
    /// A plain name: nothing that could lead out of the directory.
    pub(super) fn is_plain(&self) -> bool {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.".contains(&b);
        !self.file.is_empty() && self.file.bytes().all(plain) && !self.file.starts_with('.')
    }
}
