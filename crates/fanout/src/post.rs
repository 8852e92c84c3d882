//! Telling mailboxes to send: once for many deliveries, outside of the lock, and on all cores.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::{Due, Mailbox};

/// How many mailboxes one task serves: waking a task for each would cost as much as sending.
const MAILBOXES_PER_TASK: usize = 64;

/// The mailboxes that wait to be told.
#[derive(Default)]
pub(crate) struct Post {
    waiting: Vec<Arc<dyn Mailbox>>,
}

impl Post {
    pub fn add(&mut self, due: Due, mailbox: &Arc<dyn Mailbox>) {
        if due == Due::Send {
            self.waiting.push(Arc::clone(mailbox));
        }
    }

    pub async fn send(self) {
        let (mut waiting, mut tasks) = (self.waiting, JoinSet::new());
        while waiting.len() > MAILBOXES_PER_TASK {
            let part = waiting.split_off(waiting.len() - MAILBOXES_PER_TASK);
            tasks.spawn(async move { send(&part) });
        }
        send(&waiting);
        tasks.join_all().await;
    }
}

fn send(mailboxes: &[Arc<dyn Mailbox>]) {
    mailboxes.iter().for_each(|mailbox| mailbox.send());
}
