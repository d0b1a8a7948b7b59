//! Artifacts for a range of sizes: inputs tell the sizes, buffers have room for the largest ones.

mod common;

use std::ffi::CString;
use std::ptr::{null, null_mut};

use ansc_runtime::c::{
    AnscInput, AnscStatus, ansc_model_free, ansc_model_load, ansc_model_output_shape,
};
use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{BufferId, Port, Specialisation, Step, Storage};
use ansc_runtime::{DType, Extent, Model, PortKind, RunError, Tensor, View, ViewMut};
use common::Builder;
use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

const ROWS: usize = 4;
const COLUMNS: usize = 5;

/// `x: [rows, columns]` and `bias: [columns]` with 1 to 4 rows and 2 to 5 columns give
/// `y = x + bias`, `turned: [columns, rows]` the same turned, `total` its sum, and `rows`. Kernels
/// work on all elements that there is room for, but for the sum, which is of those that exist.
fn ranged() -> Builder {
    let mut b = Builder::new();
    let [rows, columns] = [b.size("rows", 1, ROWS), b.size("columns", 2, COLUMNS)];
    let x = b.input("x", DType::F32, &[ROWS, COLUMNS]);
    let bias = b.input("bias", DType::F32, &[COLUMNS]);
    let y = b.output("y", DType::F32, &[ROWS, COLUMNS]);
    let turned = b.arena("turned", DType::F32, &[COLUMNS, ROWS]);
    let total = b.output("total", DType::F32, &[]);
    b.expose("turned", turned);
    b.expose("rows", rows);
    let [r, c] = [Extent::Size(0), Extent::Size(1)];
    b.vary("x", &[r.clone(), c.clone()]);
    b.vary("bias", std::slice::from_ref(&c));
    b.vary("y", &[r.clone(), c.clone()]);
    b.vary("turned", &[c, r]);
    let all = (ROWS * COLUMNS) as u64;
    b.step("add", all, &[x, bias, y], "float **f = b; f[2][i] = f[0][i] + f[1][i % 5];");
    b.step("turn", all, &[y, turned], "float **f = b; f[1][i % 5 * 4 + i / 5] = f[0][i];");
    b.step(
        "total",
        1,
        // Arguments that are read come first.
        &[rows, columns, turned, total],
        "float **f = b; f[3][0] = 0; for (int r = 0; r < *(int64_t *)b[0]; ++r) \
         for (int c = 0; c < *(int64_t *)b[1]; ++c) f[3][0] += f[2][c * 4 + r];",
    );
    b
}

fn inputs(rows: usize, columns: usize) -> (Tensor, Tensor) {
    let values = |n: usize, by: f32| (0..n).map(|i| i as f32 * by).collect::<Vec<_>>();
    let x = Tensor::from_slice(&[rows, columns], &values(rows * columns, 1.0));
    (x, Tensor::from_slice(&[columns], &values(columns, 100.0)))
}

/// `y`, `total`, `turned` and `rows`.
fn expected(rows: usize, columns: usize) -> [Tensor; 4] {
    let at = |r: usize, c: usize| (r * columns + c) as f32 + 100.0 * c as f32;
    let all = |n: usize, of: &dyn Fn(usize) -> f32| (0..n).map(of).collect::<Vec<f32>>();
    let n = rows * columns;
    let y = all(n, &|i| at(i / columns, i % columns));
    let turned = all(n, &|i| at(i % rows, i / rows));
    [
        Tensor::from_slice(&[rows, columns], &y),
        Tensor::scalar(y.iter().sum::<f32>()),
        Tensor::from_slice(&[columns, rows], &turned),
        Tensor::scalar(rows as i64),
    ]
}

