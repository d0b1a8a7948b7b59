//! Corrections of prices, which measurements taught.

use std::sync::Arc;

use super::Parts;
use crate::program::Program;

/// Has learned from measurements how far prices are from times.
pub trait Corrects: Send + Sync {
    /// The natural logarithm of what the price of a finished program, which has these parts, is to
    /// be multiplied by.
    fn correction(&self, program: &Program, parts: Parts) -> f64;
}

/// The model that corrects prices, or nothing where nobody has measured. Machines that differ in
/// this alone are equal only if they share it.
#[derive(Clone, Default)]
pub struct Correction(pub Option<Arc<dyn Corrects>>);

impl PartialEq for Correction {
    fn eq(&self, other: &Correction) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for Correction {}

impl std::hash::Hash for Correction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
    }
}

impl std::fmt::Debug for Correction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "learned" } else { "none" })
    }
}
