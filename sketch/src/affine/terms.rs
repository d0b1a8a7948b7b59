//! The terms of a sum: digits with their coefficients, in the order of the digits.
//!
//! Sums have few terms, and there are many of them: a sorted list is several times faster than a
//! tree.

use super::Digit;

/// Each digit once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Terms(Vec<(Digit, i64)>);

impl Terms {
    #[inline]
    pub(crate) fn one(digit: Digit, coefficient: i64) -> Terms {
        Terms(vec![(digit, coefficient)])
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Digit, &i64)> {
        self.0.iter().map(|(digit, coefficient)| (digit, coefficient))
    }

    #[inline]
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Digit> {
        self.0.iter().map(|(digit, _)| digit)
    }

    #[inline]
    pub(crate) fn values(&self) -> impl Iterator<Item = &i64> {
        self.0.iter().map(|(_, coefficient)| coefficient)
    }

    #[inline]
    pub(crate) fn first_key_value(&self) -> Option<(&Digit, &i64)> {
        self.iter().next()
    }

    #[inline]
    pub(crate) fn get(&self, digit: &Digit) -> Option<i64> {
        self.find(digit).ok().map(|at| self.0[at].1)
    }

    /// Adds to the coefficient of a digit; what becomes zero is no term any more.
    #[inline]
    pub(super) fn add(&mut self, digit: Digit, coefficient: i64) {
        match self.find(&digit) {
            Ok(at) => {
                self.0[at].1 = self.0[at].1.wrapping_add(coefficient);
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                }
            }
            Err(_) if coefficient == 0 => {}
            Err(at) => self.0.insert(at, (digit, coefficient)),
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, digit: &Digit) {
        if let Ok(at) = self.find(digit) {
            self.0.remove(at);
        }
    }

    /// The terms for which `keep` holds, and the others.
    #[inline]
    pub(super) fn partition(self, mut keep: impl FnMut(&Digit, i64) -> bool) -> (Terms, Terms) {
        let (kept, rest) = self.0.into_iter().partition(|(digit, c)| keep(digit, *c));
        (Terms(kept), Terms(rest))
    }

    /// Every coefficient times `factor`.
    #[inline]
    pub(super) fn times(&self, factor: i64) -> Terms {
        let scaled = self.0.iter().map(|(digit, c)| (digit, c.wrapping_mul(factor)));
        Terms(scaled.filter(|(_, c)| *c != 0).map(|(digit, c)| (digit.clone(), c)).collect())
    }

    #[inline]
    fn find(&self, digit: &Digit) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(digit))
    }
}

impl IntoIterator for Terms {
    type Item = (Digit, i64);
    type IntoIter = std::vec::IntoIter<(Digit, i64)>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
