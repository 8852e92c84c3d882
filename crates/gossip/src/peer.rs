//! How another node is named: `<id>`, `<id>@host:port`, `<id>|relay=<url>|addr=<host:port>`. Pure: names
//! of hosts are looked up elsewhere.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use iroh::{EndpointId, RelayUrl};

/// Longer texts name nobody.
const HINT_BYTES_MAX: usize = 2048;

/// A peer, and where it may be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHint {
    pub id: EndpointId,
    pub addresses: Vec<HostPort>,
    pub relays: Vec<RelayUrl>,
}

/// An address, or a name to look up, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// An IPv6 address stands here without its brackets.
    pub host: String,
    pub port: u16,
}

/// Why a text names no peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerHintError {
    #[error("longer than {HINT_BYTES_MAX} bytes")]
    TooLong,
    #[error(
        "it must begin with an endpoint id of 64 hex digits; `kukuri-node gossip info` prints one"
    )]
    Id,
    #[error("{0:?} is not host:port")]
    Address(String),
    #[error("{0:?} is not the URL of a relay server")]
    Relay(String),
    #[error("{0:?} is none of relay=, addr= and node=")]
    Key(String),
    #[error("it names two different nodes")]
    TwoIds,
}

impl FromStr for PeerHint {
    type Err = PeerHintError;

    fn from_str(text: &str) -> Result<Self, PeerHintError> {
        if text.len() > HINT_BYTES_MAX {
            return Err(PeerHintError::TooLong);
        }
        let mut parts = text.trim().split('|').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let (id, address) = match first.split_once('@') {
            Some((id, address)) => (id, Some(address)),
            None => (first, None),
        };
        let id = EndpointId::from_str(id).map_err(|_| PeerHintError::Id)?;
        let mut hint = Self { id, addresses: Vec::new(), relays: Vec::new() };
        address.map(|address| hint.add_address(address)).transpose()?;
        for part in parts {
            hint.add(part)?;
        }
        Ok(hint)
    }
}

impl PeerHint {
    fn add(&mut self, part: &str) -> Result<(), PeerHintError> {
        let other = || PeerHintError::Key(part.to_owned());
        let (key, value) = part.split_once('=').ok_or_else(other)?;
        match key.trim() {
            "addr" | "ip" => self.add_address(value.trim()),
            "relay" | "relay_url" => {
                let wrong = |_| PeerHintError::Relay(value.to_owned());
                let relay = RelayUrl::from_str(value.trim()).map_err(wrong)?;
                self.relays.push(relay);
                Ok(())
            }
            "node" | "node_id" => match EndpointId::from_str(value.trim()) {
                Ok(id) if id == self.id => Ok(()),
                Ok(_) => Err(PeerHintError::TwoIds),
                Err(_) => Err(PeerHintError::Id),
            },
            _ => Err(other()),
        }
    }

    fn add_address(&mut self, text: &str) -> Result<(), PeerHintError> {
        self.addresses.push(text.parse()?);
        Ok(())
    }
}

impl From<SocketAddr> for HostPort {
    fn from(at: SocketAddr) -> Self {
        Self { host: at.ip().to_string(), port: at.port() }
    }
}

impl FromStr for HostPort {
    type Err = PeerHintError;

