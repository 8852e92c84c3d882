//! The node under faults: kills, power cuts, full disks, servers that go away, and writers that race.
//! One checker judges every run by what was sent and what was acknowledged; that it notices what is
//! wrong is shown by programs and settings that are wrong on purpose.

mod checker;
mod disk;
mod door;
mod freeze;
mod guarantees;
mod import;
mod independent;
mod kill;
mod lanes;
mod load;
mod opening;
mod postgres;
mod power;
mod purge;
mod race;
mod reserve;
mod rig;
mod sabotage;
mod sockets;