#[test]
fn inputs_tell_the_sizes() {
    let model = ranged().load();
    assert_eq!(
        (&model.inputs()[0].shape[..], &model.outputs()[2].shape[..]),
        (&[4, 5][..], &[5, 4][..])
    );
    let mut session = model.session().unwrap();
    assert_eq!(session.output_shape(0), [4, 5]);
    for (rows, columns) in [(2, 3), (4, 5), (1, 2), (4, 2), (1, 5), (4, 5), (3, 4)] {
        let (x, bias) = inputs(rows, columns);
        let found = session.run(&[("bias", &bias), ("x", &x)]).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["y", "total", "turned", "rows"]);
        let found = found.into_iter().map(|(_, tensor)| tensor);
        assert!(found.eq(expected(rows, columns)), "{rows} {columns}");
        assert_eq!(session.output_shape(2), [columns, rows]);
        assert_eq!(session.inputs()[0].shape, [4, 5]);
    }
}

#[test]
fn shapes_are_known_before_a_run() {
    let model = ranged().load();
    let x: (&str, &[usize]) = ("x", &[2, 3]);
    let bias: (&str, &[usize]) = ("bias", &[3]);
    let shapes = vec![vec![2, 3], vec![], vec![3, 2], vec![]];
    assert_eq!(model.output_shapes(&[bias, x]), Ok(shapes.clone()));
    // `x` tells all sizes.
    assert_eq!(model.output_shapes(&[x]), Ok(shapes.clone()));
    assert_eq!(model.output_shapes(&[bias]), Err(RunError::Missing { name: "x".into() }));
    assert!(matches!(model.output_shapes(&[("z", &[3])]), Err(RunError::Unknown { .. })));
    let one = model.specialisation(&[bias]).unwrap();
    let at = one.shapes_at(&[2, 3]).unwrap();
    assert_eq!((at.inputs, at.outputs), (vec![vec![2, 3], vec![3]], shapes));
    for wrong in [&[2][..], &[2, 3, 4], &[0, 3], &[5, 3], &[2, 1], &[2, 6]] {
        assert_eq!(one.shapes_at(wrong), None, "{wrong:?}");
    }
}

#[test]
fn the_callers_memory_has_the_shape_of_the_run() {
    let mut session = ranged().load().session().unwrap();
    let (x, bias) = inputs(2, 3);
    let given = [("x", View::from(&x)), ("bias", View::from(&bias))];
    let mut turned = [0f32; 6];
    session
        .run_into(&given, &mut [("turned", ViewMut::of_slice(&[3, 2], &mut turned).unwrap())])
        .unwrap();
    assert_eq!(turned, expected(2, 3)[2].as_slice::<f32>());
    let mut large = [0f32; 20];
    let wrong = &mut [("turned", ViewMut::of_slice(&[5, 4], &mut large).unwrap())];
    let error = session.run_into(&given, wrong).unwrap_err();
    let (kind, name) = (PortKind::Output, "turned".to_owned());
    assert_eq!(error, RunError::Shape { kind, name, expected: vec![3, 2], found: vec![5, 4] });
    assert_eq!(large, [0.0; 20]);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Whatever is aligned, wanted and of whatever size, one run after another.
    #[test]
    fn any_memory_will_do(runs in proptest::collection::vec(
        (1..=ROWS, 2..=COLUMNS, 0..4usize, 0..4usize, proptest::bool::ANY, proptest::bool::ANY),
        1..6,
    )) {
        thread_local! {
            static MODEL: Model = ranged().load();
        }
        let mut session = MODEL.with(Model::session).unwrap();
        for (rows, columns, x_at, y_at, wants_y, wants_turned) in runs {
            let (x, bias) = inputs(rows, columns);
            let bytes = x.bytes().len();
            let mut moved = vec![0u8; bytes + 8];
            moved[x_at..][..bytes].copy_from_slice(x.bytes());
            let (mut y, mut turned) = (vec![9u8; bytes + 8], vec![9u8; bytes]);
            let (shape, other) = ([rows, columns], [columns, rows]);
            let view = View::new(DType::F32, &shape, &moved[x_at..][..bytes]).unwrap();
            let mut outputs = vec![];
            if wants_y {
                let view = ViewMut::new(DType::F32, &shape, &mut y[y_at..][..bytes]).unwrap();
                outputs.push(("y", view));
            }
            if wants_turned {
                outputs.push(("turned", ViewMut::new(DType::F32, &other, &mut turned).unwrap()));
            }
            session.run_into(&[("x", view), ("bias", View::from(&bias))], &mut outputs).unwrap();
            let [expected_y, _, expected_turned, _] = expected(rows, columns);
            if wants_y {
                prop_assert_eq!(&y[y_at..][..bytes], expected_y.bytes());
                prop_assert_eq!(&y[..y_at], &[9u8; 4][..y_at]);
                prop_assert_eq!(&y[y_at + bytes..], &[9u8; 8][..8 - y_at]);
            }
            if wants_turned {
                prop_assert_eq!(&turned[..], expected_turned.bytes());
            }
        }
    }
}

