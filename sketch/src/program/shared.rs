//! Parts of programs that copies of a program share until one of them changes.
//!
//! A primitive works on a copy of the program, which it drops if it fails. Most of a program stays
//! as it is: a copy costs nothing, and the first change below a part copies that part alone.
//!
//! ```text
//! before         program -> [loop A, loop B]
//! a copy         program -> [loop A, loop B] <- copy
//! A changes      program -> [loop A, loop B, loop A'] <- copy      B is still one
//! ```

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that is copied when it is changed, if somebody else has it too.
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Holds a value that nobody else has.
    pub fn new(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Shared<T> {
    /// Whether both are one copy, so that neither has changed.
    pub(crate) fn is(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Clone> Shared<T> {
    /// The value alone.
    pub fn into_inner(self) -> T {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.is(other) || self.0 == other.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_of_a_copy_alone() {
        let first = Shared::new(vec![Shared::new(1), Shared::new(2)]);
        let mut second = first.clone();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        *second[0] = 3;
        assert_eq!((&*first[0], &*second[0]), (&1, &3));
        assert!(first != second && Arc::ptr_eq(&first[1].0, &second[1].0));
        assert_eq!(second.into_inner(), [3, 2].map(Shared::new));
    }
}
