mod publishing;
mod rig;
mod simulation;
mod subscribing;
