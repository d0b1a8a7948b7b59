//! Computes under simple schedules against the reference evaluator.

use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::{For, ForKind, Program, Scheduled, Stmt, finish, lower};
use half::{bf16, f16};

use crate::kernel::Kernel;

/// How the loops of a naive program are marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Marks {
    Naive,
    /// Outermost loops parallel, the innermost spatial loops vectorised.
    Vector,
    /// The innermost spatial loops unrolled.
    Unrolled,
}

pub(crate) const MARKS: [Marks; 3] = [Marks::Naive, Marks::Vector, Marks::Unrolled];

/// Whether found and expected values are close enough.
pub(crate) type Close<'a> = &'a dyn Fn(f64, f64) -> bool;

pub(crate) fn exact(found: f64, expected: f64) -> bool {
    found == expected || (found.is_nan() && expected.is_nan())
}

/// Within `tolerance` relative to the value, or absolutely below 1e-30.
pub(crate) fn relative(tolerance: f64) -> impl Fn(f64, f64) -> bool {
    move |found, expected| {
        exact(found, expected) || (found - expected).abs() <= tolerance * expected.abs() + 1e-30
    }
}

/// Compiles and runs the compute under all marks.
pub(crate) fn check(name: &str, compute: &Compute, inputs: &[Tensor], close: Close<'_>) {
    let given: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(compute, &given).unwrap();
    for marks in MARKS {
        let program = marked(lower(name, compute), marks);
        let found = Kernel::new(&program).run_in(&given, 3);
        compare(&format!("{name} {marks:?}"), &found, &expected, close);
    }
    crate::gpu::check(name, compute, &given, &expected, close);
}

pub(crate) fn compare(what: &str, found: &[Tensor], expected: &[Tensor], close: Close<'_>) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()));
        let (f, e) = (found.to_f64_vec(), expected.to_f64_vec());
        for (i, (f, e)) in f.iter().zip(&e).enumerate() {
            assert!(close(*f, *e), "{what}: element {i} is {f}, expected {e}");
        }
    }
}

pub(crate) fn marked(mut program: Program, marks: Marks) -> Program {
    for stmt in &mut program.body {
        mark(&program.vars, stmt, marks, true);
    }
    finish(program)
}

/// Spatial loops of a naive program are named `i0`, `i1`, ...
fn mark(vars: &[String], stmt: &mut Stmt, marks: Marks, outermost: bool) {
    let Stmt::For(l) = stmt else { return };
    let spatial = |l: &For| vars[l.var.index()].starts_with('i');
    let inner_spatial = matches!(&l.body[0], Stmt::For(inner) if spatial(inner));
    if spatial(l) {
        l.kind = match marks {
            Marks::Vector if !inner_spatial => ForKind::Vectorized,
            Marks::Vector if outermost => ForKind::Parallel,
            Marks::Unrolled if !inner_spatial => ForKind::Unrolled,
            _ => ForKind::Serial,
        };
    }
    l.body.iter_mut().for_each(|s| mark(vars, s, marks, false));
}

/// Packs constants: gives the inputs in the layouts that the program of the schedule reads.
pub(crate) fn packed(scheduled: &Scheduled, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut given = inputs.to_vec();
    for packing in &scheduled.packings {
        let packed = interp::eval(&packing.compute, &[&inputs[packing.param]]).unwrap();
        given[packing.param] = packed.into_iter().next().unwrap();
    }
    given
}

/// A reproducible stream of numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A tensor of the type with elements `f(index, random)`; integers are truncated.
pub(crate) fn filled(
    ty: &TensorType,
    random: &mut Random,
    f: impl Fn(usize, &mut Random) -> f64,
) -> Tensor {
    let values: Vec<f64> = (0..ty.len()).map(|i| f(i, random)).collect();
    from_f64(ty, &values)
}

pub(crate) fn from_f64(ty: &TensorType, values: &[f64]) -> Tensor {
    macro_rules! of {
        ($convert:expr) => {
            Tensor::from_slice(&ty.shape, &values.iter().copied().map($convert).collect::<Vec<_>>())
        };
    }
    match ty.dtype {
        DType::Bool => of!(|v| v != 0.0),
        DType::U8 => of!(|v| v as u8),
        DType::U16 => of!(|v| v as u16),
        DType::U32 => of!(|v| v as u32),
        DType::U64 => of!(|v| v as u64),
        DType::I8 => of!(|v| v as i8),
        DType::I16 => of!(|v| v as i16),
        DType::I32 => of!(|v| v as i32),
        DType::I64 => of!(|v| v as i64),
        DType::F16 => of!(f16::from_f64),
        DType::BF16 => of!(bf16::from_f64),
        DType::F32 => of!(|v| v as f32),
        DType::F64 => of!(|v| v),
    }
}
