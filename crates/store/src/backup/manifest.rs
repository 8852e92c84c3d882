use kukuri_core::{Epoch, FeedBounds, Seq};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
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

/// The layout of backups that this program writes and reads.
const FORMAT: u32 = 1;

/// How a manifest is kept: with its own checksum, which is that of its text as it stands there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed<'a> {
    #[serde(rename = "format")]
    _format: u32,
    sha256: String,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

/// The version of the layout, whatever else there is.
#[derive(Deserialize)]
struct Layout {
    format: u32,
}

/// Why a manifest cannot be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It has a layout of a later version.
    Newer,
    Damaged(String),
}

/// The text of the file for a manifest in JSON.
pub fn seal(manifest: &str) -> String {
    let sha256 = checksum(manifest);
    format!("{{\"format\": {FORMAT}, \"sha256\": \"{sha256}\", \"manifest\":\n{manifest}\n}}\n")
}

/// The manifest in the text of a file.
pub(super) fn unseal(text: &str) -> Result<Manifest, Unread> {
    let damaged = |error: serde_json::Error| Unread::Damaged(error.to_string());
    let Layout { format } = serde_json::from_str(text).map_err(damaged)?;
    if format > FORMAT {
        return Err(Unread::Newer);
    }
    let sealed: Sealed<'_> = serde_json::from_str(text).map_err(damaged)?;
    if format < FORMAT || sealed.sha256 != checksum(sealed.manifest.get()) {
        return Err(Unread::Damaged("its checksum is not the one it was made with".to_owned()));
    }
    let manifest: Manifest = serde_json::from_str(sealed.manifest.get()).map_err(damaged)?;
    for (nth, part) in manifest.parts.iter().enumerate() {
        let again = manifest.parts[..nth].iter().any(|other| other.file == part.file);
        if again || !part.is_plain() {
            let problem = if again { "is named twice" } else { "is no name of a part" };
            return Err(Unread::Damaged(format!("{:?} {problem}", part.file)));
        }
    }
    Ok(manifest)
}

fn checksum(text: &str) -> String {
    hex::encode(Sha256::digest(text))
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
    fn is_plain(&self) -> bool {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.".contains(&b);
        !self.file.is_empty() && self.file.bytes().all(plain) && !self.file.starts_with('.')
    }
}
