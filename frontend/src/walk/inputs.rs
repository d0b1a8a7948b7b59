//! Types of the model's inputs, from the model and the user's options.
//!
//! ```text
//! x: f32[N, 3, ?, ?]  and  --shape x=2x3x8x8   ->   x: f32[2, 3, 8, 8], N = 2
//! ```
//!
//! A symbolic dimension that the shape or value of one input fixes is known for all inputs. One
//! that is written as a sum of others follows from them.
//!
//! Only tensors cross the border of a model. A sequence `s` is passed as its elements `s.0`, `s.1`,
//! .., as many as the options name (or `--shape s=2` says); an optional input is there if the
//! options name it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ansc_graph::TensorType;
use ansc_runtime::DType;
use serde::{Serialize, Serializer};
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{ModelProto, ValueInfoProto, type_proto};

use super::dim_text;
use super::options::ImportOptions;
use super::scope::element_name;
use crate::containers::{Containers, Of, Type};
use crate::problem::Problem;
use crate::tensor_type::{checked_bytes, dtype};

/// A dimension as the model declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dim {
    Known(usize),
    Named(String),
    Unknown,
}

/// A number, or text.
impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Dim::Known(n) => serializer.serialize_u64(*n as u64),
            open => serializer.collect_str(open),
        }
    }
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
    /// The names by which its size may be given: its own, or those that it is a sum of.
    fn names(&self) -> Vec<String> {
        let Dim::Named(name) = self else { return vec![] };
        let parts = dim_text::names(name);
        if parts.is_empty() { vec![name.clone()] } else { parts.into_iter().collect() }
    }

    fn extent(&self, dims: &BTreeMap<String, usize>) -> Option<usize> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Named(name) => dims.get(name).copied().or_else(|| dim_text::value(name, dims)),
            Dim::Unknown => None,
        }
    }
}

/// The inputs that the user has to give: those that no initializer fills in, or for which the user
/// said something anyway.
pub(crate) fn required<'m>(
    model: &'m ModelProto,
    options: &ImportOptions,
) -> Vec<&'m ValueInfoProto> {
    let Some(graph) = &model.graph else { return vec![] };
    let filled: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let named = |name: &str| {
        let is_asked_for = options.inputs.iter().any(|input| input == name);
        is_asked_for || options.shapes.contains_key(name) || options.values.contains_key(name)
    };
    graph.input.iter().filter(|i| !filled.contains(i.name.as_str()) || named(&i.name)).collect()
}

/// The tensors that stand for an input of the model.
pub(crate) enum Given {
    Tensor(TensorType),
    /// The tensors that are its elements.
    Sequence(Vec<(String, TensorType)>),
    /// An optional value without an element.
    Absent,
    /// A problem was pushed.
    Unknown,
}

/// The declared kind of an input or output.
pub(crate) enum Kind {
    Tensor,
    Sequence,
    /// A tensor, or nothing.
    Optional,
    /// A sequence, or nothing.
    OptionalSequence,
}

/// An input of the model, before the shapes of its tensors are decided.
enum Count {
    Tensor,
    Sequence(usize),
    Absent,
}

/// A tensor that the caller passes.
struct Slot {
    name: String,
    dtype: DType,
    /// `None` where the model does not even say how many dimensions there are.
    declared: Option<Vec<Dim>>,
}

/// More elements of a sequence than this are a slip of the pen.
pub(crate) const MAX_ELEMENTS: usize = 1 << 12;

/// The tensors that stand for each input of `infos`, in order, and the problems that were found.
pub(crate) fn given(
    infos: &[&ValueInfoProto],
    containers: &Containers,
    options: &ImportOptions,
) -> (Vec<Given>, Vec<Problem>) {
    let mut problems = Vec::new();
    let slots_of = |info: &&ValueInfoProto| slots(info, containers, options);
    let inputs = infos.iter().map(slots_of).map(|slots| slots.map_err(|p| problems.push(p)).ok());
    let inputs: Vec<Option<(Count, Vec<Slot>)>> = inputs.collect();
    let slots: Vec<&Slot> = inputs.iter().flatten().flat_map(|(_, slots)| slots).collect();
    unknown_names(infos, &slots, options, &mut problems);
    let mut dims = options.dims.clone();
    // Elements of a sequence may differ in a dimension that has a name.
    let tensors = inputs.iter().flatten().filter(|(kind, _)| matches!(kind, Count::Tensor));
    for slot in tensors.flat_map(|(_, slots)| slots) {
        if let (Some(shape), Some(given)) = (&slot.declared, given_shape(&slot.name, options)) {
            unify(&slot.name, shape, &given, &mut dims, &mut problems);
        }
    }
    for (name, text) in &options.follows {
        match dims.get(text).copied().or_else(|| dim_text::value(text, &dims)) {
            Some(size) => {
                dims.entry(name.clone()).or_insert(size);
            }
            None => problems.push(Problem::new(format!(
                "`{name}={text}` does not follow from dimensions whose sizes are known"
            ))),
        }
    }
    let mut resolve = |slot: Slot| {
        let ty = resolve(&slot, &dims, options).map_err(|p| problems.push(p)).ok()?;
        Some((slot.name, ty))
    };
    let given = inputs
        .into_iter()
        .map(|input| {
            let (kind, slots) = input?;
            // All of them, so that each says what is wrong with it.
            let slots: Vec<_> = slots.into_iter().map(&mut resolve).collect();
            let mut slots: Vec<(String, TensorType)> = slots.into_iter().collect::<Option<_>>()?;
            Some(match kind {
                Count::Tensor => Given::Tensor(slots.pop()?.1),
                Count::Sequence(_) => Given::Sequence(slots),
                Count::Absent => Given::Absent,
            })
        })
        .map(|given| given.unwrap_or(Given::Unknown))
        .collect();
    (given, problems)
}

