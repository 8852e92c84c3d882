//! The parameters of a question, as they stand behind the `?`.

use percent_encoding::percent_decode_str;

use crate::refusal::Refusal;

/// What was given, by name; each name once at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(&'static str, String)>);

impl Parameters {
    /// Reads those that a question has. Others are refused: a name that is mistyped would otherwise ask
    /// something else than what was meant.
    pub fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, Refusal> {
        let mut read: Vec<(&'static str, String)> = Vec::new();
        for part in query.unwrap_or("").split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name).and_then(|name| known.iter().find(|known| **known == name));
            let Some(&parameter) = name else {
                return Err(Refusal::Unknown { known: known.join(", ") });
            };
            if read.iter().any(|(name, _)| *name == parameter) {
                return Err(Refusal::Twice { parameter });
            }
            read.push((parameter, decode(value).ok_or(Refusal::NotText { parameter })?));
        }
        Ok(Self(read))
    }

    pub fn get(&self, name: &'static str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub fn require(&self, name: &'static str) -> Result<&str, Refusal> {
        self.get(name).ok_or(Refusal::Missing { parameter: name })
    }

    /// How many are wanted.
    pub fn limit(&self, default: usize, max: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get("limit") else { return Ok(default) };
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let limit = text.parse().ok().filter(|limit| plain && (1..=max).contains(limit));
        limit.ok_or(Refusal::Limit { max })
    }
}

/// The form that browsers send: `+` is a blank.
fn decode(text: &str) -> Option<String> {
    let blanks = text.replace('+', " ");
    percent_decode_str(&blanks).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: [&str; 3] = ["topic", "q", "limit"];

    fn read(query: &str) -> Result<Parameters, Refusal> {
        Parameters::read(Some(query), &KNOWN)
    }

    #[test]
    fn values_are_decoded() {
        let given = read("q=%E6%9D%B1+%22a%26b%22%00&&topic=&limit").expect("is read");
        assert_eq!(given.get("q"), Some("東 \"a&b\"\0"));
        assert_eq!((given.get("topic"), given.get("limit")), (Some(""), Some("")));
        assert_eq!(Parameters::read(None, &KNOWN).expect("none").get("q"), None);
    }

    #[test]
    fn what_is_not_meant_is_refused() {
        let unknown = Err(Refusal::Unknown { known: "topic, q, limit".to_owned() });
        for query in ["Q=1", "q%00=1", "%ff=1", "=1", "topics=1", "q=1&x"] {
            assert_eq!(read(query), unknown, "{query}");
        }
        assert_eq!(read("q=1&%71=1"), Err(Refusal::Twice { parameter: "q" }));
        assert_eq!(read("q=%ff"), Err(Refusal::NotText { parameter: "q" }));
        assert_eq!(
            read("q=1").and_then(|given| Ok(given.require("topic")?.to_owned())),
            Err(Refusal::Missing { parameter: "topic" })
        );
    }

    #[test]
    fn limits_are_numbers_within_bounds() {
        let limit = |text: &str| read(text).and_then(|given| given.limit(20, 50));
        assert_eq!((limit(""), limit("limit=1"), limit("limit=50")), (Ok(20), Ok(1), Ok(50)));
        for wrong in ["", "0", "51", "-1", "%2B1", "1.0", "1e1", "99999999999999999999", "٣", " 1"]
        {
            assert_eq!(
                limit(&format!("limit={wrong}")),
                Err(Refusal::Limit { max: 50 }),
                "{wrong}"
            );
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(query in ".{0,200}|([a-z%0-9=&+]{0,4}(q|topic|limit)=?){0,5}") {
            if let Ok(given) = read(&query) {
                prop_assert!(given.0.len() <= KNOWN.len());
            }
        }

        #[test]
        fn what_is_encoded_is_read_again(text in any::<String>()) {
            let coded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let given = read(&format!("q={coded}")).expect("is read");
            prop_assert_eq!(given.get("q"), Some(text.as_str()));
        }
    }
}
