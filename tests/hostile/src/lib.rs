//! A policy that misbehaves as its configuration says, or the annotation `mischief` of an object. For tests
//! only.

use std::future::{Future as _, pending, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use greed::Greed;
use polity_sdk::cloud::vm;
use polity_sdk::prelude::*;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};

mod greed;
mod wish;

/// Any object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thing {
    /// What identifies it.
    pub metadata: Metadata,
    /// As much as an object can hold.
    #[serde(default, skip_serializing_if = "Bulk::is_skipped")]
    pub spec: Bulk,
    /// What the host says of it.
    #[serde(default)]
    pub status: ThingStatus,
}

/// What is said of a thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThingStatus {
    /// By the host alone.
    #[serde(skip_serializing_if = "Conditions::is_empty")]
    pub conditions: Conditions,
    /// By a policy that writes in every pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
}

/// Numbers by their names. The policy skips them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bulk;

impl Bulk {
    fn is_skipped(&self) -> bool {
        true
    }
}

impl Serialize for Bulk {
    fn serialize<S: serde::Serializer>(&self, numbers: S) -> Result<S::Ok, S::Error> {
        numbers.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Bulk {
    fn deserialize<D: serde::Deserializer<'de>>(numbers: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(numbers).map(|_| Bulk)
    }
}

impl JsonSchema for Bulk {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bulk".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        std::collections::BTreeMap::<String, u32>::json_schema(generator)
    }
}

impl Kind for Thing {
    const API_VERSION: &'static str = "test.polity.example/v1";
    const KIND: &'static str = "Thing";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The kinds of misbehaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mischief {
    /// None: it notes how often this instance was called.
    #[default]
    Behave,
    /// Says so, and never returns.
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
    /// Returns a hundred megabytes.
    Flood,
    /// Returns no requests and no conclusion.
    Stall,
    /// Asks a new question in every step.
    AskForEver,
    /// Asks a question that no binding grants.
    AskUngranted,
    /// Makes two acts and uses the answer of one.
    DropAct,
    /// Uses characters that act on terminals in every text; fails once.
    Escape,
    /// None: it asks a question and makes a note, both with the name of its edition.
    Edition,
    /// None: it fails.
    Fail,
    /// Makes the requests that the object contains.
    Wish,
    /// Breaks no rule but takes as much as it can.
    #[serde(untagged)]
    Greedy(Greed),
}

/// Tests write another name of the same length into the compiled policy: so there are editions of it.
const EDITION: &str = "this-is-edition-one";
/// Clears a screen, turns text around, and more.
const TERMINAL: &str = "\u{1b}[2J\u{9b}31m\u{202e}\u{7}\nover";

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    /// How it misbehaves.
    pub mischief: Mischief,
}

/// The number of calls of this instance. A fresh instance starts at zero.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Misbehaves.
#[polity_sdk::policy(lifecycle)]
pub async fn misbehave(cx: Context<Thing, Config>) -> Result<Next, Failure> {
    let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    match mischief(&cx) {
        Mischief::Behave => cx.note(format!("call-{calls}")),
        Mischief::Loop => {
            cx.debug("it spins");
            spin();
        }
        Mischief::Recurse => cx.note(recurse(u64::from(calls)).to_string()),
        Mischief::Allocate => allocate(),
        Mischief::Panic => panic!("out of cheese"),
        #[allow(
            unsafe_code,
            reason = "this is the mischief: a text that breaks the promise of its type"
        )]
        Mischief::Garbage => {
            let bytes = black_box([0xff, 0xfe]);
            cx.note(unsafe { std::str::from_utf8_unchecked(&bytes) });
        }
        Mischief::Huge => cx.note("x".repeat(6 << 20)),
        Mischief::Flood => cx.note("x".repeat(100 << 20)),
        Mischief::Stall => pending().await,
        Mischief::AskForEver => {
            for n in 0.. {
                let _ = cx.ask(vm::power(&format!("vm-{n}"))).await;
            }
        }
        Mischief::AskUngranted => {
            let refused = cx.ask(vm::power("vm-1")).await;
            cx.note(if refused.is_err() { "refused" } else { "answered" });
        }
        Mischief::DropAct => {
            let (mut one, mut other) = (
                pin!(cx.act(vm::power_on("vm-1"))),
                pin!(cx.act(vm::destroy("vm-1"))),
            );
            let first = poll_fn(|task| match one.as_mut().poll(task) {
                Poll::Pending => other.as_mut().poll(task),
                ready => ready,
            });
            let _ = first.await;
        }
        Mischief::Escape => {
            cx.note(TERMINAL);
            cx.event(EventType::Warning, TERMINAL, TERMINAL);
            if cx.attempt() == 0 {
                return Err(Failure::new(Code::Internal, TERMINAL));
            }
        }
        Mischief::Edition => {
            let _ = cx.ask(vm::power(black_box(EDITION))).await;
            cx.note(black_box(EDITION));
        }
        Mischief::Fail => return Err(Failure::new(Code::Unavailable, "nobody is there")),
        Mischief::Wish => wish::make(&cx).await,
        Mischief::Greedy(greed) => {
            greed.take(&cx).await;
            return Ok(greed.next());
        }
    }
    Ok(Next::settled())
}

/// The misbehaviour that the object names, otherwise that of the binding.
fn mischief(cx: &Context<Thing, Config>) -> Mischief {
    let named = cx.object().metadata.annotations.get("mischief");
    let read = |name: &String| {
        let name: StrDeserializer<'_, ValueError> = name.as_str().into_deserializer();
        Mischief::deserialize(name).ok()
    };
    named.and_then(read).unwrap_or(cx.config().mischief)
}

fn spin() {
    let mut n = 0u64;
    loop {
        n = black_box(n.wrapping_add(1));
    }
}

#[allow(unconditional_recursion, reason = "this is the mischief")]
fn recurse(n: u64) -> u64 {
    let frame = black_box([n; 32]);
    recurse(frame[0] + 1) + frame[31]
}

fn allocate() {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(black_box(vec![1; 1 << 16]));
    }
}

/// The manifest. It has no needs, so every binding accepts it.
pub fn manifest() -> Manifest {
    Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .config::<Config>()
        .writes(["status.turn"])
        .crd(Crd::of::<Thing>("things"))
}
