//! Is a manifest sound? Everything in it may be damaged or made up.
//!
//! In: a parsed manifest and the size of the weight section. Out: nothing, or the first problem
//! with its place. Afterwards every id is in range, every buffer lies inside its storage, sizes
//! do not overflow, ports agree with their buffers, and inputs tell all sizes that a run may
//! choose. Steps are checked in [`crate::program`].

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::extent::Extent;
use crate::manifest::{
    BufferId, BufferInfo, KernelInfo, Manifest, Port, Preparation, Size, Specialisation, State,
    Storage, WEIGHT_ALIGN,
};
use crate::tensor::byte_len;

/// Extents are nested at most so deep, so that evaluating one needs little stack.
const MOST_NESTED: usize = 16;

/// Why a manifest cannot be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It does not have the form of a manifest.
    #[error("the manifest cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It contradicts itself or the file.
    #[error("{place}: {problem}")]
    Invalid {
        /// Where in the manifest.
        place: String,
        /// The problem there.
        problem: String,
    },
}

impl ManifestError {
    pub(crate) fn at(place: impl Into<String>, problem: impl Into<String>) -> ManifestError {
        ManifestError::Invalid { place: place.into(), problem: problem.into() }
    }
}

type Checked<T = ()> = Result<T, ManifestError>;

pub(crate) fn check(manifest: &Manifest, weight_bytes: usize) -> Checked {
    if manifest.weight_bytes > weight_bytes {
        return Err(ManifestError::at("weights", "the section is shorter than the manifest says"));
    }
    check_kernels(&manifest.kernels)?;
    let prepared = manifest.preparation.as_ref().map_or(0, |p| p.bytes);
    let constants = Constants { weights: manifest.weight_bytes, prepared };
    if let Some(preparation) = &manifest.preparation {
        check_preparation(preparation, &constants)?;
    }
    for specialisation in &manifest.specialisations {
        check_one(specialisation, &constants)?;
    }
    check_all(&manifest.specialisations)
}

/// Bytes of what no run changes.
struct Constants {
    weights: usize,
    prepared: usize,
}

/// The preparation is a plan like others, but that nobody calls it.
fn check_preparation(preparation: &Preparation, constants: &Constants) -> Checked {
    if preparation.bytes > isize::MAX as usize {
        return Err(ManifestError::at("preparation", "larger than the address space"));
    }
    if preparation.plan.ports().next().is_some() {
        return Err(ManifestError::at("preparation", "it has inputs, outputs or states"));
    }
    check_kernels(&preparation.kernels)?;
    check_one(&preparation.plan, constants)
}

fn check_kernels(kernels: &[KernelInfo]) -> Checked {
    kernels.iter().try_for_each(|kernel| {
        check_kernel(kernel).map_err(|p| ManifestError::at(format!("kernel `{}`", kernel.name), p))
    })
}

fn check_one(plan: &Specialisation, constants: &Constants) -> Checked {
    if plan.arena_bytes > isize::MAX as usize {
        return Err(ManifestError::at("arena", "larger than the address space"));
    }
    check_sizes(plan)?;
    for (i, buffer) in plan.buffers.iter().enumerate() {
        check_buffer(plan, buffer, constants)
            .map_err(|p| ManifestError::at(format!("buffer {i} `{}`", buffer.name), p))?;
    }
    check_ports(plan, "input", &plan.inputs, check_input)?;
    check_ports(plan, "output", &plan.outputs, check_output)?;
    plan.states.iter().enumerate().try_for_each(|(i, state)| {
        let place = format!("state `{}`", state.input.name);
        check_state(plan, i, state).map_err(|problem| ManifestError::at(place, problem))
    })
}