#[test]
fn other_shapes_are_refused_with_the_range() {
    let mut session = ranged().load().session().unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    let mut refused = |x: &[usize], bias: &[usize]| {
        let (x, bias) = (zeros(x), zeros(bias));
        session.run(&[("x", &x), ("bias", &bias)]).unwrap_err().to_string()
    };
    let only = "only for x [1..=4, 2..=5], bias [2..=5]";
    let message = format!("the model was not compiled for x [5, 3], bias [3], {only}");
    assert_eq!(refused(&[5, 3], &[3]), message);
    for (x, bias) in [
        (&[0, 3][..], &[3][..]),
        (&[2, 1], &[1]),
        (&[2, 6], &[6]),
        (&[3], &[3]),
        (&[2, 3], &[3, 1]),
    ] {
        assert!(refused(x, bias).ends_with(only), "{x:?} {bias:?}");
    }
    let message = "the inputs do not agree on `columns`: x [2, 3], bias [4]";
    assert_eq!(refused(&[2, 3], &[4]), message);
    let (x, bias) = inputs(2, 3);
    assert_eq!(session.run(&[("x", &x)]), Err(RunError::Missing { name: "bias".into() }));
    let integers = Tensor::zeros(DType::I32, &[2, 3]);
    let error = session.run(&[("x", &integers), ("bias", &bias)]).unwrap_err();
    assert!(matches!(error, RunError::Type { .. }));
    assert_eq!(session.run(&[("x", &x), ("bias", &bias)]).unwrap()[0].1, expected(2, 3)[0]);
}

/// `n: [n]` with `n` up to `high` gives a scalar of the specialisation.
fn numbered(shapes: &[(usize, usize)]) -> Builder {
    let mut b = Builder::new();
    b.manifest.specialisations.clear();
    for (i, &(low, high)) in shapes.iter().enumerate() {
        b.manifest.specialisations.push(Specialisation::default());
        b.plan().name = format!("n={low}..={high}");
        b.input("x", DType::I8, &[high]);
        if low < high {
            b.size("n", low, high);
            b.vary("x", &[Extent::Size(0)]);
        }
        let which = b.output("which", DType::I64, &[]);
        b.step(&format!("which_{i}"), 1, &[which], &format!("((int64_t**)b)[0][0] = {i};"));
    }
    b
}

#[test]
fn the_first_that_fits_is_taken_but_one_shape_before_a_range() {
    let model = numbered(&[(2, 8), (4, 4), (1, 16), (3, 3)]).load();
    let mut session = model.session().unwrap();
    for (n, which) in [(4, 1), (8, 0), (3, 3), (1, 2), (2, 0), (9, 2), (16, 2), (4, 1)] {
        let x = Tensor::zeros(DType::I8, &[n]);
        let found = session.run(&[("x", &x)]).unwrap().remove(0).1;
        assert_eq!(found, Tensor::scalar(which as i64), "{n}");
        assert_eq!(session.specialisation().name, model.specialisations()[which].name);
    }
    let x = Tensor::zeros(DType::I8, &[17]);
    let error = session.run(&[("x", &x)]).unwrap_err().to_string();
    let only = "only for x [2..=8]; x [4]; x [1..=16]; x [3]";
    assert_eq!(error, format!("the model was not compiled for x [17], {only}"));
}

