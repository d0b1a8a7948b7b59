//! Types of the model's inputs, from the model and the user's options.
//!
//! ```text
//! x: f32[N, 3, ?, ?]  and  --shape x=2x3x8x8   ->   x: f32[2, 3, 8, 8], N = 2
//! ```
//!
//! A symbolic dimension that the shape or value of one input fixes is known for all inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ansc_graph::TensorType;
use ansc_runtime::DType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{ModelProto, ValueInfoProto, type_proto};

use super::ImportOptions;
use crate::problem::Problem;
use crate::tensor::{checked_bytes, dtype};

/// A dimension as the model declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Dim {
    Known(usize),
    Named(String),
    Unknown,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(n) => write!(f, "{n}"),
            Dim::Named(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

impl Dim {
    fn extent(&self, dims: &BTreeMap<String, usize>) -> Option<usize> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Named(name) => dims.get(name).copied(),
            Dim::Unknown => None,
        }
    }
}

/// The inputs that the user has to give: those that no initializer fills in, or for which the user said
/// something anyway.
pub(crate) fn required<'m>(
    model: &'m ModelProto,
    options: &ImportOptions,
) -> Vec<&'m ValueInfoProto> {
    let Some(graph) = &model.graph else { return vec![] };
    let filled: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let named = |name: &str| options.shapes.contains_key(name) || options.values.contains_key(name);
    graph.input.iter().filter(|i| !filled.contains(i.name.as_str()) || named(&i.name)).collect()
}

/// The type of every input of `infos`, in order; `None` where a problem was pushed.
pub(crate) fn types(
    infos: &[&ValueInfoProto],
    options: &ImportOptions,
    problems: &mut Vec<Problem>,
) -> Vec<Option<TensorType>> {
    unknown_names(infos, options, problems);
    let declarations: Vec<_> = infos
        .iter()
        .map(|info| {
            declared(info).map_err(|reason| problems.push(problem(&info.name, reason))).ok()
        })
        .collect();
    let mut dims = options.dims.clone();
    for (info, declaration) in infos.iter().zip(&declarations) {
        if let (Some((_, Some(shape))), Some(given)) = (declaration, given_shape(info, options)) {
            unify(&info.name, shape, &given, &mut dims, problems);
        }
    }
    infos
        .iter()
        .zip(declarations)
        .map(|(info, declaration)| {
            let (dtype, shape) = declaration?;
            resolve(info, dtype, shape, &dims, options).map_err(|p| problems.push(p)).ok()
        })
        .collect()
}

fn problem(name: &str, reason: impl fmt::Display) -> Problem {
    Problem::new(format!("input `{name}` {reason}"))
}

/// The declared dimensions, `None` where the model does not even say how many there are.
fn declared(info: &ValueInfoProto) -> Result<(DType, Option<Vec<Dim>>), String> {
    let proto = info.r#type.as_ref().and_then(|t| t.value.as_ref());
    let Some(type_proto::Value::TensorType(tensor)) = proto else {
        return Err(
            "is not a tensor; sequences, maps and optional values can only be made inside \
                    of a model"
                .into(),
        );
    };
    let dims = tensor.shape.as_ref().map(|s| s.dim.iter().map(dim).collect()).transpose()?;
    let dtype = dtype(tensor.elem_type).map_err(|reason| format!("has a bad type: {reason}"))?;
    Ok((dtype, dims))
}

fn dim(proto: &Dimension) -> Result<Dim, String> {
    match &proto.value {
        Some(dimension::Value::DimValue(-1)) | None => Ok(Dim::Unknown),
        // Exporters write "?" for each dimension that they do not know.
        Some(dimension::Value::DimParam(name)) if matches!(name.as_str(), "" | "?") => {
            Ok(Dim::Unknown)
        }
        Some(dimension::Value::DimParam(name)) => Ok(Dim::Named(name.clone())),
        Some(dimension::Value::DimValue(n)) => {
            usize::try_from(*n).map(Dim::Known).map_err(|_| format!("has a dimension of {n}"))
        }
    }
}

fn given_shape(info: &ValueInfoProto, options: &ImportOptions) -> Option<Vec<usize>> {
    let value = options.values.get(&info.name).map(|t| t.shape().to_vec());
    value.or_else(|| options.shapes.get(&info.name).cloned())
}

