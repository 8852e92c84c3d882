//! Offering a row to a mailbox.

use std::sync::Arc;

use kukuri_event::UnixSeconds;

use crate::ring::Entry;
use crate::{Delivery, Due, Full, Mailbox, Subscription};

/// What became of a row that a mailbox has room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken(Due),
    /// It is not for this subscription.
    PassedOver,
}

/// Delivers a row if it is for the subscription. An event whose time has come is sent to nobody,
/// swept or not.
pub(crate) fn offer(
    subscription: &Subscription,
    mailbox: &Arc<dyn Mailbox>,
    entry: &Entry,
    now: UnixSeconds,
) -> Result<Offered, Full> {
    let Some(body) = &entry.body else { return Ok(Offered::PassedOver) };
    let alive = body.event().tags().expiration().is_none_or(|end| end > now);
    if !alive || !subscription.takes(&entry.row, body.event()) {
        return Ok(Offered::PassedOver);
    }
    let (sub, seq) = (subscription.key, Some(entry.row.seq));
    mailbox.deliver(Delivery { sub, seq, body: Arc::clone(body) }).map(Offered::Taken)
}
