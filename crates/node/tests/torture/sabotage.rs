//! That the checker notices: the fault runs again, with programs that are wrong on purpose.

use kukuri_testkit::postgres::Durability;

use crate::checker::Finding;
use crate::kill::Killing;
use crate::rig::{self, Home, Program};

/// Runs kills of a sabotaged program until there is a finding, which has to be of the right kind.
async fn catch(test: &str, fault: &'static str, home: Home, kind: fn(&Finding) -> bool) {
    let program = Program::Sabotaged(fault);
    let mut killing = Killing::new(&home.place, program, rig::seed(test));
    let findings = killing.run().await.expect_err("a sabotaged program must not pass");
    let caught = findings.iter().find(|finding| kind(finding));
    let tally = &killing.tally;
    println!("{test}: {} findings after {tally:?}, such as {caught:?}", findings.len());
    assert!(caught.is_some(), "the wrong thing was found: {findings:?}");
}

fn lost(finding: &Finding) -> bool {
    matches!(finding, Finding::Lost(_))
}

fn contradiction(finding: &Finding) -> bool {
    matches!(finding, Finding::Feed(_) | Finding::Audit(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn ack_before_commit_is_noticed_on_sqlite() {
    let test = "sabotage::ack_before_commit_is_noticed_on_sqlite";
    catch(test, "ack-before-commit", Home::sqlite(), lost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ack_before_commit_is_noticed_on_postgres() {
    let test = "sabotage::ack_before_commit_is_noticed_on_postgres";
    catch(test, "ack-before-commit", Home::postgres(Durability::Durable), lost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_seq_is_noticed_on_sqlite() {
    let test = "sabotage::a_reused_seq_is_noticed_on_sqlite";
    catch(test, "reused-seq", Home::sqlite(), contradiction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_seq_is_noticed_on_postgres() {
    let test = "sabotage::a_reused_seq_is_noticed_on_postgres";
    catch(test, "reused-seq", Home::postgres(Durability::Durable), contradiction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_row_is_noticed_on_sqlite() {
    let test = "sabotage::a_dropped_row_is_noticed_on_sqlite";
    catch(test, "dropped-row", Home::sqlite(), contradiction).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_row_is_noticed_on_postgres() {
    let test = "sabotage::a_dropped_row_is_noticed_on_postgres";
    catch(test, "dropped-row", Home::postgres(Durability::Durable), contradiction).await;
}
