//! The configuration, which a binding sets.

use std::collections::BTreeMap;

use polity_sdk::prelude::*;

/// The curves of waits. A value in the binding replaces the whole default of its field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// The curves by class of retry.
    pub classes: Classes,
    /// The curves for failures with this code (`resource-exhausted`), whatever the class is, but not for
    /// conflicts.
    #[schemars(extend("propertyNames" = {"enum": Code::ALL.map(Code::as_str)}))]
    pub codes: BTreeMap<String, Curve>,
    /// The shortest wait.
    pub floor: Period,
}

/// The curves by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Classes {
    /// After another writer changed the object first.
    pub conflict: Curve,
    /// If work is under way, or the request may succeed soon.
    pub short: Curve,
    /// If something must change first, which it usually does.
    pub medium: Curve,
    /// If a person must change something.
    pub long: Curve,
}

/// A curve of waits. Each wait is a random time between zero and a longest wait, which doubles with each try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Curve {
    /// The longest first wait.
    pub base: Period,
    /// The limit of the longest wait.
    pub cap: Period,
    /// The number of tries in a row before the cool-down, after which the curve begins again. Without it
    /// there is no cool-down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// The length of the cool-down.
    #[serde(default)]
    pub cool_down: Period,
}

/// A curve with twelve tries and then a cool-down of half an hour.
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
