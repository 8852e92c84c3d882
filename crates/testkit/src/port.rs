//! Ports that stay free for who is about to use them.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;

use anyhow::{Result, bail};
use rand::RngExt;

/// Below the range from which the kernel takes ports for outgoing connections, so that who has stopped finds
/// its port free when it starts again.
const PORTS: Range<u16> = 15_000..32_000;
const TRIES_MAX: usize = 1000;

/// One on loopback that nobody has, for TCP or UDP.
///
/// # Errors
/// When there is none.
pub fn lasting_port() -> Result<u16> {
    let mut random = rand::rng();
    for _ in 0..TRIES_MAX {
        let port = random.random_range(PORTS);
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port in {PORTS:?}");
}
