//! Time as the server sees it: one clock, handed in, because standalone runs in virtual time.

use std::{sync::Arc, time::SystemTime};

use jiff::Timestamp;

/// What the server asks for the time of creations and deletions.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The time of the clock; a clock outside the years that RFC 3339 can say answers the epoch.
pub(crate) fn now(clock: &Clock) -> Timestamp {
    Timestamp::try_from(clock()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `2026-11-20T08:00:00Z`: meta/v1 `Time` has whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// How long ago `since` was, in the short form of kubectl's AGE column (apimachinery `HumanDuration`).
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - since.as_second();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 | 0 => "0s".to_owned(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_gets_coarser_as_it_grows() {
        let zero = Timestamp::UNIX_EPOCH;
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (660, "11m"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (20 * 86_400, "20d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(age(zero, Timestamp::from_second(seconds).unwrap()), shown);
        }
    }

    #[test]
    fn a_timestamp_has_whole_seconds() {
        let time = Timestamp::from_millisecond(1_763_625_600_999).unwrap();
        assert_eq!(rfc3339(time), "2025-11-20T08:00:00Z");
    }
}
