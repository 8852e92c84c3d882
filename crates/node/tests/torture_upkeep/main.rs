//! Upkeep, driven round by round under a clock of the test's own: a year of it, its crashes, full topics
//! and disks, and what comes again long after it left.

mod ahead;
mod arrivals;
mod crash;
mod crowded;
mod full;
mod home;
mod ladder;
mod log;
mod reserve;
mod rig;
mod takeover;
mod turns;
mod year;
