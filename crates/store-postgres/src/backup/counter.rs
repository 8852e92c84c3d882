//! The server does not say how many rows it has sent. They are counted on their way.
//! <https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format".

/// A signature of 11 bytes, flags, and the length of an extension that no server sends.
const HEADER_BYTES: usize = 11 + 4 + 4;

/// Follows the binary format through chunks of any size.
#[derive(Debug)]
pub(super) struct RowCounter {
    rows: u64,
    state: State,
    /// The bytes of a number or the header that has not come to its end.
    begun: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// The number of fields of the next row.
    Row,
    /// The length of the next of so many fields.
    Field(u16),
    /// So many bytes of a field, before so many further fields.
    Value(usize, u16),
    End,
    /// Something else than the format was sent.
    Lost,
}

impl Default for RowCounter {
    fn default() -> Self {
        Self { rows: 0, state: State::Header, begun: Vec::with_capacity(HEADER_BYTES) }
    }
}

impl RowCounter {
    pub fn take(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            let needed = match self.state {
                State::Header => HEADER_BYTES,
                State::Row => 2,
                State::Field(_) => 4,
                State::Value(left, fields) => {
                    let passed = left.min(chunk.len());
                    chunk = &chunk[passed..];
                    self.state = if passed < left {
                        State::Value(left - passed, fields)
                    } else {
                        self.next_field(fields)
                    };
                    continue;
                }
                State::End | State::Lost => {
                    // There is nothing after the end.
                    self.state = State::Lost;
                    return;
                }
            };
            let taken = (needed - self.begun.len()).min(chunk.len());
            self.begun.extend_from_slice(&chunk[..taken]);
            chunk = &chunk[taken..];
            if self.begun.len() == needed {
                self.state = self.read();
                self.begun.clear();
            }
        }
    }

    /// What follows the number, or the header, that is complete now.
    fn read(&mut self) -> State {
        match (self.state, self.begun.as_slice()) {
            (State::Row, &[high, low]) => match i16::from_be_bytes([high, low]) {
                -1 => State::End,
                fields => {
                    u16::try_from(fields).map_or(State::Lost, |fields| self.next_field(fields))
                }
            },
            (State::Field(fields), &[a, b, c, d]) => match i32::from_be_bytes([a, b, c, d]) {
                // NULL has no bytes.
                -1 | 0 => self.next_field(fields - 1),
                length => usize::try_from(length)
                    .map_or(State::Lost, |length| State::Value(length, fields - 1)),
            },
            (State::Header, header) if header.starts_with(b"PGCOPY\n\xff\r\n\0") => State::Row,
            _ => State::Lost,
        }
    }

    /// With so many fields left of the row.
    fn next_field(&mut self, fields: u16) -> State {
        if fields > 0 {
            return State::Field(fields);
        }
        self.rows += 1;
        State::Row
    }

    /// How many rows there were, if the copy came to its end.
    pub fn end(self) -> Option<u64> {
        (self.state == State::End).then_some(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of three fields: a value, NULL, and an empty one.
    fn copy(rows: usize) -> Vec<u8> {
        let mut bytes = b"PGCOPY\n\xff\r\n\0".to_vec();
        bytes.extend([0; 8]);
        for row in 0..rows {
            bytes.extend(3_i16.to_be_bytes());
            let value = vec![0xff; row + 1];
            bytes.extend((value.len() as i32).to_be_bytes());
            bytes.extend(value);
            bytes.extend((-1_i32).to_be_bytes());
            bytes.extend(0_i32.to_be_bytes());
        }
        bytes.extend((-1_i16).to_be_bytes());
        bytes
    }

    fn count(bytes: &[u8], chunk_bytes: usize) -> Option<u64> {
        let mut counter = RowCounter::default();
        bytes.chunks(chunk_bytes).for_each(|chunk| counter.take(chunk));
        counter.end()
    }

    #[test]
    fn rows_are_counted_whatever_the_chunks() {
        for rows in [0, 1, 2, 20] {
            let bytes = copy(rows);
            for chunk_bytes in 1..=bytes.len() {
                assert_eq!(count(&bytes, chunk_bytes), Some(rows as u64), "{chunk_bytes}");
            }
        }
    }

    #[test]
    fn a_copy_that_is_cut_or_too_long_has_no_count() {
        let bytes = copy(3);
        for length in 1..bytes.len() {
            assert_eq!(count(&bytes[..length], 5), None, "{length}");
        }
        assert_eq!(count(&[bytes, vec![0]].concat(), 5), None);
        assert_eq!(count(b"seq,created_at\n1,2\n and more", 5), None);
    }
}