    fn from_str(text: &str) -> Result<Self, PeerHintError> {
        let wrong = || PeerHintError::Address(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?.to_string(),
            None => host.to_owned(),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        let named = !host.is_empty() && host.chars().all(plain);
        let v6_or_name = !host.contains(':') || text.starts_with('[');
        if named && v6_or_name { Ok(Self { host, port }) } else { Err(wrong()) }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// As it is parsed: one address is written the short way.
impl fmt::Display for PeerHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        if let ([address], []) = (&self.addresses[..], &self.relays[..]) {
            return write!(f, "@{address}");
        }
        self.relays.iter().try_for_each(|relay| write!(f, "|relay={relay}"))?;
        self.addresses.iter().try_for_each(|address| write!(f, "|addr={address}"))
    }
}

/// How a node that listens on these addresses can be named: by all at once, and by each alone, since a
/// reader may know which of them can be reached. Addresses that stand for all say nothing.
pub fn hints(
    id: EndpointId,
    addresses: impl IntoIterator<Item = SocketAddr>,
    relays: &[RelayUrl],
) -> Vec<PeerHint> {
    let mut addresses: Vec<SocketAddr> =
        addresses.into_iter().filter(|at| !at.ip().is_unspecified()).collect();
    addresses.sort_by_key(|at| (at.is_ipv6(), *at));
    addresses.dedup();
    let hint = |addresses: &[SocketAddr], relays: &[RelayUrl]| {
        let addresses = addresses.iter().copied().map(HostPort::from).collect();
        PeerHint { id, addresses, relays: relays.to_vec() }
    };
    let mut hints: Vec<PeerHint> = addresses.chunks(1).map(|one| hint(one, &[])).collect();
    if !relays.is_empty() || hints.is_empty() {
        hints.insert(0, hint(&addresses, relays));
    }
    hints
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;
    use proptest::prelude::*;

    use super::*;

    fn id(seed: u8) -> EndpointId {
        SecretKey::from_bytes(&[seed; 32]).public()
    }

    #[test]
    fn every_form_of_the_earlier_node_is_understood() {
        let id = id(1);
        let cases: &[(&str, &[&str], usize)] = &[
            ("{id}", &[], 0),
            ("{id}@203.0.113.5:11223", &["203.0.113.5:11223"], 0),
            ("{id}@relay.example:11223", &["relay.example:11223"], 0),
            ("{id}@[2001:db8::1]:11223", &["[2001:db8::1]:11223"], 0),
            ("{id}|relay=https://r.example", &[], 1),
            ("{id}|relay=https://r.example|addr=203.0.113.5:11223", &["203.0.113.5:11223"], 1),
            ("{id}@h:1|relay_url=https://r.example|node={id}|ip=h:2", &["h:1", "h:2"], 1),
            (" {id} | addr = localhost:1 ", &["localhost:1"], 0),
        ];
        for (text, addresses, relays) in cases {
            let text = text.replace("{id}", &id.to_string());
            let hint: PeerHint = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            let found: Vec<String> = hint.addresses.iter().map(ToString::to_string).collect();
            assert_eq!((hint.id, hint.relays.len()), (id, *relays), "{text}");
            assert_eq!(found, *addresses, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let (id, other) = (id(1), id(2));
        let long = format!("{id}|addr={}:1", "a".repeat(HINT_BYTES_MAX));
        let cases = [
            (String::new(), PeerHintError::Id),
            ("relay=https://r.example|x".to_owned(), PeerHintError::Id),
            (format!("{}0", id), PeerHintError::Id),
            (format!("{id}@host"), PeerHintError::Address("host".to_owned())),
            (format!("{id}@host:0"), PeerHintError::Address("host:0".to_owned())),
            (format!("{id}@host:65536"), PeerHintError::Address("host:65536".to_owned())),
            (format!("{id}@:1"), PeerHintError::Address(":1".to_owned())),
            (format!("{id}@2001:db8::1:1"), PeerHintError::Address("2001:db8::1:1".to_owned())),
            (format!("{id}@ho st:1"), PeerHintError::Address("ho st:1".to_owned())),
            (format!("{id}|addr="), PeerHintError::Address(String::new())),
            (format!("{id}|relay="), PeerHintError::Relay(String::new())),
            (format!("{id}|foo=bar"), PeerHintError::Key("foo=bar".to_owned())),
            (format!("{id}|"), PeerHintError::Key(String::new())),
            (format!("{id}|node={other}"), PeerHintError::TwoIds),
            (long, PeerHintError::TooLong),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<PeerHint>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            seed in any::<u8>(),
            ports in proptest::collection::vec((0..3_usize, 1..=u16::MAX), 0..4),
            relays in 0..3_u8,
        ) {
            let hosts = ["127.0.0.1", "relay.example", "2001:db8::1"];
            let addresses = ports.iter().map(|(host, port)| HostPort {
                host: hosts[*host].to_owned(),
                port: *port,
            });
            let relays = (0..relays).map(|nth| format!("https://r{nth}.example").parse().unwrap());
            let hint =
                PeerHint { id: id(seed), addresses: addresses.collect(), relays: relays.collect() };
            prop_assert_eq!(hint.to_string().parse::<PeerHint>(), Ok(hint));
        }

        #[test]
        fn no_text_is_too_strange(text in ".{0,80}", with_id in any::<bool>()) {
            let text = if with_id { format!("{}{text}", id(3)) } else { text };
            if let Ok(hint) = text.parse::<PeerHint>() {
                prop_assert_eq!(hint.to_string().parse::<PeerHint>(), Ok(hint));
            }
        }
    }
}
