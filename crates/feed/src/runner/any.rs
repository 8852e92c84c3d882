//! A runner of whatever consumer, for those who look after all of them.

use async_trait::async_trait;
use kukuri_core::{Seq, UnixMillis};
use tokio_util::sync::CancellationToken;

use super::{OperateError, Report, Runner, RunnerError};
use crate::ledger::{Parked, Wish};
use crate::{Consumer, ConsumerName, Generation};

/// What can be asked of every [`Runner`], whatever its consumer is.
#[async_trait]
pub trait AnyRunner: Send + Sync + 'static {
    fn name(&self) -> ConsumerName;

    async fn run(&self, stop: CancellationToken);

    async fn report(&self, now: UnixMillis) -> Result<Report, RunnerError>;

    async fn wish(&self, wish: Wish) -> Result<(), OperateError>;

    async fn replay(&self, from: Seq) -> Result<(), OperateError>;

    async fn begin_rebuild(&self) -> Result<Option<Generation>, OperateError>;

    async fn cancel_rebuild(&self) -> Result<Generation, OperateError>;

    async fn accept_rebuild(&self) -> Result<Generation, OperateError>;

    async fn parked(&self, rows_max: usize) -> Result<Vec<Parked>, OperateError>;

    async fn retry_parked(&self, parked: &Parked) -> Result<(), OperateError>;

    async fn discard_parked(&self, parked: &Parked) -> Result<(), OperateError>;
}

#[async_trait]
impl<C: Consumer> AnyRunner for Runner<C> {
    fn name(&self) -> ConsumerName {
        self.name()
    }

    async fn run(&self, stop: CancellationToken) {
        self.run(stop).await;
    }

    async fn report(&self, now: UnixMillis) -> Result<Report, RunnerError> {
        self.report(now).await
    }

    async fn wish(&self, wish: Wish) -> Result<(), OperateError> {
        self.wish(wish).await
    }

    async fn replay(&self, from: Seq) -> Result<(), OperateError> {
        self.replay(from).await
    }

    async fn begin_rebuild(&self) -> Result<Option<Generation>, OperateError> {
        self.begin_rebuild().await
    }

    async fn cancel_rebuild(&self) -> Result<Generation, OperateError> {
        self.cancel_rebuild().await
    }

    async fn accept_rebuild(&self) -> Result<Generation, OperateError> {
        self.accept_rebuild().await
    }

    async fn parked(&self, rows_max: usize) -> Result<Vec<Parked>, OperateError> {
        self.parked(rows_max).await
    }

    async fn retry_parked(&self, parked: &Parked) -> Result<(), OperateError> {
        self.retry_parked(parked).await
    }

    async fn discard_parked(&self, parked: &Parked) -> Result<(), OperateError> {
        self.discard_parked(parked).await
    }
}
