//! The terms of a form with their coefficients, in the order of the terms.
//!
//! Forms have few terms, and each access makes several forms: a sorted list is cheaper to copy than
//! a tree.

use super::Term;

/// Each term once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Terms(Vec<(Term, i64)>);

impl Terms {
    pub(super) fn one(term: Term, coefficient: i64) -> Terms {
        Terms(vec![(term, coefficient)])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Term, i64)> {
        self.0.iter().map(|(term, c)| (term, *c))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Term> {
        self.0.iter().map(|(term, _)| term)
    }

    pub(crate) fn get(&self, term: &Term) -> Option<i64> {
        self.find(term).ok().map(|at| self.0[at].1)
    }

    /// Adds to the coefficient of a term; what becomes zero is no term any more.
    pub(crate) fn add(&mut self, term: &Term, coefficient: i64) {
        match self.find(term) {
            Ok(at) => {
                self.0[at].1 = self.0[at].1.wrapping_add(coefficient);
                if self.0[at].1 == 0 {
                    self.0.remove(at);
                }
            }
            Err(_) if coefficient == 0 => {}
            Err(at) => self.0.insert(at, (term.clone(), coefficient)),
        }
    }

    /// Takes a term out; the coefficient that it had.
    pub(crate) fn remove(&mut self, term: &Term) -> Option<i64> {
        self.find(term).ok().map(|at| self.0.remove(at).1)
    }

    /// Multiplies every coefficient; what becomes zero is no term any more.
    pub(super) fn scale(&mut self, factor: i64) {
        self.0.iter_mut().for_each(|(_, c)| *c = c.wrapping_mul(factor));
        self.0.retain(|(_, c)| *c != 0);
    }

    fn find(&self, term: &Term) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(term))
    }
}
