//! Tools that the tests of passes share: a builder of small random graphs, and a comparison of a
//! graph before and after a pass by the reference interpreter.

use ansc_runtime::{DType, Tensor};

use super::{Options, PassError};
use crate::compute::TensorType;
use crate::expr::{BinOp, UnOp};
use crate::graph::{Graph, ValueId};
use crate::interp;
use crate::op::{Channels, ComputeOp, ConvAttrs, Op, PoolAttrs, PoolMode};
use crate::ops::{conv, map, matmul, normalize, pool, shape, softmax};
use crate::passes::{dce, rewrite};
use crate::verify::verify;

pub(crate) type Run = fn(&mut Graph, &Options) -> Result<bool, PassError>;

/// Builds a graph of `f32` values; the seed decides the contents of constants.
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    pub(crate) seed: u64,
}

impl Builder {
    pub(crate) fn new(seed: u64) -> Builder {
        Builder { graph: Graph::new("test"), seed }
    }

    pub(crate) fn input(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("x{}", self.graph.inputs().len());
        self.graph.add_input(&name, f32(shape), None)
    }

    pub(crate) fn constant(&mut self, shape: &[usize]) -> ValueId {
        self.seed += 1;
        self.graph.add_const("c", random(shape, self.seed))
    }

    /// Values between 0.5 and 1.5, to divide by or take the root of.
    pub(crate) fn positive(&mut self, shape: &[usize]) -> ValueId {
        self.seed += 1;
        let mut tensor = random(shape, self.seed);
        tensor.as_mut_slice::<f32>().iter_mut().for_each(|v| *v = *v / 2.0 + 1.0);
        self.graph.add_const("p", tensor)
    }

    pub(crate) fn filled(&mut self, shape: &[usize], value: f32) -> ValueId {
        let tensor = Tensor::from_slice(shape, &vec![value; shape.iter().product()]);
        self.graph.add_const("f", tensor)
    }

    pub(crate) fn emit(&mut self, op: ComputeOp, inputs: &[ValueId]) -> ValueId {
        let name = format!("n{}", self.graph.len());
        rewrite::add(&mut self.graph, &name, op, inputs)
    }

    pub(crate) fn binary(&mut self, op: BinOp, a: ValueId, b: ValueId) -> ValueId {
        let op = map::binary(op, self.graph.ty(a), self.graph.ty(b)).unwrap();
        self.emit(op, &[a, b])
    }

    pub(crate) fn relu(&mut self, x: ValueId) -> ValueId {
        let zero = self.filled(&[], 0.0);
        self.binary(BinOp::Max, x, zero)
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        let op = shape::transpose(self.graph.ty(x), perm).unwrap();
        self.emit(op, &[x])
    }

    pub(crate) fn reshape(&mut self, x: ValueId, to: &[usize]) -> ValueId {
        let op = shape::reshape(self.graph.ty(x), to).unwrap();
        self.emit(op, &[x])
    }

