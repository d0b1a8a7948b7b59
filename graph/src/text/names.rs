//! Names that nothing else has.

use std::collections::BTreeSet;

use super::token::is_word;

/// `base`, or a word made of it; with a number where `taken` has that already. Adds it to `taken`.
pub fn unique(taken: &mut BTreeSet<String>, base: &str) -> String {
    let base = if is_word(base) { base.to_owned() } else { word_of(base) };
    let name = unused(&base, |name| taken.contains(name));
    taken.insert(name.clone());
    name
}

/// `base`, or `base_1`, ... where that is taken.
pub fn unused(base: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1..).map(|n| format!("{base}_{n}"));
    first_unused(std::iter::once(base.to_owned()).chain(numbered), is_taken)
}

/// The first of endlessly many names that is not taken.
pub fn first_unused(
    mut names: impl Iterator<Item = String>,
    is_taken: impl Fn(&str) -> bool,
) -> String {
    names.find(|name| !is_taken(name)).expect("numbers do not run out")
}

fn word_of(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let word: String = letters.collect();
    if is_word(&word) { word } else { format!("_{word}") }
}
