//! clouds
