//! Products of bytes with known weights, whose operands the import moves, against sums that are
//! written out.

use super::*;

const SIGNS: [DType; 2] = [DType::U8, DType::I8];

fn element(dtype: DType) -> i32 {
    match dtype {
        DType::U8 => DataType::Uint8 as i32,
        _ => DataType::Int8 as i32,
    }
}

fn bytes(name: &str, dtype: DType, dims: &[i64], values: &[i32]) -> TensorProto {
    let values = values.to_vec();
    let dims = dims.to_vec();
    let name = name.into();
    TensorProto { name, data_type: element(dtype), dims, int32_data: values, ..Default::default() }
}

/// All of the type's range, its ends among them.
fn spread(dtype: DType, n: usize, step: usize) -> Vec<i32> {
    let low = if dtype == DType::U8 { 0 } else { -128 };
    (0..n).map(|i| low + ((i * step + 255 * (i % 2)) % 256) as i32).collect()
}

fn tensor(dtype: DType, shape: &[usize], values: &[i32]) -> Tensor {
    match dtype {
        DType::U8 => {
            Tensor::from_slice(shape, &values.iter().map(|&v| v as u8).collect::<Vec<_>>())
        }
        _ => Tensor::from_slice(shape, &values.iter().map(|&v| v as i8).collect::<Vec<_>>()),
    }
}

/// The result of the operator for `x` with the weight `w` and these zero points, if there are any.
fn computed(
    op: NodeProto,
    (x, dims, of_x): (&[i32], &[usize], DType),
    (w, weight_dims, of_w): (&[i32], &[i64], DType),
    zeros: [Option<i32>; 2],
) -> Vec<i32> {
    let text: Vec<String> = dims.iter().map(usize::to_string).collect();
    let mut input = info("x", &text.iter().map(String::as_str).collect::<Vec<_>>());
    if let Some(type_proto::Value::TensorType(t)) =
        input.r#type.as_mut().and_then(|t| t.value.as_mut())
    {
        t.elem_type = element(of_x);
    }
    let mut model = model(vec![input], vec![op], &["y"]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(bytes("w", of_w, weight_dims, w));
    for ((name, dtype), zero) in [("zx", of_x), ("zw", of_w)].into_iter().zip(zeros) {
        graph.initializer.push(bytes(name, dtype, &[], &[zero.unwrap_or(0)]));
    }
    let graph = import(&model, &ImportOptions::default()).unwrap();
    run(&graph, &[tensor(of_x, dims, x)]).remove(0).as_slice::<i32>().to_vec()
}

/// Operands as they are, with zero points that are known to be zero and such that are not.
fn cases() -> Vec<(DType, DType, [Option<i32>; 2])> {
    let some = |dtype: DType| if dtype == DType::U8 { 131 } else { -7 };
    let mut all = vec![];
    for (x, w) in SIGNS.into_iter().flat_map(|x| SIGNS.map(|w| (x, w))) {
        for (zx, zw) in [(false, false), (true, false), (false, true), (true, true)] {
            all.push((x, w, [zx.then(|| some(x)), zw.then(|| some(w))]));
        }
    }
    // The middle of the range, where the moved zero point vanishes.
    all.push((DType::U8, DType::U8, [Some(3), Some(128)]));
    all.push((DType::I8, DType::I8, [Some(-128), None]));
    all
}

#[test]
fn products_of_moved_operands() {
    let (m, k, n) = (3, 8, 5);
    for (of_x, of_w, zeros) in cases() {
        let (x, w) = (spread(of_x, m * k, 37), spread(of_w, k * n, 101));
        let op = node("MatMulInteger", &["x", "w", "zx", "zw"], &["y"]);
        let found = computed(op, (&x, &[m, k], of_x), (&w, &[k as i64, n as i64], of_w), zeros);
        let [zx, zw] = zeros.map(|z| z.unwrap_or(0));
        let term = |i: usize, j: usize, l: usize| (x[i * k + l] - zx) * (w[l * n + j] - zw);
        let sum = |at: usize| (0..k).map(|l| term(at / n, at % n, l)).sum::<i32>();
        assert_eq!(found, (0..m * n).map(sum).collect::<Vec<_>>(), "{of_x} {of_w} {zeros:?}");
    }
}

#[test]
fn convolutions_of_moved_operands() {
    let (size, o) = (5, 3);
    // Channels that machines multiply together, and fewer.
    let all = cases().into_iter().flat_map(|case| [4, 3].map(|c| (case, c)));
    for ((of_x, of_w, zeros), c) in all {
        let (x, w) = (spread(of_x, c * size * size, 37), spread(of_w, o * c * 9, 101));
        let mut op = node("ConvInteger", &["x", "w", "zx", "zw"], &["y"]);
        op.attribute.push(AttributeProto {
            name: "pads".into(),
            r#type: AttributeType::Ints as i32,
            ints: vec![1, 1, 1, 1],
            ..AttributeProto::default()
        });
        let dims = [o as i64, c as i64, 3, 3];
        let found = computed(op, (&x, &[1, c, size, size], of_x), (&w, &dims, of_w), zeros);
        let [zx, zw] = zeros.map(|z| z.unwrap_or(0));
        // An element outside of the input is zero after the zero point is subtracted.
        let at = |c: usize, i: usize, j: usize| match (1..=size).contains(&i)
            && (1..=size).contains(&j)
        {
            true => x[(c * size + i - 1) * size + j - 1] - zx,
            false => 0,
        };
        let sum = |place: usize| {
            let (f, i, j) = (place / (size * size), place / size % size, place % size);
            let term = |r: usize| {
                let weight = w[f * c * 9 + r] - zw;
                at(r / 9, i + r / 3 % 3, j + r % 3) * weight
            };
            (0..c * 9).map(term).sum::<i32>()
        };
        let expected: Vec<i32> = (0..o * size * size).map(sum).collect();
        assert_eq!(found, expected, "{of_x} {of_w} {zeros:?}, {c} channels");
    }
}

#[test]
fn blocks_along_the_only_axis() {
    let mut op = node("DequantizeLinear", &["x", "s"], &["y"]);
    for (name, i) in [("axis", 0), ("block_size", 2)] {
        let r#type = AttributeType::Int as i32;
        op.attribute.push(AttributeProto { name: name.into(), r#type, i, ..Default::default() });
    }
    let mut model =
        model(vec![info("z", &["6"])], vec![op, node("Add", &["y", "z"], &["sum"])], &["sum"]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(bytes("x", DType::I8, &[6], &[1, 2, 3, 4, 5, -6]));
    graph.initializer.push(TensorProto {
        name: "s".into(),
        data_type: DataType::Float as i32,
        dims: vec![3],
        float_data: vec![1.0, 10.0, 0.5],
        ..Default::default()
    });
    model.opset_import[0].version = 21;
    let graph = import(&model, &ImportOptions::default()).unwrap();
    let found = run(&graph, &[Tensor::from_slice(&[6], &[0.0f32; 6])]).remove(0);
    assert_eq!(found.as_slice::<f32>(), [1.0, 2.0, 30.0, 40.0, 2.5, -3.0]);
}
