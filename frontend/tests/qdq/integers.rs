//! Products of dequantised operands, as products of integers: sums written out.

use ansc_frontend::import::{self, ImportOptions};
use ansc_graph::op::Kind;
use ansc_graph::{Graph, interp};
use ansc_runtime::{DType, Tensor};
use prost::Message;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::{NodeProto, type_proto};

use crate::{int, ints, model, op, with};

/// All of the range of bytes, its ends among them.
fn spread(n: usize, step: usize) -> Vec<i32> {
    (0..n).map(|i| ((i * step + 255 * (i % 2)) % 256) as i32).collect()
}

fn unsigned(shape: &[usize], values: &[i32]) -> Tensor {
    Tensor::from_slice(shape, &values.iter().map(|&v| v as u8).collect::<Vec<_>>())
}

fn signed(shape: &[usize], values: &[i32]) -> Tensor {
    Tensor::from_slice(shape, &values.iter().map(|&v| v as i8).collect::<Vec<_>>())
}

/// A model of `x: u8`.
fn of_bytes(shape: &[usize], nodes: Vec<NodeProto>, constants: Vec<(&str, Tensor)>) -> Graph {
    of_elements(DataType::Uint8, shape, nodes, constants)
}

fn of_elements(
    ty_of_x: DataType,
    shape: &[usize],
    nodes: Vec<NodeProto>,
    constants: Vec<(&str, Tensor)>,
) -> Graph {
    let mut model = model(shape, nodes, constants, "y");
    let graph = model.graph.as_mut().unwrap();
    let ty = graph.input[0].r#type.as_mut().unwrap();
    if let Some(type_proto::Value::TensorType(ty)) = ty.value.as_mut() {
        ty.elem_type = ty_of_x as i32;
    }
    import::from_bytes(&model.encode_to_vec(), None, &ImportOptions::default()).unwrap()
}

fn ran(graph: &Graph, x: &Tensor) -> Tensor {
    interp::run(graph, std::slice::from_ref(x)).unwrap().remove(0)
}

/// `round(clip((sum + bias) * (sx * sw / sy))) + zy`, with the sums written out.
#[test]
fn a_product_between_pairs_is_one_of_integers() {
    let (rows, terms, columns) = (3, 5, 2);
    let (sx, sy) = (0.02f32, 0.02f32);
    let (zx, zy) = (117i32, 40i32);
    let sw = [0.013f32, 0.027];
    let x = spread(rows * terms, 37);
    let w: Vec<i32> =
        spread(columns * terms, 53).iter().map(|v| v - 128).map(|v| v.max(-127)).collect();
    let bias = [700i32, -900];
    let scale_b = sw.map(|s| sx * s);
    let nodes = |clip: bool| {
        let last = if clip { "c" } else { "g" };
        vec![
            op("DequantizeLinear", &["x", "sx", "zx"], "dx"),
            with(op("DequantizeLinear", &["w", "sw"], "dw"), vec![int("axis", 0)]),
            with(op("DequantizeLinear", &["b", "sb"], "db"), vec![int("axis", 0)]),
            with(op("Gemm", &["dx", "dw", "db"], "g"), vec![int("transB", 1)]),
            op("Relu", &["g"], "c"),
            op("QuantizeLinear", &[last, "sy", "zy"], "y"),
        ]
    };
    for clip in [false, true] {
        let constants = vec![
            ("w", signed(&[columns, terms], &w)),
            ("b", Tensor::from_slice(&[2], &bias)),
            ("zx", Tensor::scalar(zx as u8)),
            ("zy", Tensor::scalar(zy as u8)),
            ("sx", Tensor::scalar(sx)),
            ("sw", Tensor::from_slice(&[2], &sw)),
            ("sb", Tensor::from_slice(&[2], &scale_b)),
            ("sy", Tensor::scalar(sy)),
        ];
        let graph = of_bytes(&[rows, terms], nodes(clip), constants);
        let y = ran(&graph, &unsigned(&[rows, terms], &x));
        let mut expected = vec![];
        for i in 0..rows {
            for j in 0..columns {
                let product = |k: usize| (x[i * terms + k] - zx) * w[j * terms + k];
                let acc = (0..terms).map(product).sum::<i32>() + bias[j];
                let mut real = acc as f32 * (sx * sw[j] / sy);
                if clip {
                    real = real.max(0.0);
                }
                let integer = real.round_ties_even() + zy as f32;
                expected.push(integer.clamp(0.0, 255.0) as u8);
            }
        }
        assert_eq!(y.as_slice::<u8>(), expected, "{clip}");
        // Both ends of the range are reached.
        assert!(expected.contains(&255) && expected.contains(if clip { &40 } else { &0 }));
        let is_product = |kind: &Kind| *kind == Kind::MatMul;
        let ids = graph.node_ids();
        let mut products =
            ids.iter().filter_map(|id| graph.compute_of(*id)).filter(|op| is_product(&op.kind));
        let types: Vec<DType> =
            products.next().unwrap().expr.inputs.iter().map(|t| t.dtype).collect();
        assert_eq!(types, [DType::U8, DType::I8]);
    }
}

