//! `HannWindow`, `HammingWindow`, `BlackmanWindow` and `MelWeightMatrix`: tables made at compile
//! time.

use std::f64::consts::PI;

use ansc_graph::{Scalar, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::args::{extent, only_element, only_int};
use crate::problem::Problem;
use crate::tensor_type;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[
    OpEntry::onnx("BlackmanWindow", 17, |ctx| window(ctx, [0.42, -0.5, 0.08])),
    OpEntry::onnx("HammingWindow", 17, |ctx| window(ctx, [25.0 / 46.0, -21.0 / 46.0, 0.0])),
    OpEntry::onnx("HannWindow", 17, |ctx| window(ctx, [0.5, -0.5, 0.0])),
    OpEntry::onnx("MelWeightMatrix", 17, mel_weights),
];

/// Elements of the largest table.
const MAX_TABLE: usize = 1 << 28;

/// A sum of cosines: `c[0] + c[1] cos(t) + c[2] cos(2 t)`, where `t` goes round once. A symmetric
/// window of one element is 0 / 0 by the standard's formula, and so NaN.
fn window(ctx: &mut NodeCtx<'_>, c: [f64; 3]) -> Result<Vec<ValueId>, Problem> {
    let size = extent(ctx, only_int(ctx, 0, "size")?, "size")?;
    ctx.check(size <= MAX_TABLE, || format!("its size {size} is too large"))?;
    let round = if ctx.int("periodic", 1) != 0 { size } else { size.saturating_sub(1) };
    let values: Vec<f64> = (0..size)
        .map(|i| {
            let t = 2.0 * PI * i as f64 / round as f64;
            c[0] + c[1] * t.cos() + c[2] * (2.0 * t).cos()
        })
        .collect();
    table(ctx, &[size], &values)
}

fn table(ctx: &mut NodeCtx<'_>, shape: &[usize], values: &[f64]) -> Result<Vec<ValueId>, Problem> {
    let code = ctx.int("output_datatype", 1);
    let dtype = i32::try_from(code).map_err(|_| format!("element type {code} is unknown"));
    let dtype = dtype.and_then(tensor_type::dtype).map_err(|e| ctx.problem(e))?;
    Ok(vec![ctx.numbers(shape, values, dtype)?])
}

impl NodeCtx<'_> {
    /// A constant of these values, rounded to `dtype`.
    pub(crate) fn numbers(
        &mut self,
        shape: &[usize],
        values: &[f64],
        dtype: DType,
    ) -> Result<ValueId, Problem> {
        let tensor = match dtype {
            DType::F32 => {
                let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                Tensor::from_slice(shape, &values)
            }
            _ => Tensor::from_slice(shape, values),
        };
        let value = self.add_const(tensor)?;
        self.cast(value, dtype)
    }
}

/// Triangles, evenly spread on the mel scale, over the bins of a spectrum: `[bins, mel bins]`.
fn mel_weights(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let mel_bins = extent(ctx, only_int(ctx, 0, "number of mel bins")?, "number of mel bins")?;
    let length = extent(ctx, only_int(ctx, 1, "DFT length")?, "DFT length")?;
    let rate = only_int(ctx, 2, "sample rate")?;
    let edges = [3, 4].map(|i| only_element(ctx, i, "frequency").map(Scalar::as_f64));
    let [low, high] = edges;
    let bins = length / 2 + 1;
    let len = bins.checked_mul(mel_bins).filter(|&n| n <= MAX_TABLE && rate > 0);
    let len = len.ok_or_else(|| ctx.problem("its sizes are out of range"))?;
    let at = mel_positions(mel_bins, length, rate, low?, high?);
    let mut values = vec![0.0; len];
    for mel in 0..mel_bins {
        for bin in 0..bins {
            values[bin * mel_bins + mel] = triangle(&at[mel..mel + 3], bin as f64);
        }
    }
    table(ctx, &[bins, mel_bins], &values)
}

/// The bins where triangles begin, culminate and end.
fn mel_positions(mel_bins: usize, length: usize, rate: i64, low: f64, high: f64) -> Vec<f64> {
    let to_mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (to_mel(high) - to_mel(low)) / (mel_bins + 2) as f64;
    (0..mel_bins + 2)
        .map(|i| {
            let hertz = 700.0 * (10f64.powf((i as f64 * step + to_mel(low)) / 2595.0) - 1.0);
            ((length + 1) as f64 * hertz / rate as f64).floor()
        })
        .collect()
}

fn triangle(at: &[f64], bin: f64) -> f64 {
    let [low, top, high] = at else { unreachable!("three positions") };
    match bin {
        _ if bin == *top => 1.0,
        _ if (low..top).contains(&&bin) => (bin - low) / (top - low),
        _ if (top..high).contains(&&bin) => (high - bin) / (high - top),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangles_rise_and_fall() {
        let at = [2.0, 4.0, 8.0];
        let values = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0].map(|bin| triangle(&at, bin));
        assert_eq!(values, [0.0, 0.0, 0.5, 1.0, 0.5, 0.0]);
        assert_eq!(triangle(&[4.0, 4.0, 4.0], 4.0), 1.0);
    }
}
