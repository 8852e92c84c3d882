//! Dates as the earlier client writes them (RFC 3339), without a calendar library: one function.

use kukuri_event::UnixSeconds;

/// The second that a text such as `2026-03-10T00:00:00Z` names. Parts of a second are dropped.
pub(crate) fn parse_rfc3339(text: &str) -> Option<UnixSeconds> {
    let bytes = text.as_bytes();
    let separated = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")];
    if !text.is_ascii() || separated.iter().any(|(at, mark)| bytes.get(*at) != Some(&mark[0])) {
        return None;
    }
    if !matches!(bytes.get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let field = |from: usize, to: usize| digits(text.get(from..to)?);
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    let (hour, minute, second) = (field(11, 13)?, field(14, 16)?, field(17, 19)?);
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let offset = offset_seconds(without_fraction(text.get(19..)?)?)?;
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    in_range.then(|| UnixSeconds(seconds - offset)).filter(|at| at.0 >= 0)
}

fn digits(text: &str) -> Option<i64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn without_fraction(text: &str) -> Option<&str> {
    let Some(fraction) = text.strip_prefix('.') else { return Some(text) };
    let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

fn offset_seconds(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let both = hours.len() == 2 && minutes.len() == 2;
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    (both && hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Years begin in March here, so that the day that some of them lack is their last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696),
            ("2026-03-10T00:00:00Z", 1_773_100_800),
            ("2026-03-10T00:00:00+00:00", 1_773_100_800),
            ("2026-03-10T09:00:00+09:00", 1_773_100_800),
            ("2026-03-09T19:30:00.999999999-04:30", 1_773_100_800),
            ("2038-01-19T03:14:08z", 2_147_483_648),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(parse_rfc3339(text), Some(UnixSeconds(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2026",
            "2026-03-10",
            "2026-03-10T00:00:00",
            "2026-13-10T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-03-10T24:00:00Z",
            "2026-03-10T00:00:00.Z",
            "2026-03-10T00:00:00+0900",
            "2026-03-10T00:00:00+9:00",
            "1969-12-31T23:59:59Z",
            "+026-03-10T00:00:00Z",
            "2026-03-10T00:00:00ZZ",
            "２０２６-03-10T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }
}
