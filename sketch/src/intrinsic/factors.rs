//! Which types units for matrices multiply, and what they sum products in.
//!
//! ```text
//! f16 by f16, bf16 by bf16  ->  f32            u8, i8 by u8, i8, in any pair  ->  i32
//! ```
//!
//! A factor of `f32` is one of `tf32`: the unit reads as many bits of it.

use ansc_graph::{Expr, UnOp};
use ansc_runtime::DType;

const BYTES: [DType; 2] = [DType::U8, DType::I8];
const SUMS: [DType; 2] = [DType::F32, DType::I32];

/// The factors of a unit: bytes, and these floats.
pub(super) struct Factors(pub(super) &'static [DType]);

impl Factors {
    /// The type of sums of products, if there is an instruction for them.
    pub(super) fn sum_of(&self, factors: [DType; 2]) -> Option<DType> {
        let are_bytes = factors.iter().all(|factor| BYTES.contains(factor));
        let are_floats = factors[0] == factors[1] && self.0.contains(&factors[0]);
        match (are_floats, are_bytes) {
            (true, _) => Some(DType::F32),
            (_, true) => Some(DType::I32),
            _ => None,
        }
    }

    /// The factor of that name.
    pub(super) fn named(&self, name: &str) -> Option<DType> {
        self.0.iter().chain(&BYTES).copied().find(|factor| factor.name() == name)
    }
}

/// An element of a factor, as a unit reads it, in the type of its sums.
pub(super) fn read(factor: DType, sum: DType, element: Expr) -> Expr {
    match factor {
        DType::F32 => Expr::unary(UnOp::Tf32, element),
        narrow => Expr::cast(narrow, sum, element),
    }
}

/// The type of sums of that name.
pub(super) fn sum_named(name: &str) -> Option<DType> {
    SUMS.into_iter().find(|sum| sum.name() == name)
}