/// Names in the options that the model does not have: most likely slips of the pen.
fn unknown_names(infos: &[&ValueInfoProto], options: &ImportOptions, problems: &mut Vec<Problem>) {
    let inputs: BTreeSet<&str> = infos.iter().map(|i| i.name.as_str()).collect();
    let dims: BTreeSet<String> = infos
        .iter()
        .filter_map(|info| declared(info).ok()?.1)
        .flatten()
        .filter_map(|d| if let Dim::Named(name) = d { Some(name) } else { None })
        .collect();
    let names: BTreeSet<&String> = options.shapes.keys().chain(options.values.keys()).collect();
    for name in names.into_iter().filter(|name| !inputs.contains(name.as_str())) {
        let remedy = format!("its inputs are: {}", quoted(inputs.iter().copied()));
        problems.push(Problem::new(format!("the model has no input `{name}`")).remedy(remedy));
    }
    for name in options.dims.keys().filter(|name| !dims.contains(*name)) {
        let remedy = format!("its dimensions are: {}", quoted(dims.iter().map(String::as_str)));
        problems.push(Problem::new(format!("the model has no dimension `{name}`")).remedy(remedy));
    }
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let list: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if list.is_empty() { "none".into() } else { list.join(", ") }
}

/// Learns symbolic dimensions from a shape that the user gave.
fn unify(
    input: &str,
    declared: &[Dim],
    given: &[usize],
    dims: &mut BTreeMap<String, usize>,
    problems: &mut Vec<Problem>,
) {
    for (dim, &extent) in declared.iter().zip(given) {
        if let Dim::Named(name) = dim {
            let known = *dims.entry(name.clone()).or_insert(extent);
            if known != extent {
                let reason =
                    format!("has {extent} for dimension `{name}`, which is {known} already");
                problems.push(problem(input, reason));
            }
        }
    }
}

fn resolve(
    info: &ValueInfoProto,
    dtype: DType,
    declared: Option<Vec<Dim>>,
    dims: &BTreeMap<String, usize>,
    options: &ImportOptions,
) -> Result<TensorType, Problem> {
    let name = &info.name;
    if let Some(value) = options.values.get(name).filter(|value| value.dtype() != dtype) {
        let reason = format!("has type {dtype}, but the value given for it has {}", value.dtype());
        return Err(problem(name, reason));
    }
    let shape = match (given_shape(info, options), declared) {
        (Some(given), Some(declared)) if given.len() != declared.len() => {
            let reason = format!("has rank {}, but {given:?} was given for it", declared.len());
            return Err(problem(name, reason));
        }
        (Some(given), _) => given,
        (None, Some(declared)) => static_shape(name, &declared, dims)?,
        (None, None) => {
            let remedy = format!("--shape {name}=1x3x224x224, with the shape to compile for");
            return Err(problem(name, "has a shape of any rank").remedy(remedy));
        }
    };
    checked_bytes(dtype, &shape)
        .map_err(|reason| problem(name, format!("is too large: {reason}")))?;
    Ok(TensorType::new(dtype, shape))
}

fn static_shape(
    input: &str,
    declared: &[Dim],
    dims: &BTreeMap<String, usize>,
) -> Result<Vec<usize>, Problem> {
    if let Some(shape) = declared.iter().map(|d| d.extent(dims)).collect() {
        return Ok(shape);
    }
    let text = |d: &Dim| d.extent(dims).map_or("N".to_string(), |n| n.to_string());
    let shape: Vec<String> = declared.iter().map(text).collect();
    let by_shape = format!("--shape {input}={}", shape.join("x"));
    let missing: BTreeSet<String> = declared
        .iter()
        .filter(|d| matches!(d, Dim::Named(_)) && d.extent(dims).is_none())
        .map(|d| format!("--dim {d}=N"))
        .collect();
    let by_dim = Vec::from_iter(missing).join(" ");
    let anonymous = declared.contains(&Dim::Unknown);
    let remedy = if anonymous { by_shape } else { format!("{by_dim}, or {by_shape}") };
    let shown: Vec<String> = declared.iter().map(Dim::to_string).collect();
    let reason = format!("has the dynamic shape [{}]", shown.join(", "));
    Err(problem(input, reason).remedy(remedy))
}
