//! Durations that are drawn at random.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use polity_clouds::Millis;

/// A duration between two bounds, both included; drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// The shortest duration.
    pub min: Millis,
    /// The longest duration.
    pub max: Millis,
}

impl Between {
    /// A duration without chance.
    pub const fn exactly(millis: u64) -> Self {
        Between {
            min: Millis(millis),
            max: Millis(millis),
        }
    }

    pub(crate) const fn new(min: u64, max: u64) -> Self {
        Between {
            min: Millis(min),
            max: Millis(max),
        }
    }

    /// Picks a duration.
    pub(crate) fn pick(self, draw: u64) -> u64 {
        let width = self.max.0.saturating_sub(self.min.0);
        self.min.0 + draw % (width + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pick_lies_between_the_bounds_and_reaches_both() {
        let picks: Vec<u64> = (0..6).map(|d| Between::new(3, 5).pick(d)).collect();
        assert_eq!(picks, [3, 4, 5, 3, 4, 5]);
    }
}
