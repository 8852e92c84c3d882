//! Node-level subscriptions, remembered. Every batch asks for many and they change rarely: the
//! feed's own row counts their changes, so whoever has read it in a transaction knows whether what
//! is remembered is true there.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use kukuri_core::{NodeTopic, TopicId};
use sqlx::postgres::PgConnection;

use crate::error::Fault;
use crate::numbers::TopicNumbers;
use crate::rows::{self, topic_columns};

const ALL: &str = concat!("SELECT ", topic_columns!(), " FROM node_subscriptions s");

/// What a process remembers of topics.
#[derive(Default)]
pub(crate) struct Topics {
    pub numbers: TopicNumbers,
    pub subscriptions: Subscriptions,
}

impl Topics {
    /// The numbers by which usage of topics is found, if nothing has to be asked for them. A topic that
    /// nobody subscribed to holds nothing, and may have no number.
    pub fn numbers_of(&self, topics: &BTreeSet<TopicId>) -> Option<Vec<i32>> {
        let latest = self.subscriptions.latest()?;
        self.numbers.known(topics.iter().filter(|topic| latest.contains_key(*topic)))
    }
}

pub(crate) type ById = HashMap<TopicId, NodeTopic>;

#[derive(Default)]
pub(crate) struct Subscriptions {
    remembered: RwLock<Option<(i64, Arc<ById>)>>,
}

impl Subscriptions {
    /// All of them, as they were when they were last read.
    fn latest(&self) -> Option<Arc<ById>> {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        remembered.as_ref().map(|(_, topics)| Arc::clone(topics))
    }

    /// All of them, if they are remembered as they were at `version`.
    pub fn remembered(&self, version: i64) -> Option<Arc<ById>> {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner).clone();
        remembered.filter(|(known, _)| *known == version).map(|(_, topics)| topics)
    }

    /// All of them, in a transaction that has read `version`.
    pub async fn at(
        &self,
        connection: &mut PgConnection,
        version: i64,
    ) -> Result<Arc<ById>, Fault> {
        if let Some(topics) = self.remembered(version) {
            return Ok(topics);
        }
        let found = sqlx::query(ALL).fetch_all(connection).await?;
        let topics = found.iter().map(|row| {
            let topic = rows::topic(row)?;
            Ok((topic.topic_id.clone(), topic))
        });
        let topics = Arc::new(topics.collect::<Result<ById, Fault>>()?);
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        // A transaction that began long ago must not make younger ones forget.
        if remembered.as_ref().is_none_or(|(known, _)| *known < version) {
            *remembered = Some((version, Arc::clone(&topics)));
        }
        Ok(topics)
    }
}
