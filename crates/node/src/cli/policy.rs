//! What can be said about how long and how much is kept.

use std::fmt::Display;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use kukuri_core::{Backfill, OnFull, Priority, UnixMillis};
use kukuri_event::UnixSeconds;

/// A number, or `default`: what the node does where a topic says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<T>(pub Option<T>);

impl<T: FromStr<Err: Display>> FromStr for Wish<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self(None));
        }
        let wrong = |error| format!("{error}; give a whole number, or `default`");
        text.parse().map(|number| Self(Some(number))).map_err(wrong)
    }
}

#[derive(Args, Debug)]
pub struct PolicyArgs {
    pub name_or_id: String,
    /// How long regular events are kept, in days (0: for about a minute), or `default`.
    #[arg(long, value_name = "DAYS", allow_negative_numbers = true)]
    pub retention_days: Option<Wish<u32>>,
    /// How many events the topic may hold, hidden ones included, or `default`: any number.
    #[arg(long, value_name = "EVENTS", allow_negative_numbers = true)]
    pub max_events: Option<Wish<u64>>,
    /// How many bytes they may have together, or `default`: any number.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub max_bytes: Option<Wish<u64>>,
    /// How far a consumer of the feed may be behind before the node takes in less, or `default`.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub max_lag_seconds: Option<Wish<u32>>,
    /// Topics of low priority are the first that take nothing in when the node is short of room.
    #[arg(long, value_enum)]
    pub priority: Option<PriorityChoice>,
    /// Whether the topic's history may be asked for at other nodes.
    #[arg(long, value_enum)]
    pub backfill: Option<BackfillChoice>,
    /// What happens at a limit: the oldest events leave, or new ones are refused.
    #[arg(long, value_enum)]
    pub on_full: Option<OnFullChoice>,
}

/// A choice on the command line for each variant of a type of the rules.
macro_rules! choice {
    ($choice:ident for $rule:ident { $($variant:ident),+ }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        pub enum $choice { $($variant),+ }

        impl From<$choice> for $rule {
            fn from(choice: $choice) -> Self {
                match choice { $($choice::$variant => Self::$variant),+ }
            }
        }
    };
}

choice!(PriorityChoice for Priority { Low, Normal });
choice!(BackfillChoice for Backfill { On, Off });
choice!(OnFullChoice for OnFull { Evict, Refuse });

#[derive(Args, Debug)]
pub struct PurgeArgs {
    /// Only this topic.
    #[arg(long, value_name = "NAME|ID")]
    pub topic: Option<String>,
    /// Everything that was taken in before then, current versions included: Unix seconds, or an age such
    /// as 30d or 12h. Without it, what the policies in force no longer keep.
    #[arg(long, value_name = "TIME|AGE", allow_hyphen_values = true)]
    pub before: Option<Before>,
    /// Say what would leave, in events and bytes, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// A time, or how long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    At(UnixSeconds),
    Ago { seconds: i64 },
}

impl Before {
    pub fn at(self, now: UnixMillis) -> UnixMillis {
        let seconds = match self {
            Self::At(seconds) => seconds,
            Self::Ago { seconds } => now.seconds().saturating_sub(seconds),
        };
        seconds.into()
    }
}

impl FromStr for Before {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let number: Result<u32, _> = text.parse();
            number.map(i64::from).map_err(|_| "expected Unix seconds, or an age such as 30d or 12h")
        };
        match (text.strip_suffix('d'), text.strip_suffix('h')) {
            (Some(days), _) => Ok(Self::Ago { seconds: number(days)? * 24 * 60 * 60 }),
            (_, Some(hours)) => Ok(Self::Ago { seconds: number(hours)? * 60 * 60 }),
            _ => Ok(Self::At(UnixSeconds(number(text)?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ages_are_read() {
        let now = UnixMillis(1_700_000_000_500);
        for (text, at) in [
            ("1700000000", 1_700_000_000_000),
            ("1d", 1_699_913_600_000),
            ("2h", 1_699_992_800_000),
            ("0d", 1_700_000_000_000),
        ] {
            assert_eq!(text.parse::<Before>().unwrap().at(now), UnixMillis(at), "{text}");
        }
        for text in ["", "d", "-1d", "1w", "yesterday", "1.5d", "99999999999999999999"] {
            assert!(text.parse::<Before>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_wish_is_a_number_or_the_default() {
        assert_eq!("7".parse(), Ok(Wish(Some(7_u32))));
        assert_eq!("default".parse(), Ok(Wish::<u32>(None)));
        assert!("-1".parse::<Wish<u32>>().is_err() && "".parse::<Wish<u32>>().is_err());
    }
}
