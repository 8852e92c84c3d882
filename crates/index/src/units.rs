//! Text cut into units: words, single characters of scripts without spaces, and signs.

use crate::fold::{Glyph, fold};
use crate::script::CharClass;

/// Longer words and tags are cut: nobody types more, and a key or a picture in letters is no word.
pub(crate) const WORD_BYTES_MAX: usize = 64;

/// Ids and keys in hex have so many digits.
const ID_HEX_DIGITS: usize = 64;

/// What begins a reference to a key or an event in NIP-19, and how long it is at least.
const ENTITIES: [&str; 5] = ["npub1", "nprofile1", "note1", "nevent1", "naddr1"];
const ENTITY_BYTES_MIN: usize = 58;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Word,
    /// One character of a script without spaces.
    Char,
    /// Such a character right after another one: together they are a pair.
    CharAfterChar,
    Symbol,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub shape: Shape,
    /// Where it is in the folded text.
    start: usize,
    end: usize,
    /// The bytes of the source it came from.
    pub from: usize,
    pub to: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Units {
    folded: String,
    pub list: Vec<Unit>,
    /// Folded, without the sign.
    pub hashtags: Vec<String>,
}

impl Units {
    pub(crate) fn of(text: &str) -> Self {
        let mut units = Self::default();
        let glyphs = fold(text);
        let mut before = CharClass::Separator;
        for glyph in &glyphs {
            // A mark that belongs to nothing leaves nothing for the next one to belong to.
            let stray = glyph.class == CharClass::Mark && before == CharClass::Separator;
            if !stray {
                units.take(glyph, before);
                before = glyph.class;
            }
        }
        units.hashtags = hashtags(&glyphs);
        units.drop_references(text);
        units
    }

    pub(crate) fn text(&self, unit: &Unit) -> &str {
        &self.folded[unit.start..unit.end]
    }

    /// The pair that a unit makes with the one before it in the list.
    pub(crate) fn pair(&self, before: &Unit, unit: &Unit) -> Option<&str> {
        (unit.shape == Shape::CharAfterChar).then(|| &self.folded[before.start..unit.end])
    }

    fn take(&mut self, glyph: &Glyph, before: CharClass) {
        let shape = match glyph.class {
            CharClass::Letter if before == CharClass::Letter || self.in_word(before) => {
                return self.extend(glyph);
            }
            CharClass::Mark => return self.extend(glyph),
            CharClass::Letter => Shape::Word,
            CharClass::Symbol => Shape::Symbol,
            class if class.is_unspaced() && self.after_char(before) => Shape::CharAfterChar,
            class if class.is_unspaced() => Shape::Char,
            _ => return,
        };
        let start = self.folded.len();
        self.folded.push(glyph.char);
        let end = self.folded.len();
        self.list.push(Unit { shape, start, end, from: glyph.from, to: glyph.to });
    }

    fn last_is(&self, shapes: &[Shape]) -> bool {
        self.list.last().is_some_and(|unit| shapes.contains(&unit.shape))
    }

    fn in_word(&self, before: CharClass) -> bool {
        before == CharClass::Mark && self.last_is(&[Shape::Word])
    }

    fn after_char(&self, before: CharClass) -> bool {
        (before.is_unspaced() || before == CharClass::Mark)
            && self.last_is(&[Shape::Char, Shape::CharAfterChar])
    }

    fn extend(&mut self, glyph: &Glyph) {
        let Some(unit) = self.list.last_mut() else { return };
        unit.to = glyph.to;
        if unit.end - unit.start + glyph.char.len_utf8() <= WORD_BYTES_MAX {
            self.folded.push(glyph.char);
            unit.end = self.folded.len();
        }
    }

