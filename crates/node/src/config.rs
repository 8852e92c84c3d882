//! What the operator wants: defaults, then the file, then the environment, then flags.

mod check;
mod layers;
mod settings;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kukuri_core::admission::Topicless;
use kukuri_core::{Capacity, Keeping, OnFull, Retention};
use kukuri_event::{Kind, UnixSeconds};
use kukuri_feed::OnLoss;
use kukuri_index::{KINDS_DEFAULT, Kinds, KindsError};
use kukuri_relay::{Allowance, Auth, AuthPolicy, RelayLimits};
use serde::{Deserialize, Serialize};

pub use layers::{ConfigError, Layers};
pub use settings::example;

use crate::backfill::{Allowed, BackfillSettings, HEAD_START, PASS_TIME_MAX};
use crate::cli::{AuthChoice, TopiclessChoice};
use crate::open::mask_password;
use crate::upkeep::UpkeepSettings;

/// Every setting. The file has the same names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub data: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    pub wakeup: WakeupChoice,
    pub network: String,
    pub relay: RelaySection,
    pub auth: AuthSection,
    pub admin: AdminSection,
    pub log: LogSection,
    pub retention: RetentionSection,
    pub capacity: CapacitySection,
    pub search: SearchSection,
    pub backfill: BackfillSection,
    pub gossip: GossipSection,
    pub limits: RelayLimits,
}

/// How a node on PostgreSQL learns what others have written there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WakeupChoice {
    /// The server tells, and it looks by itself now and then.
    #[default]
    Notify,
    /// It looks by itself.
    Poll,
}

/// Which other nodes are asked for what this one has missed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackfillSection {
    pub from: Vec<String>,
    pub interval_seconds: u64,
    pub window_days: u32,
    pub per_second: u32,
    pub events_max: u64,
}

/// Whether and where the node meets others in the swarms of its topics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GossipSection {
    pub mode: GossipMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    pub peers: Vec<String>,
    pub relays: Vec<String>,
    pub discovery: DiscoveryMode,
    pub mute_seconds: u64,
    pub neighbour: Allowance,
    pub all: Allowance,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GossipMode {
    #[default]
    On,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryMode {
    #[default]
    Off,
    Dns,
}

/// Whether events can be found by their words, and which.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSection {
    pub mode: SearchMode,
    pub kinds: Vec<u16>,
    pub stale_seconds: u64,
    pub rebuild: RebuildChoice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchMode {
    #[default]
    On,
    Off,
}

/// Who begins a new index when the old one does not lead on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RebuildChoice {
    /// The node.
    #[default]
    Auto,
    /// The operator.
    Manual,
}

/// How long what is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSection {
    pub regular_days: u32,
    pub history_days: u32,
    pub deletion_days: u32,
    pub feed_days: u32,
    pub clock: ClockTrust,
}

/// Whether what cannot be undone is done by a clock that is further ahead than can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockTrust {
    #[default]
    Doubt,
    Believe,
}

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySection {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    pub on_full: OnFull,
    pub soft_percent: u32,
    pub disk_reserve_mib: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_directory: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelaySection {
    pub listen: SocketAddr,
    pub urls: Vec<String>,
    pub name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pubkey: Option<String>,
    pub topicless: TopiclessChoice,
    pub trusted_proxies: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    pub mode: AuthChoice,
    /// Unix time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforce_at: Option<i64>,
    pub grace_seconds: u64,
    pub timeout_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminSection {
    pub listen: SocketAddr,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: "./data".into(),
            database: None,
            wakeup: WakeupChoice::Notify,
            network: "kukuri:main:".to_owned(),
            relay: RelaySection::default(),
            auth: AuthSection::default(),
            admin: AdminSection { listen: ([127, 0, 0, 1], 7778).into() },
            log: LogSection::default(),
            retention: RetentionSection::default(),
            capacity: CapacitySection::default(),
            search: SearchSection::default(),
            backfill: BackfillSection::default(),
            gossip: GossipSection::default(),
            limits: RelayLimits::STANDARD,
        }
    }
}

impl Default for RetentionSection {
    fn default() -> Self {
        let Retention { regular_days, history_days, deletion_days } = Retention::STANDARD;
        Self {
            regular_days,
            history_days,
            deletion_days,
            feed_days: Keeping::STANDARD.feed_days,
            clock: ClockTrust::Doubt,
        }
    }
}