/// A run finds and leaves tensors of the same room, which lie in memory of the session.
fn check_state(plan: &Specialisation, index: usize, state: &State) -> Result<(), String> {
    let is_twice = |ports: &[Port], of: fn(&State) -> &Port| {
        let name = |other: &Port| other.name == of(state).name;
        ports.iter().any(name) || plan.states[..index].iter().any(|other| name(of(other)))
    };
    if is_twice(&plan.inputs, |s| &s.input) || is_twice(&plan.outputs, |s| &s.output) {
        return Err("the name is used twice".to_owned());
    }
    let (input, output) = (&state.input, &state.output);
    if (input.dtype, &input.shape) != (output.dtype, &output.shape) {
        return Err("a run leaves another type than it finds".to_owned());
    }
    if input.bound.is_some() || output.bound.is_some() {
        return Err("its value was fixed".to_owned());
    }
    let storage = |port: &Port| {
        let own = buffer(&plan.buffers, port.buffer)?;
        same_type(port, own).map(|()| own.storage)
    };
    let (from, to) = (storage(input)?, storage(output)?);
    let (now, next) = (Storage::State(index as u32), Storage::NextState(index as u32));
    if from != now || to != next && input.buffer != output.buffer {
        return Err("its buffers are not the session's memory for it".to_owned());
    }
    [input, output].into_iter().try_for_each(|port| check_form(plan, port))?;
    let has_room = |port: &Port, of: fn(&Size) -> usize| {
        plan.limits(of).is_some_and(|sizes| port.has_room(&sizes))
    };
    // A run that would leave more than there is room for does not happen.
    let smallest = has_room(input, |size| size.low) && has_room(output, |size| size.low);
    match smallest && has_room(input, |size| size.high) {
        true => Ok(()),
        false => Err("it has no room for its shape".to_owned()),
    }
}

/// Every size has a range, and an input that tells it.
fn check_sizes(plan: &Specialisation) -> Checked {
    let mut names = BTreeSet::new();
    for (i, size) in plan.sizes.iter().enumerate() {
        let is_it = |extent: &Extent| matches!(extent, Extent::Size(of) if *of as usize == i);
        let tells = |port: &Port| port.bound.is_none() && port.extents.iter().any(is_it);
        let problem = if !names.insert(size.name.as_str()) {
            "the name is used twice"
        } else if size.low > size.high || i64::try_from(size.high).is_err() {
            "its range holds nothing, or too large a value"
        } else if !plan.inputs.iter().chain(plan.states.iter().map(|s| &s.input)).any(tells) {
            "no input has an axis of it"
        } else {
            continue;
        };
        return Err(ManifestError::at(format!("size `{}`", size.name), problem));
    }
    Ok(())
}

/// Specialisations are ways to run one model, and inputs tell which one is meant. Ranges of sizes
/// may overlap each other and shapes without sizes: there is an order in which they are asked.
fn check_all(all: &[Specialisation]) -> Checked {
    let Some((first, others)) = all.split_first() else {
        return Err(ManifestError::at("specialisations", "there is none"));
    };
    for other in others {
        if !same_ports(&first.inputs, &other.inputs) || !same_ports(&first.outputs, &other.outputs)
        {
            let problem = "it has other inputs or outputs than the first one";
            return Err(ManifestError::at(format!("specialisation `{}`", other.name), problem));
        }
        if !same_states(&first.states, &other.states) {
            let problem = "it has other states than the first one";
            return Err(ManifestError::at(format!("specialisation `{}`", other.name), problem));
        }
    }
    let mut shapes = BTreeSet::new();
    for one in all.iter().filter(|one| one.sizes.is_empty()) {
        let states = one.states.iter().map(|state| state.input.shape_at(&[]));
        let inputs = one.inputs.iter().map(|port| Some(port.shape.clone()));
        let of_inputs: Vec<Option<Vec<usize>>> = inputs.chain(states).collect();
        if !shapes.insert(of_inputs) {
            let problem = "another one takes inputs of the same shapes";
            return Err(ManifestError::at(format!("specialisation `{}`", one.name), problem));
        }
    }
    Ok(())
}

