//! The cost of an expression: operations, and bytes of memory that must move.
//!
//! Operations are counted as Ansor counts them, so that throughputs compare:
//! - A binary operation counts one; so does `not`, and combining one term of a reduction: a sum of
//!   products is two per term. `select` counts its condition and the dearer side.
//! - Functions (`exp`, `sqrt`, `pow`, ...), casts, constants and loads count nothing of themselves.
//! - Arithmetic on indices is free: what is inside the brackets of a load, and integers and
//!   conditions that depend on no element.
//!
//! ```text
//! f32[m, n] = sum[k] mul(in0[i0, r0], in1[r0, i1])  =>  2 * m * n * k operations, 4 * (m * k + k * n + m * n) bytes
//! ```

use ansc_runtime::DType;

use crate::compute::{Compute, Stage};
use crate::expr::{BinOp, BufId, Expr, UnOp};

/// Operations to compute every stage once; `u64::MAX` where there are more.
pub fn flops(compute: &Compute) -> u64 {
    let stages = compute.stages.iter().map(|s| {
        let dtype = |buffer| compute.buffer_type(buffer).dtype;
        let per_point = operations(&s.body, &dtype) + u64::from(s.reduce.is_some());
        points(s).saturating_mul(per_point)
    });
    stages.fold(0, u64::saturating_add)
}

/// Operations of one evaluation of `e`, whose buffers have the types that `dtype` tells.
pub fn operations(e: &Expr, dtype: &impl Fn(BufId) -> DType) -> u64 {
    counted(e, dtype, &|parts| parts.all()).count
}

/// As [`operations`], where products of parts of words and their sum are one product: that is what
/// a processor with an instruction for them has time for.
pub fn operations_on_words(e: &Expr, dtype: &impl Fn(BufId) -> DType) -> u64 {
    counted(e, dtype, &|parts| if parts.others == 0 { 1 } else { parts.all() }).count
}

/// The operations that make up one that is none of the usual ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Products.
    pub products: u8,
    /// Sums and differences.
    pub sums: u8,
    /// Operations on bits.
    pub others: u8,
}

impl Parts {
    /// How many there are.
    pub fn all(self) -> u64 {
        [self.products, self.sums, self.others].into_iter().map(u64::from).sum()
    }
}

impl BinOp {
    /// The operations that make this one up; `None` if it is one operation, or a conversion.
    pub const fn parts(self) -> Option<Parts> {
        match self {
            BinOp::Dot4 => Some(Parts { products: 4, sums: 3, others: 0 }),
            BinOp::Dot2 | BinOp::DotBf16 => Some(Parts { products: 2, sums: 1, others: 0 }),
            BinOp::Mix => Some(Parts { products: 3, sums: 1, others: 6 }),
            _ => None,
        }
    }
}

/// Bytes of inputs and results, each element once. Of an input that is looked up here and there no
/// more counts than is read.
pub fn bytes(compute: &Compute) -> u64 {
    let inputs = (0..compute.inputs.len()).map(|i| bytes_read(compute, BufId::new(i)));
    let outputs = compute.output_types().into_iter().map(|ty| ty.bytes() as u64);
    inputs.chain(outputs).fold(0, u64::saturating_add)
}

fn bytes_read(compute: &Compute, input: BufId) -> u64 {
    let ty = compute.buffer_type(input);
    let reads = compute.stages.iter().map(|s| {
        let loads = s.body.loads().into_iter().filter(|(b, _)| *b == input).count();
        points(s).saturating_mul(loads as u64)
    });
    let reads = reads.fold(0, u64::saturating_add);
    reads.saturating_mul(ty.dtype.size() as u64).min(ty.bytes() as u64)
}

/// How often the body of a stage is evaluated.
fn points(stage: &Stage) -> u64 {
    stage.extents().iter().fold(1, |n, &extent| n.saturating_mul(extent as u64))
}

/// The number of operations of an expression, its type, and whether it reads elements.
#[derive(Clone, Copy)]
struct Operations {
    count: u64,
    dtype: DType,
    /// Depends on an element of a tensor.
    loads: bool,
}

impl Operations {
    fn leaf(dtype: DType, loads: bool) -> Operations {
        Operations { count: 0, dtype, loads }
    }

    /// One more operation on these operands, unless they are indices.
    fn counted(self) -> Operations {
        let is_index = !self.loads && matches!(self.dtype, DType::I64 | DType::Bool);
        Operations { count: self.count + u64::from(!is_index), ..self }
    }

    fn and(self, other: Operations) -> Operations {
        Operations {
            count: self.count.saturating_add(other.count),
            loads: self.loads || other.loads,
            ..self
        }
    }
}

