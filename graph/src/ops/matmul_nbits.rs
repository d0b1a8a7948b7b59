//! Matrix product with a weight packed in 2, 4 or 8 bits per element, one scale per block.
//!
//! ```text
//! matmul_nbits(f32[1, 64], packed u8[n, 2, 16], scales f32[n, 2])   (4 bits, blocks of 32)
//! ->  weight: f32[n, 64] = (bits of b1[v0, v1 / 32, v1 % 32 / 2] - 8) * b2[v0, v1 / 32]
//!     matmul: f32[1, n] = sum[64] mul(b0[v0, v2], b3[v1, v2])
//! ```
//! The weight is unpacked where it is used, so that memory traffic stays that of the packed form.
//!
//! Where the model allows it, the other operand has 8 bits, too, with a step for each block:
//!
//! ```text
//! rounded(f32[1, 64])   ->  q: i8[1, 64] = round(b0[v0, v1] / step[v0, v1 / 32])
//!                           step: f32[1, 2] = max(max[32] abs(b0[v0, v1 * 32 + v2]), 1e-30) / 127
//! matmul: f32[1, n] = sum[64] mul(mul(f32(q[v0, v2]), step[v0, v2 / 32]), b3[v1, v2])
//! ```

use ansc_runtime::DType;

use super::quantize::quantized;
use super::stages::{Source, Stages, real};
use super::{OpError, sized};
use crate::compute::{Combiner, TensorType};
use crate::expr::{BinOp, Expr, UnOp};
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

/// Blocks whose largest element is smaller are zeros: their step would not be a normal number.
const TINY: f64 = 1e-30;
/// The largest integer that a step is multiplied by.
const LARGEST: f64 = 127.0;

/// `a[.., k] -> q i8[.., k], step f32[.., blocks]`: what rounds each block to integers of 8 bits.
pub fn rounded(packed: Packed, a: &TensorType) -> Result<ComputeOp, OpError> {
    packed.check()?;
    let outer = match a.shape.split_last() {
        Some((&k, outer)) if k == packed.k && a.dtype.is_float() => outer.to_vec(),
        _ => return Err(OpError::Invalid(format!("an operand {a} does not fit {packed:?}"))),
    };
    let (mut s, [a]) = Stages::new([a]);
    let acc = DType::F32;
    let ty = TensorType::new(acc, [&outer[..], &[packed.blocks()]].concat());
    let largest = s.reduce("largest", Combiner::Max, ty.clone(), &[packed.block], |i, r| {
        let (block, outer) = i.split_last().expect("an axis of blocks");
        let at = block.clone() * Expr::index(packed.block) + r[0].clone();
        let element = |at: &Expr| {
            Expr::unary(UnOp::Abs, a.at_as(acc, &[outer, std::slice::from_ref(at)].concat()))
        };
        match packed.k.is_multiple_of(packed.block) {
            true => element(&at),
            false => {
                let inside = at.clone().lt(Expr::index(packed.k));
                Expr::select(inside, element(&at.min(Expr::index(packed.k - 1))), real(acc, 0.0))
            }
        }
    });
    let most = |i: &[Expr]| largest.at(i).max(real(acc, TINY));
    let step = s.map("step", ty.clone(), |i| most(i) / real(acc, LARGEST));
    let inverse = s.map("inverse", ty, |i| real(acc, LARGEST) / most(i));
    let q = s.map("rounded", TensorType::new(DType::I8, a.ty().shape.clone()), |i| {
        let at = of_block(packed, i);
        quantized(acc, DType::I8, a.at_as(acc, i) * inverse.at(&at), None)
    });
    Ok(s.finish(Kind::Other("MatMulNBits.rounded".into()), &[&q, &step]))
}

/// The place of the block that an element of the first operand lies in.
fn of_block(packed: Packed, at: &[Expr]) -> Vec<Expr> {
    let (k, outer) = at.split_last().expect("an axis of terms");
    [outer, &[k.clone().floor_div(packed.block as i64)]].concat()
}

/// `a[.., k]` times the transposed weight: `[.., n]`. `zero` is packed like the weight, or has
/// the scales' shape and a float type; without it zero points are in the middle of the range. With
/// `step`, `a` is what [`rounded`] makes, and the result has 32 bits.
pub fn matmul_nbits(
    packed: Packed,
    a: &TensorType,
    weight: &TensorType,
    scales: &TensorType,
    zero: Option<&TensorType>,
    step: Option<&TensorType>,
) -> Result<ComputeOp, OpError> {
    let [weight_shape, scales_shape, zero_shape] = packed.shapes()?;
    let outer = &a.shape[..a.shape.len().saturating_sub(1)];
    let step_fits = step.is_none_or(|step| {
        let shape = [outer, &[packed.blocks()]].concat();
        a.dtype == DType::I8 && *step == TensorType::new(DType::F32, shape)
    });
    let zero_fits = zero.is_none_or(|z| match z.dtype {
        DType::U8 => z.shape == zero_shape,
        _ => z.shape == scales_shape,
    });
    let fits = a.shape.last() == Some(&packed.k)
        && weight.shape == weight_shape
        && weight.dtype == DType::U8
        && scales.shape == scales_shape;
    if !fits || !zero_fits || !step_fits {
        return Err(OpError::Invalid(format!(
            "a packed weight {weight} with scales {scales} and zero points {zero:?} does not fit \
             {packed:?} and an operand {a}"
        )));
    }
    let inputs = [a, weight, scales].into_iter().chain(zero).chain(step);
    let mut s = Stages::of(&inputs.collect::<Vec<_>>());
    let step = step.map(|_| s.source(3 + usize::from(zero.is_some())));
    let zero = zero.map(|_| s.source(3));
    let (a, bits, scales) = (s.source(0), s.source(1), s.source(2));
    let to = if step.is_some() { DType::F32 } else { a.dtype() };
    let acc = to.accumulator();
    let ty = sized(TensorType::new(acc, [packed.n, packed.k]))?;
    let weight = s.map("weight", ty, |i| unpacked(packed, acc, &bits, &scales, zero.as_ref(), i));
    let mut shape = a.ty().shape.clone();
    *shape.last_mut().expect("has a last axis of extent k") = packed.n;
    let ty = sized(TensorType::new(acc, shape))?;
    let y = s.sum("matmul", ty, &[packed.k], |i, r| {
        let (column, row) = i.split_last().expect("has a last axis");
        let at = [row, r].concat();
        let element = match &step {
            Some(step) => a.at_as(acc, &at) * step.at(&of_block(packed, &at)),
            None => a.at_as(acc, &at),
        };
        element * weight.at(&[column.clone(), r[0].clone()])
    });
    let y = s.cast(y, to);
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
