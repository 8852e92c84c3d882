//! The committed posts and judged questions.

use kukuri_core::TopicId;
use kukuri_event::EventId;
use kukuri_index::{Ask, Effects, Page, Start};
use serde::Deserialize;

use crate::scene::{NOW, Post, Scene, topic};

#[derive(Deserialize)]
pub struct Corpus {
    posts: Vec<JudgedPost>,
    pub queries: Vec<JudgedQuery>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgedPost {
    name: String,
    hours: i64,
    text: String,
    #[serde(default)]
    tags: Vec<Vec<String>>,
    #[serde(default = "note")]
    kind: u16,
    #[serde(default = "main")]
    topic: String,
    #[serde(default)]
    likes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgedQuery {
    pub ask: String,
    pub finds: Vec<String>,
    #[serde(default)]
    pub first: Vec<String>,
}

fn note() -> u16 {
    1
}

fn main() -> String {
    "main".to_owned()
}

impl Corpus {
    pub fn read() -> Self {
        toml::from_str(include_str!("judged.toml")).expect("the judged set is TOML of this shape")
    }

    /// All posts and their likes, as the feed tells them.
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
        let mut faults = Vec::new();
        for name in &query.finds {
            if !found.contains(&name.as_str()) {
                faults.push(format!("{}: {name} is not found", query.ask));
            }
        }
        for name in &found {
            if !query.finds.iter().any(|expected| expected == name) {
                faults.push(format!("{}: {name} is found", query.ask));
            }
        }
        if !found.iter().zip(&query.first).all(|(one, other)| one == other) {
            faults.push(format!("{}: the order is {found:?}", query.ask));
        }
        faults
    }
}
