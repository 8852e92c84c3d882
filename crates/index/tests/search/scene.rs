//! Events without signatures, and the effects of what happens to them.

use kukuri_core::{Seq, TopicId, VersionKey};
use kukuri_event::{Event, EventId, Kind};
use kukuri_index::{Departure, Effects, Kinds, Projection, Target};
use std::sync::LazyLock;

/// The time of every question.
pub const NOW: i64 = 1_790_000_000;

/// Further than any feed here.
pub const HEAD: Seq = Seq(1_000_000);

static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::default);

#[derive(Clone, Debug)]
pub struct Post {
    pub id: u64,
    pub author: u64,
    pub kind: u16,
    pub created_at: i64,
    pub tags: Vec<Vec<String>>,
    pub content: String,
}

impl Default for Post {
    fn default() -> Self {
        let (tags, content) = (Vec::new(), String::new());
        Self { id: 0, author: 1, kind: 1, created_at: NOW, tags, content }
    }
}

impl Post {
    /// Spread like the hashes that ids are.
    pub fn id_of(number: u64) -> EventId {
        EventId::from_bytes(*blake3::hash(&number.to_be_bytes()).as_bytes())
    }

    pub fn event(&self) -> Event {
        let json = serde_json::json!({
            "id": Self::id_of(self.id).to_hex(),
            "pubkey": blake3::hash(&self.author.to_le_bytes()).to_hex().as_str(),
            "created_at": self.created_at,
            "kind": self.kind,
            "tags": self.tags,
            "content": self.content,
            "sig": "00".repeat(64),
        });
        Event::parse(&json.to_string()).expect("the event has the right shape")
    }
}

pub fn topic(name: &str) -> TopicId {
    let network = kukuri_core::NetworkId::default();
    TopicId::from_name(name, &network, kukuri_core::Mapping::V1).expect("a name names a topic")
}

pub fn post(id: u64, content: &str) -> Post {
    Post { id, content: content.to_owned(), ..Post::default() }
}

/// What happens, told as the feed tells it.
pub struct Scene {
    projection: Projection<'static>,
    seq: Seq,
}

impl Default for Scene {
    fn default() -> Self {
        Self { projection: Projection::new(&KINDS), seq: Seq::ZERO }
    }
}

impl Scene {
    /// One that begins after some rows.
    pub fn after(rows: i64) -> Self {
        Self { seq: Seq(rows), ..Self::default() }
    }

    pub fn arrive(&mut self, topic: &TopicId, post: &Post) -> EventId {
        self.seq = self.seq.next();
        self.projection.arrive(&post.event(), topic, self.seq);
        Post::id_of(post.id)
    }

    pub fn leave(&mut self, topic: &TopicId, post: &Post, remaining: usize) {
        self.projection.leave(Departure {
            event_id: Post::id_of(post.id),
            topic_id: topic.clone(),
            kind: Kind(post.kind),
            target: Target::of(Post::id_of(post.id), VersionKey::of(&post.event()).as_ref()),
            remaining,
        });
    }

    /// A reaction by an author of its own.
    pub fn like(&mut self, target: EventId, liker: u64, topic: &TopicId) {
        let first = u64::from_be_bytes(*target.as_bytes().first_chunk().expect("32 bytes"));
        let tags = vec![vec!["e".to_owned(), target.to_hex()]];
        let id = first ^ (liker << 20);
        let author = 1000 + liker;
        let like = Post { id, author, kind: 7, tags, content: "+".into(), ..Post::default() };
        self.arrive(topic, &like);
    }

    pub fn finish(self) -> Effects {
        self.projection.finish()
    }
}
