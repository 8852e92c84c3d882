//! What a client's messages come to: which of them makes something durable.

use std::collections::HashSet;

use super::message::Message;

/// A client's side of a connection so far.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    transaction: Option<Transaction>,
    /// The names of prepared statements that write.
    writing: HashSet<Vec<u8>>,
    /// One of them runs, and is committed with the next Sync.
    runs: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Transaction {
    Reads,
    Writes,
}

impl Dialogue {
    /// Whether the server commits something at this message: COMMIT, or the end of a prepared statement
    /// that writes outside of a transaction.
    pub(super) fn commits(&mut self, message: &Message) -> bool {
        if let Some((name, writes)) = message.prepared() {
            self.writing.remove(name);
            if writes {
                self.writing.insert(name.to_owned());
            }
        }
        if let Some(reads) = message.begins_to_read() {
            self.transaction = Some(if reads { Transaction::Reads } else { Transaction::Writes });
        }
        if message.rolls_back() {
            self.transaction = None;
        }
        if message.commits() {
            return self.transaction.take() != Some(Transaction::Reads);
        }
        let free = self.transaction.is_none();
        self.runs |= free && message.bound().is_some_and(|name| self.writing.contains(name));
        message.syncs() && std::mem::take(&mut self.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::message;
    use super::*;

    fn committed(messages: &[(u8, &[u8])]) -> Vec<usize> {
        let mut dialogue = Dialogue::default();
        let commits = messages.iter().enumerate().filter_map(|(nth, (kind, body))| {
            dialogue.commits(&message(*kind, body)).then_some(nth)
        });
        commits.collect()
    }

    #[test]
    fn a_commit_ends_a_transaction_that_may_write() {
        let commit = (b'Q', &b"COMMIT\0"[..]);
        assert_eq!(committed(&[(b'Q', b"BEGIN\0"), commit]), [1]);
        assert_eq!(committed(&[(b'Q', b"BEGIN READ ONLY\0"), commit]), [0; 0]);
        assert_eq!(committed(&[(b'Q', b"BEGIN READ ONLY\0"), commit, commit]), [2]);
    }

    #[test]
    fn a_statement_that_writes_alone_commits_when_it_ends() {
        let prepare = (b'P', &b"w\0WITH a AS (INSERT INTO t VALUES (1)) SELECT\0\0\0"[..]);
        let other = (b'P', &b"r\0SELECT 1\0\0\0"[..]);
        let (write, read) = ((b'B', &b"\0w\0\0\0"[..]), (b'B', &b"\0r\0\0\0"[..]));
        let (run, sync) = ((b'E', &b"\0\0\0\0\0"[..]), (b'S', &b""[..]));
        assert_eq!(committed(&[prepare, sync, write, run, sync, read, run, sync]), [4]);
        assert_eq!(committed(&[other, sync, read, run, sync]), [0; 0]);
        let begin = (b'Q', &b"BEGIN\0"[..]);
        assert_eq!(committed(&[prepare, sync, begin, write, run, sync]), [0; 0]);
        let leave = (b'Q', &b"ROLLBACK\0"[..]);
        assert_eq!(committed(&[prepare, sync, begin, leave, write, run, sync]), [6]);
    }
}