/// The tensors that an input consists of.
fn slots(
    info: &ValueInfoProto,
    containers: &Containers,
    options: &ImportOptions,
) -> Result<(Count, Vec<Slot>), Problem> {
    let name = &info.name;
    let (kind, tensor) = count(info, containers.get(name), options)?;
    let (dtype, declared) = declared(tensor).map_err(|reason| problem(name, reason))?;
    let slot = |name: String| Slot { name, dtype, declared: declared.clone() };
    let slots = match kind {
        Count::Tensor => vec![slot(name.clone())],
        Count::Sequence(count) => (0..count).map(|i| slot(element_name(name, i))).collect(),
        Count::Absent => vec![],
    };
    Ok((kind, slots))
}

/// The kind of an input or output, and the declaration of its tensors.
pub(crate) fn declaration<'m>(
    info: &'m ValueInfoProto,
    container: Option<&'m Type>,
) -> Result<(Kind, &'m type_proto::Tensor), Problem> {
    let proto = info.r#type.as_ref().and_then(|t| t.value.as_ref());
    if let Some(type_proto::Value::TensorType(tensor)) = proto {
        return Ok((Kind::Tensor, tensor));
    }
    let element = |of: &'m Option<Box<Of>>| of.as_ref().and_then(|of| of.element.as_deref());
    let optional = container.and_then(|ty| element(&ty.optional));
    let inner = optional.or(container);
    let sequence = inner.and_then(|ty| element(&ty.sequence));
    let Some(tensor) = sequence.or(inner).and_then(|ty| ty.tensor.as_ref()) else {
        let reason = "is neither a tensor nor a sequence of tensors; maps and nested sequences can \
                      only be made inside of a model";
        return Err(problem(&info.name, reason));
    };
    let kind = match (optional, sequence) {
        (Some(_), Some(_)) => Kind::OptionalSequence,
        (None, Some(_)) => Kind::Sequence,
        (_, None) => Kind::Optional,
    };
    Ok((kind, tensor))
}

/// Whether an input has more than one dimension, whatever their sizes.
pub(super) fn has_rows(info: &ValueInfoProto) -> bool {
    let shape = declaration(info, None).ok().and_then(|(_, tensor)| tensor.shape.as_ref());
    shape.is_some_and(|shape| shape.dim.len() > 1)
}

/// Whether an input is one tensor, several or none, and the declaration of them all.
fn count<'m>(
    info: &'m ValueInfoProto,
    container: Option<&'m Type>,
    options: &ImportOptions,
) -> Result<(Count, &'m type_proto::Tensor), Problem> {
    let name = &info.name;
    let (kind, tensor) = declaration(info, container)?;
    let is_named = options.shapes.contains_key(name) || options.values.contains_key(name);
    let count = match kind {
        Kind::Tensor => Count::Tensor,
        Kind::Optional if is_named => Count::Tensor,
        Kind::Optional => Count::Absent,
        Kind::OptionalSequence => elements(name, options)?.map_or(Count::Absent, Count::Sequence),
        Kind::Sequence => Count::Sequence(elements(name, options)?.ok_or_else(|| {
            let remedy = format!(
                "--shape {name}.0=2x3 --shape {name}.1=4x3 and so on for its elements, \
                 or --shape {name}=0 if it has none"
            );
            problem(name, "is a sequence of unknown length").remedy(remedy)
        })?),
    };
    Ok((count, tensor))
}

