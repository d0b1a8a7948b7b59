//! Matrix product with a weight packed in 2, 4 or 8 bits per element, one scale per block.
//!
//! ```text
//! matmul_nbits(f32[1, 64], packed u8[n, 2, 16], scales f32[n, 2])   (4 bits, blocks of 32)
//! ->  weight: f32[n, 64] = (bits of b1[v0, v1 / 32, v1 % 32 / 2] - 8) * b2[v0, v1 / 32]
//!     matmul: f32[1, n] = sum[64] mul(b0[v0, v2], b3[v1, v2])
//! ```
//! The weight is unpacked where it is used, so that memory traffic stays that of the packed form.

use ansc_runtime::DType;

use super::stages::{Source, Stages};
use super::{OpError, sized};
use crate::compute::TensorType;
use crate::expr::{BinOp, Expr};
use crate::op::{ComputeOp, Kind};

/// A weight `[n, k]` in blocks of `block` elements along `k`, packed low bits first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// Rows of the weight, which are columns of the product.
    pub n: usize,
    /// Elements of a row, which products are summed over.
    pub k: usize,
    /// Bits of an element: 2, 4 or 8.
    pub bits: usize,
    /// Elements of a row that share a scale.
    pub block: usize,
}

impl Packed {
    fn blocks(self) -> usize {
        self.k.div_ceil(self.block)
    }

    fn per_byte(self) -> usize {
        8 / self.bits
    }

    fn check(self) -> Result<(), OpError> {
        let whole = self.block > 0 && self.block.is_multiple_of(8);
        if matches!(self.bits, 2 | 4 | 8) && whole {
            return Ok(());
        }
        Err(OpError::Invalid(format!(
            "weights of {} bits in blocks of {} are not supported: bits must be 2, 4 or 8, and \
             blocks multiples of 8",
            self.bits, self.block
        )))
    }

    /// Shapes of the packed weight, the scales, and packed zero points.
    pub fn shapes(self) -> Result<[Vec<usize>; 3], OpError> {
        self.check()?;
        let blocks = self.blocks();
        Ok([
            vec![self.n, blocks, self.block / self.per_byte()],
            vec![self.n, blocks],
            vec![self.n, blocks.div_ceil(self.per_byte())],
        ])
    }

    /// The number at position `at` of a row of packed numbers, given its bytes.
    fn unpack(self, at: Expr, byte: impl FnOnce(Expr) -> Expr) -> Expr {
        let per_byte = self.per_byte() as i64;
        if per_byte == 1 {
            return Expr::cast(DType::U8, DType::I32, byte(at));
        }
        let word = Expr::cast(DType::U8, DType::I32, byte(at.clone().floor_div(per_byte)));
        let shift = at.floor_mod(per_byte) * Expr::index(self.bits);
        let shifted = Expr::binary(BinOp::Shr, word, Expr::cast(DType::I64, DType::I32, shift));
        let mask = Expr::float(DType::I32, ((1 << self.bits) - 1) as f64);
        shifted.and(mask)
    }
}

/// `a[.., k]` times the transposed weight: `[.., n]`. `zero` is packed like the weight, or has
/// the scales' shape and a float type; without it zero points are in the middle of the range.
pub fn matmul_nbits(
    packed: Packed,
    a: &TensorType,
    weight: &TensorType,
    scales: &TensorType,
    zero: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let [weight_shape, scales_shape, zero_shape] = packed.shapes()?;
    let zero_fits = zero.is_none_or(|z| match z.dtype {
        DType::U8 => z.shape == zero_shape,
        _ => z.shape == scales_shape,
    });
    let fits = a.shape.last() == Some(&packed.k)
        && weight.shape == weight_shape
        && weight.dtype == DType::U8
        && scales.shape == scales_shape;
    if !fits || !zero_fits {
        return Err(OpError::Invalid(format!(
            "a packed weight {weight} with scales {scales} and zero points {zero:?} does not fit \
             {packed:?} and an operand {a}"
        )));
    }
    let inputs: Vec<&TensorType> = [a, weight, scales].into_iter().chain(zero).collect();
    let mut s = Stages::of(&inputs);
    let zero = zero.map(|_| s.source(3));
    let (a, bits, scales) = (s.source(0), s.source(1), s.source(2));
    let acc = a.dtype().accumulator();
    let ty = sized(TensorType::new(acc, [packed.n, packed.k]))?;
    let weight = s.map("weight", ty, |i| unpacked(packed, acc, &bits, &scales, zero.as_ref(), i));
    let mut shape = a.ty().shape.clone();
    *shape.last_mut().expect("has a last axis of extent k") = packed.n;
    let ty = sized(TensorType::new(acc, shape))?;
    let y = s.sum("matmul", ty, &[packed.k], |i, r| {
        let (column, row) = i.split_last().expect("has a last axis");
        a.at_as(acc, &[row, r].concat()) * weight.at(&[column.clone(), r[0].clone()])
    });
    let y = s.cast(y, a.dtype());
    Ok(s.finish(Kind::Other("MatMulNBits".into()), &[&y]))
}

fn unpacked(
    packed: Packed,
    acc: DType,
    bits: &Source,
    scales: &Source,
    zero: Option<&Source>,
    i: &[Expr],
) -> Expr {
    let size = packed.block as i64;
    let (row, block) = (i[0].clone(), i[1].clone().floor_div(size));
    let at = i[1].clone().floor_mod(size);
    let number = packed.unpack(at, |byte| bits.at(&[row.clone(), block.clone(), byte]));
    let middle = 1i64 << (packed.bits - 1);
    let integer = |e| Expr::cast(DType::I32, acc, e);
    let centred = match zero {
        None => integer(number - Expr::float(DType::I32, middle as f64)),
        Some(z) if z.dtype() == DType::U8 => {
            let zero = packed.unpack(block.clone(), |byte| z.at(&[row.clone(), byte]));
            integer(number - zero)
        }
        Some(z) => integer(number) - z.at_as(acc, &[row.clone(), block.clone()]),
    };
    centred * scales.at_as(acc, &[row, block])
}