/// An axis may be empty, and a tensor of it too.
#[test]
fn nothing_is_a_size() {
    let mut b = Builder::new();
    let n = b.size("n", 0, 3);
    let x = b.input("x", DType::I64, &[2, 3]);
    let y = b.output("y", DType::I64, &[2, 3]);
    b.vary("x", &[Extent::Constant(2), Extent::Size(0)]);
    b.vary("y", &[Extent::Constant(2), Extent::Size(0)]);
    b.step("add", 6, &[x, n, y], "int64_t **v = b; v[2][i] = v[0][i] + v[1][0];");
    let mut session = b.load().session().unwrap();
    for n in [0, 2, 0, 3] {
        let values: Vec<i64> = (0..2 * n as i64).collect();
        let found = session.run(&[("x", &Tensor::from_slice(&[2, n], &values))]).unwrap();
        let expected: Vec<i64> = values.iter().map(|v| v + n as i64).collect();
        assert_eq!(found[0].1, Tensor::from_slice(&[2, n], &expected));
    }
}

/// A value beside the elements of a later run is none that a run refused.
#[test]
fn a_bad_index_does_not_stay() {
    let mut b = Builder::new();
    b.size("n", 1, 4);
    let x = b.input("x", DType::I64, &[4]);
    b.vary("x", &[Extent::Size(0)]);
    b.expose("y", x);
    b.vary("y", &[Extent::Size(0)]);
    let call = HostOp::CheckIndices { extents: vec![10] };
    let (name, inputs, outputs) = ("lookup".into(), vec![x], vec![]);
    b.plan().plan.steps.push(Step::Host { name, call, inputs, outputs });
    let mut session = b.load().session().unwrap();
    let mut run = |x: &[i64]| {
        let x = Tensor::from_slice(&[x.len()], x);
        session.run(&[("x", &x)]).map(|mut all| all.remove(0).1)
    };
    assert!(matches!(run(&[1, 2, 10]), Err(RunError::Index(_))));
    assert_eq!(run(&[7, 8]).unwrap().as_slice::<i64>(), [7, 8]);
    assert!(matches!(run(&[1, 2, 3, 10]), Err(RunError::Index(_))));
    assert_eq!(run(&[9]).unwrap().as_slice::<i64>(), [9]);
}

/// Where the data decides a size, elements are dense; sizes of a run would have them elsewhere.
#[test]
fn data_and_sizes_do_not_both_decide() {
    let mut b = Builder::new();
    b.size("n", 1, 4);
    let x = b.input("x", DType::I32, &[4]);
    let y = b.output("y", DType::I64, &[1, 4]);
    b.vary("x", &[Extent::Size(0)]);
    b.vary("y", &[Extent::Constant(1), Extent::Size(0)]);
    let (name, inputs, outputs) = ("nonzero".into(), vec![x], vec![y]);
    b.plan().plan.steps.push(Step::Host { name, call: HostOp::NonZero, inputs, outputs });
    let mut session = b.load().session().unwrap();
    let mut run = |x: &[i32]| session.run(&[("x", &Tensor::from_slice(&[x.len()], x))]);
    assert_eq!(run(&[5, 0, 6, 0]).unwrap()[0].1, Tensor::from_slice(&[1, 2], &[0i64, 2]));
    let error = run(&[5, 6, 7]).unwrap_err();
    assert!(matches!(error, RunError::Dynamic { buffer, .. } if buffer == "y"));
}

type Change = fn(&mut Builder);

fn port<'a>(b: &'a mut Builder, name: &str) -> &'a mut Port {
    let Specialisation { inputs, outputs, .. } = b.plan();
    inputs.iter_mut().chain(outputs).find(|port| port.name == name).unwrap()
}

/// Extents inside each other.
fn nested(depth: usize) -> Extent {
    (1..depth).fold(Extent::Size(1), |inner, _| Extent::Sum(vec![inner]))
}

