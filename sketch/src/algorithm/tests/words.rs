//! Winograd's convolution of bytes, in words.

use ansc_graph::{Compute, verify};
use ansc_runtime::Tensor;

use super::{bytes, channels_last, eval, prepared, run, scheduled, task};
use crate::algorithm::Algorithm;

const BY: Algorithm = Algorithm::Winograd2Words;

/// `y = f32(conv) * scale`, channels last, padded by one with this byte.
fn last([n, h, w]: [usize; 3], c: usize, k: usize, byte: u8) -> String {
    let (ph, pw) = (h + 2, w + 2);
    format!(
        "compute(in0: u8[{n}, {h}, {w}, {c}], in1: i8[3, 3, {c}, {k}], in2: f32[{k}]) -> y {{
           pad: u8[{n}, {ph}, {pw}, {c}] = select(and(and(and(le(1, i1), le(i1, {h})), le(1, i2)), le(i2, {w})), in0[i0, sub(i1, 1), sub(i2, 1), i3], {byte}_u8)
           conv: i32[{n}, {h}, {w}, {k}] = sum{{r0: 3, r1: 3, r2: {c}}} mul(i32(pad[i0, add(i1, r0), add(i2, r1), r2]), i32(in1[r0, r1, r2, i3]))
           y: f32[{n}, {h}, {w}, {k}] = mul(f32(conv[i0, i1, i2, i3]), in2[i3])
         }}"
    )
}

/// The sums alone, channels first.
fn first([n, h, w]: [usize; 3], c: usize, k: usize) -> String {
    let (oh, ow) = (h - 2, w - 2);
    format!(
        "compute(in0: u8[{n}, {c}, {h}, {w}], in1: i8[{k}, {c}, 3, 3]) -> conv {{
           conv: i32[{n}, {k}, {oh}, {ow}] = sum{{r0: {c}, r1: 3, r2: 3}} mul(i32(in1[i1, r0, r1, r2]), i32(in0[i0, r0, add(i2, r1), add(i3, r2)]))
         }}"
    )
}

/// The rewritten subgraph gives the same bits, as an expression and by untuned schedules.
fn check(text: &str, inputs: &dyn Fn(&Compute) -> Vec<Tensor>) {
    let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let inputs = inputs(&compute);
    let expected = eval(&compute, &inputs);
    for vector_bytes in [16, 32, 64] {
        let mut task = task(compute.clone(), true);
        task.machine.vector_bytes = vector_bytes;
        let rewritten = BY.rewrite(&task).unwrap_or_else(|| panic!("it applies to {text}"));
        verify::verify_compute(&rewritten.task.compute).unwrap();
        let new = rewritten.task.compute.to_string();
        assert_eq!(Compute::parse(&new).unwrap().to_string(), new);
        let found = eval(&rewritten.task.compute, &prepared(&rewritten, &inputs));
        assert_eq!(found.bytes(), expected.bytes(), "{new}");
        let scheduled = scheduled(&rewritten);
        let found = run(&scheduled, &inputs);
        assert_eq!(found.bytes(), expected.bytes(), "{}", scheduled.program);
    }
}

fn random(compute: &Compute) -> Vec<Tensor> {
    compute.inputs.iter().enumerate().map(|(i, ty)| bytes(ty, i as u64)).collect()
}

#[test]
fn convolutions_of_bytes_keep_every_bit() {
    for (image, c, k) in [([1, 4, 4], 2, 8), ([2, 5, 7], 6, 5), ([1, 9, 3], 16, 24)] {
        check(&last(image, c, k, 7), &random);
        check(&first(image, c, k), &random);
    }
}

/// Every byte as far from zero as it can be: no sum of the transforms leaves its words.
#[test]
fn the_largest_bytes_come_out_right() {
    for weight in [-128, 127] {
        let extreme = |compute: &Compute| {
            let filled = |shape: &[usize]| shape.iter().product::<usize>();
            let [input, kernel] = [0, 1].map(|i| compute.inputs[i].shape.clone());
            vec![
                Tensor::from_slice(&input, &vec![255u8; filled(&input)]),
                Tensor::from_slice(&kernel, &vec![weight as i8; filled(&kernel)]),
            ]
        };
        check(&first([1, 4, 6], 1826, 8), &extreme);
    }
}

#[test]
fn others_are_refused() {
    let refuses = |text: &str, constant: bool| {
        let compute = Compute::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(BY.rewrite(&task(compute, constant)), None, "{text}");
    };
    // An odd channel; more of them than the sums have bits for; weights that are known in a run.
    refuses(&first([1, 6, 6], 5, 8), true);
    refuses(&first([1, 6, 6], 1828, 8), true);
    refuses(&first([1, 6, 6], 4, 8), false);
    // Bytes with signs; a window of two; floats.
    refuses(&first([1, 6, 6], 4, 8).replace("in0: u8", "in0: i8"), true);
    refuses(&first([1, 6, 6], 4, 8).replace("r2: 3}", "r2: 2}").replace("3, 3]", "3, 2]"), true);
    let floats = channels_last(1, [6, 6], 4, 8, [3, 3], 1, 1);
    assert_eq!(BY.rewrite(&task(floats, true)), None);
}
