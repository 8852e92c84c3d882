//! Cutting bytes into lines, with bounded memory whatever the bytes are.

use std::io::{self, BufRead};

use kukuri_core::Rejection;
use kukuri_event::ParseError;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from one, blank lines included, as editors count.
    pub number: u64,
    /// The text, or why it cannot be an event.
    pub text: Result<String, Rejection>,
}

/// The lines of an input.
pub struct Lines<R> {
    input: R,
    line_bytes_max: usize,
    number: u64,
    bytes: u64,
    /// Nothing is read after an error: what comes next would not be the beginning of a line.
    failed: bool,
}

impl<R: BufRead> Lines<R> {
    /// `line_bytes_max` does not count the line's end.
    pub fn new(input: R, line_bytes_max: usize) -> Self {
        Self { input, line_bytes_max, number: 0, bytes: 0, failed: false }
    }

    /// How much of the input has been read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not blank; `None` at the end and after an error.
    pub fn next(&mut self) -> io::Result<Option<Line>> {
        while !self.failed {
            let line = self.read_line().inspect_err(|_| self.failed = true)?;
            let Some((line, cut)) = line else { return Ok(None) };
            self.number += 1;
            let number = self.number;
            if cut {
                return Ok(Some(Line { number, text: Err(Rejection::TooLarge) }));
            }
            if line.is_empty() {
                continue;
            }
            return Ok(Some(Line { number, text: text(line) }));
        }
        Ok(None)
    }

    /// A line without blanks around it, and whether it was longer than it may be. Of such a line
    /// only the beginning is kept.
    fn read_line(&mut self) -> io::Result<Option<(Vec<u8>, bool)>> {
        let mut line = Vec::new();
        let mut cut = false;
        let mut any = false;
        loop {
            let buffer = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            if buffer.is_empty() {
                break;
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            // Two more than allowed: a carriage return does not count, and one byte tells "too long".
            let room = (self.line_bytes_max + 2).saturating_sub(line.len());
            cut |= piece.len() > room;
            line.extend_from_slice(&piece[..piece.len().min(room)]);
            let used = piece.len() + usize::from(end.is_some());
            self.input.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        let trimmed = self.trim(&line);
        let cut = cut || trimmed.len() > self.line_bytes_max;
        Ok(Some((trimmed.to_vec(), cut)))
    }

    fn trim<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let first = self.number == 0;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| first).unwrap_or(line);
        line.trim_ascii()
    }
}

fn text(line: Vec<u8>) -> Result<String, Rejection> {
    String::from_utf8(line).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        Rejection::Malformed(ParseError::Json(format!("not UTF-8 at byte {at}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], line_bytes_max: usize) -> Vec<(u64, Result<String, String>)> {
        // A tiny buffer, so that lines cross its edges.
        let mut lines = Lines::new(io::BufReader::with_capacity(3, bytes), line_bytes_max);
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            read.push((line.number, line.text.map_err(|error| error.to_string())));
        }
        assert_eq!(lines.bytes(), bytes.len() as u64);
        read
    }

    fn ok(number: u64, text: &str) -> (u64, Result<String, String>) {
        (number, Ok(text.to_owned()))
    }

    #[test]
    fn blank_lines_are_counted_and_skipped() {
        let read = read(b"\n one\r\n\r\n  \t\ntwo\n\nthree", 100);
        assert_eq!(read, [ok(2, "one"), ok(5, "two"), ok(7, "three")]);
    }

    #[test]
    fn a_line_may_be_as_long_as_it_may_and_no_longer() {
        let too_large = || Err("invalid: event too large".to_owned());
        let long = "x".repeat(1000);
        let input = format!("12345\n12345\r\n123456\n{long}\n1\n{long}");
        let expected =
            [ok(1, "12345"), ok(2, "12345"), (3, too_large()), (4, too_large()), ok(5, "1")];
        let read = read(input.as_bytes(), 5);
        assert_eq!(read[..5], expected);
        assert_eq!(read[5..], [(6, too_large())]);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        let refused = "invalid: malformed event: not UTF-8 at byte 3".to_owned();
        assert_eq!(read(b"ab\xff\nab\n", 100), [(1, Err(refused)), ok(2, "ab")]);
    }

    /// Fails once, in the middle of the second line.
    struct Flawed(Vec<io::Result<&'static [u8]>>);

    impl io::Read for Flawed {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = if self.0.is_empty() { Ok(&b""[..]) } else { self.0.remove(0) }?;
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn half_a_line_before_an_error_is_not_taken_for_a_line() {
        let pieces = vec![Ok(&b"one\ntw"[..]), Err(io::Error::other("broken")), Ok(b"o\nthree\n")];
        let mut lines = Lines::new(io::BufReader::new(Flawed(pieces)), 100);
        assert_eq!(lines.next().unwrap().unwrap().text, Ok("one".to_owned()));
        assert_eq!(lines.next().unwrap_err().to_string(), "broken");
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        assert_eq!(read(b"\xef\xbb\xbfab\n", 100), [ok(1, "ab")]);
        assert_eq!(read(b"", 100), []);
    }
}
