//! The search as it is asked: judged questions, hostile ones, and what must hold for every text.

#[path = "search/back_ends.rs"]
mod back_ends;
#[path = "search/corpus.rs"]
mod corpus;
#[path = "search/follow.rs"]
mod follow;
#[path = "search/gone.rs"]
mod gone;
#[path = "search/hostile.rs"]
mod hostile;
#[path = "search/judged.rs"]
mod judged;
#[path = "search/laws.rs"]
mod laws;
#[path = "search/many.rs"]
mod many;
#[path = "search/merges.rs"]
mod merges;
#[path = "search/names.rs"]
mod names;
#[path = "search/numbers.rs"]
mod numbers;
#[path = "search/rig.rs"]
mod rig;
#[path = "search/scene.rs"]
mod scene;
