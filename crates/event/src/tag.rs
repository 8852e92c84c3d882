use crate::{Class, EventId, Kind, Pubkey, UnixSeconds};

/// One tag: a name and its values. Never empty, because the parser refuses a tag without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(Vec<String>);

impl Tag {
    /// `None` for an empty list.
    pub fn new(fields: Vec<String>) -> Option<Self> {
        (!fields.is_empty()).then_some(Self(fields))
    }

    pub fn name(&self) -> &str {
        &self.0[0]
    }

    /// The first value, the one that filters look at.
    pub fn value(&self) -> Option<&str> {
        self.0.get(1).map(String::as_str)
    }

    pub fn fields(&self) -> &[String] {
        &self.0
    }
}

/// The name of a tag that filters can ask for: one ASCII letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagLetter(u8);

impl TagLetter {
    pub const TOPIC: Self = Self(b't');

    pub fn parse(name: &str) -> Option<Self> {
        match name.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => Some(Self(*letter)),
            _ => None,
        }
    }

    pub fn as_char(self) -> char {
        char::from(self.0)
    }

    pub fn as_byte(self) -> u8 {
        self.0
    }
}

/// What an `a` tag names: every version of one replaceable or addressable event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub kind: Kind,
    pub pubkey: Pubkey,
    pub d: String,
}

impl Address {
    /// `kind:pubkey:d`, split at the first two colons, since `d` may hold more of them. `None` when
    /// it can name no version: a kind without versions, or a `d` where the kind has none.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let (pubkey, d) = rest.split_once(':')?;
        let kind = parse_decimal(kind).and_then(|n| u16::try_from(n).ok()).map(Kind)?;
        let pubkey = Pubkey::parse(pubkey).ok()?;
        match kind.class() {
            Class::Addressable => {}
            Class::Replaceable if d.is_empty() => {}
            _ => return None,
        }
        Some(Self { kind, pubkey, d: d.to_owned() })
    }
}

/// The tags of an event, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Vec<Tag>);

impl Tags {
    pub fn new(tags: Vec<Tag>) -> Self {
        Self(tags)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Tag> {
        self.0.iter()
    }

    /// The first values of all tags called `name`.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |tag| tag.name() == name).filter_map(Tag::value)
    }

    /// The first values of all tags that filters can ask for.
    pub fn letters(&self) -> impl Iterator<Item = (TagLetter, &str)> {
        self.0.iter().filter_map(|tag| Some((TagLetter::parse(tag.name())?, tag.value()?)))
    }

    /// The value of the first `d` tag; an empty one when the tag has no value.
    pub fn d(&self) -> Option<&str> {
        let tag = self.0.iter().find(|tag| tag.name() == "d")?;
        Some(tag.value().unwrap_or_default())
    }

    /// The NIP-40 time: the first `expiration` tag that is a decimal number. Anything else is no
    /// expiration, as other relays treat it.
    pub fn expiration(&self) -> Option<UnixSeconds> {
        let end = self.values("expiration").find_map(parse_decimal)?;
        Some(UnixSeconds(i64::try_from(end).unwrap_or(i64::MAX)))
    }

    /// The events that the `e` tags name; values that are no event id name nothing.
    pub fn event_ids(&self) -> impl Iterator<Item = EventId> {
        self.values("e").filter_map(|text| EventId::parse(text).ok())
    }

    /// The versions that the `a` tags name.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.values("a").filter_map(Address::parse)
    }
}

/// Digits only: no sign, no blank, no exponent.
fn parse_decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_splits_at_the_first_two_colons() {
        let key = "ab".repeat(32);
        let address = Address::parse(&format!("30023:{key}:a:b:c")).unwrap();
        assert_eq!((address.kind, address.d.as_str()), (Kind(30023), "a:b:c"));
        assert_eq!(Address::parse(&format!("10002:{key}:")).unwrap().d, "");
        for bad in
            ["30023", "30023:xy:d", "1:{key}:", "10002:{key}:d", "+30023:{key}:d", "99999:{key}:d"]
        {
            assert_eq!(Address::parse(&bad.replace("{key}", &key)), None, "{bad}");
        }
    }

    #[test]
    fn an_expiration_is_a_decimal_number() {
        let tags = |value: &str| {
            Tags::new(vec![Tag::new(vec!["expiration".into(), value.into()]).unwrap()]).expiration()
        };
        assert_eq!(tags("1700000000"), Some(UnixSeconds(1_700_000_000)));
        assert_eq!(tags("99999999999999999999999"), Some(UnixSeconds(i64::MAX)));
        for none in ["", "-1", "1.5", "1e9", " 1", "soon"] {
            assert_eq!(tags(none), None, "{none:?}");
        }
    }
}
