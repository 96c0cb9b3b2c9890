//! The kernel of the simulation.

pub(crate) mod between;
pub(crate) mod call;
pub(crate) mod draw;
pub(crate) mod faults;
pub(crate) mod kept;
pub(crate) mod late;
pub(crate) mod tasks;
