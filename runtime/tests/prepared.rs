//! Weights that are made when a model is loaded: once, for all sessions, and by sound plans only.

mod common;

use ansc_runtime::manifest::{BufferId, BufferInfo, Preparation, Specialisation, Step, Storage};
use ansc_runtime::{DType, LoadErrorKind, Model, SessionOptions, Tensor};
use common::Builder;

const ROWS: usize = 1000;

/// `y[i] = p[i] + x[i]`, where `p[i] = 2 * w[i / 4] + 1` is prepared in two steps.
fn model() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[4 * ROWS]);
    let p = b.buffer("p", DType::F32, &[4 * ROWS], Storage::Prepared { offset: 64 });
    let y = b.output("y", DType::F32, &[4 * ROWS]);
    b.step(
        "add",
        4 * ROWS as u64,
        &[x, p, y],
        "float **f = (float **)b; f[2][i] = f[0][i] + f[1][i];",
    );
    let values: Vec<f32> = (0..ROWS).map(|i| i as f32).collect();
    b.weight("w", &Tensor::from_slice(&[ROWS], &values));
    let double = "float **f = (float **)b; f[1][i] = 2 * f[0][i];";
    let spread = "float **f = (float **)b; f[1][i] = f[0][i / 4] + 1;";
    b.kernel("double_it", ROWS as u64, (0, &[]), double);
    b.kernel("spread", 4 * ROWS as u64, (0, &[]), spread);
    let mut kernels = b.manifest.kernels.split_off(1);
    for (kernel, written) in kernels.iter_mut().zip([ROWS, 4 * ROWS]) {
        (kernel.reads, kernel.args) = (1, vec![4 * ROWS, 4 * written]);
    }
    let buffer = |name: &str, len: usize, storage| BufferInfo {
        name: name.to_owned(),
        dtype: DType::F32,
        shape: vec![len],
        storage,
    };
    let mut plan = Specialisation {
        arena_bytes: 4 * ROWS.next_multiple_of(16),
        buffers: vec![
            buffer("w", ROWS, Storage::Weight { offset: 0 }),
            buffer("t", ROWS, Storage::Arena { offset: 0 }),
            buffer("p", 4 * ROWS, Storage::Prepared { offset: 64 }),
        ],
        ..Specialisation::default()
    };
    plan.plan.steps = vec![step(0, [0, 1]), step(1, [1, 2])];
    b.manifest.preparation = Some(Preparation { bytes: 64 + 16 * ROWS, kernels, plan });
    b
}

fn step(kernel: u32, args: [u32; 2]) -> Step {
    Step::Kernel { kernel, args: args.map(BufferId).to_vec() }
}

fn check(model: &Model, threads: usize) {
    let options = SessionOptions { threads, ..SessionOptions::default() };
    let mut session = model.session_with(&options).unwrap();
    let x: Vec<f32> = (0..4 * ROWS).map(|i| 0.5 * i as f32).collect();
    let expected: Vec<f32> =
        (0..4 * ROWS).map(|i| 2.0 * (i / 4) as f32 + 1.0 + 0.5 * i as f32).collect();
    let x = Tensor::from_slice(&[4 * ROWS], &x);
    for _ in 0..2 {
        let found = session.run(&[("x", &x)]).unwrap().remove(0).1;
        assert_eq!(found, Tensor::from_slice(&[4 * ROWS], &expected));
    }
}

#[test]
fn all_sessions_read_what_was_prepared() {
    let model = model().load();
    for threads in [1, 3] {
        check(&model, threads);
        check(&model.clone(), threads);
    }
}

/// A change of the manifest, and a part of the message that it must lead to.
type Unsound = (fn(&mut Builder), &'static str);

fn preparation(b: &mut Builder) -> &mut Preparation {
    b.manifest.preparation.as_mut().unwrap()
}

const UNSOUND: &[Unsound] = &[
    (|b| b.manifest.preparation = None, "buffer 1 `p`: 16000 bytes at 64 exceed the 0"),
    (|b| preparation(b).bytes -= 1, "exceed the 16063"),
    (|b| preparation(b).bytes = usize::MAX, "preparation: larger"),
    (|b| preparation(b).plan.arena_bytes = 64, "buffer 1 `t`"),
    (|b| preparation(b).plan.arena_bytes = usize::MAX, "arena: larger"),
    (
        |b| preparation(b).plan.buffers[2].storage = Storage::Prepared { offset: 4 },
        "multiple of 64",
    ),
    (|b| preparation(b).plan.buffers[0].storage = Storage::Input(0), "a port that does not exist"),
    (
        |b| {
            let inputs = b.plan().inputs.clone();
            preparation(b).plan.inputs = inputs;
        },
        "it has inputs, outputs or states",
    ),
    (|b| preparation(b).kernels[0].launches[0].extent = u64::MAX, "extent of `double_it`"),
    (|b| drop(preparation(b).kernels.pop()), "there is no kernel 1"),
    (|b| preparation(b).kernels[1].args[1] -= 4, "argument 1, `p`, has 16000 bytes, not 15996"),
    (
        |b| preparation(b).plan.plan.steps[1] = step(1, [1, 0]),
        "`w` is written, but it is read-only",
    ),
    (
        |b| preparation(b).plan.plan.steps.push(Step::Copy { from: BufferId(0), to: BufferId(0) }),
        "`w` is written, but it is read-only",
    ),
    (
        |b| b.plan().plan.steps.push(Step::Copy { from: BufferId(1), to: BufferId(1) }),
        "`p` is written, but it is read-only",
    ),
];

#[test]
fn unsound_preparations_are_refused() {
    for (i, (change, message)) in UNSOUND.iter().enumerate() {
        let mut b = model();
        change(&mut b);
        let dir = tempfile::tempdir().unwrap();
        let error = Model::load(b.build(dir.path())).expect_err(message);
        assert!(matches!(error.kind, LoadErrorKind::Manifest(_)), "case {i}: {error}");
        assert!(error.to_string().contains(message), "case {i}: {error}");
    }
}

#[test]
fn its_kernels_are_functions_of_the_library() {
    let mut b = model();
    preparation(&mut b).kernels[1].launches[0].symbol = "exit".to_owned();
    let dir = tempfile::tempdir().unwrap();
    let error = Model::load(b.build(dir.path())).unwrap_err();
    assert!(matches!(&error.kind, LoadErrorKind::Symbol(s) if s == "exit"), "{error}");
}
