//! Reading Rust and SQL far enough to find the words of statements.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The string literals of Rust source text, comments and their attributes left out.
pub fn literals(source: &str) -> Vec<String> {
    let tokens: TokenStream = source.parse().expect("sources are Rust");
    let mut found = Vec::new();
    collect(tokens, &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if !documents(group.delimiter(), &group.stream()) => {
                collect(group.stream(), found);
            }
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push(text.value());
                }
            }
            TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// A documentation comment reaches us as the attribute `[doc = "…"]`.
fn documents(delimiter: Delimiter, tokens: &TokenStream) -> bool {
    let first = tokens.clone().into_iter().next();
    delimiter == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(ident)) if ident == "doc")
}

/// The words and the punctuation of SQL in upper case, without comments and quoted values.
pub fn words(sql: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '\'' {
            // A doubled quote inside a value ends one value and begins the next, which comes to the
            // same.
            rest[1..].find('\'').map_or(rest.len(), |end| end + 2)
        } else if in_word(first) {
            let length = rest.find(|next| !in_word(next)).unwrap_or(rest.len());
            words.push(rest[..length].to_uppercase());
            length
        } else {
            if !first.is_whitespace() {
                words.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    words
}

fn in_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
