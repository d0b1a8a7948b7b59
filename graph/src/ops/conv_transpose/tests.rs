use ansc_runtime::Tensor;

use super::*;
use crate::interp::eval;
use crate::ops::conv::conv;

/// Small whole numbers, so that sums are exact.
fn numbers(shape: &[usize]) -> Tensor {
    let values = (0..shape.iter().product()).map(|i: usize| ((i * 7 + 3) % 11) as f32 - 5.0);
    Tensor::from_slice(shape, &values.collect::<Vec<_>>())
}

/// Every product put where the definition says, for one spatial axis and one batch.
fn scattered(a: &ConvTransposeAttrs, x: &Tensor, w: &Tensor) -> Vec<f32> {
    let ([_, c, extent], [_, m, taps]) = (x.shape(), w.shape()) else { panic!("one axis only") };
    let (group, mut y) = (c / a.groups, vec![0.0; a.groups * m * a.output[0]]);
    for (channel, i, o, tap) in (0..*c).flat_map(|channel| {
        let places =
            move |i| (0..*m).flat_map(move |o| (0..*taps).map(move |t| (channel, i, o, t)));
        (0..*extent).flat_map(places)
    }) {
        let at = i * a.strides[0] + tap * a.dilations[0];
        let product = x.as_slice::<f32>()[channel * extent + i]
            * w.as_slice::<f32>()[(channel * m + o) * taps + tap];
        let counted = at.checked_sub(a.pads_begin[0]).filter(|&at| at < a.output[0]);
        if let Some(at) = counted {
            y[(channel / group * m + o) * a.output[0] + at] += product;
        }
    }
    y
}

fn computed(phases: &Phases, x: &Tensor, w: &Tensor) -> Vec<f32> {
    let run = |op: ComputeOp, inputs: &[&Tensor]| eval(&op.expr, inputs).unwrap().remove(0);
    let w = run(phases.weight(&TensorType::of(w)).unwrap(), &[w]);
    let spread =
        phases.spread(&TensorType::of(x), Scalar::zero(x.dtype())).map(|op| run(op.unwrap(), &[x]));
    let x = spread.as_ref().unwrap_or(x);
    let op = conv(phases.conv.clone(), &TensorType::of(x), &TensorType::of(&w)).unwrap();
    let y = run(op, &[x, &w]);
    let gathered = phases.gather(&TensorType::of(&y)).map(|op| run(op.unwrap(), &[&y]));
    let y = gathered.unwrap_or(y);
    let op = phases.interleave(&TensorType::of(&y));
    op.map_or(y.clone(), |op| run(op.unwrap(), &[&y])).as_slice::<f32>().to_vec()
}

/// A stride of which few steps fit an index: one input has a result, two have too large a one.
#[test]
fn strides_of_any_length_are_computed_or_refused() {
    let stride = usize::MAX / 2;
    for (extent, begin) in [(1, 0), (1, 1), (2, 1)] {
        let attrs = ConvTransposeAttrs {
            kernel: vec![3],
            strides: vec![stride],
            dilations: vec![1],
            pads_begin: vec![begin],
            output: vec![(extent - 1) * stride + 3 - begin],
            groups: 1,
        };
        let (x, w) = (numbers(&[1, 2, extent]), numbers(&[2, 3, 3]));
        let phases =
            Phases::new(&attrs, [&TensorType::of(&x), &TensorType::of(&w)], |best| best).unwrap();
        if extent == 1 {
            assert_eq!(computed(&phases, &x, &w), scattered(&attrs, &x, &w), "{attrs:?}");
        } else {
            let y = TensorType::new(DType::F32, vec![1, 9, extent]);
            assert!(phases.interleave(&y).unwrap().is_err());
        }
    }
}

#[test]
fn every_plan_is_the_definition() {
    for (kernel, stride, dilation) in
        [(4, 2, 1), (3, 3, 1), (5, 3, 1), (2, 3, 2), (3, 1, 2), (2, 5, 1), (1, 3, 1)]
    {
        for (groups, extent, begin, end) in
            [(1, 4, 0, 0), (1, 2, 1, 1), (2, 3, 1, 1), (3, 9, 2, 1), (2, 5, 0, 2)]
        {
            let whole: usize = (extent - 1) * stride + (kernel - 1) * dilation + 1;
            let Some(output) = whole.checked_sub(begin + end).filter(|&n| n > 0) else {
                continue;
            };
            let attrs = ConvTransposeAttrs {
                kernel: vec![kernel],
                strides: vec![stride],
                dilations: vec![dilation],
                pads_begin: vec![begin],
                output: vec![output],
                groups,
            };
            let (x, w) = (numbers(&[1, 2 * groups, extent]), numbers(&[2 * groups, 3, kernel]));
            let expected = scattered(&attrs, &x, &w);
            for plan in [Plan::Together, Plan::Apart, Plan::Taps] {
                let axes = vec![Axis::new(&attrs, 0, extent).unwrap()];
                let phases = Phases::planned(axes, groups, plan).unwrap();
                assert_eq!(computed(&phases, &x, &w), expected, "{plan:?} {attrs:?}");
            }
        }
    }
}

fn plan_of([kernel, stride]: [usize; 2], channels: usize, extent: usize) -> Plan {
    let attrs = ConvTransposeAttrs {
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads_begin: vec![1; 2],
        output: vec![(extent - 1) * stride + kernel - 2; 2],
        groups: 1,
    };
    let x = TensorType::new(DType::F32, vec![1, channels, extent, extent]);
    let w = TensorType::new(DType::F32, vec![channels, 8, kernel, kernel]);
    Phases::new(&attrs, [&x, &w], |best| best).unwrap().plan
}

#[test]
fn products_are_gathered_where_many_zeros_would_be_multiplied() {
    // A window that the stride divides has none but those around the image.
    assert_eq!(plan_of([4, 2], 256, 128), Plan::Together);
    // Nine weights in four phases of four.
    assert_eq!(plan_of([3, 2], 256, 32), Plan::Taps);
    // The few products of each do not pay for another pass over memory.
    assert_eq!(plan_of([3, 2], 4, 32), Plan::Together);
    assert_eq!(plan_of([4, 2], 256, 4), Plan::Apart);
    assert_eq!(plan_of([11, 2], 256, 8), Plan::Together);
}
