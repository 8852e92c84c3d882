//! One spelling for what people take for the same text: compatibility forms (full and half width,
//! ligatures), upper and lower case, hiragana and katakana. Documents and queries pass through here,
//! and every folded character knows from which bytes it came.

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_compatible};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

use crate::script::{CharClass, PROLONGED, class};

/// The distance between the blocks of katakana and hiragana.
const KANA_DISTANCE: u32 = 0x60;

/// A prolonged sound mark at the end of a word of at least so many kana is a matter of taste: サーバー
/// and サーバ are one word, and so are コーヒー and コーヒ, but バー and バ are two.
const PROLONGED_WORD_CHARS_MIN: usize = 4;

/// A folded character, and the bytes of the text it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glyph {
    pub char: char,
    pub class: CharClass,
    pub from: usize,
    pub to: usize,
}

pub(crate) fn fold(text: &str) -> Vec<Glyph> {
    let mut glyphs = Vec::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    while let Some((from, first)) = chars.next() {
        let mut to = from + first.len_utf8();
        while let Some((_, next)) = chars.next_if(|(_, next)| attaches(*next)) {
            to += next.len_utf8();
        }
        let mut push = |char| glyphs.extend(glyph(char, from, to));
        if to == from + first.len_utf8() && is_plain(first) {
            push(first.to_ascii_lowercase());
        } else {
            text[from..to].nfkc().default_case_fold().nfkc().for_each(&mut push);
        }
    }
    shorten(glyphs)
}

/// Characters that are folded already but for ASCII case: most of what people write.
fn is_plain(char: char) -> bool {
    char.is_ascii()
        || matches!(char, 'ぁ'..='ゖ' | 'ァ'..='ヺ' | PROLONGED | '一'..='\u{9fff}' | '가'..='힣')
}

/// Whether a character may melt into the one before it, as accents and voiced sound marks do.
fn attaches(char: char) -> bool {
    if is_plain(char) {
        return false;
    }
    let mut first = None;
    decompose_compatible(char, |part| first = first.or(Some(part)));
    first.is_some_and(|part| {
        canonical_combining_class(part) != 0
            || is_nfkc_quick(std::iter::once(part)) == IsNormalized::Maybe
    })
}

fn glyph(char: char, from: usize, to: usize) -> Option<Glyph> {
    let class = class(char);
    let folded = match char {
        'ァ'..='ヶ' | 'ヽ' | 'ヾ' => char::from_u32(u32::from(char) - KANA_DISTANCE),
        _ => Some(char),
    };
    let char = folded.expect("every katakana has a hiragana at this distance");
    (class != CharClass::Ignored).then_some(Glyph { char, class, from, to })
}

/// Leaves out prolonged sound marks that nobody hears: repeated ones, and one at a word's end.
fn shorten(glyphs: Vec<Glyph>) -> Vec<Glyph> {
    if !glyphs.iter().any(|glyph| glyph.char == PROLONGED) {
        return glyphs;
    }
    let mut kept: Vec<Glyph> = Vec::with_capacity(glyphs.len());
    // The kana that were kept since the script last changed, and their script.
    let (mut run_chars, mut script) = (0, CharClass::Separator);
    // Where the marks end that were met last.
    let mut marks_end = 0;
    for (place, glyph) in glyphs.iter().enumerate() {
        if glyph.char != PROLONGED {
            run_chars = if glyph.class == script { run_chars + 1 } else { 1 };
            script = glyph.class;
            kept.push(*glyph);
            continue;
        }
        let kana = matches!(script, CharClass::Hiragana | CharClass::Katakana);
        if place >= marks_end {
            let marks = glyphs[place..].iter().take_while(|glyph| glyph.char == PROLONGED);
            marks_end = place + marks.count();
        }
        let inside = glyphs.get(marks_end).is_some_and(|next| next.class == script);
        let repeated = kept.last().is_some_and(|last| last.char == PROLONGED);
        let last = !inside && run_chars + 1 >= PROLONGED_WORD_CHARS_MIN;
        if kana && !repeated && !last {
            run_chars += 1;
            kept.push(Glyph { class: script, ..*glyph });
        } else if !kana {
            // Without a sound to prolong it is a line.
            kept.push(Glyph { class: CharClass::Separator, ..*glyph });
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        fold(text).iter().map(|glyph| glyph.char).collect()
    }

    #[test]
    fn marks_without_end_are_few() {
        let marks = "ー".repeat(20_000);
        assert_eq!(folded(&format!("すご{marks}い")), "すごーい");
        assert_eq!(folded(&format!("さーば{marks}")), "さーば");
    }

    #[test]
    fn spellings_of_one_text_fold_to_one() {
        for (one, other) in [
            ("ＫＵＫＵＲＩ　１２", "kukuri 12"),
            ("ﾋﾞｯﾄｺｲﾝ", "びっとこいん"),
            ("ビットコイン", "びっとこいん"),
            ("Straße", "STRASSE"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("cafe\u{301}", "CAFÉ"),
            ("か\u{3099}", "が"),
            ("㍿", "株式会社"),
            ("①", "1"),
            ("サーバー", "サーバ"),
            ("すごーーーい", "すごーい"),
            ("❤\u{fe0f}", "❤"),
            ("👍🏽", "👍"),
            ("sof\u{ad}t", "soft"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        for (one, other) in [("バー", "バ"), ("ケーキ", "ケキ"), ("ハ", "バ")] {
            assert_ne!(folded(one), folded(other), "{one} {other}");
        }
    }

    #[test]
    fn glyphs_know_where_they_came_from() {
        let text = "aﾋﾞb";
        let sources: Vec<&str> = fold(text).iter().map(|g| &text[g.from..g.to]).collect();
        assert_eq!(sources, ["a", "ﾋﾞ", "b"]);
    }
}
