//! Equipment for tests: it breaks machines, disks and networks, makes loads, and says by a reading of
//! the rules of its own what must come of them. It must not know the stores' SQL.
//!
//! Only a dev-dependency may name this crate.

pub mod audit;
pub mod condition;
pub mod convergence;
pub mod cpu;
pub mod delivery;
pub mod differential;
pub mod figure;
pub mod generate;
pub mod judged;
pub mod mount;
pub mod port;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod scratch;
pub mod spec;
