//! Operations on indices at one point.

use crate::expr::BinOp;

impl BinOp {
    /// The operation on two indices, or on truths, of which 1 holds. As generated code does it: it
    /// wraps, and gives zero for a division by zero. `None` if no index is computed with it.
    ///
    /// ```text
    /// floor_div: (-7, 2) -> -4      lt: (2, 3) -> 1      pow: None
    /// ```
    #[inline]
    pub fn of_indices(self) -> Option<fn(i64, i64) -> i64> {
        let f: fn(i64, i64) -> i64 = match self {
            BinOp::Add => i64::wrapping_add,
            BinOp::Sub => i64::wrapping_sub,
            BinOp::Mul => i64::wrapping_mul,
            BinOp::Div => |a, b| if b == 0 { 0 } else { a.wrapping_div(b) },
            BinOp::Rem => |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) },
            BinOp::FloorDiv => floor_div,
            BinOp::FloorMod => floor_mod,
            BinOp::Min => |a, b| a.min(b),
            BinOp::Max => |a, b| a.max(b),
            BinOp::And => |a, b| a & b,
            BinOp::Or => |a, b| a | b,
            BinOp::Xor => |a, b| a ^ b,
            BinOp::Eq => |a, b| i64::from(a == b),
            BinOp::Ne => |a, b| i64::from(a != b),
            BinOp::Lt => |a, b| i64::from(a < b),
            BinOp::Le => |a, b| i64::from(a <= b),
            BinOp::Pow | BinOp::Shl | BinOp::Shr => return None,
            BinOp::Dot4 | BinOp::Dot2 | BinOp::PairBf16 | BinOp::DotBf16 | BinOp::Mix => {
                return None;
            }
        };
        Some(f)
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    // Indices are small: the division of halves of the width takes a third of the time.
    if let (Ok(a), Ok(b)) = (u32::try_from(a), u32::try_from(b)) {
        return i64::from(a / b);
    }
    let quotient = a.wrapping_div(b);
    let is_rounded_up = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
    quotient - i64::from(is_rounded_up)
}

fn floor_mod(a: i64, b: i64) -> i64 {
    a.wrapping_sub(floor_div(a, b).wrapping_mul(b)) * i64::from(b != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::fold_binary;
    use crate::scalar::Scalar;

    #[test]
    fn indices_are_computed_as_the_evaluator_does() {
        let numbers = [-7, -3, -1, 0, 1, 2, 5, 1 << 40, i64::MIN, i64::MAX];
        for op in BinOp::ALL {
            let Some(f) = op.of_indices() else { continue };
            for (a, b) in numbers.into_iter().flat_map(|a| numbers.map(|b| (a, b))) {
                let expected = fold_binary(op, Scalar::index(a), Scalar::index(b)).unwrap();
                assert_eq!(f(a, b), expected.as_i64(), "{op:?} of {a} and {b}");
            }
        }
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for op in [BinOp::And, BinOp::Or, BinOp::Xor] {
                let expected = fold_binary(op, Scalar::bool(a == 1), Scalar::bool(b == 1)).unwrap();
                assert_eq!(op.of_indices().unwrap()(a, b), expected.as_i64(), "{op:?} {a} {b}");
            }
        }
    }
}
