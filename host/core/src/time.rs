//! Times: points in time of two clocks, and lengths. None of them is a bare number, so that they cannot be mixed up.
//!
//! Numbers from outside may have any size. A sum that is too large becomes the largest time, and a difference that
//! would be negative becomes zero.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since boot, including suspends. Waits, leases and deadlines use this clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Boot(pub u64);

/// A point in time: Unix milliseconds. Policies and objects use this clock. It jumps when somebody sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unix(pub u64);

/// The two clocks, read together by the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Now {
    /// The clock for waits, leases and deadlines.
    pub boot: Boot,
    /// The clock for policies and objects.
    pub unix: Unix,
}

impl Boot {
    /// A time that is never reached.
    pub const MAX: Boot = Boot(u64::MAX);
}

impl Add<Duration> for Boot {
    type Output = Boot;

    fn add(self, length: Duration) -> Boot {
        Boot(self.0.saturating_add(millis(length)))
    }
}

impl Sub for Boot {
    type Output = Duration;

    fn sub(self, earlier: Boot) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Unix {
    type Output = Unix;

    fn add(self, length: Duration) -> Unix {
        Unix(self.0.saturating_add(millis(length)))
    }
}

impl Sub for Unix {
    type Output = Duration;

    fn sub(self, earlier: Unix) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Now {
    type Output = Now;

    fn add(self, length: Duration) -> Now {
        Now {
            boot: self.boot + length,
            unix: self.unix + length,
        }
    }
}

/// The whole milliseconds of a length; a length that is too large becomes the largest number.
pub fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Serializes a length as whole milliseconds.
pub mod as_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a length.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(super::millis(*length))
    }

    /// Reads a length.
    ///
    /// # Errors
    /// If the value is not a whole number of milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Serializes an optional length as whole milliseconds, or as null.
pub mod as_optional_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes an optional length.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(length: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        length.map(super::millis).serialize(serializer)
    }

    /// Reads an optional length.
    ///
    /// # Errors
    /// If the value is neither null nor a whole number of milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let number: Option<u64> = Option::deserialize(deserializer)?;
        Ok(number.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_no_number_can_hold_is_the_end_of_time_and_nothing_is_before_its_beginning() {
        let ever = Duration::from_millis(u64::MAX);
        assert_eq!(Boot(1) + ever, Boot::MAX);
        assert_eq!(Boot(1) + Duration::MAX, Boot::MAX);
        assert_eq!(Unix(1) + ever, Unix(u64::MAX));
        assert_eq!(Boot(5) + Duration::from_millis(7), Boot(12));
        assert_eq!(Boot(5) - Boot(7), Duration::ZERO);
        assert_eq!(Boot(7) - Boot(5), Duration::from_millis(2));
        assert_eq!(Unix(7) - Unix(5), Duration::from_millis(2));
        assert_eq!(Unix(5) - Unix(7), Duration::ZERO);
        assert_eq!((millis(ever), millis(Duration::MAX)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn times_are_written_as_whole_milliseconds() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Written {
            now: Now,
            #[serde(with = "as_millis")]
            length: Duration,
            #[serde(with = "as_optional_millis")]
            some: Option<Duration>,
            #[serde(with = "as_optional_millis")]
            none: Option<Duration>,
        }
        let times = Written {
            now: Now {
                boot: Boot(1),
                unix: Unix(2),
            },
            length: Duration::from_millis(u64::MAX),
            some: Some(Duration::from_millis(4)),
            none: None,
        };
        let written = json!({"now": {"boot": 1, "unix": 2}, "length": u64::MAX, "some": 4, "none": null});
        assert_eq!(serde_json::to_value(&times).expect("written"), written);
        assert_eq!(serde_json::from_value::<Written>(written).expect("read"), times);
        for wrong in [json!(-1), json!(1.5), json!("1"), json!(null)] {
            assert!(as_millis::deserialize(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
