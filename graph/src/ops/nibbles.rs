//! Integers of 4 bits, two in a byte, as integers of 8 bits.
//!
//! ```text
//! unpack(i8, [3, 5]) of u8[8]
//! ->  unpack: i8[3, 5] = the low four bits of b0[p / 2], or the high ones where p is odd;  p = v0 * 5 + v1
//! ```
//! Bit 3 of an element with a sign is worth -8. Constants of this kind are not folded when they are
//! large: whatever reads them unpacks them.

use ansc_runtime::DType;

use super::stages::Stages;
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::{BinOp, Expr};
use crate::op::{ComputeOp, Kind};

/// How the operator is called.
const NAME: &str = "Unpack";

/// All elements of a tensor of this shape, the first one in the low bits of the first byte. `dtype`
/// is `I8` or `U8`.
pub fn unpack(dtype: DType, shape: &[usize], packed: &TensorType) -> Result<ComputeOp, OpError> {
    let ty = sized(TensorType::new(dtype, shape))?;
    let fits = packed.dtype == DType::U8 && packed.shape == [ty.len().div_ceil(2)];
    if !fits || !matches!(dtype, DType::I8 | DType::U8) {
        let reason = format!("{packed} holds no {ty} of 4 bits an element");
        return Err(OpError::Invalid(reason));
    }
    let (mut s, [packed]) = Stages::new([packed]);
    let y = s.map("unpack", ty, |at| {
        let place = at.iter().zip(shape).map(|(e, &n)| (e.clone(), n));
        let place = place.reduce(|(a, _), (b, n)| (a * Expr::index(n) + b, n));
        let place = place.map_or(Expr::int(0), |(place, _)| place);
        let byte = packed.at(&[place.clone().floor_div(2)]);
        let amount = Expr::cast(DType::I64, DType::I32, place.floor_mod(2) * Expr::int(4));
        element(dtype, Expr::binary(BinOp::Shr, Expr::cast(DType::U8, DType::I32, byte), amount))
    });
    Ok(s.finish(Kind::Other(NAME.into()), &[&y]))
}

/// The low four bits of an `i32` as an integer of `dtype`.
pub fn element(dtype: DType, bits: Expr) -> Expr {
    let int = |n: i64| Expr::float(DType::I32, n as f64);
    let low = bits.and(int(15));
    let value = match dtype.is_signed_int() {
        true => Expr::binary(BinOp::Xor, low, int(8)) - int(8),
        false => low,
    };
    Expr::cast(DType::I32, dtype, value)
}

/// Whether the operator is one of these.
pub fn is_unpack(kind: &Kind) -> bool {
    matches!(kind, Kind::Other(name) if name == NAME)
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    #[test]
    fn low_bits_come_first() {
        let packed = Tensor::from_slice(&[3], &[0x21u8, 0xf8, 0x07]);
        for (dtype, expected) in
            [(DType::U8, [1.0, 2.0, 8.0, 15.0, 7.0]), (DType::I8, [1.0, 2.0, -8.0, -1.0, 7.0])]
        {
            for shape in [&[5][..], &[1, 5], &[5, 1]] {
                let op = unpack(dtype, shape, &TensorType::of(&packed)).unwrap();
                let found = interp::eval(&op.expr, &[&packed]).unwrap();
                assert_eq!((found[0].dtype(), found[0].to_f64_vec()), (dtype, expected.to_vec()));
            }
        }
    }

    #[test]
    fn other_sizes_and_types_are_refused() {
        let of = |dtype, n: usize| TensorType::new(dtype, [n]);
        assert!(unpack(DType::I8, &[3, 5], &of(DType::U8, 7)).is_err());
        assert!(unpack(DType::I8, &[3, 5], &of(DType::I8, 8)).is_err());
        assert!(unpack(DType::I32, &[3, 5], &of(DType::U8, 8)).is_err());
        assert!(unpack(DType::I8, &[], &of(DType::U8, 1)).is_ok());
    }
}
