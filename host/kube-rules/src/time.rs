//! Times in the form of Kubernetes: RFC 3339 in UTC.
//!
//! The calendar is jiff's. The present time is not known here.

use jiff::Timestamp;

/// Unix milliseconds as a `Time`: `2026-01-31T12:00:00Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    meta_time(of_unix_ms(unix_ms))
}

/// A moment as a meta/v1 `Time`, which has whole seconds: `2026-01-31T12:00:00Z`.
pub fn meta_time(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// A moment as a meta/v1 `MicroTime`, which has microseconds: `2026-01-31T12:00:00.012000Z`.
pub fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// The moment of Unix milliseconds. Later moments than the end of the year 9999 become that end, the last one
/// that can be written.
pub fn of_unix_ms(unix_ms: u64) -> Timestamp {
    let moment = i64::try_from(unix_ms).ok().map(Timestamp::from_millisecond);
    moment.and_then(Result::ok).unwrap_or(Timestamp::MAX)
}

/// The Unix milliseconds of a `Time` or `MicroTime`; `None` if it is neither, or before 1970.
pub fn unix_ms_of(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// The time since `since`, in the short form of kubectl's AGE column (apimachinery `HumanDuration`).
pub fn age(since: Timestamp, now: Timestamp) -> String {
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
    fn a_time_is_read_as_it_is_written() {
        assert_eq!(unix_ms_of(&rfc3339(1_795_435_200_000)), Some(1_795_435_200_000));
        assert_eq!(unix_ms_of("2026-11-23T13:00:00.5+01:00"), Some(1_795_435_200_500));
        for odd in ["", "noon", "1969-12-31T23:59:59Z"] {
            assert_eq!(unix_ms_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_time_has_whole_seconds_of_the_gregorian_calendar() {
        for (unix_ms, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_763_625_600_999, "2025-11-20T08:00:00Z"),
            (1_795_219_199_999, "2026-11-20T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix_ms), written);
        }
    }

    #[test]
    fn a_micro_time_has_six_digits() {
        assert_eq!(micro_time(of_unix_ms(12)), "1970-01-01T00:00:00.012000Z");
        assert_eq!(micro_time(of_unix_ms(1_000)), "1970-01-01T00:00:01.000000Z");
    }

    #[test]
    fn no_number_of_milliseconds_is_past_writing() {
        for unix_ms in [u64::MAX, i64::MAX as u64] {
            assert!(
                rfc3339(unix_ms).starts_with("9999-12-30T"),
                "{}",
                rfc3339(unix_ms)
            );
        }
    }

    #[test]
    fn an_age_gets_coarser_as_it_grows() {
        let zero = Timestamp::UNIX_EPOCH;
        for (seconds, shown) in [
            (-2, "<invalid>"),
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
}
