//! Conversions that change nothing.

use ansc_runtime::DType;

use crate::arith::{Context, Interval};
use crate::expr::Expr;

impl Context<'_> {
    pub(super) fn convert(&self, to: DType, x: &Expr) -> Option<Expr> {
        if self.dtype(x) == Some(to) {
            return Some(x.clone());
        }
        if let Expr::Cast(middle, inner) = x
            && let Some(from) = self.dtype(inner)
            && self.passes(from, *middle, to, inner)
        {
            return Some(self.node(Expr::Cast(to, inner.clone())));
        }
        self.point(&Expr::Cast(to, Box::new(x.clone())))
    }

    /// Whether going over `middle` gives what going straight from `from` to `to` gives.
    fn passes(&self, from: DType, middle: DType, to: DType, inner: &Expr) -> bool {
        let whole = |d: DType| !d.is_float();
        let range = self.interval(inner).map(|(_, r)| r);
        let fits = |d: DType| {
            let all = Interval::of_type(d);
            range.zip(all).is_some_and(|(r, all)| d != DType::Bool && r.within(all))
        };
        if whole(from) && whole(middle) {
            return fits(middle);
        }
        // To integers, floats saturate and integers wrap: the value must need neither.
        let kinds = whole(from) == whole(middle) || !whole(to) || to == DType::Bool || fits(to);
        holds_all(middle, from) && kinds
    }
}

/// Whether the float type `wide` has every value of `narrow`.
fn holds_all(wide: DType, narrow: DType) -> bool {
    let digits = |d: DType| match d {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        DType::Bool => 1,
        d if d.is_signed_int() => 8 * d.size() - 1,
        d => 8 * d.size(),
    };
    let reaches = match (wide, narrow) {
        (DType::F32, DType::F16 | DType::BF16) | (DType::F64, _) => true,
        // Integers: f16 ends at 65504, the others go beyond 64 bits.
        (_, d) => !d.is_float(),
    };
    wide.is_float() && reaches && digits(wide) >= digits(narrow)
}
