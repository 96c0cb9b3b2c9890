//! The simulated cloud as a whole: what goes wrong with it, what it says of what is in doubt, and that nothing is lost.

mod faults;
mod honesty;
mod isolation;
mod resolve;
mod restarts;
