//! Topic ids and the numbers that stand for them. A number is for ever, so what was read once is
//! remembered; what a batch adds is remembered when the batch has been committed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{PoisonError, RwLock};

use kukuri_core::TopicId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::error::Fault;

const INSERT: &str = "INSERT INTO topic_numbers (topic_no, topic_id)
    SELECT UNNEST($1::INTEGER[]), UNNEST($2::TEXT[])";

#[derive(Debug, Default)]
pub(crate) struct TopicNumbers {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<TopicId, i32>,
    by_number: HashMap<i32, TopicId>,
}

/// The numbers one batch writes.
#[derive(Debug, Default)]
pub(crate) struct BatchNumbers {
    numbers: HashMap<TopicId, i32>,
    added: Vec<(TopicId, i32)>,
}

impl BatchNumbers {
    pub fn of(&self, topic: &TopicId) -> i32 {
        *self.numbers.get(topic).expect("every topic of a batch was given a number")
    }
}

impl TopicNumbers {
    fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn remember(&self, pairs: &[(TopicId, i32)]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for (topic, number) in pairs {
            known.by_id.insert(topic.clone(), *number);
            known.by_number.insert(*number, topic.clone());
        }
    }

    /// Numbers for topics that are about to be written, if all of them are known already.
    pub fn assigned(&self, topics: &HashSet<&TopicId>) -> Option<BatchNumbers> {
        let number =
            |known: &Known, topic: &TopicId| Some((topic.clone(), *known.by_id.get(topic)?));
        let numbers = self
            .read(|known| topics.iter().map(|topic| number(known, topic)).collect::<Option<_>>());
        Some(BatchNumbers { numbers: numbers?, added: Vec::new() })
    }

    /// Numbers for topics that are about to be written, new ones where there are none. For the
    /// holder of the lane's lock alone.
    pub async fn assign(
        &self,
        connection: &mut PgConnection,
        topics: &HashSet<&TopicId>,
    ) -> Result<BatchNumbers, Fault> {
        let mut batch = BatchNumbers::default();
        let mut missing = BTreeSet::new();
        self.read(|known| {
            for topic in topics.iter().copied() {
                match known.by_id.get(topic) {
                    Some(number) => drop(batch.numbers.insert(topic.clone(), *number)),
                    None => drop(missing.insert(topic.clone())),
                }
            }
        });
        if missing.is_empty() {
            return Ok(batch);
        }
        for (topic, number) in self.load_ids(connection, &missing).await? {
            missing.remove(&topic);
            batch.numbers.insert(topic, number);
        }
        batch.add(connection, missing).await?;
        Ok(batch)
    }

    /// The batch is durable.
    pub fn commit(&self, batch: BatchNumbers) {
        if !batch.added.is_empty() {
            self.remember(&batch.added);
        }
    }

    /// The numbers of those of the topics that have one.
    pub async fn find(
        &self,
        connection: &mut PgConnection,
        topics: &[&TopicId],
    ) -> Result<Vec<i32>, Fault> {
        let mut found = Vec::new();
        let mut missing = BTreeSet::new();
        self.read(|known| {
            for topic in topics.iter().copied() {
                match known.by_id.get(topic) {
                    Some(number) => found.push(*number),
                    None => drop(missing.insert(topic.clone())),
                }
            }
        });
        if !missing.is_empty() {
            let loaded = self.load_ids(connection, &missing).await?;
            found.extend(loaded.iter().map(|(_, number)| number));
        }
        Ok(found)
    }

    /// The numbers of all the topics, if all of them are known already.
    pub fn known<'a>(&self, topics: impl IntoIterator<Item = &'a TopicId>) -> Option<Vec<i32>> {
        self.read(|known| topics.into_iter().map(|topic| known.by_id.get(topic).copied()).collect())
    }

    /// Every number that was ever given.
    pub async fn all(&self, connection: &mut PgConnection) -> Result<Vec<i32>, Fault> {
        let rows = sqlx::query("SELECT topic_no FROM topic_numbers ORDER BY topic_no");
        let rows = rows.fetch_all(connection).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Makes sure that the ids of `numbers` are known to [`Self::id`].
    pub async fn learn(
        &self,
        connection: &mut PgConnection,
        numbers: BTreeSet<i32>,
    ) -> Result<(), Fault> {
        let missing: Vec<i32> = self.read(|known| {
            let unknown = |number: &i32| !known.by_number.contains_key(number);
            numbers.into_iter().filter(unknown).collect()
        });
        if missing.is_empty() {
            return Ok(());
        }
        let rows =
            sqlx::query("SELECT topic_no, topic_id FROM topic_numbers WHERE topic_no = ANY($1)")
                .bind(missing)
                .fetch_all(connection)
                .await?;
        self.remember(&rows.iter().map(pair).collect::<Result<Vec<_>, Fault>>()?);
        Ok(())
    }

    pub fn id(&self, number: i32) -> Result<TopicId, Fault> {
        self.read(|known| known.by_number.get(&number).cloned())
            .ok_or_else(|| Fault::corrupt(format!("no topic has the number {number}; run doctor")))
    }

    async fn load_ids(
        &self,
        connection: &mut PgConnection,
        topics: &BTreeSet<TopicId>,
    ) -> Result<Vec<(TopicId, i32)>, Fault> {
        let ids: Vec<&str> = topics.iter().map(TopicId::as_str).collect();
        let rows =
            sqlx::query("SELECT topic_no, topic_id FROM topic_numbers WHERE topic_id = ANY($1)")
                .bind(ids)
                .fetch_all(connection)
                .await?;
        let pairs = rows.iter().map(pair).collect::<Result<Vec<_>, Fault>>()?;
        self.remember(&pairs);
        Ok(pairs)
    }
}

impl BatchNumbers {
    async fn add(
        &mut self,
        connection: &mut PgConnection,
        topics: BTreeSet<TopicId>,
    ) -> Result<(), Fault> {
        if topics.is_empty() {
            return Ok(());
        }
        let last = sqlx::query("SELECT topic_no FROM topic_numbers ORDER BY topic_no DESC LIMIT 1");
        let last = last.fetch_optional(&mut *connection).await?;
        let last: i32 = last.map_or(Ok(0), |row| row.try_get(0))?;
        self.added = topics.into_iter().zip(last + 1..).collect();
        self.numbers.extend(self.added.iter().cloned());
        let numbers: Vec<i32> = self.added.iter().map(|(_, number)| *number).collect();
        let ids: Vec<&str> = self.added.iter().map(|(topic, _)| topic.as_str()).collect();
        sqlx::query(INSERT).bind(numbers).bind(ids).execute(connection).await?;
        Ok(())
    }
}

fn pair(row: &PgRow) -> Result<(TopicId, i32), Fault> {
    let id: &str = row.try_get(1)?;
    let topic = TopicId::parse(id).map_err(|error| Fault::corrupt(error.to_string()))?;
    Ok((topic, row.try_get(0)?))
}
