//! What is asked of other nodes, and when. A plan only says what to ask for; whether an event that comes
//! is taken in is decided in the lane, like that of any other.

mod agenda;
mod covered;
mod window;

pub use agenda::{Agenda, Pauses, Why};
pub use covered::Covered;
pub use window::{Part, Reach, Window, windows};
