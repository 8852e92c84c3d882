use std::time::Duration;

/// How a store uses its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub fsync: Fsync,
    pub wakeup: Wakeup,
    /// Connections for questions: those of clients, exports and audits, of any length.
    pub readers_max: usize,
    /// Connections for short reads of bounded size, such as live delivery waits for. The lane, the
    /// notifier and the listener have one more each.
    pub glances_max: usize,
    /// How long a read waits for a connection of its sort.
    pub acquire_timeout: Duration,
    /// How often the head is read when nobody tells of a commit.
    pub poll_interval: Duration,
    /// How many numbers of the feed a partition takes at least, of the feed and of events; more where the feed is
    /// long. Partitions that are there keep their size.
    pub partition_rows_min: u32,
}

impl Options {
    pub const STANDARD: Self = Self {
        fsync: Fsync::Required,
        wakeup: Wakeup::Notify,
        readers_max: 8,
        glances_max: 4,
        acquire_timeout: Duration::from_secs(5),
        poll_interval: Duration::from_millis(1500),
        partition_rows_min: 131_072,
    };
}

/// Whether a server that can lose commits is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    Required,
    AnyForTests,
}

/// How the commits of other processes are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// By notifications, with polling behind them.
    Notify,
    /// By polling alone: behind a transaction pooler notifications do not arrive.
    PollOnly,
}