/// A transposed convolution of one axis.
#[derive(Clone, Copy, Debug)]
struct Transposed {
    extent: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pads: [usize; 2],
    groups: usize,
}

impl Transposed {
    /// `(sum + bias) * (sx * sw)`, every product put where the definition says.
    fn of(&self, [x, w, bias]: [&[i32]; 3], zx: i32, scales: &[f32]) -> Vec<f32> {
        let (channels, out) = (4, 6);
        let (own, group) = (out / self.groups, channels / self.groups);
        let whole = (self.extent - 1) * self.stride + (self.kernel - 1) * self.dilation + 1;
        let mut sums = vec![0; out * whole];
        for (c, i, o, k) in (0..channels).flat_map(|c| {
            let places =
                move |i| (0..own).flat_map(move |o| (0..self.kernel).map(move |k| (c, i, o, k)));
            (0..self.extent).flat_map(places)
        }) {
            let at = (c / group * own + o) * whole + i * self.stride + k * self.dilation;
            sums[at] += (x[c * self.extent + i] - zx) * w[(c * own + o) * self.kernel + k];
        }
        let kept = self.pads[0]..whole - self.pads[1];
        let result =
            |o: usize, at| (sums[o * whole + at] + bias[o]) as f32 * scales[o % scales.len()];
        (0..out)
            .flat_map(|o| kept.clone().map(move |at| (o, at)))
            .map(|(o, at)| result(o, at))
            .collect()
    }
}

