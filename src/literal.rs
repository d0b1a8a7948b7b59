//! Values that are written on the command line: `16000`, `-0.5`, `true`, `[1, 2, 3]`.
//!
//! In: text and the type that a model declares for an input. Out: a tensor. Lists of lists have
//! more dimensions; a value with fewer dimensions than declared gets leading ones of size 1, so
//! that `2` fits `[1]`.

use ansc_frontend::import::DeclaredPort;
use ansc_runtime::{DType, Tensor};
use half::{bf16, f16};
use serde_json::Value;

/// A number, a truth value, or a list of literals.
#[derive(Clone, PartialEq, Debug)]
pub struct Literal(Value);

impl Literal {
    /// None if the text is none, but perhaps the name of a file.
    pub fn parse(text: &str) -> Option<Literal> {
        let value: Value = serde_json::from_str(text).ok()?;
        is_literal(&value).then_some(Literal(value))
    }

    /// As the type that an input is declared to be; one without a type takes none.
    pub fn tensor(&self, port: &DeclaredPort) -> Result<Tensor, String> {
        let dtype = port.dtype.ok_or("has no declared type; give its value as a .npy file")?;
        let mut shape = vec![];
        let mut elements = vec![];
        collect(&self.0, 0, &mut shape, &mut elements)?;
        let mut tensor_shape = vec![1; rank(port).saturating_sub(shape.len())];
        tensor_shape.extend(shape);
        let mut bytes = Vec::with_capacity(elements.len() * dtype.size());
        for element in elements {
            bytes.extend(element_bytes(element, dtype)?);
        }
        Tensor::from_bytes(dtype, &tensor_shape, &bytes).map_err(|e| e.to_string())
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn rank(port: &DeclaredPort) -> usize {
    port.shape.as_ref().map_or(0, Vec::len)
}

fn is_literal(value: &Value) -> bool {
    match value {
        Value::Number(_) | Value::Bool(_) => true,
        Value::Array(all) => all.iter().all(is_literal),
        _ => false,
    }
}

/// Learns the shape from the first list of each depth, which all others must be as long as.
fn collect<'a>(
    value: &'a Value,
    depth: usize,
    shape: &mut Vec<usize>,
    elements: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let ragged = || "its lists are not all of one length".to_owned();
    let Value::Array(all) = value else {
        elements.push(value);
        return if depth == shape.len() { Ok(()) } else { Err(ragged()) };
    };
    match shape.get(depth) {
        Some(&length) if length != all.len() => return Err(ragged()),
        None if !elements.is_empty() => return Err(ragged()),
        None => shape.push(all.len()),
        Some(_) => {}
    }
    all.iter().try_for_each(|inner| collect(inner, depth + 1, shape, elements))
}

fn element_bytes(value: &Value, dtype: DType) -> Result<Vec<u8>, String> {
    let fails = || format!("`{value}` is not a value of type {dtype}");
    if dtype == DType::Bool {
        let truth = value.as_bool().ok_or(format!("`{value}` is neither true nor false"))?;
        return Ok(vec![u8::from(truth)]);
    }
    if dtype.is_float() {
        let n = value.as_f64().ok_or_else(fails)?;
        return Ok(match dtype {
            DType::F16 => f16::from_f64(n).to_ne_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(n).to_ne_bytes().to_vec(),
            DType::F32 => (n as f32).to_ne_bytes().to_vec(),
            _ => n.to_ne_bytes().to_vec(),
        });
    }
    let n = integer(value).ok_or_else(fails)?;
    let bits = 8 * dtype.size() as u32;
    let (least, most) = match dtype.is_signed_int() {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    if !(least..=most).contains(&n) {
        return Err(format!("`{value}` is outside of {dtype}"));
    }
    // The lowest byte comes first on every machine that we know.
    Ok(n.to_le_bytes()[..dtype.size()].to_vec())
}

/// `1e3` is a whole number, too.
fn integer(value: &Value) -> Option<i128> {
    let whole = |n: f64| (n.fract() == 0.0 && n.abs() < 2f64.powi(53)).then_some(n as i128);
    let signed = value.as_i64().map(i128::from);
    signed.or(value.as_u64().map(i128::from)).or_else(|| value.as_f64().and_then(whole))
}

#[cfg(test)]
mod tests {
    use ansc_frontend::import::Dim;

    use super::*;

    fn tensor(text: &str, dtype: DType, rank: usize) -> Result<Tensor, String> {
        let shape = Some(vec![Dim::Unknown; rank]);
        let port = DeclaredPort { name: "x".into(), kind: None, dtype: Some(dtype), shape };
        Literal::parse(text).expect("a literal").tensor(&port)
    }

    #[test]
    fn literals_become_what_the_model_declares() {
        let rate = tensor("16000", DType::I64, 0).unwrap();
        assert_eq!((rate.shape(), rate.to_i64_vec().unwrap()), (&[][..], vec![16000]));
        assert_eq!(tensor("-1", DType::I8, 1).unwrap(), Tensor::from_slice(&[1], &[-1i8]));
        assert_eq!(tensor("1e3", DType::U16, 0).unwrap(), Tensor::scalar(1000u16));
        assert_eq!(tensor("true", DType::Bool, 0).unwrap(), Tensor::scalar(true));
        let rows = tensor("[[1, 2], [3, 4.5]]", DType::F32, 2).unwrap();
        assert_eq!(rows, Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.5]));
        assert_eq!(tensor("[1, 2]", DType::F64, 2).unwrap().shape(), [1, 2]);
        assert_eq!(tensor("[]", DType::I64, 1).unwrap().shape(), [0]);
        let most = u64::MAX.to_string();
        assert_eq!(tensor(&most, DType::U64, 0).unwrap(), Tensor::scalar(u64::MAX));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let table = [
            ("300", DType::U8, "outside of u8"),
            ("-1", DType::U64, "outside of u64"),
            ("1.5", DType::I64, "`1.5` is not a value of type i64"),
            ("1", DType::Bool, "neither true nor false"),
            ("true", DType::F32, "`true` is not a value of type f32"),
            ("[[1], [2, 3]]", DType::F32, "not all of one length"),
            ("[1, [2]]", DType::F32, "not all of one length"),
            ("[[1], 2]", DType::F32, "not all of one length"),
        ];
        for (text, dtype, message) in table {
            let error = tensor(text, dtype, 0).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(["n.npy", "", "nan", "\"1\"", "{}"].iter().all(|t| Literal::parse(t).is_none()));
    }
}
