//! capv-machine
