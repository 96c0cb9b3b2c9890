//! A policy that misbehaves in the way its configuration names. Only for tests.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};

use polity_sdk::prelude::*;

/// Any object will do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thing {
    /// What identifies it.
    pub metadata: Metadata,
}

impl Kind for Thing {
    const API_VERSION: &'static str = "test.polity.example/v1";
    const KIND: &'static str = "Thing";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// How it misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mischief {
    /// Not at all: it notes how often this instance was called.
    #[default]
    Behave,
    /// Never returns.
    Loop,
    /// Calls itself for ever.
    Recurse,
    /// Allocates for ever.
    Allocate,
    /// Panics with a message.
    Panic,
    /// Returns a text that is not UTF-8.
    Garbage,
    /// Returns a very long text.
    Huge,
    /// Waits for nothing.
    Stall,
    /// Asks something new in every step.
    AskForEver,
    /// Asks for what no binding grants.
    AskUngranted,
}

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// How it misbehaves.
    pub mischief: Mischief,
}

/// Calls of this instance: a fresh one counts from nothing.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Misbehaves.
#[polity_sdk::policy(lifecycle)]
pub async fn misbehave(cx: Context<Thing, Config>) -> Result<Next, Failure> {
    let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    match cx.config().mischief {
        Mischief::Behave => cx.note(format!("call-{calls}")),
        Mischief::Loop => spin(),
        Mischief::Recurse => cx.note(recurse(u64::from(calls)).to_string()),
        Mischief::Allocate => allocate(),
        Mischief::Panic => panic!("out of cheese"),
        #[allow(
            unsafe_code,
            reason = "this is the mischief: a text that breaks the promise of its type"
        )]
        Mischief::Garbage => {
            let bytes = std::hint::black_box([0xff, 0xfe]);
            cx.note(unsafe { std::str::from_utf8_unchecked(&bytes) });
        }
        Mischief::Huge => cx.note("x".repeat(6 << 20)),
        Mischief::Stall => pending().await,
        Mischief::AskForEver => {
            for n in 0.. {
                let _ = cx.ask(machine::power(&format!("vm-{n}"))).await;
            }
        }
        Mischief::AskUngranted => {
            let refused = cx.ask(machine::power("vm-1")).await;
            cx.note(if refused.is_err() { "refused" } else { "answered" });
        }
    }
    Ok(Next::settled())
}

fn spin() {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

#[allow(unconditional_recursion, reason = "this is the mischief")]
fn recurse(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 32]);
    recurse(frame[0] + 1) + frame[31]
}

fn allocate() {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(std::hint::black_box(vec![1; 1 << 16]));
    }
}

/// What it says of itself: no needs, so that every binding takes it.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).config::<Config>()
}
