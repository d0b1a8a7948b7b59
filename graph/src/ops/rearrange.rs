//! Operators that put every element somewhere else, or repeat it: tile, depth to space and back,
//! reversed sequences, triangles.
//!
//! ```text
//! tile(f32[3], [2])  ->  tile: f32[6] = b0[floor_mod(v0, 3)]
//! ```

use ansc_runtime::DType;

use super::index::{check_axis, check_index_type, own, scaled};
use super::{OpError, sized};
use crate::compute::{Compute, Stage, TensorType};
use crate::expr::Expr;
use crate::op::{ComputeOp, Kind};
use crate::scalar::Scalar;

fn moved(kind: &str, inputs: &[&TensorType], out: TensorType, body: Expr) -> ComputeOp {
    let stage = Stage::map("rearrange", out, body);
    let inputs = inputs.iter().map(|&t| t.clone()).collect();
    ComputeOp::new(Kind::Other(kind.into()), Compute::single(inputs, stage))
}

/// `repeats[i]` copies of the tensor along axis `i`.
pub fn tile(x: &TensorType, repeats: &[usize]) -> Result<ComputeOp, OpError> {
    let product = |(&n, &r): (&usize, &usize)| n.checked_mul(r);
    let shape: Option<Vec<usize>> = x.shape.iter().zip(repeats).map(product).collect();
    let shape = shape.filter(|_| repeats.len() == x.rank()).ok_or_else(|| {
        OpError::Invalid(format!("shape {:?} cannot be repeated {repeats:?} times", x.shape))
    })?;
    let out = sized(TensorType::new(x.dtype, shape))?;
    let index = |(axis, (&n, &r)): (usize, (&usize, &usize))| match (n, r) {
        (0 | 1, _) => Expr::int(0),
        (_, 1) => Expr::var(axis),
        _ => Expr::var(axis).floor_mod(n as i64),
    };
    let indices = x.shape.iter().zip(repeats).enumerate().map(index).collect();
    Ok(moved("Tile", &[x], out, Expr::load(0, indices)))
}

/// Which part of the channel number is the position in the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DepthOrder {
    /// The upper part: channels are `[block, block, c]`.
    DepthColumnRow,
    /// The lower part: channels are `[c, block, block]`.
    ColumnRowDepth,
}

/// Channels of `[n, c, h, w]` become blocks of pixels.
pub fn depth_to_space(
    x: &TensorType,
    block: usize,
    order: DepthOrder,
) -> Result<ComputeOp, OpError> {
    let (n, channels, h, w) = image(x)?;
    let area = block.checked_mul(block).filter(|&a| a > 0 && channels % a == 0);
    let area = area.ok_or_else(|| bad_block(x, block))?;
    let size = |extent: usize| extent.checked_mul(block).ok_or_else(|| bad_block(x, block));
    let depth = channels / area;
    let out = sized(TensorType::new(x.dtype, [n, depth, size(h)?, size(w)?]))?;
    let b = block as i64;
    let [v0, c, y, z] = [0, 1, 2, 3].map(Expr::var);
    let within = scaled(y.clone().floor_mod(b), b) + z.clone().floor_mod(b);
    let channel = match order {
        DepthOrder::DepthColumnRow => scaled(within, depth as i64) + c,
        DepthOrder::ColumnRowDepth => scaled(c, area as i64) + within,
    };
    let body = Expr::load(0, vec![v0, channel, y.floor_div(b), z.floor_div(b)]);
    Ok(moved("DepthToSpace", &[x], out, body))
}

/// Blocks of pixels of `[n, c, h, w]` become channels.
pub fn space_to_depth(
    x: &TensorType,
    block: usize,
    order: DepthOrder,
) -> Result<ComputeOp, OpError> {
    let (n, channels, h, w) = image(x)?;
    let fits = block > 0 && h % block == 0 && w % block == 0;
    let depth = channels.checked_mul(block).and_then(|d| d.checked_mul(block));
    let depth = depth.filter(|_| fits).ok_or_else(|| bad_block(x, block))?;
    let out = sized(TensorType::new(x.dtype, [n, depth, h / block, w / block]))?;
    let (b, c) = (block as i64, channels.max(1) as i64);
    let [v0, v1, y, z] = [0, 1, 2, 3].map(Expr::var);
    let (within, channel) = match order {
        DepthOrder::DepthColumnRow => (v1.clone().floor_div(c), v1.floor_mod(c)),
        DepthOrder::ColumnRowDepth => (v1.clone().floor_mod(b * b), v1.floor_div(b * b)),
    };
    let row = scaled(y, b) + within.clone().floor_div(b);
    let column = scaled(z, b) + within.floor_mod(b);
    Ok(moved("SpaceToDepth", &[x], out, Expr::load(0, vec![v0, channel, row, column])))
}

fn image(x: &TensorType) -> Result<(usize, usize, usize, usize), OpError> {
    match x.shape[..] {
        [n, c, h, w] => Ok((n, c, h, w)),
        _ => Err(OpError::Rank { what: "an image", expected: "4".into(), found: x.shape.clone() }),
    }
}

fn bad_block(x: &TensorType, block: usize) -> OpError {
    OpError::Invalid(format!("shape {:?} has no blocks of {block} by {block}", x.shape))
}

