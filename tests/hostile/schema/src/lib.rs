//! A policy that behaves. A test writes the schema of its configuration into its compiled bytes. For tests
//! only.

use std::hint::black_box;

use polity_sdk::prelude::*;

/// Any object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Any {
    /// What identifies it.
    pub metadata: Metadata,
}

impl Kind for Any {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "ConfigMap";

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// The configuration. The policy accepts everything that its schema allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {}

/// Looks and settles.
#[polity_sdk::policy(lifecycle)]
pub async fn look(cx: Context<Any, Config>) -> Result<Next, Failure> {
    cx.note("looked");
    Ok(Next::settled())
}

/// The bytes that a test may write.
const ROOM: usize = 16 << 10;
/// The mark that a test replaces.
const MARK: &[u8] = b"this-is-the-schema-of-the-configuration";
/// The schema, with blanks after it.
static SCHEMA: [u8; ROOM] = {
    let mut room = [b' '; ROOM];
    let mut at = 0;
    while at < MARK.len() {
        room[at] = MARK[at];
        at += 1;
    }
    room
};

/// A manifest that the SDK cannot write.
pub struct Written(String);

impl Written {
    /// What `describe` answers.
    pub fn to_json(&self) -> String {
        self.0.clone()
    }
}

/// The manifest. It has no needs, so every binding accepts it.
pub fn manifest() -> Written {
    let manifest = Manifest::lifecycle(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let written = String::from_utf8_lossy(black_box(&SCHEMA)).into_owned();
    let json = manifest.to_json();
    Written(json.replace("\"configSchema\":{}", &format!("\"configSchema\":{written}")))
}
