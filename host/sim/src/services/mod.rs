//! What the simulated cloud does for its callers.

pub(crate) mod cluster;
pub(crate) mod machine;
pub(crate) mod pool;
pub(crate) mod router;
pub(crate) mod session;
pub(crate) mod vm;
