//! Dimensions that are given by others.
//!
//! Exporters of decoders write sums of dimensions where a model says a name. In: such a text, and
//! the sizes of names. Out: its value, or the names in it.
//!
//! ```text
//! `past_sequence_length + 1` with past_sequence_length = 7   ->   8
//! ```

use std::collections::{BTreeMap, BTreeSet};

/// A sum or product of sizes; `None` if the text is none, a name in it has no size, or the value is
/// no size.
pub(super) fn value(text: &str, sizes: &BTreeMap<String, usize>) -> Option<usize> {
    let size = |name: &str| sizes.get(name).and_then(|n| i64::try_from(*n).ok());
    usize::try_from(parsed(text, &size)?).ok()
}

/// The names in a sum or product of sizes; none if the text is none.
pub(super) fn names(text: &str) -> BTreeSet<String> {
    let found = std::cell::RefCell::new(BTreeSet::new());
    let note = |name: &str| {
        found.borrow_mut().insert(name.to_owned());
        Some(1)
    };
    // With 1 for each name nothing is divided by zero, unless the text says so.
    if parsed(text, &note).is_some() { found.into_inner() } else { BTreeSet::new() }
}

/// The value of the whole text, if it has an operator.
fn parsed(text: &str, size: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    if !text.contains(['+', '-', '*', '/']) {
        return None;
    }
    let mut parser = Parser { left: text, size, depth: 0 };
    let value = parser.sum()?;
    parser.left.trim().is_empty().then_some(value)
}

struct Parser<'a> {
    left: &'a str,
    size: &'a dyn Fn(&str) -> Option<i64>,
    depth: usize,
}

/// Parentheses in one another at most.
const MAX_DEPTH: usize = 16;

impl Parser<'_> {
    fn take(&mut self, mark: &str) -> bool {
        let rest = self.left.trim_start().strip_prefix(mark);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    fn sum(&mut self) -> Option<i64> {
        let mut value = self.product()?;
        loop {
            value = if self.take("+") {
                value.checked_add(self.product()?)?
            } else if self.take("-") {
                value.checked_sub(self.product()?)?
            } else {
                return Some(value);
            };
        }
    }

    fn product(&mut self) -> Option<i64> {
        let mut value = self.factor()?;
        loop {
            value = if self.take("*") {
                value.checked_mul(self.factor()?)?
            } else if self.take("//") || self.take("/") {
                value.checked_div_euclid(self.factor()?)?
            } else {
                return Some(value);
            };
        }
    }

    fn factor(&mut self) -> Option<i64> {
        if self.take("(") {
            self.depth += 1;
            let value = if self.depth > MAX_DEPTH { None } else { self.sum() };
            self.depth -= 1;
            return value.filter(|_| self.take(")"));
        }
        let text = self.left.trim_start();
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
        let (word, rest) = text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()));
        self.left = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().ok();
        }
        if word.is_empty() { None } else { (self.size)(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_of_sizes() {
        let sizes = BTreeMap::from([("past".to_owned(), 7), ("s".to_owned(), 3)]);
        let of = |text: &str| value(text, &sizes);
        assert_eq!(of("past + 1"), Some(8));
        assert_eq!(of("past+s"), Some(10));
        assert_eq!(of("2*(past - s) // 3"), Some(2));
        for none in ["past", "past + other", "s - past", "past +", "past / 0", "(past + 1", "+", ""]
        {
            assert_eq!(of(none), None, "{none}");
        }
        assert_eq!(of(&format!("{}1{}+1", "(".repeat(99), ")".repeat(99))), None);
    }

    #[test]
    fn names_are_those_of_sizes() {
        let of = |text: &str| names(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(
            of("past_sequence_length + sequence_length"),
            "past_sequence_length sequence_length"
        );
        assert_eq!(of("batch*4"), "batch");
        assert_eq!(of("unk__749") + &of("a-") + &of("Conv-Resize"), "Conv Resize");
    }
}
