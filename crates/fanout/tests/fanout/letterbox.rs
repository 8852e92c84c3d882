//! A mailbox that remembers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use kukuri_core::Seq;
use kukuri_event::EventId;
use kukuri_fanout::{Delivery, Detached, Due, Full, Mailbox, SubKey};

#[derive(Default)]
pub struct Letterbox {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    delivered: HashMap<SubKey, Vec<(Option<Seq>, EventId)>>,
    detached: Vec<(SubKey, Detached)>,
    closed: HashSet<SubKey>,
    /// How many more fit in; any number without it.
    room: Option<usize>,
}

impl Letterbox {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn with_room(room: usize) -> Arc<Self> {
        let letterbox = Self::new();
        letterbox.make_room(room);
        letterbox
    }

    pub fn make_room(&self, room: usize) {
        self.inside.lock().unwrap().room = Some(room);
    }

    pub fn close(&self, sub: SubKey) {
        self.inside.lock().unwrap().closed.insert(sub);
    }

    pub fn delivered(&self, sub: SubKey) -> Vec<(Option<Seq>, EventId)> {
        self.inside.lock().unwrap().delivered.get(&sub).cloned().unwrap_or_default()
    }

    pub fn take_detached(&self) -> Vec<(SubKey, Detached)> {
        std::mem::take(&mut self.inside.lock().unwrap().detached)
    }
}

impl Mailbox for Letterbox {
    fn is_open(&self, sub: SubKey) -> bool {
        !self.inside.lock().unwrap().closed.contains(&sub)
    }

    fn deliver(&self, delivery: Delivery) -> Result<Due, Full> {
        let mut inside = self.inside.lock().unwrap();
        if let Some(room) = &mut inside.room {
            *room = room.checked_sub(1).ok_or(Full)?;
        }
        let id = delivery.body.event().id();
        inside.delivered.entry(delivery.sub).or_default().push((delivery.seq, id));
        Ok(Due::Nothing)
    }

    fn send(&self) {}

    fn detached(&self, sub: SubKey, why: Detached) {
        self.inside.lock().unwrap().detached.push((sub, why));
    }
}