/// All but what sizes decide. A session has one memory for each, so that elements have the same
/// places.
fn same_states(a: &[State], b: &[State]) -> bool {
    let same = |(a, b): (&State, &State)| {
        // The end of the first axis lies behind the rest, which is at the same places without it.
        let part = |s: &State| usize::from(!s.input.shape.is_empty() && !s.grows(0));
        let room = |s: &State| (s.input.dtype, s.input.shape[part(s)..].to_vec());
        let growing = |s: &State| (0..s.input.shape.len()).map(|i| s.grows(i)).collect::<Vec<_>>();
        (&a.input.name, &a.output.name) == (&b.input.name, &b.output.name)
            && room(a) == room(b)
            && growing(a) == growing(b)
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// All but shapes, and what follows from them.
fn same_ports(a: &[Port], b: &[Port]) -> bool {
    let same = |(a, b): (&Port, &Port)| {
        (&a.name, a.dtype, a.bound.is_some()) == (&b.name, b.dtype, b.bound.is_some())
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// A buffer by its id, which may be out of range.
pub(crate) fn buffer(buffers: &[BufferInfo], id: BufferId) -> Result<&BufferInfo, String> {
    let found = buffers.get(id.0 as usize);
    found.ok_or_else(|| format!("there is no buffer {}", id.0))
}

/// The declared bytes of a buffer that was checked.
pub(crate) fn bytes_of(buffer: &BufferInfo) -> usize {
    byte_len(buffer.dtype, &buffer.shape).expect("sizes are checked before they are used")
}

fn check_buffer(
    plan: &Specialisation,
    buffer: &BufferInfo,
    constants: &Constants,
) -> Result<(), String> {
    let bytes = byte_len(buffer.dtype, &buffer.shape).ok_or("its size overflows")?;
    match buffer.storage {
        Storage::Arena { offset } => check_place(offset, bytes, plan.arena_bytes),
        Storage::Weight { offset } => check_place(offset, bytes, constants.weights),
        Storage::Prepared { offset } => check_place(offset, bytes, constants.prepared),
        Storage::Input(port) => check_owner(buffer, plan.inputs.get(port as usize)),
        Storage::Output(port) => check_owner(buffer, plan.outputs.get(port as usize)),
        Storage::State(i) => check_owner(buffer, plan.states.get(i as usize).map(|s| &s.input)),
        Storage::NextState(i) => {
            check_owner(buffer, plan.states.get(i as usize).map(|s| &s.output))
        }
        Storage::Size(size) if size as usize >= plan.sizes.len() => {
            Err(format!("there is no size {size}"))
        }
        Storage::Size(_) if !is_scalar(buffer, DType::I64) => {
            Err("it holds a size, but is not a scalar of type i64".to_owned())
        }
        Storage::Size(_) => Ok(()),
    }
}

fn check_place(offset: usize, bytes: usize, limit: usize) -> Result<(), String> {
    if !offset.is_multiple_of(WEIGHT_ALIGN) {
        return Err(format!("its offset {offset} is not a multiple of {WEIGHT_ALIGN}"));
    }
    if offset.checked_add(bytes).is_none_or(|end| end > limit) {
        return Err(format!("{bytes} bytes at {offset} exceed the {limit} bytes of its storage"));
    }
    Ok(())
}

/// The caller's memory may be seen under another shape, but not as more bytes.
fn check_owner(buffer: &BufferInfo, port: Option<&Port>) -> Result<(), String> {
    let port = port.ok_or("it belongs to a port that does not exist")?;
    let same = port.dtype == buffer.dtype
        && byte_len(port.dtype, &port.shape) == byte_len(buffer.dtype, &buffer.shape);
    if same { Ok(()) } else { Err(format!("its size differs from that of port `{}`", port.name)) }
}

fn check_ports(
    plan: &Specialisation,
    kind: &str,
    ports: &[Port],
    check: fn(&Specialisation, usize, &Port) -> Result<(), String>,
) -> Checked {
    let mut names = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let place = || format!("{kind} `{}`", port.name);
        if !names.insert(port.name.as_str()) {
            return Err(ManifestError::at(place(), "the name is used twice"));
        }
        let checked = check(plan, i, port).and_then(|()| check_extents(plan, port));
        checked.map_err(|problem| ManifestError::at(place(), problem))?;
    }
    Ok(())
}

/// The shape of a port is that of the largest sizes, and the smallest ones give it one too. For
/// those between, [`Port::shape_at`] looks when it is asked.
fn check_extents(plan: &Specialisation, port: &Port) -> Result<(), String> {
    if port.extents.is_empty() {
        return Ok(());
    }
    if port.bound.is_some() {
        return Err("its value was fixed, but not its shape".to_owned());
    }
    check_form(plan, port)?;
    let shape = |of: fn(&Size) -> usize| port.shape_at(&plan.limits(of)?);
    if shape(|size| size.high).as_ref() != Some(&port.shape) {
        return Err("its shape is not that of the largest sizes".to_owned());
    }
    match shape(|size| size.low) {
        Some(_) => Ok(()),
        None => Err("it has no shape for the smallest sizes".to_owned()),
    }
}

/// There are no extents, or one for each axis.
fn check_form(plan: &Specialisation, port: &Port) -> Result<(), String> {
    let (extents, rank) = (&port.extents, port.shape.len());
    if !extents.is_empty() && extents.len() != rank {
        return Err(format!("{} extents for {rank} axes", extents.len()));
    }
    extents.iter().try_for_each(|extent| check_extent(extent, plan.sizes.len(), MOST_NESTED))
}

fn check_extent(extent: &Extent, sizes: usize, depth: usize) -> Result<(), String> {
    let depth = depth.checked_sub(1).ok_or("its extents are nested too deeply")?;
    match extent {
        Extent::Constant(_) => Ok(()),
        Extent::Size(size) if *size as usize >= sizes => Err(format!("there is no size {size}")),
        Extent::Size(_) => Ok(()),
        Extent::Min(parts) if parts.is_empty() => Err("an extent of it is that of nothing".into()),
        Extent::Sum(parts) | Extent::Product(parts) | Extent::Min(parts) => {
            parts.iter().try_for_each(|part| check_extent(part, sizes, depth))
        }
        Extent::Floor(_, by) if *by <= 0 => Err(format!("an extent of it is divided by {by}")),
        Extent::Floor(of, _) => check_extent(of, sizes, depth),
    }
}

fn check_input(plan: &Specialisation, index: usize, port: &Port) -> Result<(), String> {
    let own = buffer(&plan.buffers, port.buffer)?;
    same_type(port, own)?;
    if port.dense && (port.extents.is_empty() || port.bound.is_some()) {
        return Err("it is dense, but its shape does not vary".to_owned());
    }
    if let Some(bound) = port.bound {
        let bound = buffer(&plan.buffers, bound)?;
        same_type(port, bound)?;
        if !matches!(bound.storage, Storage::Weight { .. }) {
            return Err("the value it is bound to is not a weight".to_owned());
        }
    }
    match own.storage {
        Storage::Input(of) if of as usize == index => Ok(()),
        Storage::Weight { .. } if port.bound == Some(port.buffer) => Ok(()),
        _ => Err("its buffer is not the caller's memory for it".to_owned()),
    }
}

/// Any buffer may be an output: its value is copied where it does not lie there already.
fn check_output(plan: &Specialisation, _index: usize, port: &Port) -> Result<(), String> {
    let own = buffer(&plan.buffers, port.buffer)?;
    if port.dense {
        return Err("it is dense, but no input".to_owned());
    }
    match own.storage {
        Storage::Input(of) if plan.inputs.get(of as usize).is_some_and(|input| input.dense) => {
            Err("it is an input that kernels read where the caller has it".to_owned())
        }
        _ => same_type(port, own),
    }
}

fn same_type(port: &Port, buffer: &BufferInfo) -> Result<(), String> {
    if port.dtype == buffer.dtype && port.shape == buffer.shape {
        return Ok(());
    }
    Err(format!("its type differs from that of buffer `{}`", buffer.name))
}

fn check_kernel(kernel: &KernelInfo) -> Result<(), String> {
    let (reads, args) = (kernel.reads, kernel.args.len());
    if reads > args {
        return Err(format!("it reads {reads} of {args} arguments"));
    }
    for launch in &kernel.launches {
        if i64::try_from(launch.extent).is_err() {
            return Err(format!("the extent of `{}` overflows", launch.symbol));
        }
        if launch.scratch > isize::MAX as usize / 2 {
            return Err(format!("the scratch memory of `{}` overflows", launch.symbol));
        }
        let is_size = |arg: &usize| *arg < reads && kernel.args[*arg] == size_of::<i64>();
        if launch.needed.as_ref().is_some_and(|needed| !needed.sizes.iter().all(is_size)) {
            return Err(format!("`{}` takes for a size what is none", launch.symbol));
        }
    }
    Ok(())
}

/// Whether a buffer is a scalar of a type; how shapes spell a scalar does not matter.
pub(crate) fn is_scalar(buffer: &BufferInfo, dtype: DType) -> bool {
    buffer.dtype == dtype && buffer.shape.iter().all(|&d| d == 1)
}
