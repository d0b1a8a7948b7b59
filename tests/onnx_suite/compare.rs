//! Whether a result is what the case expects.

use ansc_runtime::{DType, Tensor};

/// The tolerances of the onnx package's own runner, which all its node cases use.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// Two units in the last place of the narrow types are more than the tolerance of the others.
fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::BF16 => (1.6e-2, ATOL),
        DType::F16 => (2e-3, ATOL),
        _ => (RTOL, ATOL),
    }
}

pub(crate) fn compare(expected: &Tensor, found: &Tensor) -> Result<(), String> {
    let kinds = [expected, found].map(|t| (t.dtype(), t.shape().to_vec()));
    if kinds[0] != kinds[1] {
        return Err(format!("{:?}, not {:?}", kinds[1], kinds[0]));
    }
    if !expected.dtype().is_float() {
        return match expected.bytes().iter().zip(found.bytes()).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(byte) => Err(format!("element {} differs", byte / expected.dtype().size())),
        };
    }
    let (rtol, atol) = tolerance(expected.dtype());
    let (a, b) = (expected.to_f64_vec(), found.to_f64_vec());
    let close = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * a.abs()
    };
    let wrong = a.iter().zip(&b).filter(|(a, b)| !close(**a, **b)).count();
    match a.iter().zip(&b).position(|(&a, &b)| !close(a, b)) {
        None => Ok(()),
        Some(i) => {
            Err(format!("{wrong} of {} differ, element {i} is {}, not {}", a.len(), b[i], a[i]))
        }
    }
}
