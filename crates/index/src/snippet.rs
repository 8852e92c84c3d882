//! The part of a text that shows why it was found, with the places of the matches. Places are numbers
//! and not markup: what somebody wrote stays data.

use std::ops::Range;

use kukuri_event::Event;

use crate::document::TEXT_TAGS;
use crate::query::Query;
use crate::units::Units;

/// Characters of a snippet.
pub const SNIPPET_CHARS_MAX: usize = 160;
/// Characters before the first match.
const LEAD_CHARS: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    pub text: String,
    /// In characters (Unicode code points) of the snippet, in order, not overlapping.
    pub matches: Vec<Range<usize>>,
    /// Whether something of the text is left out before and after.
    pub cut_before: bool,
    pub cut_after: bool,
}

/// A snippet, and which part of the event it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// `content`, or the name of the tag.
    pub field: &'static str,
    pub snippet: Snippet,
}

/// Of the content, unless only a title or the like shows why the event was found.
pub fn excerpt(query: &Query, event: &Event) -> Excerpt {
    let content = Excerpt { field: "content", snippet: snippet(query, event.content()) };
    if !content.snippet.matches.is_empty() {
        return content;
    }
    let titles = TEXT_TAGS.iter().filter_map(|field| {
        let text = event.tags().values(field).next()?;
        Some(Excerpt { field, snippet: snippet(query, text) })
    });
    let mut telling = titles.filter(|excerpt| !excerpt.snippet.matches.is_empty());
    telling.next().unwrap_or(content)
}

pub fn snippet(query: &Query, text: &str) -> Snippet {
    let found = found(query, text);
    let chars: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
    let char_at = |byte: usize| chars.partition_point(|place| *place < byte);
    let first = found.first().map_or(0, |range| char_at(range.start));
    // Near the end the whole rest is shown, and more of what comes before it.
    let latest = chars.len().saturating_sub(SNIPPET_CHARS_MAX);
    let begin = first.saturating_sub(LEAD_CHARS).min(latest);
    let end = (begin + SNIPPET_CHARS_MAX).min(chars.len());
    let byte_at = |char: usize| chars.get(char).copied().unwrap_or(text.len());
    let places = found.iter().map(|range| char_at(range.start)..char_at(range.end));
    let inside = places.filter(|range| range.start >= begin && range.end <= end);
    Snippet {
        text: text[byte_at(begin)..byte_at(end)].to_owned(),
        matches: inside.map(|range| range.start - begin..range.end - begin).collect(),
        cut_before: begin > 0,
        cut_after: end < chars.len(),
    }
}

/// The bytes of all matches, in order, overlapping ones as one.
fn found(query: &Query, text: &str) -> Vec<Range<usize>> {
    let units = Units::of(text);
    let texts: Vec<&str> = units.list.iter().map(|unit| units.text(unit)).collect();
    let mut found: Vec<Range<usize>> = Vec::new();
    for chunk in query.chunks().iter().filter(|chunk| !chunk.units.is_empty()) {
        let windows = texts.windows(chunk.units.len()).enumerate();
        let places = windows.filter(|(_, window)| window.iter().eq(chunk.units.iter()));
        found.extend(places.map(|(place, window)| {
            units.list[place].from..units.list[place + window.len() - 1].to
        }));
    }
    found.sort_unstable_by_key(|range| (range.start, range.end));
    found.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    found
}