/// `weight` says what an operation counts that has parts.
fn counted(
    e: &Expr,
    dtype: &impl Fn(BufId) -> DType,
    weight: &impl Fn(Parts) -> u64,
) -> Operations {
    let of = |e: &Expr| counted(e, dtype, weight);
    match e {
        Expr::Const(s) => Operations::leaf(s.dtype(), false),
        Expr::Var(_) => Operations::leaf(DType::I64, false),
        Expr::Load(buffer, _) => Operations::leaf(dtype(*buffer), true),
        Expr::Cast(to, x) => Operations { dtype: *to, ..of(x) },
        Expr::Unary(op, x) => {
            let x = if *op == UnOp::Not { of(x).counted() } else { of(x) };
            Operations { dtype: op.result(x.dtype), ..x }
        }
        Expr::Binary(op, a, b) => {
            let both = of(a).and(of(b));
            let both = match (op, op.parts()) {
                (_, Some(parts)) => {
                    Operations { count: both.count.saturating_add(weight(parts)), ..both }
                }
                // Calls of functions, as the intrinsics above, and a conversion.
                (BinOp::Pow | BinOp::Shl | BinOp::Shr | BinOp::PairBf16, None) => both,
                (_, None) => both.counted(),
            };
            Operations { dtype: op.result(both.dtype), ..both }
        }
        Expr::Select(c, a, b) => {
            let (c, a, b) = (of(c), of(a), of(b));
            let dearer = if a.count >= b.count { a } else { b };
            Operations { loads: c.loads || a.loads || b.loads, ..dearer.and(c) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::TensorType;
    use crate::op::{Channels, ComputeOp, ConvAttrs};
    use crate::ops::{conv, gather, map, matmul, pad, shape, softmax};
    use crate::scalar::Scalar;

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(DType::F32, shape)
    }

    fn check(op: Result<ComputeOp, crate::ops::OpError>, expected_flops: u64, expected_bytes: u64) {
        let op = op.unwrap();
        assert_eq!(flops(&op.expr), expected_flops, "operations of {:?}", op.expr);
        assert_eq!(bytes(&op.expr), expected_bytes, "bytes of {:?}", op.expr);
    }

    #[test]
    fn four_products_and_as_many_sums() {
        let text = "compute(in0: i32[16], in1: i32[16, 3]) -> y { y: i32[3] = sum{r0: 16} dot4(in0[r0], in1[r0, i0]) }";
        assert_eq!(flops(&Compute::parse(text).unwrap()), 3 * 16 * 8);
    }

    #[test]
    fn products() {
        let (m, n, k) = (5, 7, 3);
        let expected = 4 * (m * k + k * n + m * n);
        check(
            matmul::matmul(&f32s(&[m, k]), &f32s(&[k, n])),
            (2 * m * n * k) as u64,
            expected as u64,
        );
        let i8s = |shape: &[usize]| TensorType::new(DType::I8, shape);
        let bytes = m * k + k * n + 4 * m * n;
        check(matmul::matmul(&i8s(&[m, k]), &i8s(&[k, n])), (2 * m * n * k) as u64, bytes as u64);
    }

    #[test]
    fn convolutions() {
        let attrs = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![3, 3],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pads_begin: vec![1, 1],
            pads_end: vec![1, 1],
            groups: 2,
        };
        // 1 x 6 x 4 x 4 results of 3 x 3 x 2 terms each; padding costs no operations.
        let (flops, elements) = (2 * (6 * 4 * 4) * (3 * 3 * 2), 4 * 8 * 8 + 6 * 2 * 9 + 6 * 4 * 4);
        check(
            conv::conv(attrs, &f32s(&[1, 4, 8, 8]), &f32s(&[6, 2, 3, 3])),
            flops,
            4 * elements as u64,
        );
    }

    #[test]
    fn softmax_counts_its_four_stages() {
        // Maximum and sum one per term, a subtraction under the exponential, a product with a
        // reciprocal.
        check(softmax::softmax(&[1], &f32s(&[3, 5])), 5 * 15, 2 * 60);
    }

    #[test]
    fn elementwise() {
        check(map::binary(BinOp::Add, &f32s(&[4, 5]), &f32s(&[5])), 20, 4 * (20 + 5 + 20));
        check(map::unary(UnOp::Exp, &f32s(&[6])), 0, 48);
        check(map::cast(&f32s(&[6]), DType::F16), 0, 36);
        let ints = TensorType::new(DType::I64, [6]);
        check(map::binary(BinOp::Add, &ints, &ints), 6, 3 * 48);
    }

    #[test]
    fn moving_elements_is_free_of_operations() {
        check(shape::transpose(&f32s(&[4, 5]), &[1, 0]), 0, 2 * 80);
        check(shape::reshape(&f32s(&[4, 5]), &[2, 10]), 0, 2 * 80);
        let rows = TensorType::new(DType::I64, [2]);
        // Two rows of five of a table of a thousand.
        check(gather::gather(&f32s(&[1000, 5]), &rows, 0), 0, 40 + 16 + 40);
        let mode = pad::PadMode::Constant(Scalar::zero(DType::F32));
        check(pad::pad(&[f32s(&[3])], mode, &[1], &[2]), 0, 12 + 24);
    }

    #[test]
    fn select_takes_the_dearer_side() {
        let x = || Expr::load(0, vec![Expr::var(0)]);
        let positive = Expr::float(DType::F32, 0.0).lt(x());
        let body = Expr::select(positive, x() * x() + x(), x() - x());
        let c = Compute::single(vec![f32s(&[10])], Stage::map("s", f32s(&[10]), body));
        assert_eq!((flops(&c), bytes(&c)), (30, 80));
    }

    #[test]
    fn huge_expressions_saturate() {
        let x = Expr::load(0, vec![]);
        let stage = Stage::reduction(
            "s",
            f32s(&[1 << 30]),
            crate::Combiner::Sum,
            vec![1 << 30, 1 << 30],
            x.clone() * x,
        );
        assert_eq!(flops(&Compute::single(vec![f32s(&[])], stage)), u64::MAX);
    }
}
