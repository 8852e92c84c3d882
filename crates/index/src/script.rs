//! What a character is for the search: part of a word, a word of its own, or the end of one.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_script::{Script, UnicodeScript};

/// ー, which prolongs the kana before it.
pub(crate) const PROLONGED: char = 'ー';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
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

impl Sort {
    /// Whether each such character is a unit of its own and makes a pair with the next.
    pub(crate) fn is_unspaced(self) -> bool {
        matches!(self, Self::Hiragana | Self::Katakana | Self::Unspaced)
    }
}

pub(crate) fn sort(char: char) -> Sort {
    match char {
        'a'..='z' | '0'..='9' | 'A'..='Z' => Sort::Letter,
        '\0'..='\x7f' => Sort::Separator,
        'ぁ'..='ゖ' | 'ゝ' | 'ゞ' => Sort::Hiragana,
        'ァ'..='ヺ' | 'ヽ' | 'ヾ' | PROLONGED => Sort::Katakana,
        '一'..='\u{9fff}' | '가'..='힣' => Sort::Unspaced,
        // It says where a line may break, so words end there.
        '\u{200b}' => Sort::Separator,
        _ => by_category(char),
    }
}

fn by_category(char: char) -> Sort {
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
        Category::NonspacingMark | Category::SpacingMark if !is_variation(char) => Sort::Mark,
        Category::OtherSymbol => Sort::Symbol,
        Category::NonspacingMark
        | Category::EnclosingMark
        | Category::Format
        | Category::ModifierSymbol => Sort::Ignored,
        _ => Sort::Separator,
    }
}

/// Variation selectors choose between pictures of one character.
fn is_variation(char: char) -> bool {
    matches!(char, '\u{fe00}'..='\u{fe0f}' | '\u{180b}'..='\u{180f}' | '\u{e0100}'..='\u{e01ef}')
}

fn by_script(char: char) -> Sort {
    match char.script() {
        Script::Hiragana => Sort::Hiragana,
        Script::Katakana => Sort::Katakana,
        Script::Han
        | Script::Bopomofo
        | Script::Yi
        | Script::Hangul
        | Script::Thai
        | Script::Lao
        | Script::Khmer
        | Script::Myanmar
        | Script::Tibetan => Sort::Unspaced,
        _ => Sort::Letter,
    }
}
