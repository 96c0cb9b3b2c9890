//! Times as nova writes them: `2026-11-21T10:00:00Z`.

/// The milliseconds since 1970-01-01T00:00:00Z of a time in UTC; `None` if the text is not a time since 1970.
pub(crate) fn unix_ms(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, _fraction) = time.split_once('.').unwrap_or((time, ""));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    in_range.then(|| {
        let minutes = (days(year, month, day) * 24 + hour) * 60 + minute;
        (minutes * 60 + second) * 1_000
    })
}

/// Numbers with these numbers of digits, between separators.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[u64; N]> {
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
fn days(year: u64, month: u64, day: u64) -> u64 {
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
            ("2026-11-21T10:00:00Z", 1_795_255_200_000),
            ("2026-11-21T10:00:00.123456Z", 1_795_255_200_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(unix_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "T",
            "2026-11-21",
            "2026-11-21T10:00:00",
            "2026-11-21T10:00:00+01:00",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T10:60:00Z",
            "26-11-21T10:00:00Z",
            "2026-+1-21T10:00:00Z",
            "2026-11-21T10:00:00:00Z",
        ] {
            assert_eq!(unix_ms(text), None, "{text}");
        }
    }
}
