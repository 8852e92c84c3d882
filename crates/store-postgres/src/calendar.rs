//! Months of the UTC calendar as ranges of milliseconds.

use std::fmt;

use kukuri_core::UnixMillis;

const MILLIS_PER_DAY: i128 = 24 * 60 * 60 * 1000;

/// A month, counted from January of the year 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Month(i64);

impl Month {
    pub fn of(time: UnixMillis) -> Self {
        let days = i128::from(time.0).div_euclid(MILLIS_PER_DAY);
        let days = i64::try_from(days).expect("days are fewer than milliseconds");
        // Days are counted from 1 March of a year that 400 divides, since leap days come last then.
        let day = days + 719_468;
        let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        Self((era * 400 + year) * 12 + month + 2)
    }

    #[must_use]
    pub fn plus(self, months: i64) -> Self {
        Self(self.0 + months)
    }

    /// The first millisecond; `None` where a column cannot hold it.
    pub fn start(self) -> Option<i64> {
        let (year, month) = ((self.0 - 2).div_euclid(12), (self.0 - 2).rem_euclid(12));
        let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
        let day = (153 * month + 2) / 5 + 365 * year + year / 4 - year / 100;
        let days = i128::from(era) * 146_097 + i128::from(day) - 719_468;
        i64::try_from(days * MILLIS_PER_DAY).ok()
    }
}

/// `2026_07`, as partitions are called.
impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month) = (self.0.div_euclid(12), self.0.rem_euclid(12) + 1);
        let sign = if year < 0 { "bc" } else { "" };
        write!(f, "{sign}{:04}_{month:02}", year.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_begins_where_the_one_before_it_ends() {
        for (millis, name, start) in [
            (0, "1970_01", 0),
            (1_700_000_000_000, "2023_11", 1_698_796_800_000),
            (1_709_251_199_999, "2024_02", 1_706_745_600_000),
            (1_709_251_200_000, "2024_03", 1_709_251_200_000),
            (-1, "1969_12", -2_678_400_000),
        ] {
            let month = Month::of(UnixMillis(millis));
            assert_eq!((month.to_string().as_str(), month.start()), (name, Some(start)));
        }
        let mut month = Month::of(UnixMillis(-70_000_000_000_000));
        for _ in 0..5_000 {
            let (start, end) = (month.start().unwrap(), month.plus(1).start().unwrap());
            assert_eq!(Month::of(UnixMillis(start)), month);
            assert_eq!(Month::of(UnixMillis(end - 1)), month);
            month = month.plus(1);
        }
    }

    #[test]
    fn the_ends_of_time_have_months() {
        assert_eq!(Month::of(UnixMillis(i64::MIN)).start(), None);
        assert_eq!(Month::of(UnixMillis(i64::MAX)).plus(1).start(), None);
        assert!(Month::of(UnixMillis(i64::MAX)).start().is_some());
    }
}
