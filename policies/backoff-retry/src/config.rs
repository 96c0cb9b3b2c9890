//! What the binding can set.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;

/// How waits grow. What a binding sets replaces the default of that field as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Of each class of retry.
    pub classes: Classes,
    /// Of failures with this code (`resource-exhausted`), whatever the class, conflicts aside.
    #[schemars(extend("propertyNames" = {"enum": Code::ALL.map(Code::as_str)}))]
    pub codes: BTreeMap<String, Curve>,
    /// No wait is shorter.
    pub floor: Period,
}

/// How waits grow, by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Classes {
    /// Somebody else's write came first.
    pub conflict: Curve,
    /// Something is under way, or may work soon.
    pub short: Curve,
    /// Something has to change first, which usually does.
    pub medium: Curve,
    /// Somebody has to change something.
    pub long: Curve,
}

/// How the waits of a row of tries grow: each is anywhere between nothing and a longest one, which doubles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Curve {
    /// The longest first wait.
    pub base: Period,
    /// The longest wait of all.
    pub cap: Period,
    /// After so many tries in a row comes the cool-down, and then the first wait again; never if it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// How long the cool-down is.
    #[serde(default)]
    pub cool_down: Period,
}

/// A row of twelve tries, then half an hour of rest.
fn curve(base_ms: u64, cap_seconds: u64) -> Curve {
    Curve {
        base: Period::from_millis(base_ms),
        cap: Period::from_secs(cap_seconds),
        tries: Some(12),
        cool_down: Period::from_secs(1800),
    }
}

impl Default for Classes {
    fn default() -> Self {
        let mut conflict = curve(200, 5);
        conflict.tries = None;
        let (short, medium, long) = (curve(1_000, 300), curve(30_000, 600), curve(120_000, 1_800));
        Classes {
            conflict,
            short,
            medium,
            long,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            classes: Classes::default(),
            // The class is the lifecycle's word, which knows what failed.
            codes: BTreeMap::new(),
            floor: Period::from_millis(100),
        }
    }
}
