//! Who is at the other end, as far as rates and counts are concerned.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// One sender: an IPv4 address, or the /64 that a household or a server has of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sender(IpAddr);

impl From<IpAddr> for Sender {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

/// A range of addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: expected an address or a range, such as 127.0.0.1 or 10.0.0.0/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = prefix.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
        if prefix_bits > bits {
            return Err(wrong());
        }
        Ok(Self { address, prefix_bits })
    }
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = u32::from(ours) ^ u32::from(theirs);
                differ.leading_zeros() >= self.prefix_bits
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = u128::from(ours) ^ u128::from(theirs);
                differ.leading_zeros() >= self.prefix_bits
            }
            _ => false,
        }
    }
}

/// The address a request comes from. A peer that is no trusted proxy says nothing that counts; what a
/// proxy says is read from the right, up to the first address that is no proxy of ours. An entry that
/// cannot be read ends the walk at the proxy that wrote it.
pub(crate) fn origin<'a>(
    peer: IpAddr,
    forwarded_for: impl DoubleEndedIterator<Item = &'a str>,
    trusted: &[Network],
) -> IpAddr {
    let is_proxy = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut nearest = peer;
    for entry in forwarded_for.rev().flat_map(|line| line.rsplit(',')) {
        if !is_proxy(nearest) {
            break;
        }
        let Some(address) = parse_entry(entry) else { break };
        nearest = address;
    }
    nearest
}

/// An address, perhaps with a port, perhaps in brackets.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| Some(rest.split_once(']')?.0));
    let with_port = || entry.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    bare.unwrap_or(entry).parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(peer: &str, headers: &[&str]) -> String {
        let trusted: Vec<Network> =
            ["10.0.0.0/8", "::1"].iter().map(|text| text.parse().unwrap()).collect();
        origin(peer.parse().unwrap(), headers.iter().copied(), &trusted).to_string()
    }

    #[test]
    fn only_trusted_proxies_are_believed_and_only_from_the_right() {
        assert_eq!(from("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
        assert_eq!(from("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(from("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(from("10.0.0.1", &["1.2.3.4, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(from("10.0.0.1", &["1.2.3.4", "198.51.100.1"]), "198.51.100.1");
        assert_eq!(from("10.0.0.1", &["1.2.3.4, garbage"]), "10.0.0.1");
        assert_eq!(from("10.0.0.1", &[", ,1.2.3.4, "]), "10.0.0.1");
        assert_eq!(from("10.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(from("::1", &["[2001:db8::1]:99"]), "2001:db8::1");
        assert_eq!(from("::ffff:10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
    }

    #[test]
    fn a_sender_of_ipv6_is_a_64() {
        let sender = |text: &str| Sender::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(sender("2001:db8:0:1::1"), sender("2001:db8:0:1:ffff::2"));
        assert_ne!(sender("2001:db8:0:1::1"), sender("2001:db8:0:2::1"));
        assert_eq!(sender("::ffff:192.0.2.1"), sender("192.0.2.1"));
        assert_ne!(sender("192.0.2.1"), sender("192.0.2.2"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "host"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains([1, 2, 3, 4].into()));
    }
}
