//! HTTP to clouds: who connects, who logs in, who signs.
//!
//! ```text
//! Outgoing ─ login/*: adds a token or a signature ─ pace.rs: waits its turn ─ transport.rs: TLS, proxy, breaker.rs ─→ a server
//! Incoming ←──────────────── bounded, no redirect is followed ────────────────────┘
//! ```
//!
//! A request names an endpoint of its connection and the segments of a path, never a URL. What it costs to reach a
//! server (a proxy, certificates, a clock that runs wrong) is known here and nowhere else.
//!
//! Not here: what a request means. Whether it may be repeated, and what a lost response means for the operation, is
//! for the caller to decide; a [`Lost`] says whether anything was sent.

mod address;
mod breaker;
pub mod login;
mod pace;
mod transport;

pub use address::{Address, BadAddress};
pub use pace::{Pace, Rate};
pub use transport::{BadTls, Incoming, Lost, Outgoing, Tls, Transport, unix_of};
