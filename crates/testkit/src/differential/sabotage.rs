//! Stores with one fault each: what a comparison of stores has to find.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_core::{
    Command, Cursor, Cutoffs, Decision, Facts, FeedRow, NodeState, ReadSet, Seq, TopicId,
    UnixMillis, Usage,
};
use kukuri_event::{EventId, TagLetter, UnixSeconds, Values};
use kukuri_store::conformance::double::Double;
use kukuri_store::{
    Dated, Entry, FeedError, Forgettable, Hits, Model, Order, Place, Query, QueryError, Recent,
    Scope, Store, StoreError,
};

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A batch of several rows lacks its last one.
    DropsRow,
    /// The feed lacks a row when it is read.
    ReadsPastRow,
    /// What was written last is remembered with a row too few.
    RemembersPastRow,
    /// A command in the middle of a batch is not done.
    SkipsCommand,
    /// Events of one second come in the wrong order.
    SwapsTie,
    /// Conditions on tags other than `t` are not looked at.
    ForgetsTags,
    /// Values too long for the index are not found.
    ForgetsLongValues,
    /// A limit lets one more through.
    LimitOffByOne,
    /// The limit counts only what the first filter found.
    OneLimitForAll,
    /// Whoever goes on after a place gets what is before it again.
    BeginsAnew,
    /// Whoever goes on in the middle of a second goes on with the next one.
    SkipsRestOfSecond,
    /// What has expired is sent until it is swept.
    SendsExpired,
    /// The seq that goes with an answer is older than the answer.
    AnswersBehindHead,
    /// Bodies of hidden events are sent.
    SendsHidden,
    /// Tombstones are lost.
    LosesTombstones,
    /// Counters stand still.
    ForgetsUsage,
    /// The oldest link is not listed.
    SkipsALink,
    /// What has aged is listed as long as it is visible.
    ForgetsHistory,
    /// Current versions are given up like everything else.
    GivesUpCurrent,
    /// What is still stored can be forgotten.
    ForgetsStored,
    /// The node's own counters stand still.
    ForgetsNode,
}

impl Sabotage {
    pub const ALL: &[Self] = &[
        Self::DropsRow,
        Self::ReadsPastRow,
        Self::RemembersPastRow,
        Self::SkipsCommand,
        Self::SwapsTie,
        Self::ForgetsTags,
        Self::ForgetsLongValues,
        Self::LimitOffByOne,
        Self::OneLimitForAll,
        Self::BeginsAnew,
        Self::SkipsRestOfSecond,
        Self::SendsExpired,
        Self::AnswersBehindHead,
        Self::SendsHidden,
        Self::LosesTombstones,
        Self::ForgetsUsage,
        Self::SkipsALink,
        Self::ForgetsHistory,
        Self::GivesUpCurrent,
        Self::ForgetsStored,
        Self::ForgetsNode,
    ];
}

/// The model, with a fault.
pub struct Sabotaged {
    model: Model,
    recent: Recent,
    sabotage: Sabotage,
}

