//! Times in the form of Kubernetes, and lengths of time in the form in which people write them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

const MS_PER_DAY: i64 = 86_400_000;

/// A moment, in milliseconds since 1970-01-01T00:00:00Z. In JSON it is an RFC 3339 string, as in Kubernetes
/// objects. Milliseconds are written only if they are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// A moment from milliseconds since the Unix epoch.
    pub const fn from_unix_ms(ms: u64) -> Self {
        Time(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// The same moment without its milliseconds, as `metav1.Time` stores it.
    pub const fn whole_seconds(self) -> Self {
        Time(self.0 - self.0 % 1000)
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, length: Duration) -> Time {
        Time(self.0.saturating_add(millis(length)))
    }
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day_ms = (self.0 % MS_PER_DAY as u64) as u32;
        let (year, month, day) = civil_from_days((self.0 / MS_PER_DAY as u64) as i64);
        let (hour, minute) = (day_ms / 3_600_000, day_ms / 60_000 % 60);
        let (second, ms) = (day_ms / 1000 % 60, day_ms % 1000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if ms > 0 {
            write!(f, ".{ms:03}")?;
        }
        f.write_str("Z")
    }
}

/// Year, month and day from days since the Unix epoch, in the proleptic Gregorian calendar. Years are counted
/// from March, so that the leap day is the last day of a year.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The error for a text that is not an RFC 3339 time, or not a length of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATime(&'static str);

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NotATime {}

impl FromStr for Time {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        parse_rfc3339(text).ok_or(NotATime("expected an RFC 3339 time such as 2026-01-31T12:00:00Z"))
    }
}

fn parse_rfc3339(text: &str) -> Option<Time> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let mark = |at: usize, marks: &[u8]| text.as_bytes().get(at).is_some_and(|b| marks.contains(b));
    if !(mark(4, b"-") && mark(7, b"-") && mark(10, b"Tt ") && mark(13, b":") && mark(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = days_from_civil(year, month, day);
    // A month or a day that the calendar does not have would be another date.
    if civil_from_days(days) != (year, month, day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A leap second (60) counts as the second before it.
    let second = second.min(59);
    let mut rest = text.get(19..)?;
    let mut ms = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        for (digit, weight) in fraction.bytes().take(digits).zip([100, 10, 1]) {
            ms += i64::from(digit - b'0') * weight;
        }
        rest = fraction.get(digits..)?;
    }
    let offset_minutes = match rest.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let at = text.len() - 5;
            let (hours, minutes) = (number(at, at + 2)?, number(at + 3, at + 5)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let minutes = hours * 60 + minutes;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let seconds = ((hour * 60 + minute - offset_minutes) * 60) + second;
    let unix = days * MS_PER_DAY + seconds * 1000 + ms;
    u64::try_from(unix).ok().map(Time)
}

/// A length of time as people write it in configurations: `"20s"`, `"10m"`, `"1h30m"`, `"500ms"`. `"0"` is no
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(u64);

impl Period {
    /// No time.
    pub const ZERO: Period = Period(0);

    /// A number of milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Period(ms)
    }

    /// A number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Period(seconds * 1000)
    }

    /// Whether it is no time.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Duration {
        Duration::from_millis(period.0)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (unit, ms) in [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
            if rest >= ms {
                write!(f, "{}{unit}", rest / ms)?;
                rest %= ms;
            }
        }
        if self.0 == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl FromStr for Period {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        const EXPECTED: NotATime = NotATime("expected a length of time such as 20s, 10m, 1h30m or 500ms");
        if text == "0" {
            return Ok(Period::ZERO);
        }
        let (mut total, mut rest) = (0u64, text);
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let count: u64 = rest[..digits].parse().map_err(|_| EXPECTED)?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let unit = match &rest[..letters] {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1000,
                "ms" => 1,
                _ => return Err(EXPECTED),
            };
            rest = &rest[letters..];
            total = count
                .checked_mul(unit)
                .and_then(|ms| total.checked_add(ms))
                .ok_or(EXPECTED)?;
        }
        if text.is_empty() {
            Err(EXPECTED)
        } else {
            Ok(Period(total))
        }
    }
}

/// Reads a type that is a string in JSON and has a `FromStr`, without an allocation.
struct Text<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = NotATime>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(std::marker::PhantomData))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(std::marker::PhantomData))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^(0|([0-9]+(ms|s|m|h))+)$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_and_read_as_rfc3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59Z"),
            (1_767_225_599_250, "2025-12-31T23:59:59.250Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Time(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Time(ms)));
        }
        assert_eq!("2026-01-01T01:30:00.5+01:30".parse(), Ok(Time(1_767_225_600_500)));
        assert_eq!("2026-01-01T00:00:00.123456Z".parse(), Ok(Time(1_767_225_600_123)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T00:00:00+00:60",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "ä026-01-01T00:00:00Z",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_period_is_written_as_people_write_it() {
        for (ms, text) in [
            (20_000, "20s"),
            (600_000, "10m"),
            (5_400_000, "1h30m"),
            (1_500, "1s500ms"),
            (0, "0s"),
        ] {
            assert_eq!(text.parse(), Ok(Period(ms)));
            assert_eq!(Period(ms).to_string(), text);
        }
        assert_eq!("0".parse(), Ok(Period(0)));
        for text in [
            "",
            "20",
            "s",
            "20 s",
            "-1s",
            "1d",
            "99999999999999999999h",
            "9999999999999999h",
            "1ä",
        ] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }
}
