//! The terms of a sum with their coefficients, in the order of the terms.
//!
//! Sums have few terms, and there are many of them: a sorted list is several times faster than a
//! tree, and cheaper to copy.

/// Each term once, and no coefficient is zero. Coefficients wrap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Terms<K>(Vec<(K, i64)>);

impl<K> Default for Terms<K> {
    fn default() -> Terms<K> {
        Terms(vec![])
    }
}

impl<K: Ord + Clone> Terms<K> {
    /// One term alone; its coefficient is not zero.
    #[inline]
    pub fn one(term: K, coefficient: i64) -> Terms<K> {
        debug_assert_ne!(coefficient, 0);
        Terms(vec![(term, coefficient)])
    }

    /// How many terms there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no term.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All terms with their coefficients.
    #[inline]
    pub fn as_slice(&self) -> &[(K, i64)] {
        &self.0
    }

    /// All terms with their coefficients.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&K, i64)> {
        self.0.iter().map(|(term, coefficient)| (term, *coefficient))
    }

    /// All terms.
    #[inline]
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(term, _)| term)
    }

    /// The coefficients of all terms.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = i64> {
        self.0.iter().map(|(_, coefficient)| *coefficient)
    }

    /// The first term with its coefficient.
    #[inline]
    pub fn first(&self) -> Option<(&K, i64)> {
        self.iter().next()
    }

    /// The term with its coefficient, if there is no other.
    #[inline]
    pub fn only(&self) -> Option<(&K, i64)> {
        self.first().filter(|_| self.len() == 1)
    }

    /// The coefficient of a term that occurs.
    #[inline]
    pub fn get(&self, term: &K) -> Option<i64> {
        self.find(term).ok().map(|at| self.0[at].1)
    }

    /// Adds to the coefficient of a term.
    #[inline]
    pub fn add(&mut self, term: K, coefficient: i64) {
        match self.find(&term) {
            Ok(at) => self.add_at(at, coefficient),
            Err(_) if coefficient == 0 => {}
            Err(at) => self.0.insert(at, (term, coefficient)),
        }
    }

    /// As [`Terms::add`], with a term that is copied only if it is new.
    #[inline]
    pub fn add_copy(&mut self, term: &K, coefficient: i64) {
        match self.find(term) {
            Ok(at) => self.add_at(at, coefficient),
            Err(_) if coefficient == 0 => {}
            Err(at) => self.0.insert(at, (term.clone(), coefficient)),
        }
    }

    #[inline]
    fn add_at(&mut self, at: usize, coefficient: i64) {
        self.0[at].1 = self.0[at].1.wrapping_add(coefficient);
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    /// Takes a term out; the coefficient that it had.
    #[inline]
    pub fn remove(&mut self, term: &K) -> Option<i64> {
        self.find(term).ok().map(|at| self.0.remove(at).1)
    }

    /// The terms for which `keep` holds, and the others.
    #[inline]
    pub fn partition(self, mut keep: impl FnMut(&K, i64) -> bool) -> (Terms<K>, Terms<K>) {
        let (kept, rest) = self.0.into_iter().partition(|(term, c)| keep(term, *c));
        (Terms(kept), Terms(rest))
    }

    /// The terms with `f` of every coefficient.
    #[inline]
    #[must_use]
    pub fn map(&self, f: impl Fn(i64) -> i64) -> Terms<K> {
        let mapped = self.0.iter().map(|(term, c)| (term, f(*c)));
        Terms(mapped.filter(|(_, c)| *c != 0).map(|(term, c)| (term.clone(), c)).collect())
    }

    /// Every coefficient times `factor`.
    #[inline]
    #[must_use]
    pub fn times(&self, factor: i64) -> Terms<K> {
        self.map(|c| c.wrapping_mul(factor))
    }

    /// Multiplies every coefficient.
    #[inline]
    pub fn scale(&mut self, factor: i64) {
        self.0.iter_mut().for_each(|(_, c)| *c = c.wrapping_mul(factor));
        self.0.retain(|(_, c)| *c != 0);
    }

    #[inline]
    fn find(&self, term: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(term))
    }
}

impl<K> IntoIterator for Terms<K> {
    type Item = (K, i64);
    type IntoIter = std::vec::IntoIter<(K, i64)>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_come_once_in_their_order_and_none_is_zero() {
        let mut terms = Terms::one('b', 2);
        for (term, c) in [('a', 5), ('c', -1), ('b', -2), ('d', 0), ('c', 4)] {
            terms.add(term, c);
            terms.add_copy(&term, c);
        }
        assert_eq!(terms.as_slice(), [('a', 10), ('b', -2), ('c', 6)]);
        let (large, mut rest) = terms.clone().partition(|_, c| c > 5);
        assert_eq!(large.as_slice(), [('a', 10), ('c', 6)]);
        assert_eq!(rest.only(), Some((&'b', -2)));
        assert_eq!((rest.remove(&'b'), rest.remove(&'b'), rest.first()), (Some(-2), None, None));
        let half = 1 << 63;
        assert_eq!(terms.times(half).len(), 0);
        terms.add('b', 1);
        terms.scale(half);
        assert_eq!(terms.as_slice(), [('b', half)]);
    }
}
