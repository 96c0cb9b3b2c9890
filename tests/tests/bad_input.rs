//! Bad input leads to a condition, a refusal, or a fault on the one object that it concerns. It never affects
//! more than that, and it is never silent.

mod bindings;
mod bombs;
mod cluster;
mod connections;
mod deny_list;
mod misbehaviour;
mod names;
mod objects;
mod policies;
mod pruned;
mod reach;
mod recordings;
mod roles;
mod wishes;