impl Sabotaged {
    pub fn new(sabotage: Sabotage) -> Self {
        Self { model: Model::default(), recent: Recent::new(Model::EPOCH), sabotage }
    }

    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
    }

    fn mislead(&self, query: &mut Query) {
        for filter in &mut query.filters {
            match self.sabotage {
                Sabotage::ForgetsTags => {
                    let topics = filter.topics().cloned();
                    filter.tags = topics.map(|t| (TagLetter::TOPIC, t)).into_iter().collect();
                }
                Sabotage::ForgetsLongValues => {
                    let short = |values: &Values<String>| {
                        values.iter().filter(|value| value.len() <= 255).cloned().collect()
                    };
                    let tags = filter.tags.iter().map(|(letter, values)| (letter, short(values)));
                    filter.tags = tags.collect();
                }
                Sabotage::LimitOffByOne => filter.limit = filter.limit.map(|limit| limit + 1),
                _ => {}
            }
        }
        match self.sabotage {
            Sabotage::SendsExpired => query.now = UnixSeconds(0),
            Sabotage::BeginsAnew => query.after = None,
            Sabotage::SkipsRestOfSecond => {
                let last = EventId::from_bytes([u8::MAX; 32]);
                query.after = query.after.map(|Order(second, _)| Order(second, last));
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Double for Sabotaged {
    fn behind(&self) -> &dyn Store {
        &self.model
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        let skips = self.does(Sabotage::SkipsCommand) && batch.len() > 2;
        let batch = match skips {
            true => batch.iter().take(1).chain(batch.iter().skip(2)).cloned().collect(),
            false => batch,
        };
        let mut decision = self.model.apply(batch).await?;
        if self.does(Sabotage::DropsRow) && decision.rows.len() > 1 {
            decision.rows.pop();
        }
        if self.does(Sabotage::RemembersPastRow) && decision.rows.len() > 2 {
            let mut short = decision.clone();
            short.rows.remove(1);
            self.recent.add(&short);
        }
        Ok(decision)
    }

    async fn facts(&self, needs: ReadSet) -> Result<Facts, StoreError> {
        let mut facts = self.model.facts(needs).await?;
        if self.does(Sabotage::LosesTombstones) {
            facts.tombstones.values_mut().for_each(|row| *row = None);
        }
        if self.does(Sabotage::ForgetsUsage) {
            facts.usage.values_mut().flatten().for_each(|usage| *usage = Usage::default());
        }
        if self.does(Sabotage::ForgetsNode) {
            let fresh = |node: &mut NodeState| node.usage = Usage::default();
            facts.node.values_mut().flatten().for_each(fresh);
        }
        Ok(facts)
    }

    async fn query(&self, mut query: Query) -> Result<Hits, QueryError> {
        self.mislead(&mut query);
        let limit = query.filters.first().map_or(0, |filter| query.limit(filter));
        let mut found = self.model.query(query).await?;
        match self.sabotage {
            Sabotage::SwapsTie => {
                let tie = found.hits.windows(2).position(|w| w[0].created_at == w[1].created_at);
                tie.into_iter().for_each(|nth| found.hits.swap(nth, nth + 1));
            }
            Sabotage::OneLimitForAll => found.hits.truncate(limit),
            Sabotage::AnswersBehindHead => found.head.0 = (found.head.0 - 1).max(0),
            _ => {}
        }
        Ok(found)
    }

    async fn bodies(&self, events: Vec<Seq>) -> Result<Vec<Option<String>>, StoreError> {
        let mut bodies = self.model.bodies(events.clone()).await?;
        if self.does(Sabotage::SendsHidden) {
            let records = self.model.page(Place::Records(None), usize::MAX).await?;
            for (seq, body) in events.iter().zip(&mut bodies) {
                let stored = records.iter().find_map(|entry| match entry {
                    Entry::Record(record) if record.seq == *seq => Some(record),
                    _ => None,
                });
                *body = stored.map(|record| record.body.json().to_owned());
            }
        }
        Ok(bodies)
    }

    async fn feed(&self, after: Cursor, rows_max: usize) -> Result<Vec<FeedRow>, FeedError> {
        let mut rows = self.model.feed(after, rows_max).await?;
        if self.does(Sabotage::ReadsPastRow) && rows.len() > 2 {
            rows.remove(1);
        }
        Ok(rows)
    }

    fn recent(&self, after: Cursor, rows_max: usize) -> Option<Vec<FeedRow>> {
        self.recent.after(after, rows_max)
    }

    async fn linked(&self, topic: TopicId, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        let mut linked = self.model.linked(topic, events_max).await?;
        if self.does(Sabotage::SkipsALink) && !linked.is_empty() {
            linked.remove(0);
        }
        Ok(linked)
    }

    async fn aged(
        &self,
        topic: TopicId,
        mut cutoffs: Cutoffs,
        events_max: usize,
    ) -> Result<Vec<Dated>, StoreError> {
        if self.does(Sabotage::ForgetsHistory) {
            cutoffs.history = None;
        }
        self.model.aged(topic, cutoffs, events_max).await
    }

    async fn oldest(&self, of: Scope, events_max: usize) -> Result<Vec<EventId>, StoreError> {
        if !self.does(Sabotage::GivesUpCurrent) {
            return self.model.oldest(of, events_max).await;
        }
        let mut all = self.model.oldest(of, usize::MAX).await?;
        all.reverse();
        all.truncate(events_max);
        Ok(all)
    }

    async fn forgettable(&self, before: UnixMillis, max: usize) -> Result<Forgettable, StoreError> {
        let mut found = self.model.forgettable(before, max).await?;
        if self.does(Sabotage::ForgetsStored) {
            let stored = self.model.oldest(Scope::Node, max).await?;
            found.events.extend(stored);
            found.events.truncate(max);
        }
        Ok(found)
    }
}
