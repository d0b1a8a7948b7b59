//! Error of the vector functions in units in the last place, over `f32` of every size.
//!
//! Every 4,099th bit pattern; all of them with `ANSC_EXHAUSTIVE=1`.

use ansc_graph::{Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::lower;

use crate::check::{Marks, marked};
use crate::kernel::Kernel;

/// Bit patterns of one run of the kernel.
const CHUNK: usize = 1 << 20;

unsafe extern "C" {
    fn erf(x: f64) -> f64;
}

fn kernel(op: UnOp) -> Kernel {
    let ty = TensorType::new(DType::F32, [CHUNK / 64, 64]);
    let body = Expr::unary(op, Expr::load(0, vec![Expr::var(0), Expr::var(1)]));
    let compute = Compute::single(vec![ty.clone()], Stage::map("y", ty, body));
    Kernel::new(&marked(lower("math", &compute), Marks::Vector))
}

/// Distance to the exact value, in units of the last place of the nearest `f32`.
fn error(found: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if found == nearest || (found.is_nan() && nearest.is_nan()) {
        return 0.0;
    }
    let unit =
        f64::from(f32::from_bits((nearest.abs().to_bits()).max(0x0080_0000))).log2().floor().exp2()
            * f64::from(f32::EPSILON);
    (f64::from(found) - exact).abs() / unit
}

fn largest_error(op: UnOp, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    let step: u64 = if std::env::var_os("ANSC_EXHAUSTIVE").is_some() { 1 } else { 4099 };
    let kernel = kernel(op);
    let mut worst = (0.0, 0.0);
    let patterns = 1u64 << 32;
    for first in (0..patterns).step_by(step as usize * CHUNK) {
        // Patterns beyond the last are those of small numbers once more.
        let bits = (0..CHUNK as u64).map(|i| (first + i * step) as u32);
        let x: Vec<f32> = bits.map(f32::from_bits).collect();
        let input = Tensor::from_slice(&[CHUNK / 64, 64], &x);
        let y = kernel.run_in(&[&input], 2).remove(0);
        for (&x, &y) in x.iter().zip(y.as_slice::<f32>()) {
            let e = error(y, exact(f64::from(x)));
            if e.is_nan() || e > worst.0 {
                worst = (e, x);
            }
        }
    }
    worst
}

#[test]
fn errors_are_within_the_stated_bounds() {
    // SAFETY: the C library's `erf` has no precondition.
    let erf = |x| unsafe { erf(x) };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Row<'a> = (UnOp, &'a dyn Fn(f64) -> f64, f64);
    let cases: [Row<'_>; 5] = [
        (UnOp::Exp, &f64::exp, 1.1),
        (UnOp::Log, &f64::ln, 1.0),
        (UnOp::Tanh, &f64::tanh, 5.5),
        (UnOp::Sigmoid, &sigmoid, 3.0),
        (UnOp::Erf, &erf, 5.5),
    ];
    for (op, exact, bound) in cases {
        let (error, at) = largest_error(op, exact);
        println!("{}: {error:.3} units in the last place, at {at:e}", op.name());
        assert!(error <= bound, "{}: {error} at {at:e}", op.name());
    }
}
