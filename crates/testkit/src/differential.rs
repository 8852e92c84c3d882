//! L2: two stores do the same commands and are asked the same questions; any difference is a fault.
//!
//! Worlds that share no keys follow each other in one store, so that a store need not be made anew for
//! every sequence, and every sequence but the first starts on a store that holds something.

mod compare;
mod run;
mod sabotage;
mod several;

pub use compare::{Mismatch, differential};
pub use run::{Report, run};
pub use sabotage::{Sabotage, Sabotaged};
pub use several::Several;
