//! The judged posts as the feed tells of them, and the judged questions as they are asked.

use std::ops::Deref;

use kukuri_core::TopicId;
use kukuri_event::EventId;
use kukuri_index::{Ask, Effects, Page, Start};
use kukuri_testkit::judged::{Judged, JudgedQuery};

use crate::scene::{NOW, Post, Scene, topic};

pub struct Corpus(Judged);

impl Deref for Corpus {
    type Target = Judged;

    fn deref(&self) -> &Judged {
        &self.0
    }
}

impl Corpus {
    pub fn read() -> Self {
        Self(Judged::read())
    }

    /// All posts and their likes.
    pub fn effects(&self) -> Effects {
        let mut scene = Scene::default();
        for (place, post) in self.posts.iter().enumerate() {
            let mut tags = post.tags.clone();
            tags.push(vec!["t".to_owned(), topic(&post.topic).to_string()]);
            let created_at = NOW - post.hours * 3600;
            let id = scene.arrive(
                &topic(&post.topic),
                &Post {
                    id: place as u64 + 1,
                    kind: post.kind,
                    created_at,
                    tags,
                    content: post.text.clone(),
                    ..Post::default()
                },
            );
            for like in 0..post.likes {
                scene.like(id, u64::from(like), &topic(&post.topic));
            }
        }
        scene.finish()
    }

    pub fn name(&self, id: EventId) -> &str {
        let place = (0..self.posts.len()).find(|place| Post::id_of(*place as u64 + 1) == id);
        &self.posts[place.expect("only posts are found")].name
    }

    pub fn ask(&self, query: &JudgedQuery) -> Ask {
        let topics: Vec<TopicId> = vec![topic("main")];
        let start = Start::First { now: kukuri_event::UnixSeconds(NOW) };
        Ask::new(&query.ask, topics, start).expect("judged questions can be asked")
    }

    /// What is wrong with an answer; empty if it is as judged.
    pub fn faults(&self, query: &JudgedQuery, page: &Page) -> Vec<String> {
        let found: Vec<&str> = page.hits.iter().map(|hit| self.name(hit.event_id)).collect();
        query.faults(&found)
    }
}
