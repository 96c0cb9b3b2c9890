//! HTTP to clouds: connections, logins, signatures and rates.
//!
//! ```text
//! Outgoing ─ login/*: adds a token or a signature ─ pace.rs: waits its turn ─ transport.rs: TLS, proxy, breaker.rs, reach.rs ─→ a server
//! Incoming ←──────────────── bounded, no redirect is followed ────────────────────┘
//! ```
//!
//! A request names an endpoint of its connection and the segments of a path, never a URL. Only this crate knows how a server
//! is reached: through which proxy, with which certificates, and by which clock.
//!
//! This crate does not know what a request means. The caller decides whether a request may be repeated, and what a lost
//! response means for the operation; a [`Lost`] says whether anything was sent.

mod address;
mod breaker;
pub mod fence;
pub mod login;
mod pace;
mod reach;
pub mod roots;
mod transport;

pub use address::{Address, BadAddress};
pub use pace::{LONGEST_PAUSE, Pace, Rate, Throttle};
pub use reach::Reach;
pub use transport::{BadTls, Budget, Incoming, Lost, Outgoing, Tls, Transport, unix_of};
