//! Values between the operators of a kernel keep the 32 bits in which they are computed.
//!
//! ```text
//! a: f16 = f16(f32(x) * f32(y));  b: f16 = f16(f32(a) + f32(z))
//! ->  a: f32 = f32(x) * f32(y);   b: f16 = f16(a + f32(z))
//! ```
//!
//! Values that a kernel stores are rounded, and so are those that products read: units for products
//! want half floats. A conversion of something that comes from memory stays, for it may be all that
//! the model wants.

use ansc_runtime::DType;

use crate::compute::Compute;
use crate::expr::{BufId, Expr};

/// The same expressions with fewer roundings.
pub(super) fn keep(compute: &mut Compute) {
    for stage in 0..compute.stages.len() {
        widen_body(compute, stage);
        if is_between(compute, stage) {
            widen_stage(compute, stage);
        }
    }
}

/// Drops pairs of conversions within the expression of a stage.
fn widen_body(compute: &mut Compute, stage: usize) {
    let dtype = |b: BufId| compute.buffer_type(b).dtype;
    let body = compute.stages[stage].body.rewrite(&mut |e| {
        let Expr::Cast(DType::F32, narrow) = e else { return None };
        let wide = narrowed(narrow)?;
        let is_computed = wide.dtype(&dtype) == DType::F32 && !matches!(wide, Expr::Load(..));
        is_computed.then(|| wide.clone())
    });
    compute.stages[stage].body = body;
}

/// The values that are rounded to half floats.
fn narrowed(e: &Expr) -> Option<&Expr> {
    match e {
        Expr::Cast(DType::F16 | DType::BF16, wide) => Some(wide),
        _ => None,
    }
}

/// Whether the stage rounds a value that only maps read.
fn is_between(compute: &Compute, stage: usize) -> bool {
    let s = &compute.stages[stage];
    let buffer = compute.stage_buffer(stage);
    let dtype = |b: BufId| compute.buffer_type(b).dtype;
    let is_computed = |wide: &Expr| {
        let from_memory = |b: BufId| compute.stage_of(b).is_none();
        let is_copy = matches!(wide, Expr::Load(b, _) if from_memory(*b));
        wide.dtype(&dtype) == DType::F32 && !is_copy
    };
    let reads = |e: &Expr| e.loads().iter().any(|(b, _)| *b == buffer);
    s.reduce.is_none()
        && narrowed(&s.body).is_some_and(is_computed)
        && !compute.outputs.contains(&stage)
        && compute.stages.iter().all(|other| other.reduce.is_none() || !reads(&other.body))
}

/// The stage gives 32 bits; a reader that does not widen them rounds them itself.
fn widen_stage(compute: &mut Compute, stage: usize) {
    let (buffer, narrow) = (compute.stage_buffer(stage), compute.stages[stage].ty.dtype);
    if let Some(wide) = narrowed(&compute.stages[stage].body).cloned() {
        compute.stages[stage].body = wide;
        compute.stages[stage].ty.dtype = DType::F32;
    }
    // Loads are rounded at first, and then those roundings that are widened at once go.
    let is_own = |e: &Expr| matches!(e, Expr::Load(b, _) if *b == buffer);
    for reader in &mut compute.stages[stage + 1..] {
        reader.body = reader.body.rewrite(&mut |e| match e {
            Expr::Cast(DType::F32, x) => narrowed(x).filter(|load| is_own(load)).cloned(),
            load if is_own(load) => Some(Expr::Cast(narrow, Box::new(load.clone()))),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::Tensor;

    use super::*;
    use crate::interp;

    fn kept(text: &str) -> Compute {
        let mut compute = Compute::parse(text).unwrap();
        keep(&mut compute);
        crate::verify::verify_compute(&compute).unwrap();
        compute
    }

    #[test]
    fn values_between_maps_are_not_rounded() {
        let text = "compute(in0: f16[4], in1: f16[4]) -> b {
          a: f16[4] = f16(mul(f32(in0[i0]), f32(in1[i0])))
          b: f16[4] = f16(add(f32(a[i0]), f32(f16(neg(f32(a[i0]))))))
        }";
        let wide = kept(text);
        let expected = "compute(in0: f16[4], in1: f16[4]) -> b {
          a: f32[4] = mul(f32(in0[i0]), f32(in1[i0]))
          b: f16[4] = f16(add(a[i0], neg(a[i0])))
        }";
        assert_eq!(wide, Compute::parse(expected).unwrap());
        let x = Tensor::from_slice(&[4], &[0.1f32, 300.0, -7.5, 1e-3].map(half::f16::from_f32));
        let found = interp::eval(&wide, &[&x, &x]).unwrap();
        assert_eq!(found[0].to_f64_vec(), [0.0; 4]);
    }

    /// Results, conversions of what comes from memory, and operands of products.
    #[test]
    fn other_roundings_stay() {
        for text in [
            "compute(in0: f32[4]) -> b {
              b: f32[4] = neg(f32(f16(in0[i0])))
            }",
            "compute(in0: f32[4]) -> a, b {
              a: f16[4] = f16(neg(in0[i0]))
              b: f32[4] = neg(f32(a[i0]))
            }",
            "compute(in0: f32[4, 8], in1: bf16[8, 4]) -> s {
              a: bf16[4, 8] = bf16(neg(in0[i0, i1]))
              s: f32[4, 4] = sum{r0: 8} mul(f32(a[i0, r0]), f32(in1[r0, i1]))
            }",
        ] {
            assert_eq!(kept(text), Compute::parse(text).unwrap());
        }
    }
}
