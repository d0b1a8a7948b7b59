//! Names that are words and that nothing else has.

use std::collections::BTreeSet;

use super::token::is_word;

/// `base`, or a word made of it; with a number where `taken` has that already. Adds it to `taken`.
pub fn unique(taken: &mut BTreeSet<String>, base: &str) -> String {
    let base = if is_word(base) { base.to_owned() } else { word_of(base) };
    let numbered = (1..).map(|n| format!("{base}_{n}"));
    let mut candidates = std::iter::once(base.clone()).chain(numbered);
    let name = candidates.find(|name| !taken.contains(name)).expect("numbers do not run out");
    taken.insert(name.clone());
    name
}

fn word_of(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let word: String = letters.collect();
    if is_word(&word) { word } else { format!("_{word}") }
}
