//! NIP-42: proving to hold a key. The proof is bound to this connection, by its challenge, and to this
//! relay, by its address: one that another relay was given is worth nothing here.

use kukuri_core::UnixMillis;
use kukuri_event::{Event, Kind, Pubkey};

/// How far the clocks of client and relay may differ.
const CLOCK_SECONDS_MAX: i64 = 120;

/// Why a proof is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("invalid: malformed event")]
    Malformed,
    #[error("invalid: AUTH takes an event of kind 22242")]
    Kind,
    #[error("invalid: created_at is too far from now")]
    Time,
    #[error("invalid: wrong challenge")]
    Challenge,
    #[error("invalid: wrong relay")]
    Relay,
    #[error("invalid: id does not match")]
    Id,
    #[error("invalid: bad signature")]
    Signature,
}

/// The key that is proved. Cheap checks come first.
pub fn check(
    text: &str,
    challenge: &str,
    urls: &[String],
    now: UnixMillis,
) -> Result<Pubkey, AuthError> {
    let event = Event::parse(text).map_err(|_| AuthError::Malformed)?;
    if event.kind() != Kind::AUTH {
        return Err(AuthError::Kind);
    }
    if (event.created_at().0 - now.seconds().0).abs() > CLOCK_SECONDS_MAX {
        return Err(AuthError::Time);
    }
    if event.tags().values("challenge").next() != Some(challenge) {
        return Err(AuthError::Challenge);
    }
    let relay = event.tags().values("relay").next().and_then(normal);
    if relay.is_none() || !urls.iter().any(|url| normal(url) == relay) {
        return Err(AuthError::Relay);
    }
    let event = event.identify().map_err(|_| AuthError::Id)?;
    let event = event.verify().map_err(|_| AuthError::Signature)?;
    Ok(event.event().pubkey())
}

/// Scheme, host with port, and path of a relay's address, in one spelling.
fn normal(url: &str) -> Option<(String, String, String)> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.to_ascii_lowercase();
    let standard = match scheme.as_str() {
        "ws" => ":80",
        "wss" => ":443",
        _ => return None,
    };
    let host = host.strip_suffix(standard).unwrap_or(&host).to_owned();
    (!host.is_empty()).then(|| (scheme, host, path.trim_end_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_in_one_spelling() {
        let same = ["wss://Relay.example", "wss://relay.example/", "wss://relay.example:443"];
        assert!(same.iter().all(|url| normal(url) == normal(same[0]) && normal(url).is_some()));
        for other in ["ws://relay.example", "wss://relay.example/x", "wss://relay.example.evil"] {
            assert_ne!(normal(other), normal(same[0]), "{other}");
        }
        for none in ["", "relay.example", "http://relay.example", "wss://", "wss:///path"] {
            assert_eq!(normal(none), None, "{none}");
        }
    }
}
