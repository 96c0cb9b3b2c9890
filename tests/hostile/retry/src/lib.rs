//! A retry policy that misbehaves as its configuration says. For tests only.

use std::hint::black_box;
use std::time::Duration;

use polity_sdk::prelude::*;

/// A century, in seconds.
const CENTURY: u64 = 100 * 365 * 24 * 3_600;

/// The kinds of misbehaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mischief {
    /// None: it waits seven seconds.
    #[default]
    Behave,
    /// Sets the next try five seconds ago.
    Negative,
    /// Waits no time.
    Zero,
    /// Waits a hundred years.
    Century,
    /// Waits the largest number.
    End,
    /// Panics with a message.
    Panic,
    /// Never returns.
    Loop,
    /// Allocates for ever.
    Allocate,
}

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How it misbehaves.
    pub mischief: Mischief,
}

/// Misbehaves.
#[polity_sdk::policy(retry)]
pub fn decide(request: polity_sdk::RetryRequest<Config>) -> Duration {
    match request.config.mischief {
        Mischief::Behave => Duration::from_secs(7),
        // A negative number, read as an unsigned one.
        Mischief::Negative => Duration::from_millis((-5_000_i64).cast_unsigned()),
        Mischief::Zero => Duration::ZERO,
        Mischief::Century => Duration::from_secs(CENTURY),
        Mischief::End => Duration::from_millis(u64::MAX >> 1),
        Mischief::Panic => panic!("out of time"),
        Mischief::Loop => {
            let mut n = 0u64;
            loop {
                n = black_box(n.wrapping_add(1));
            }
        }
        Mischief::Allocate => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(black_box(vec![1; 1 << 16]));
            }
        }
    }
}

/// The manifest.
pub fn manifest() -> Manifest {
    Manifest::retry(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).config::<Config>()
}