const UNSOUND: &[(Change, &str)] = &[
    (|b| b.plan().sizes[1].name = "rows".into(), "size `rows`: the name is used twice"),
    (|b| b.plan().sizes[0].low = 5, "size `rows`: its range holds nothing"),
    (|b| b.plan().sizes[0].high = usize::MAX, "size `rows`: its range"),
    (|b| b.plan().sizes[0].high = 3, "input `x`: its shape is not that of the largest sizes"),
    (|b| b.plan().sizes.truncate(1), "there is no size 1"),
    (|b| _ = b.size("depth", 1, 2), "size `depth`: no input has an axis of it"),
    (|b| port(b, "x").extents.clear(), "size `rows`: no input has an axis of it"),
    (|b| b.vary("x", &[nested(2), nested(1)]), "size `rows`: no input"),
    (|b| b.vary("bias", &[]), ""),
    (|b| b.vary("bias", &[Extent::Size(7)]), "input `bias`: there is no size 7"),
    (|b| b.vary("y", &[Extent::Size(0)]), "output `y`: 1 extents for 2 axes"),
    (|b| b.vary("total", &[Extent::Size(0)]), "output `total`: 1 extents for 0 axes"),
    (|b| b.vary("y", &[Extent::Size(1), Extent::Size(0)]), "not that of the largest"),
    (|b| b.vary("bias", &[nested(16)]), ""),
    (|b| b.vary("bias", &[nested(17)]), "input `bias`: its extents are nested too deeply"),
    (|b| b.vary("bias", &[nested(40)]), "input `bias`: its extents are nested too deeply"),
    (|b| b.vary("bias", &[Extent::Floor(Box::new(nested(1)), 0)]), "divided by 0"),
    (|b| b.vary("bias", &[Extent::Floor(Box::new(nested(1)), i64::MIN)]), "divided by -9223"),
    (|b| b.vary("bias", &[Extent::Product(vec![Extent::Constant(i64::MAX); 2])]), "the largest"),
    (
        // 5 at most, and -4 at least.
        |b| {
            let less = Extent::Product(vec![Extent::Constant(3), nested(1)]);
            b.vary("bias", &[Extent::Sum(vec![less, Extent::Constant(-10)])]);
        },
        "input `bias`: it has no shape for the smallest sizes",
    ),
    (|b| b.plan().buffers[0].storage = Storage::Size(2), "`rows`: there is no size 2"),
    (|b| b.plan().buffers[0].dtype = DType::I32, "`rows`: it holds a size, but is not a scalar"),
    (|b| b.plan().buffers[0].shape = vec![2], "`rows`: it holds a size, but is not a scalar"),
    (|b| b.plan().buffers[2].storage = Storage::Size(0), "`x`: it holds a size, but"),
    (|b| port(b, "x").bound = Some(BufferId(2)), "no input has an axis of it"),
    (|b| port(b, "bias").bound = Some(BufferId(3)), "input `bias`: the value it is bound to"),
    (
        |b| b.plan().plan.steps.push(Step::Copy { from: BufferId(1), to: BufferId(0) }),
        "`rows` is written, but it is read-only",
    ),
    (
        |b| {
            let weight = b.weight("w", &Tensor::zeros(DType::F32, &[COLUMNS]));
            port(b, "bias").bound = Some(weight);
        },
        "input `bias`: its value was fixed, but not its shape",
    ),
];

#[test]
fn unsound_ranges_are_refused() {
    for (i, (change, problem)) in UNSOUND.iter().enumerate() {
        let mut b = ranged();
        change(&mut b);
        let dir = tempfile::tempdir().unwrap();
        match Model::load(b.build(dir.path())) {
            Ok(_) => assert_eq!(*problem, "", "case {i}"),
            Err(error) => assert!(
                !problem.is_empty() && error.to_string().contains(problem),
                "case {i}: `{error}` does not say `{problem}`"
            ),
        }
    }
}

