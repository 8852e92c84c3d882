//! What is PostgreSQL's own: the schema, partitions, connections and how they break, and word of
//! commits between processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "postgres/backup.rs"]
mod backup;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/partitions.rs"]
mod partitions;
#[path = "postgres/queries.rs"]
mod queries;
#[path = "postgres/readers.rs"]
mod readers;
#[path = "postgres/rig.rs"]
mod rig;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/stray.rs"]
mod stray;
#[path = "postgres/tidy.rs"]
mod tidy;
#[path = "postgres/unseen.rs"]
mod unseen;
#[path = "postgres/wakeup.rs"]
mod wakeup;