    pub(crate) fn matmul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let op = matmul::matmul(self.graph.ty(a), self.graph.ty(b)).unwrap();
        self.emit(op, &[a, b])
    }

    /// A channels-first convolution to `m` channels with a constant weight.
    pub(crate) fn conv(&mut self, x: ValueId, m: usize, kernel: usize, stride: usize) -> ValueId {
        let shape = self.graph.ty(x).shape.clone();
        let spatial = shape.len() - 2;
        let mut weight = vec![m, shape[1]];
        weight.extend(vec![kernel; spatial]);
        let w = self.constant(&weight);
        let attrs = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![kernel; spatial],
            strides: vec![stride; spatial],
            dilations: vec![1; spatial],
            pads_begin: vec![kernel / 2; spatial],
            pads_end: vec![kernel / 2; spatial],
            groups: 1,
        };
        let op = conv::conv(attrs, self.graph.ty(x), self.graph.ty(w)).unwrap();
        self.emit(op, &[x, w])
    }

    /// `(x - mean) / sqrt(var + eps) * scale + bias`, as importers write a batch norm.
    pub(crate) fn batch_norm(&mut self, x: ValueId) -> ValueId {
        let shape = self.graph.ty(x).shape.clone();
        let mut per_channel = vec![1; shape.len() - 1];
        per_channel[0] = shape[1];
        let [scale, bias, mean] = std::array::from_fn(|_| self.constant(&per_channel));
        let (var, eps) = (self.positive(&per_channel), self.filled(&[], 1e-5));
        let var = self.binary(BinOp::Add, var, eps);
        let half = self.filled(&[], 0.5);
        let deviation = self.binary(BinOp::Pow, var, half);
        let centred = self.binary(BinOp::Sub, x, mean);
        let normal = self.binary(BinOp::Div, centred, deviation);
        let scaled = self.binary(BinOp::Mul, normal, scale);
        self.binary(BinOp::Add, scaled, bias)
    }

    pub(crate) fn unary(&mut self, op: UnOp, x: ValueId) -> ValueId {
        let op = map::unary(op, self.graph.ty(x)).unwrap();
        self.emit(op, &[x])
    }

    pub(crate) fn dense(&mut self, x: ValueId, n: usize) -> ValueId {
        let k = *self.graph.ty(x).shape.last().unwrap();
        let (w, bias) = (self.constant(&[k, n]), self.constant(&[n]));
        let product = self.matmul(x, w);
        self.binary(BinOp::Add, product, bias)
    }

    pub(crate) fn layer_norm(&mut self, x: ValueId) -> ValueId {
        let ty = self.graph.ty(x).clone();
        let (axis, n) = (ty.rank() - 1, *ty.shape.last().unwrap());
        let (scale, bias) = (self.constant(&[n]), self.constant(&[n]));
        let [s, b] = [scale, bias].map(|v| self.graph.ty(v).clone());
        let op = normalize::layer_norm(axis, 1e-5, DType::F32, &ty, &s, Some(&b)).unwrap();
        self.emit(op, &[x, scale, bias])
    }

    pub(crate) fn softmax(&mut self, x: ValueId) -> ValueId {
        let ty = self.graph.ty(x).clone();
        let op = softmax::softmax(&[ty.rank() - 1], &ty).unwrap();
        self.emit(op, &[x])
    }

    /// `x / 2 * (1 + erf(x / sqrt 2))`, one operator at a time.
    pub(crate) fn gelu(&mut self, x: ValueId) -> ValueId {
        let root = self.filled(&[], std::f32::consts::SQRT_2);
        let (one, half) = (self.filled(&[], 1.0), self.filled(&[], 0.5));
        let scaled = self.binary(BinOp::Div, x, root);
        let erf = self.unary(UnOp::Erf, scaled);
        let sum = self.binary(BinOp::Add, erf, one);
        let product = self.binary(BinOp::Mul, x, sum);
        self.binary(BinOp::Mul, product, half)
    }

    /// The mean over all axes of an image but the first two, which stay.
    pub(crate) fn mean_of_pixels(&mut self, x: ValueId) -> ValueId {
        let op = pool::global_pool(pool::GlobalPool::Average, self.graph.ty(x)).unwrap();
        self.emit(op, &[x])
    }

    /// A channels-first maximum of windows of three by three, two apart.
    pub(crate) fn max_pool(&mut self, x: ValueId) -> ValueId {
        let attrs = PoolAttrs {
            channels: Channels::First,
            mode: PoolMode::Max,
            kernel: vec![3, 3],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pads_begin: vec![1, 1],
            pads_end: vec![1, 1],
        };
        let op = pool::max_pool(attrs, self.graph.ty(x)).unwrap();
        self.emit(op, &[x])
    }

    /// A channels-first convolution of three by three with groups of so many channels.
    pub(crate) fn grouped(&mut self, x: ValueId, of: usize) -> ValueId {
        let channels = self.graph.ty(x).shape[1];
        let w = self.constant(&[channels, of, 3, 3]);
        let attrs = ConvAttrs {
            channels: Channels::First,
            input: Channels::First,
            kernel: vec![3, 3],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads_begin: vec![1, 1],
            pads_end: vec![1, 1],
            groups: channels / of,
        };
        let op = conv::conv(attrs, self.graph.ty(x), self.graph.ty(w)).unwrap();
        self.emit(op, &[x, w])
    }

    pub(crate) fn finish(mut self, outputs: &[ValueId]) -> Graph {
        for (i, value) in outputs.iter().enumerate() {
            self.graph.outputs.push((format!("y{i}"), *value));
        }
        self.graph
    }
}

pub(crate) fn f32(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// Uniform in -1..1.
pub(crate) fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_slice(shape, &values)
}

/// Random tensors for the graph's inputs.
pub(crate) fn inputs(graph: &Graph) -> Vec<Tensor> {
    let shape = |node| graph.node(node).outputs[0].ty.shape.clone();
    graph.inputs().iter().enumerate().map(|(i, &n)| random(&shape(n), 100 + i as u64)).collect()
}

/// Applies a pass, checks that results stay the same, and returns the graph after it.
pub(crate) fn check(before: Graph, run: Run) -> Graph {
    check_all(before, |graph| run(graph, &Options::default()).map(drop))
}

/// As [`check`]; nodes that nothing reads any more are removed after the pass.
pub(crate) fn check_swept(before: Graph, run: Run) -> Graph {
    check_all(before, |graph| {
        run(graph, &Options::default())?;
        while dce::run(graph, &Options::default())? {}
        Ok(())
    })
}

pub(crate) fn check_all(
    before: Graph,
    run: impl FnOnce(&mut Graph) -> Result<(), PassError>,
) -> Graph {
    let mut after = before.clone();
    run(&mut after).unwrap();
    assert_eq!(verify(&after), Ok(()));
    assert_same(&before, &after);
    after
}

pub(crate) fn assert_same(before: &Graph, after: &Graph) {
    let inputs = inputs(before);
    let expected = interp::run(before, &inputs).unwrap();
    let found = interp::run(after, &inputs).unwrap();
    assert_eq!(expected.len(), found.len());
    for (e, f) in expected.iter().zip(&found) {
        assert_eq!((e.dtype(), e.shape()), (f.dtype(), f.shape()));
        for (e, f) in e.to_f64_vec().into_iter().zip(f.to_f64_vec()) {
            assert!((e - f).abs() <= 1e-4 * (1.0 + e.abs()), "{e} became {f}");
        }
    }
}

/// How many nodes have a kind for which `f` holds.
pub(crate) fn count(graph: &Graph, f: impl Fn(&crate::op::Kind) -> bool) -> usize {
    graph
        .node_ids()
        .into_iter()
        .filter(|n| matches!(&graph.node(*n).op, Op::Compute(op) if f(&op.kind)))
        .count()
}