#[test]
fn c_asks_for_the_shapes() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(ranged().build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    let extents = [2, 3];
    let x = AnscInput {
        name: c"x".as_ptr(),
        dtype: 99,
        shape: extents.as_ptr(),
        rank: 2,
        data: null(),
        bytes: 0,
    };
    let mut shape = [0usize; 2];
    // SAFETY: all pointers are valid; the model is freed last.
    unsafe {
        assert_eq!(ansc_model_load(path.as_ptr(), &raw mut model), AnscStatus::Ok);
        let mut ask = |inputs: &[AnscInput], index, capacity| {
            let (at, to) = (inputs.as_ptr(), shape.as_mut_ptr());
            let status = ansc_model_output_shape(model, at, inputs.len(), index, to, capacity);
            (status, shape)
        };
        assert_eq!(ask(&[x], 2, 2), (AnscStatus::Ok, [3, 2]));
        assert_eq!(ask(&[x], 1, 0), (AnscStatus::Ok, [3, 2]));
        assert_eq!(ask(&[x], 0, 1).0, AnscStatus::Argument);
        assert_eq!(ask(&[x], 4, 2).0, AnscStatus::Argument);
        assert_eq!(ask(&[], 0, 2).0, AnscStatus::Data);
        assert_eq!(ask(&[AnscInput { rank: 1, ..x }], 0, 2).0, AnscStatus::Data);
        assert_eq!(ask(&[AnscInput { name: null(), ..x }], 0, 2).0, AnscStatus::Argument);
        assert_eq!(ask(&[AnscInput { shape: null(), ..x }], 0, 2), (AnscStatus::Argument, [3, 2]));
        let status = ansc_model_output_shape(null(), &raw const x, 1, 0, null_mut(), 0);
        assert_eq!(status, AnscStatus::Argument);
        ansc_model_free(model);
    }
}

/// Kernels find a dense input as the caller has it. Nothing else reads it, for nothing else knows
/// where it ends.
#[test]
fn kernels_read_dense_inputs() {
    let made = || {
        let mut b = Builder::new();
        let n = b.size("n", 1, 3);
        let x = b.input("x", DType::F32, &[2, 3]);
        let y = b.output("y", DType::F32, &[2, 3]);
        let extents = [Extent::Constant(2), Extent::Size(0)];
        b.vary("x", &extents);
        b.vary("y", &extents);
        b.plan().inputs[0].dense = true;
        let body = "float **f = b; int64_t n = *(int64_t *)b[1]; \
                    f[2][i] = i % 3 < n ? 2 * f[0][i / 3 * n + i % 3] : -1;";
        b.step("twice", 6, &[x, n, y], body);
        (b, x)
    };
    let mut session = made().0.load().session().unwrap();
    for n in [2, 3, 1] {
        let values: Vec<f32> = (1..=2 * n).map(|i| i as f32).collect();
        let found = session.run(&[("x", &Tensor::from_slice(&[2, n], &values))]).unwrap();
        let expected: Vec<f32> = values.iter().map(|v| 2.0 * v).collect();
        assert_eq!(found[0].1, Tensor::from_slice(&[2, n], &expected));
    }
    let refused = |b: Builder, reason: &str| {
        let dir = tempfile::tempdir().unwrap();
        let error = Model::load(b.build(dir.path())).map(drop).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    let (mut b, x) = made();
    b.expose("z", x);
    refused(b, "it is an input that kernels read where the caller has it");
    let (mut b, x) = made();
    let call = HostOp::CheckIndices { extents: vec![10] };
    let (name, inputs, outputs) = ("lookup".into(), vec![x], vec![]);
    b.plan().plan.steps.push(Step::Host { name, call, inputs, outputs });
    refused(b, "is a dense input, which only kernels may read");
    let (mut b, _) = made();
    b.input("w", DType::F32, &[2]);
    b.plan().inputs[1].dense = true;
    refused(b, "it is dense, but its shape does not vary");
    let (mut b, _) = made();
    b.plan().outputs[0].dense = true;
    refused(b, "it is dense, but no input");
}
