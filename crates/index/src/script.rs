//! What a character is for the search: part of a word, a word of its own, or the end of one.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_script::{Script, UnicodeScript};

/// ー, which prolongs the kana before it.
pub(crate) const PROLONGED: char = 'ー';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CharClass {
    /// A letter or digit of a script that puts spaces between words.
    Letter,
    Hiragana,
    Katakana,
    /// A character of any other script without spaces between words.
    Unspaced,
    /// An accent or vowel sign that belongs to the character before it.
    Mark,
    /// An emoji, or another sign that stands for something.
    Symbol,
    /// Seen by nobody: joiners, variation selectors, skin tones.
    Ignored,
    Separator,
}

impl CharClass {
    /// Whether each such character is a unit of its own and makes a pair with the next.
    pub(crate) fn is_unspaced(self) -> bool {
        matches!(self, Self::Hiragana | Self::Katakana | Self::Unspaced)
    }
}

pub(crate) fn class(char: char) -> CharClass {
    match char {
        'a'..='z' | '0'..='9' | 'A'..='Z' => CharClass::Letter,
        '\0'..='\x7f' => CharClass::Separator,
        'ぁ'..='ゖ' | 'ゝ' | 'ゞ' => CharClass::Hiragana,
        'ァ'..='ヺ' | 'ヽ' | 'ヾ' | PROLONGED => CharClass::Katakana,
        '一'..='\u{9fff}' | '가'..='힣' => CharClass::Unspaced,
        // It says where a line may break, so words end there.
        '\u{200b}' => CharClass::Separator,
        _ => by_category(char),
    }
}

fn by_category(char: char) -> CharClass {
    use GeneralCategory as Category;
    match char.general_category() {
        Category::UppercaseLetter
        | Category::LowercaseLetter
        | Category::TitlecaseLetter
        | Category::ModifierLetter
        | Category::OtherLetter
        | Category::DecimalNumber
        | Category::LetterNumber
        | Category::OtherNumber => by_script(char),
        Category::NonspacingMark | Category::SpacingMark if !is_variation(char) => CharClass::Mark,
        Category::OtherSymbol => CharClass::Symbol,
        Category::NonspacingMark
        | Category::EnclosingMark
        | Category::Format
        | Category::ModifierSymbol => CharClass::Ignored,
        _ => CharClass::Separator,
    }
}

/// Variation selectors choose between pictures of one character.
fn is_variation(char: char) -> bool {
    matches!(char, '\u{fe00}'..='\u{fe0f}' | '\u{180b}'..='\u{180f}' | '\u{e0100}'..='\u{e01ef}')
}

fn by_script(char: char) -> CharClass {
    match char.script() {
        Script::Hiragana => CharClass::Hiragana,
        Script::Katakana => CharClass::Katakana,
        Script::Han
        | Script::Bopomofo
        | Script::Yi
        | Script::Hangul
        | Script::Thai
        | Script::Lao
        | Script::Khmer
        | Script::Myanmar
        | Script::Tibetan => CharClass::Unspaced,
        _ => CharClass::Letter,
    }
}
