//! The rules of the node: topic ids, admission, treatment of events, feed types. Knows no I/O, no
//! clock, no randomness, no async, no SQL and no sockets: time and facts are arguments.
//!
//! An event passes [`admission`] and becomes [`Admitted`]; inside a [`Command`] it enters the lane.
//! There [`needs`] names every key the rules may ask for, a store loads them as [`Facts`], and
//! [`decide`] folds the batch over them into a [`Decision`]: what to write, what the feed says, and
//! what each waiter is told once the decision is durable.

pub mod admission;
pub mod backfill;
mod belief;
mod command;
mod decide;
mod decision;
mod feed;
pub mod ladder;
mod limits;
mod needs;
mod node;
mod plan;
mod policy;
pub mod rate;
mod record;
mod rejection;
mod time;
mod topic;
mod version;
mod view;

pub use admission::Admitted;
pub use belief::{ABSENCE_MAX, AHEAD_MAX, Belief, Passed, Witness, believe};
pub use command::{Act, Command, Sighting, UnlinkReason};
pub use decide::{Known, decide, known};
pub use decision::{Change, Decision, Duplicate, Outcome, Removed, WriteSet};
pub use feed::{Cursor, CursorError, Epoch, FeedBounds, FeedRow, Op, Reason, Seq, Source};
pub use limits::{FUTURE_SECONDS_BOUND, Limits, TAG_VALUE_INDEXED_BYTES_MAX};
pub use needs::{ReadSet, follow_up, needs};
pub use node::{Allowance, Fence, Holder, Lease, Leases, NodeKey, NodeState, Past, Storage, Task};
pub use plan::{Keeping, Look, Stats, plan};
pub use policy::{Backfill, Capacity, Cutoffs, IngestPolicy, OnFull, Priority, Retention, Shelf};
pub use record::{Dedupe, Keep, Link, Record, State, Tombstone, TombstoneKey, Usage, tag_key};
pub use rejection::Rejection;
pub use time::UnixMillis;
pub use topic::{Mapping, NetworkId, NodeTopic, TopicError, TopicId, gossip_topic};
pub use version::{Mark, MarkState, Version, VersionKey};
pub use view::{Facts, View};
