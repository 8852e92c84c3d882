//! Which rows a partition takes, as the server writes it: read strictly, because it becomes a part of
//! a statement.

use std::fmt;

/// The bounds of a partition by one column of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// From the first on, to before the second; `None` where there is no bound.
    Range(Option<i64>, Option<i64>),
    List(Vec<i64>),
}

impl Values {
    pub fn parse(text: &str) -> Result<Self, String> {
        let strange = || format!("{text:?} are no bounds that this program gives");
        let body = text.strip_prefix("FOR VALUES ").ok_or_else(strange)?;
        let values = if let Some(range) = body.strip_prefix("FROM (") {
            let (from, to) = range.split_once(") TO (").ok_or_else(strange)?;
            let to = to.strip_suffix(')').ok_or_else(strange)?;
            Some(Self::Range(
                edge(from, "MINVALUE").ok_or_else(strange)?,
                edge(to, "MAXVALUE").ok_or_else(strange)?,
            ))
        } else {
            let list = body.strip_prefix("IN (").and_then(|list| list.strip_suffix(')'));
            let numbers = list.map(|list| list.split(", ").map(number).collect());
            numbers.flatten().map(Self::List)
        };
        values.ok_or_else(strange)
    }
}

fn edge(text: &str, boundless: &str) -> Option<Option<i64>> {
    if text == boundless { Some(None) } else { number(text).map(Some) }
}

fn number(text: &str) -> Option<i64> {
    let plain = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    plain.unwrap_or(text).parse().ok()
}

/// As a statement takes it.
impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range(from, to) => {
                let from = from.map_or("MINVALUE".to_owned(), |from| format!("'{from}'"));
                let to = to.map_or("MAXVALUE".to_owned(), |to| format!("'{to}'"));
                write!(f, "FOR VALUES FROM ({from}) TO ({to})")
            }
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
                write!(f, "FOR VALUES IN ({})", values.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_writes_is_read() {
        for (text, values) in [
            ("FOR VALUES FROM ('1') TO ('1000001')", Values::Range(Some(1), Some(1_000_001))),
            ("FOR VALUES FROM (MINVALUE) TO ('-7')", Values::Range(None, Some(-7))),
            ("FOR VALUES FROM ('-7') TO (MAXVALUE)", Values::Range(Some(-7), None)),
            ("FOR VALUES IN ('0')", Values::List(vec![0])),
            ("FOR VALUES IN ('0', '1')", Values::List(vec![0, 1])),
        ] {
            assert_eq!(Values::parse(text), Ok(values.clone()), "{text}");
            assert_eq!(values.to_string(), text);
        }
        assert_eq!(Values::parse("FOR VALUES IN (0, 1)"), Ok(Values::List(vec![0, 1])));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "DEFAULT",
            "FOR VALUES",
            "FOR VALUES IN ()",
            "FOR VALUES IN ('a')",
            "FOR VALUES IN (pg_sleep(1))",
            "FOR VALUES FROM ('1') TO ('2'); DROP SCHEMA cn_relay",
            "FOR VALUES FROM ('1', '2') TO ('3', '4')",
            "FOR VALUES FROM (MAXVALUE) TO (MINVALUE)",
            "FOR VALUES FROM ('1') TO ('99999999999999999999')",
        ] {
            assert!(Values::parse(text).is_err(), "{text}");
        }
    }
}