/// Inputs: x and the lengths of its sequences (one for each index of `batch`). The first elements
/// along `time` are reversed, as many as the sequence has; a length beyond the axis counts as the
/// whole axis.
pub fn reverse_sequence(
    x: &TensorType,
    lengths: &TensorType,
    batch: usize,
    time: usize,
) -> Result<ComputeOp, OpError> {
    check_axis(batch, x.rank())?;
    check_axis(time, x.rank())?;
    check_index_type(lengths)?;
    if batch == time || lengths.shape != [x.shape[batch]] {
        return Err(OpError::Invalid(format!(
            "lengths of shape {:?} do not fit shape {:?} with batch axis {batch}",
            lengths.shape, x.shape
        )));
    }
    let length = Expr::cast(lengths.dtype, DType::I64, Expr::load(1, vec![Expr::var(batch)]))
        .min(Expr::index(x.shape[time]));
    let t = Expr::var(time);
    let reversed = length.clone() - Expr::int(1) - t.clone();
    let mut indices = own(x.rank());
    indices[time] = Expr::select(t.clone().lt(length), reversed, t);
    Ok(moved("ReverseSequence", &[x, lengths], x.clone(), Expr::load(0, indices)))
}

/// Where the diagonal of a triangle lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Diagonal {
    /// So many elements above the main diagonal, or below if it is negative.
    At(i64),
    /// The second input of the operator, one element of type `i64`.
    Input,
}

/// Elements of the last two axes on or above (`upper`) or below the diagonal; zero elsewhere.
pub fn triangle(
    inputs: &[TensorType],
    upper: bool,
    diagonal: Diagonal,
) -> Result<ComputeOp, OpError> {
    let used = if diagonal == Diagonal::Input { 2 } else { 1 };
    let [x, rest @ ..] = inputs.get(..used).unwrap_or_default() else {
        return Err(OpError::Invalid("a triangle needs a tensor, and a diagonal".into()));
    };
    let Some(row) = x.rank().checked_sub(2) else {
        let expected = "at least 2".into();
        return Err(OpError::Rank { what: "the tensor", expected, found: x.shape.clone() });
    };
    let k = match (diagonal, rest) {
        (Diagonal::At(k), _) => Expr::int(k),
        (_, [k]) if k.len() == 1 && k.dtype == DType::I64 => {
            Expr::load(1, vec![Expr::int(0); k.rank()])
        }
        _ => return Err(OpError::Invalid("the diagonal must be one i64".into())),
    };
    // Not `row + k`: the diagonal may be any number, and the sum would overflow.
    let distance = Expr::var(row + 1) - Expr::var(row);
    let inside = if upper { k.le(distance) } else { distance.le(k) };
    let zero = Expr::Const(Scalar::zero(x.dtype));
    let body = Expr::select(inside, Expr::load(0, own(x.rank())), zero);
    Ok(moved("Trilu", &inputs[..used].iter().collect::<Vec<_>>(), x.clone(), body))
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    fn shape(op: Result<ComputeOp, OpError>) -> Vec<usize> {
        op.unwrap().expr.output_types()[0].shape.clone()
    }

    #[test]
    fn shapes() {
        assert_eq!(shape(tile(&f32s(&[2, 1]), &[3, 4])), [6, 4]);
        let d2s = depth_to_space(&f32s(&[1, 8, 2, 3]), 2, DepthOrder::DepthColumnRow);
        assert_eq!(shape(d2s), [1, 2, 4, 6]);
        assert_eq!(
            shape(space_to_depth(&f32s(&[1, 2, 4, 6]), 2, DepthOrder::DepthColumnRow)),
            [1, 8, 2, 3]
        );
    }

    #[test]
    fn triangles_of_any_diagonal() {
        let ones = Tensor::from_slice(&[3, 4], &[1.0f32; 12]);
        for k in [i64::MIN, i64::MIN + 1, -1, 0, 2, i64::MAX - 1, i64::MAX] {
            let given = Tensor::from_slice(&[], &[k]);
            for upper in [true, false] {
                let inside = |i: i128| {
                    let distance = i % 4 - i / 4;
                    if upper { i128::from(k) <= distance } else { distance <= i128::from(k) }
                };
                let expected: Vec<f64> = (0..12).map(|i| inside(i).into()).collect();
                let known = triangle(&[f32s(&[3, 4])], upper, Diagonal::At(k)).unwrap();
                let types = [f32s(&[3, 4]), TensorType::new(DType::I64, [])];
                let open = triangle(&types, upper, Diagonal::Input).unwrap();
                for (op, inputs) in [(known, vec![&ones]), (open, vec![&ones, &given])] {
                    let y = interp::eval(&op.expr, &inputs).unwrap();
                    assert_eq!(y[0].to_f64_vec(), expected, "{k} {upper}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit() {
        assert!(tile(&f32s(&[2]), &[usize::MAX]).is_err());
        assert!(tile(&f32s(&[2]), &[1, 1]).is_err());
        for block in [0, 3, usize::MAX] {
            let x = f32s(&[1, 8, 2, 2]);
            assert!(depth_to_space(&x, block, DepthOrder::ColumnRowDepth).is_err());
            assert!(space_to_depth(&x, block, DepthOrder::ColumnRowDepth).is_err());
        }
        assert!(triangle(&[f32s(&[3])], true, Diagonal::At(0)).is_err());
        assert!(triangle(&[f32s(&[3, 3])], true, Diagonal::Input).is_err());
        assert!(triangle(&[], true, Diagonal::At(0)).is_err());
        let lengths = TensorType::new(DType::I64, [2]);
        assert!(reverse_sequence(&f32s(&[3, 2]), &lengths, 0, 1).is_err());
        assert!(reverse_sequence(&f32s(&[3, 2]), &lengths, 1, 1).is_err());
    }
}
