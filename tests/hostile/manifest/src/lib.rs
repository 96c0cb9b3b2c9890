//! A policy that behaves, with whatever a test writes into its compiled bytes for the CustomResourceDefinition of its
//! manifest. Only for tests.

use std::hint::black_box;

use polity_sdk::prelude::*;

/// Any object will do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Any {
    /// What identifies it.
    pub metadata: Metadata,
}

impl Kind for Any {
    const API_VERSION: &'static str = "test.polity.example/v1";
    const KIND: &'static str = "Any";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// There is nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {}

/// Looks and settles.
#[polity_sdk::policy(lifecycle)]
pub async fn look(cx: Context<Any, Config>) -> Result<Next, Failure> {
    cx.note("looked");
    Ok(Next::settled())
}

/// Bytes that a test may write: enough for some definitions.
const ROOM: usize = 16 << 10;
/// What stands there before it does.
const MARK: &[u8] = b"this-is-the-crd-of-the-manifest";
/// The definition, with blanks after it.
static CRD: [u8; ROOM] = {
    let mut room = [b' '; ROOM];
    let mut at = 0;
    while at < MARK.len() {
        room[at] = MARK[at];
        at += 1;
    }
    room
};

/// A manifest past what the SDK writes.
pub struct Written(String);

impl Written {
    /// What `describe` answers.
    pub fn to_json(&self) -> String {
        self.0.clone()
    }
}

/// What it says of itself: no needs, so that every binding takes it.
pub fn manifest() -> Written {
    let manifest = Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).config::<Config>();
    let written = String::from_utf8_lossy(black_box(&CRD)).into_owned();
    let json = manifest.to_json();
    let open = json.strip_suffix('}').expect("an object");
    Written(format!("{open},\"crd\":{written}}}"))
}
