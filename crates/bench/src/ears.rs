//! Many connections that only listen, on one thread and without a task for each: on a machine that
//! relay and load share, what the load takes is added to what is measured. Reading hundreds of sockets
//! one after the other takes longer than writing to them does: so the system is asked when a message
//! arrived, and it is read when the relay has done its work, as if the listeners were elsewhere.

use std::io::{Cursor, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
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
    pub fn of(sockets: impl IntoIterator<Item = TcpStream>) -> anyhow::Result<Self> {
        let listening = |socket| {
            setsockopt(&socket, ReceiveTimestampns, &true)?;
            Ok((socket, Vec::new()))
        };
        Ok(Self { sockets: sockets.into_iter().map(listening).collect::<anyhow::Result<_>>()? })
    }

    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Gives every message to `hear` with the time it arrived, until there were so many that `hear` took
    /// for what is waited for. After the first of several it rests before it reads them.
    pub fn listen(
        mut self,
        mut wanted: usize,
        rest: Duration,
        silence_max: Duration,
        mut hear: impl FnMut(&str, SystemTime) -> bool,
    ) -> anyhow::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (nth, (socket, _)) in self.sockets.iter().enumerate() {
            let data = epoll::EventData::new_u64(nth as u64);
            epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
        }
        let silence_max = Timespec::try_from(silence_max)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut ready = Vec::with_capacity(READY_MAX);
        let mut rested = Instant::now();
        while wanted > 0 {
            ready.clear();
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), Some(&silence_max))?;
            if ready.is_empty() {
                bail!("the relay is silent, {wanted} messages are missing");
            }
            if rested.elapsed() > rest {
                std::thread::sleep(rest);
                rested = Instant::now();
            }
            for event in &ready {
                let nth = usize::try_from(event.data.u64())?;
                let (socket, begun) = &mut self.sockets[nth];
                let Some((bytes, at)) = receive(socket, &mut buffer)? else { continue };
                begun.extend_from_slice(&buffer[..bytes]);
                let mut heard =
                    |text: &str| wanted = wanted.saturating_sub(usize::from(hear(text, at)));
                let whole = messages(begun, &mut heard)?;
                begun.drain(..whole);
            }
        }
        Ok(())
    }
}

/// Reads once, and says when the last of it was at the socket, by the clock of the machine; `None` if
/// there is nothing.
fn receive(socket: &TcpStream, buffer: &mut [u8]) -> anyhow::Result<Option<(usize, SystemTime)>> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let received = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::empty());
    let received = match received {
        Ok(received) if received.bytes == 0 => bail!("the relay closed a connection"),
        Ok(received) => received,
        Err(Errno::EAGAIN) => return Ok(None),
        Err(error) => return Err(error).context("a connection broke"),
    };
    let arrived = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(at) => Some(UNIX_EPOCH + Duration::from(at)),
        _ => None,
    });
    Ok(Some((received.bytes, arrived.unwrap_or_else(SystemTime::now))))
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