/// The number of elements of the sequence `name`, if the options tell.
fn elements(name: &str, options: &ImportOptions) -> Result<Option<usize>, Problem> {
    let is_named = |element: &String| {
        options.shapes.contains_key(element) || options.values.contains_key(element)
    };
    let named = (0..MAX_ELEMENTS).take_while(|&i| is_named(&element_name(name, i))).count();
    match options.shapes.get(name).map(Vec::as_slice) {
        None => Ok(Some(named).filter(|&n| n > 0)),
        Some(&[count]) if (named..MAX_ELEMENTS).contains(&count) => Ok(Some(count)),
        Some(other) => {
            let reason = format!("is a sequence, and {other:?} is not a number of elements for it");
            Err(problem(name, reason))
        }
    }
}

fn problem(name: &str, reason: impl fmt::Display) -> Problem {
    Problem::new(format!("input `{name}` {reason}"))
}

/// The declared type and dimensions.
fn declared(tensor: &type_proto::Tensor) -> Result<(DType, Option<Vec<Dim>>), String> {
    let dims = tensor.shape.as_ref().map(|s| s.dim.iter().map(dim).collect()).transpose()?;
    let dtype = dtype(tensor.elem_type).map_err(|reason| format!("has a bad type: {reason}"))?;
    Ok((dtype, dims))
}

pub(crate) fn dim(proto: &Dimension) -> Result<Dim, String> {
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

fn given_shape(name: &str, options: &ImportOptions) -> Option<Vec<usize>> {
    let value = options.values.get(name).map(|t| t.shape().to_vec());
    value.or_else(|| options.shapes.get(name).cloned())
}

/// Names in the options that the model does not have: most likely slips of the pen.
fn unknown_names(
    infos: &[&ValueInfoProto],
    slots: &[&Slot],
    options: &ImportOptions,
    problems: &mut Vec<Problem>,
) {
    let inputs: BTreeSet<&str> = infos.iter().map(|i| i.name.as_str()).collect();
    let tensors: BTreeSet<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
    let dims = slots.iter().flat_map(|slot| slot.declared.iter().flatten());
    let dims: BTreeSet<String> = dims.flat_map(Dim::names).collect();
    // A tensor at which a part of a model begins may have its shape said, but no value.
    let shapes = options.shapes.keys().filter(|name| !options.inputs.contains(name));
    let names: BTreeSet<&String> = shapes.chain(options.values.keys()).collect();
    let is_known = |name: &str| inputs.contains(name) || tensors.contains(name);
    for name in names.into_iter().filter(|name| !is_known(name)) {
        let remedy = format!("its inputs are: {}", quoted(inputs.iter().copied()));
        problems.push(Problem::new(format!("the model has no input `{name}`")).remedy(remedy));
    }
    let of_sums = options.follows.values().flat_map(|text| Dim::Named(text.clone()).names());
    let named = options.dims.keys().chain(options.follows.keys()).cloned().chain(of_sums);
    for name in named.collect::<BTreeSet<String>>().difference(&dims) {
        let remedy = format!("its dimensions are: {}", quoted(dims.iter().map(String::as_str)));
        problems.push(Problem::new(format!("the model has no dimension `{name}`")).remedy(remedy));
    }
    let mut seen = BTreeSet::new();
    for slot in slots.iter().filter(|slot| !seen.insert(slot.name.as_str())) {
        problems.push(problem(&slot.name, "is another input's element too"));
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
    slot: &Slot,
    dims: &BTreeMap<String, usize>,
    options: &ImportOptions,
) -> Result<TensorType, Problem> {
    let Slot { name, dtype, declared } = slot;
    let dtype = *dtype;
    if let Some(value) = options.values.get(name).filter(|value| value.dtype() != dtype) {
        let reason = format!("has type {dtype}, but the value given for it has {}", value.dtype());
        return Err(problem(name, reason));
    }
    let shape = match (given_shape(name, options), declared) {
        (Some(given), Some(declared)) if given.len() != declared.len() => {
            let reason = format!("has rank {}, but {given:?} was given for it", declared.len());
            return Err(problem(name, reason));
        }
        (Some(given), _) => given,
        (None, Some(declared)) => static_shape(name, declared, dims)?,
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
        .filter(|d| d.extent(dims).is_none())
        .flat_map(Dim::names)
        .filter(|name| !dims.contains_key(name))
        .map(|name| format!("--dim {name}=N"))
        .collect();
    let by_dim = Vec::from_iter(missing).join(" ");
    let anonymous = declared.contains(&Dim::Unknown);
    let remedy = if anonymous { by_shape } else { format!("{by_dim}, or {by_shape}") };
    let shown: Vec<String> = declared.iter().map(Dim::to_string).collect();
    let reason = format!("has the dynamic shape [{}]", shown.join(", "));
    Err(problem(input, reason).remedy(remedy))
}