    /// Ids, keys and references to them are no words, nor is what names their sort: nobody who searches
    /// for kukuri means every text that names a topic.
    fn drop_references(&mut self, text: &str) {
        let mut kept: Vec<Unit> = Vec::with_capacity(self.list.len());
        for unit in std::mem::take(&mut self.list) {
            if !is_reference(self.text(&unit)) {
                kept.push(unit);
                continue;
            }
            // What one sign of the text became several units of has no text between them.
            let mut from = unit.from;
            while let Some(prefix) = kept.pop_if(|last| text.get(last.to..from) == Some(":")) {
                from = prefix.from;
            }
        }
        self.list = kept;
    }
}

fn is_reference(word: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (word.len() == ID_HEX_DIGITS && word.bytes().all(hex))
        || (word.len() >= ENTITY_BYTES_MIN && ENTITIES.iter().any(|start| word.starts_with(start)))
}

/// What follows a `#` that is not inside a word, folded.
fn hashtags(glyphs: &[Glyph]) -> Vec<String> {
    let starts = glyphs.iter().enumerate().filter(|(place, glyph)| {
        let before = place.checked_sub(1).map(|before| glyphs[before].class);
        glyph.char == '#' && before != Some(CharClass::Letter)
    });
    starts.map(|(place, _)| tag(&glyphs[place + 1..])).filter(|tag| !tag.is_empty()).collect()
}

/// The tag with which the glyphs begin; empty if they begin with none.
pub(crate) fn tag(glyphs: &[Glyph]) -> String {
    let inside = |glyph: &&Glyph| {
        glyph.char == '_'
            || matches!(glyph.class, CharClass::Letter | CharClass::Mark)
            || glyph.class.is_unspaced()
    };
    let mut tag = String::new();
    for glyph in glyphs.iter().take_while(inside) {
        if tag.len() + glyph.char.len_utf8() > WORD_BYTES_MAX {
            break;
        }
        tag.push(glyph.char);
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let units = Units::of(text);
        units.list.iter().map(|unit| units.text(unit).to_owned()).collect()
    }

    #[test]
    fn words_characters_and_signs_are_units() {
        for (text, expected) in [
            ("Hello, wörld!", vec!["hello", "wörld"]),
            ("東京タワー", vec!["東", "京", "た", "わ", "ー"]),
            ("iPhone15ケース", vec!["iphone15", "け", "ー", "す"]),
            ("don't 3.14", vec!["don", "t", "3", "14"]),
            ("やった🎉🎉!", vec!["や", "っ", "た", "🎉", "🎉"]),
            ("हिन्दी भाषा", vec!["हिन्दी", "भाषा"]),
            ("ภาษาไทย", vec!["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
            (" \u{301}\0 ", vec![]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn only_neighbours_make_pairs() {
        let units = Units::of("東京 都a庁");
        let pairs = units.list.windows(2).filter_map(|two| units.pair(&two[0], &two[1]));
        assert_eq!(pairs.collect::<Vec<_>>(), ["東京"]);
    }

    #[test]
    fn hashtags_are_found_in_any_script() {
        let found = |text: &str| Units::of(text).hashtags;
        assert_eq!(found("#Rust と＃ラーメン_好き。 ## #"), ["rust", "らーめん_好き"]);
        assert_eq!(found("今日は#猫の日"), ["猫の日"]);
        assert!(found("C# a#b").is_empty());
    }

    #[test]
    fn ids_and_references_are_no_words() {
        let id = "0f".repeat(32);
        let npub = format!("npub1{}", "q".repeat(58));
        for text in [
            format!("see kukuri:{id} now"),
            format!("see kukuri:user:{id} now"),
            format!("see nostr:{npub} now"),
            format!("see {npub} now"),
        ] {
            assert_eq!(texts(&text), ["see", "now"], "{text}");
        }
        assert_eq!(texts("kukuri: note1"), ["kukuri", "note1"]);
    }

    #[test]
    fn long_words_are_cut() {
        let at = "x".repeat(WORD_BYTES_MAX);
        assert_eq!(texts(&at), std::slice::from_ref(&at));
        assert_eq!(texts(&format!("{at}y z")), [at.clone(), "z".to_owned()]);
    }
}
