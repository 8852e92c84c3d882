//! The frames that wait, and the bytes they become. No I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kukuri_core::{Cursor, Seq};
use kukuri_event::Body;
use kukuri_fanout::{Detached, SubKey};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::reply;

/// What a frame costs besides its text.
const FRAME_BYTES: usize = 64;

#[derive(Default)]
pub(super) struct Queue {
    frames: VecDeque<Frame>,
    pub bytes: usize,
    /// The most that ever waited.
    pub bytes_peak: usize,
    pub open: HashMap<SubKey, Open>,
    pub behind: Vec<(SubKey, Detached)>,
    pub turn: Turn,
    /// Somebody was told to have this sent.
    pub promised: bool,
    pub ending: bool,
}

/// Whose turn it is to write to the socket.
#[derive(Default)]
pub(super) enum Turn {
    /// Whoever comes first.
    #[default]
    Free,
    /// Somebody is writing, and looks again before leaving.
    Taken,
    /// The writer's, as soon as the socket takes these bytes.
    Writer(Batch),
}

/// Frames on their way into the socket.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    written: usize,
}

impl Batch {
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    pub fn advance(&mut self, bytes: usize) {
        self.written += bytes;
    }
}

pub(super) struct Open {
    /// Its name, as JSON.
    pub sub: Box<str>,
    /// For a client that resumes: the life of the feed its cursors belong to, and the last one sent.
    pub resumes: Option<Cursor>,
}

pub(super) enum Frame {
    Text(String),
    Ping,
    Close(Option<u16>),
    /// What the library answers to a ping: a frame already.
    Whole(Vec<u8>),
    OfSub(SubKey, String),
    Event {
        key: SubKey,
        json: Json,
        cursor: Option<Cursor>,
    },
}

pub(super) enum Json {
    Stored(String),
    Live(Arc<Body>),
}

impl Json {
    fn as_str(&self) -> &str {
        match self {
            Self::Stored(json) => json,
            Self::Live(body) => body.json(),
        }
    }
}

impl Frame {
    fn bytes(&self) -> usize {
        FRAME_BYTES
            + match self {
                Self::Text(text) | Self::OfSub(_, text) => text.len(),
                Self::Ping | Self::Close(_) => 0,
                Self::Whole(frame) => frame.len(),
                Self::Event { json, .. } => json.as_str().len(),
            }
    }
}

impl Queue {
    pub fn push(&mut self, frame: Frame) {
        if self.ending {
            return;
        }
        self.bytes += frame.bytes();
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.frames.push_back(frame);
    }

    /// A client that resumes can go on from the last event it was sent or from `seq`, whichever is
    /// later.
    pub fn push_eose(&mut self, key: SubKey, seq: Seq) {
        let Some(open) = self.open.get(&key) else { return };
        let cursor = open.resumes.map(|last| Cursor { seq: last.seq.max(seq), ..last });
        let text = reply::eose(&open.sub, cursor);
        self.push(Frame::OfSub(key, text));
    }

    /// What the writer has to go on with, once there is something; `None` when everything was sent.
    pub fn for_writer(&mut self) -> Option<Option<Batch>> {
        match std::mem::replace(&mut self.turn, Turn::Taken) {
            Turn::Writer(batch) => return Some(Some(batch)),
            turn => self.turn = turn,
        }
        (self.ending && matches!(self.turn, Turn::Free)).then_some(None)
    }

    /// Throws away what waits.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes = 0;
    }

    /// About so many bytes of what is to be sent; nothing only if nothing is.
    pub fn take(&mut self, bytes_max: usize) -> Batch {
        let mut batch = Batch::default();
        let wanted = self.bytes.min(bytes_max);
        while batch.bytes.len() < wanted
            && let Some(frame) = self.frames.pop_front()
        {
            self.bytes -= frame.bytes();
            if batch.bytes.is_empty() {
                batch.bytes.reserve(wanted);
            }
            self.write(frame, &mut batch.bytes);
        }
        batch
    }

    /// Writes a frame, unless its subscription is closed.
    fn write(&self, frame: Frame, into: &mut Vec<u8>) {
        match frame {
            Frame::Text(text) => write_text(&[&text], into),
            Frame::Ping => write(OpCode::Control(Control::Ping), &[], into),
            Frame::Close(code) => {
                let code = code.map(u16::to_be_bytes);
                let code = code.as_ref().map_or(&[][..], |code| &code[..]);
                write(OpCode::Control(Control::Close), &[code], into);
            }
            Frame::Whole(frame) => into.extend(frame),
            Frame::OfSub(key, text) => {
                if self.open.contains_key(&key) {
                    write_text(&[&text], into);
                }
            }
            Frame::Event { key, json, cursor } => {
                if let Some(open) = self.open.get(&key) {
                    let end = reply::end(cursor);
                    write_text(&reply::event(&open.sub, json.as_str(), &end), into);
                }
            }
        }
    }
}

fn write_text<const N: usize>(parts: &[&str; N], into: &mut Vec<u8>) {
    write(OpCode::Data(Data::Text), &parts.map(str::as_bytes), into);
}

/// One frame, as servers send it: in one piece and without a mask.
fn write(opcode: OpCode, parts: &[&[u8]], into: &mut Vec<u8>) {
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    header.format(bytes, into).expect("memory takes all that is written to it");
    parts.iter().for_each(|part| into.extend_from_slice(part));
}
