//! Many connections that only listen, on one thread and without a task for each: on a machine that
//! relay and load share, what the load takes is added to what is measured.

use std::io::{Cursor, ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{Timespec, epoll};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

const READ_BYTES: usize = 64 * 1024;
/// How many connections are looked at together.
const READY_MAX: usize = 64;

/// Connections on which nothing is said any more but what a relay says by itself.
pub struct Ears {
    sockets: Vec<(TcpStream, Vec<u8>)>,
}

impl Ears {
    pub fn of(sockets: impl IntoIterator<Item = TcpStream>) -> Self {
        Self { sockets: sockets.into_iter().map(|socket| (socket, Vec::new())).collect() }
    }

    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Gives every message to `hear` with the time it came, until there were so many that `hear` took
    /// for what is waited for.
    pub fn listen(
        mut self,
        mut wanted: usize,
        silence_max: Duration,
        mut hear: impl FnMut(&str, Instant) -> bool,
    ) -> anyhow::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (nth, (socket, _)) in self.sockets.iter().enumerate() {
            let data = epoll::EventData::new_u64(nth as u64);
            epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
        }
        let silence_max = Timespec::try_from(silence_max)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::with_capacity(READY_MAX);
        while wanted > 0 {
            ready.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&silence_max))?;
            if ready.is_empty() {
                bail!("the relay is silent, {wanted} messages are missing");
            }
            for event in &ready {
                let nth = usize::try_from(event.data.u64())?;
                let (socket, begun) = &mut self.sockets[nth];
                let bytes = match socket.read(&mut buffer) {
                    Ok(0) => bail!("the relay closed a connection"),
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(error) => return Err(error).context("a connection broke"),
                };
                let now = Instant::now();
                begun.extend_from_slice(&buffer[..bytes]);
                let mut heard =
                    |text: &str| wanted = wanted.saturating_sub(usize::from(hear(text, now)));
                let whole = messages(begun, &mut heard)?;
                begun.drain(..whole);
            }
        }
        Ok(())
    }
}

/// Gives the texts of whole frames to `hear`; says how many bytes those frames had.
fn messages(bytes: &[u8], hear: &mut impl FnMut(&str)) -> anyhow::Result<usize> {
    let mut whole = 0;
    loop {
        let mut cursor = Cursor::new(&bytes[whole..]);
        let Some((header, length)) = FrameHeader::parse(&mut cursor)? else { return Ok(whole) };
        let start = whole + usize::try_from(cursor.position())?;
        let Some(payload) = bytes.get(start..start + usize::try_from(length)?) else {
            return Ok(whole);
        };
        if header.opcode == OpCode::Data(Data::Text) {
            hear(std::str::from_utf8(payload)?);
        }
        whole = start + payload.len();
    }
}