#[test]
fn a_transposed_convolution_between_pairs_is_one_of_integers() {
    let plain =
        Transposed { extent: 7, kernel: 2, stride: 2, dilation: 1, pads: [0, 0], groups: 1 };
    let cases = [
        plain,
        Transposed { kernel: 3, pads: [1, 0], ..plain },
        Transposed { extent: 4, kernel: 4, pads: [1, 1], ..plain },
        Transposed { kernel: 3, stride: 1, pads: [1, 1], ..plain },
        Transposed { stride: 3, ..plain },
        Transposed { kernel: 3, dilation: 2, pads: [2, 1], ..plain },
        Transposed { extent: 4, kernel: 5, stride: 3, pads: [2, 2], ..plain },
        Transposed { groups: 2, kernel: 3, ..plain },
    ];
    for (case, zx, is_unsigned) in
        cases.into_iter().flat_map(|c| [(c, 0, true), (c, 117, true), (c, -7, false)])
    {
        let (shape, own) = ([1, 4, case.extent], 6 / case.groups);
        let least = if is_unsigned { 0 } else { 128 };
        let x: Vec<i32> = spread(4 * case.extent, 37).iter().map(|v| v - least).collect();
        let w: Vec<i32> = spread(4 * own * case.kernel, 53).iter().map(|v| v - 128).collect();
        let bias: Vec<i32> = (0..6).map(|i| 300 * i - 700).collect();
        // Groups have one scale for all channels.
        let sw: Vec<f32> =
            (0..if case.groups == 1 { 6 } else { 1 }).map(|i| 0.01 + i as f32 * 0.003).collect();
        let scales: Vec<f32> = sw.iter().map(|s| s * 0.02).collect();
        let pads = case.pads.map(|p| p as i64);
        let attributes = vec![
            ints("strides", &[case.stride as i64]),
            ints("dilations", &[case.dilation as i64]),
            ints("pads", &pads),
            int("group", case.groups as i64),
        ];
        let along = |axis| if sw.len() == 1 { vec![] } else { vec![int("axis", axis)] };
        let nodes = vec![
            op("DequantizeLinear", &["x", "sx", "zx"], "dx"),
            with(op("DequantizeLinear", &["w", "sw"], "dw"), along(1)),
            with(op("DequantizeLinear", &["b", "sb"], "db"), along(0)),
            with(op("ConvTranspose", &["dx", "dw", "db"], "y"), attributes),
        ];
        let parameter = |all: &[f32]| match all {
            [one] => Tensor::scalar(*one),
            all => Tensor::from_slice(&[all.len()], all),
        };
        let (given, zero) = match is_unsigned {
            true => (unsigned(&shape, &x), Tensor::scalar(zx as u8)),
            false => (signed(&shape, &x), Tensor::scalar(zx as i8)),
        };
        let constants = vec![
            ("w", signed(&[4, own, case.kernel], &w)),
            ("b", Tensor::from_slice(&[6], &bias)),
            ("zx", zero),
            ("sx", Tensor::scalar(0.02f32)),
            ("sw", parameter(&sw)),
            ("sb", parameter(&scales)),
        ];
        let graph = match is_unsigned {
            true => of_bytes(&shape, nodes, constants),
            false => of_elements(DataType::Int8, &shape, nodes, constants),
        };
        let y = ran(&graph, &given);
        assert_eq!(y.as_slice::<f32>(), case.of([&x, &w, &bias], zx, &scales), "{case:?}");
        let convs = graph.node_ids().into_iter().filter_map(|id| graph.compute_of(id));
        let convs = convs.filter(|op| matches!(op.kind, Kind::Conv(_)));
        let types: Vec<Vec<DType>> =
            convs.map(|op| op.expr.inputs.iter().map(|t| t.dtype).collect()).collect();
        assert_eq!(types, [[DType::U8, DType::I8]], "{case:?}");
    }
}

#[test]
fn bytes_that_are_moved_stay_bytes() {
    let x = spread(12, 91);
    for (again, moved) in [(0.5f32, true), (0.75, false)] {
        let nodes = vec![
            op("DequantizeLinear", &["x", "s", "z"], "d"),
            with(op("MaxPool", &["d"], "m"), vec![ints("kernel_shape", &[2, 2])]),
            op("QuantizeLinear", &["m", "t", "z"], "y"),
        ];
        let constants = vec![
            ("s", Tensor::scalar(0.5f32)),
            ("t", Tensor::scalar(again)),
            ("z", Tensor::scalar(100u8)),
        ];
        let graph = of_bytes(&[1, 1, 3, 4], nodes, constants);
        let y = ran(&graph, &unsigned(&[1, 1, 3, 4], &x));
        let mut expected = vec![];
        for (i, j) in (0..2).flat_map(|i| (0..3).map(move |j| (i, j))) {
            let at = |di: usize, dj: usize| x[(i + di) * 4 + j + dj];
            let largest = at(0, 0).max(at(0, 1)).max(at(1, 0)).max(at(1, 1));
            let real = (largest - 100) as f32 * 0.5 / again;
            expected.push((real.round_ties_even() + 100.0).clamp(0.0, 255.0) as u8);
        }
        assert_eq!(y.as_slice::<u8>(), expected);
        let ids = graph.node_ids();
        let mut pools = ids.iter().filter_map(|id| graph.compute_of(*id));
        let of_bytes = pools
            .any(|op| matches!(op.kind, Kind::Pool(_)) && op.expr.inputs[0].dtype == DType::U8);
        assert_eq!(of_bytes, moved);
    }
}
