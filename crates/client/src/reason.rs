use std::fmt;

/// Why a relay said no, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub(crate) String);

/// The first word of a reason, which NIP-01 and NIP-42 mean for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    AuthRequired,
    Blocked,
    Duplicate,
    Error,
    Invalid,
    Mute,
    Pow,
    RateLimited,
    Restricted,
    Unknown,
}

impl Reason {
    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn prefix(&self) -> Prefix {
        match self.0.split_once(':').map_or("", |(prefix, _)| prefix) {
            "auth-required" => Prefix::AuthRequired,
            "blocked" => Prefix::Blocked,
            "duplicate" => Prefix::Duplicate,
            "error" => Prefix::Error,
            "invalid" => Prefix::Invalid,
            "mute" => Prefix::Mute,
            "pow" => Prefix::Pow,
            "rate-limited" => Prefix::RateLimited,
            "restricted" => Prefix::Restricted,
            _ => Prefix::Unknown,
        }
    }

    /// The feed goes on, but not from the cursor that was given.
    pub(crate) fn is_lost_cursor(&self) -> bool {
        ["error: cursor diverged", "error: cursor too old"].contains(&self.text())
    }

    /// The same question may be answered a little later.
    pub(crate) fn is_passing(&self) -> bool {
        self.prefix() == Prefix::RateLimited
            || ["error: too slow", "error: storage unavailable"].contains(&self.text())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
