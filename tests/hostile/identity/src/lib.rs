//! An identity policy that misbehaves as the annotation `identity` of an object says. For tests only.

use std::future::pending;
use std::hint::black_box;

use polity_sdk::cloud::session;
use polity_sdk::cloud::vm;
use polity_sdk::prelude::*;
use polity_sdk::{Judgement, Verdict};
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};

#[path = "../../src/wish.rs"]
mod wish;

/// Any object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guarded {
    /// What identifies it.
    pub metadata: Metadata,
}

impl Kind for Guarded {
    const API_VERSION: &'static str = "test.polity.example/v1";
    const KIND: &'static str = "Guarded";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The misbehaviour that the annotation `identity` of the object asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mischief {
    /// None: it grants the host's own credentials.
    #[default]
    Behave,
    /// Denies after making requests.
    Wish,
    /// Panics with a message.
    Panic,
    /// Never returns.
    Loop,
    /// Returns no requests and no conclusion.
    Stall,
    /// Returns a text that is not UTF-8.
    Garbage,
    /// Asks a new question in every step.
    AskForEver,
    /// Grants an invented session.
    Invent,
    /// Grants the session that the annotation `handle` names, which belongs to another pass.
    Steal,
    /// Releases an object that is not being deleted.
    Release,
}

/// Misbehaves as the object asks.
#[polity_sdk::policy(identity)]
pub async fn judge(cx: Context<Guarded, Config>) -> Result<Judgement, Failure> {
    let granted = |handle: &str| Ok(Judgement::granted(handle, Next::settled()));
    match mischief(&cx) {
        Mischief::Behave => {
            let credential = cx.ask(session::open(&session::Plan::default())).await?;
            return granted(&credential.handle);
        }
        Mischief::Wish => wish::make(&cx).await,
        Mischief::Panic => panic!("out of trust"),
        Mischief::Loop => {
            let mut n = 0u64;
            loop {
                n = black_box(n.wrapping_add(1));
            }
        }
        Mischief::Stall => pending().await,
        #[allow(
            unsafe_code,
            reason = "this is the mischief: a text that breaks the promise of its type"
        )]
        Mischief::Garbage => {
            let bytes = black_box([0xff, 0xfe]);
            cx.note(unsafe { std::str::from_utf8_unchecked(&bytes) });
        }
        Mischief::AskForEver => {
            for n in 0.. {
                let _ = cx.ask(vm::power(&format!("vm-{n}"))).await;
            }
        }
        Mischief::Invent => return granted("a handle that nobody answered"),
        Mischief::Steal => {
            let handle = cx.object().metadata.annotations.get("handle");
            return granted(handle.map_or("", String::as_str));
        }
        Mischief::Release => {
            return Ok(Judgement {
                verdict: Verdict::Released,
                next: Next::settled(),
            });
        }
    }
    Ok(Judgement::denied(Next::settled()))
}

/// No configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

fn mischief(cx: &Context<Guarded, Config>) -> Mischief {
    let Some(name) = cx.object().metadata.annotations.get("identity") else {
        return Mischief::default();
    };
    let name: StrDeserializer<'_, ValueError> = name.as_str().into_deserializer();
    Mischief::deserialize(name).expect("a mischief that there is")
}

/// The manifest. It has no needs, so every binding accepts it.
pub fn manifest() -> Manifest {
    Manifest::identity(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).config::<Config>()
}
