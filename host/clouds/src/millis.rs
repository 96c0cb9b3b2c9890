//! Durations, written as people write them.

use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A duration in milliseconds. It is written as a whole number of milliseconds, or as `250ms`, `30s`, `5m`,
/// `2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// The longest duration, a hundred years. Sums of such times do not overflow.
const LONGEST: u64 = 100 * 366 * 24 * 3_600_000;

impl Millis {
    /// Whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Millis(seconds * 1_000)
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        Self::bounded(number.parse::<u64>().ok()?.checked_mul(factor)?)
    }

    fn bounded(millis: u64) -> Option<Self> {
        (millis <= LONGEST).then_some(Millis(millis))
    }
}

impl From<Millis> for Duration {
    fn from(length: Millis) -> Duration {
        Duration::from_millis(length.0)
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Millis;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("at most a hundred years, in milliseconds or as in 250ms, 30s, 5m, 2h")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Millis, E> {
                Millis::bounded(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Millis, E> {
                Millis::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Written)
    }
}

impl JsonSchema for Millis {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Milliseconds, or a duration such as 250ms, 30s, 5m, 2h.",
            "anyOf": [{"type": "integer", "minimum": 0, "maximum": LONGEST}, {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<Millis> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        assert_eq!(read("1500"), Some(Millis(1_500)));
        assert_eq!(read("\"250ms\""), Some(Millis(250)));
        assert_eq!(read("\"5m\""), Some(Millis::seconds(300)));
        assert_eq!(read("\"2h\""), Some(Millis::seconds(7_200)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for bad in [
            "-1",
            "1.5",
            "\"\"",
            "\"s\"",
            "\"5\"",
            "\"5d\"",
            "\"-5s\"",
            "\"99999999999999999999s\"",
            "18446744073709551615",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
