//! The node with a fault built in, chosen by `KUKURI_SABOTAGE`. The fault runs in `tests/torture`
//! kill it as they kill the node, and their checker must notice.

mod behind;
mod fault;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use behind::Database;
use clap::Parser;
use fault::Fault;
use kukuri_core::{Command, Decision};
use kukuri_node::cli::Cli;
use kukuri_store::conformance::double::Double;
use kukuri_store::{Store, StoreError};

/// Set before the store is opened.
static DATABASE: OnceLock<Database> = OnceLock::new();

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    let database = match &cli.common.database {
        Some(url) => Database::Postgres(url.clone()),
        None => {
            let data = cli.common.data.clone().expect("fault runs say where");
            Database::Sqlite(data.join(kukuri_store_sqlite::FILE))
        }
    };
    DATABASE.set(database).expect("it is set once");
    cli.common.wrap = Some(wrap);
    kukuri_node::execute(cli)
}

fn wrap(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let database = DATABASE.get().expect("it was set before").clone();
    let name = std::env::var("KUKURI_SABOTAGE").expect("KUKURI_SABOTAGE names a fault");
    Arc::new(Sabotaged { store, fault: Fault::named(&name, database) })
}

/// A store that does one thing wrong when it writes.
struct Sabotaged {
    store: Arc<dyn Store>,
    fault: Fault,
}

#[async_trait]
impl Double for Sabotaged {
    fn behind(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Arc<[Command]>) -> Result<Decision, StoreError> {
        self.fault.apply(&*self.store, batch).await
    }
}
