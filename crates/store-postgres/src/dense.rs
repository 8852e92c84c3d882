//! Numbers that lie close together, as those of events that came together do. One stretch of an index has all of
//! them, where each for itself would be looked for from the index's root on; a bit says of each number between the
//! first and the last whether it is meant.

/// Numbers are close together if there are at most so many in all for each that is meant.
const NUMBERS_PER_ONE_MAX: u64 = 16;

/// `first`, `last` and bits for `seq`, as the parameters $1, $2 and $3. What lies outside has no bit.
macro_rules! is_in {
    ($seq:literal, $first:literal, $last:literal, $bits:literal) => {
        concat!(
            $seq,
            " BETWEEN ",
            $first,
            " AND ",
            $last,
            " AND CASE WHEN ",
            $seq,
            " BETWEEN ",
            $first,
            " AND ",
            $last,
            " THEN get_bit(",
            $bits,
            ", ",
            $seq,
            " - ",
            $first,
            ") = 1 ELSE FALSE END"
        )
    };
}
pub(crate) use is_in;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dense {
    pub first: i64,
    pub last: i64,
    /// As `get_bit` of the server counts them: the least of each byte first.
    pub bits: Vec<u8>,
}

impl Dense {
    /// No number at all.
    pub const NONE: Self = Self { first: 0, last: -1, bits: Vec::new() };

    /// `None` if they are not close together.
    pub fn of(numbers: &[i64]) -> Option<Self> {
        let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else {
            return Some(Self::NONE);
        };
        let span = last.abs_diff(*first).checked_add(1)?;
        if span.div_ceil(NUMBERS_PER_ONE_MAX) > numbers.len() as u64 {
            return None;
        }
        let mut bits = vec![0; usize::try_from(span.div_ceil(8)).ok()?];
        for number in numbers {
            let place = number.abs_diff(*first);
            bits[usize::try_from(place / 8).ok()?] |= 1_u8 << (place % 8);
        }
        Some(Self { first: *first, last: *last, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_says_which_numbers_are_meant() {
        let dense = Dense::of(&[9, 2, 3, 10]).expect("they are close together");
        assert_eq!(dense, Dense { first: 2, last: 10, bits: vec![0b1000_0011, 1] });
        assert_eq!(Dense::of(&[]), Some(Dense::NONE));
    }

    #[test]
    fn numbers_are_close_together_up_to_a_limit() {
        assert!(Dense::of(&[1, 32]).is_some(), "32 numbers for two");
        assert_eq!(Dense::of(&[1, 33]), None, "33 numbers for two");
        assert_eq!(Dense::of(&[i64::MIN, i64::MAX]), None);
    }
}