impl Default for CapacitySection {
    fn default() -> Self {
        Self {
            max_events: None,
            max_bytes: None,
            on_full: OnFull::Evict,
            soft_percent: 90,
            disk_reserve_mib: 512,
            database_directory: None,
        }
    }
}

impl Default for SearchSection {
    fn default() -> Self {
        Self {
            mode: SearchMode::On,
            kinds: KINDS_DEFAULT.iter().map(|kind| kind.0).collect(),
            stale_seconds: 10,
            rebuild: RebuildChoice::Auto,
        }
    }
}

impl Default for BackfillSection {
    fn default() -> Self {
        Self {
            from: Vec::new(),
            interval_seconds: 600,
            window_days: 30,
            per_second: 2000,
            events_max: 1_000_000,
        }
    }
}

impl Default for GossipSection {
    fn default() -> Self {
        Self {
            mode: GossipMode::On,
            listen: None,
            peers: Vec::new(),
            relays: Vec::new(),
            discovery: DiscoveryMode::Off,
            mute_seconds: 60,
            neighbour: Allowance { per_minute: 30_000, burst: 10_000 },
            all: Allowance { per_minute: 60_000, burst: 20_000 },
        }
    }
}

impl BackfillSection {
    pub fn settings(&self) -> BackfillSettings {
        let Self { window_days, per_second, events_max, .. } = *self;
        BackfillSettings {
            from: self.from.clone(),
            interval: Duration::from_secs(self.interval_seconds),
            head_start: HEAD_START,
            allowed: Allowed { window_days, per_second, events_max, time_max: PASS_TIME_MAX },
        }
    }
}

impl SearchSection {
    pub fn on_loss(&self) -> OnLoss {
        match self.rebuild {
            RebuildChoice::Auto => OnLoss::Rebuild,
            RebuildChoice::Manual => OnLoss::Halt,
        }
    }

    pub fn kinds(&self) -> Result<Kinds, KindsError> {
        Kinds::new(self.kinds.iter().copied().map(Kind))
    }
}

impl Config {
    pub fn upkeep(&self) -> UpkeepSettings {
        let RetentionSection { regular_days, history_days, deletion_days, feed_days, .. } =
            self.retention;
        let CapacitySection {
            max_events, max_bytes, on_full, soft_percent, disk_reserve_mib, ..
        } = self.capacity;
        let memory_days = self.limits.events.dedupe_retention_days;
        UpkeepSettings {
            retention: Retention { regular_days, history_days, deletion_days },
            keeping: Keeping { memory_days: memory_days.try_into().unwrap_or(u32::MAX), feed_days },
            capacity: Capacity { max_events, max_bytes },
            on_full,
            soft_percent,
            disk_reserve_bytes: disk_reserve_mib.saturating_mul(1024 * 1024),
        }
    }
}

impl Default for RelaySection {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 7777).into(),
            urls: Vec::new(),
            name: "kukuri community node".to_owned(),
            description: String::new(),
            contact: None,
            pubkey: None,
            topicless: TopiclessChoice::Reject,
            trusted_proxies: Vec::new(),
        }
    }
}

impl Default for AuthSection {
    fn default() -> Self {
        let AuthPolicy { grace, timeout, .. } = AuthPolicy::OFF;
        Self {
            mode: AuthChoice::Off,
            enforce_at: None,
            grace_seconds: grace.as_secs(),
            timeout_seconds: timeout.as_secs(),
        }
    }
}

impl Default for AdminSection {
    fn default() -> Self {
        Config::default().admin
    }
}

impl Config {
    /// As it may be shown.
    pub fn masked(&self) -> Self {
        let database = self.database.as_deref().map(mask_password);
        Self { database, ..self.clone() }
    }

    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("settings are plain data")
    }
}

impl AuthSection {
    pub fn policy(&self) -> AuthPolicy {
        AuthPolicy {
            mode: match self.mode {
                AuthChoice::Off => Auth::Off,
                AuthChoice::Required => Auth::Required,
            },
            enforce_at: self.enforce_at.map(UnixSeconds),
            grace: Duration::from_secs(self.grace_seconds),
            timeout: Duration::from_secs(self.timeout_seconds),
        }
    }
}

impl From<TopiclessChoice> for Topicless {
    fn from(choice: TopiclessChoice) -> Self {
        match choice {
            TopiclessChoice::Reject => Self::Reject,
            TopiclessChoice::Global => Self::Global,
        }
    }
}
