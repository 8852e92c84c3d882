//! What the operator wants: defaults, then the file, then the environment, then flags.

mod check;
mod layers;
mod settings;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kukuri_core::admission::Topicless;
use kukuri_event::UnixSeconds;
use kukuri_relay::{Auth, AuthPolicy, RelayLimits};
use serde::{Deserialize, Serialize};

pub use layers::{ConfigError, Layers};
pub use settings::example;

use crate::cli::{AuthChoice, TopiclessChoice};
use crate::open::mask_password;

/// Every setting. The file has the same names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub data: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    pub network: String,
    pub relay: RelaySection,
    pub auth: AuthSection,
    pub admin: AdminSection,
    pub log: LogSection,
    pub limits: RelayLimits,
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
            network: "kukuri:main:".to_owned(),
            relay: RelaySection::default(),
            auth: AuthSection::default(),
            admin: AdminSection { listen: ([127, 0, 0, 1], 7778).into() },
            log: LogSection::default(),
            limits: RelayLimits::STANDARD,
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
