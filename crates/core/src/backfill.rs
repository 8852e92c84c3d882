//! What is asked of other nodes, and when. A plan only says what to ask for; whether an event that comes
//! is taken in is decided in the lane, like that of any other.

mod agenda;
mod window;

pub use agenda::{Agenda, Pauses, Why};
pub use window::{Reach, Window, windows};
