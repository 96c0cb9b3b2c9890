//! What bad input gets: a condition, a refusal, a fault on the one object that it concerns. Never more, and never
//! silence.

mod bindings;
mod bombs;
mod cluster;
mod deny_list;
mod misbehaviour;
mod names;
mod objects;
mod policies;
mod pruned;
mod reach;
mod roles;
mod wishes;
