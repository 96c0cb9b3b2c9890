//! Times as vCenter writes them: `2026-11-21T10:00:00.123456Z`.

/// The milliseconds since 1970-01-01T00:00:00Z; `None` if the text is not a time with a zone since 1970. Fractions of a
/// second are left out.
pub(crate) fn unix_ms(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let zone_at = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, _parts_of_a_second) = clock.split_once('.').unwrap_or((clock, ""));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let minutes = (days(year, month, day) * 24 + hour) * 60 + minute;
    let minutes = minutes.checked_sub(offset(zone)?)?;
    let seconds = u64::try_from(minutes * 60 + second).ok()?;
    in_range.then_some(seconds * 1_000)
}

/// How many minutes a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let (sign, zone) = zone.split_at(1);
    let [hours, minutes] = numbers(zone, ':', [2, 2])?;
    let ahead = hours * 60 + minutes;
    Some(if sign == "-" { -ahead } else { ahead })
}

/// Numbers with these numbers of digits, between separators.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(separator).collect();
    let parts: [&str; N] = parts.try_into().ok()?;
    let mut numbers = [0; N];
    for ((number, part), length) in numbers.iter_mut().zip(parts).zip(lengths) {
        let is_number = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    Some(numbers)
}

/// Days since 1970-01-01. Years are counted from March, so that a leap day is the last day of a year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    let before_month = (month * 153 + 2) / 5;
    // The days from the first of March of the year 0 to the beginning of 1970.
    before_year + before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_since_1970() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799_000),
            ("2024-03-01T00:00:00Z", 1_709_251_200_000),
            ("2026-11-21T10:00:00.123456Z", 1_795_255_200_000),
            ("2026-11-21T12:00:00+02:00", 1_795_255_200_000),
            ("2026-11-21T04:30:00.5-05:30", 1_795_255_200_000),
        ] {
            assert_eq!(unix_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_with_a_zone_is_refused() {
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "+026-11-21T10:00:00Z",
            "2026-11-21T10:00:00+2",
            "2026-11-21T10:00:00Zulu",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(unix_ms(text), None, "{text}");
        }
    }
}
