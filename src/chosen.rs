//! Which of the sizes that an artifact was compiled for is meant.

use std::collections::BTreeMap;

use ansc_runtime::manifest::{self, Specialisation};
use ansc_runtime::{Extent, Model};

use crate::Error;
use crate::states::outside::opened;

/// The size that a run is to have, as far as anybody says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Shapes of inputs, by their names.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Sizes of dimensions, by their names.
    pub dims: BTreeMap<String, usize>,
}

impl Wanted {
    /// Whether any size will do.
    pub fn is_any(&self) -> bool {
        self.shapes.is_empty() && self.dims.is_empty()
    }
}

/// The specialisation that is wanted; the first, if several are left. One for ranges has the shapes
/// of the sizes that were chosen, or else of the largest.
pub fn specialisation(model: &Model, wanted: &Wanted) -> Result<Specialisation, Error> {
    let Wanted { shapes, dims } = wanted;
    let named: Vec<_> = shapes.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect();
    let states = &model.specialisations()[0].states;
    let is_state = |name: &str| states.iter().any(|state| state.input.name == name);
    let of_inputs: Vec<_> = named.iter().copied().filter(|(name, _)| !is_state(name)).collect();
    // The error of shapes that none has lists them all.
    let first = &opened(model.specialisation(&of_inputs)?);
    let dims = open(model, dims)?;
    let takes = |one: &Specialisation| {
        let mut ports = one.inputs.iter();
        ports.all(|port| shapes.get(&port.name).is_none_or(|shape| *shape == port.shape))
    };
    if dims.is_empty() {
        return Ok(with_shapes(first, &named));
    }
    let all: Vec<Specialisation> = model.specialisations().iter().map(opened).collect();
    let found = all.iter().filter_map(|one| with(one, &dims)).find(takes);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let known = match &names[..] {
            [""] => "for one size only".to_owned(),
            names => format!("for {}", names.join("; ")),
        };
        let dims: Vec<String> = dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
        Error::Data(format!("the model was not compiled for {}, but {known}", dims.join(" ")))
    })
}

/// The dimensions that were not fixed when the model was compiled; an error for another size of
/// one that was.
fn open(model: &Model, dims: &BTreeMap<String, usize>) -> Result<Vec<(String, usize)>, Error> {
    let mut open = vec![];
    for (name, one) in dims {
        match model.manifest().dims.get(name) {
            Some(n) if n == one => {}
            Some(n) => {
                let message =
                    format!("the model was compiled for {name}={n}, not for {name}={one}");
                return Err(Error::Data(message));
            }
            None => open.push((name.clone(), *one)),
        }
    }
    Ok(open)
}

/// The specialisation at the sizes that these shapes of inputs tell, and else at the largest ones.
pub(crate) fn with_shapes(one: &Specialisation, given: &[(&str, &[usize])]) -> Specialisation {
    let told = |index: usize| {
        one.inputs.iter().find_map(|port| {
            let axis = port.extents.iter().position(|e| *e == Extent::Size(index as u32))?;
            let (_, shape) = given.iter().find(|(name, _)| *name == port.name)?;
            shape.get(axis).copied()
        })
    };
    let sizes = one.sizes.iter().enumerate().map(|(i, size)| told(i).unwrap_or(size.high));
    fixed(one, &sizes.collect::<Vec<_>>()).unwrap_or_else(|| one.clone())
}

/// The specialisation at these sizes of dimensions; `None` if it is not for them.
fn with(one: &Specialisation, dims: &[(String, usize)]) -> Option<Specialisation> {
    let is_range = |name: &str| one.sizes.iter().any(|size| size.name == name);
    if !dims.iter().all(|(name, n)| is_range(name) || has(one, &format!("{name}={n}"))) {
        return None;
    }
    let given = |name: &str| dims.iter().find(|(dim, _)| dim == name).map(|(_, n)| *n);
    let sizes: Vec<usize> =
        one.sizes.iter().map(|size| given(&size.name).unwrap_or(size.high)).collect();
    fixed(one, &sizes)
}

/// Names are sizes of dimensions, as in `batch=4 length=16`.
fn has(one: &Specialisation, dim: &str) -> bool {
    format!(" {} ", one.name).contains(&format!(" {dim} "))
}

/// The specialisation with the shapes, and the name, of these sizes.
pub(crate) fn fixed(one: &Specialisation, sizes: &[usize]) -> Option<Specialisation> {
    let shapes = one.shapes_at(sizes)?;
    let mut fixed = one.clone();
    fixed.inputs.iter_mut().zip(shapes.inputs).for_each(|(port, shape)| port.shape = shape);
    fixed.outputs.iter_mut().zip(shapes.outputs).for_each(|(port, shape)| port.shape = shape);
    for (size, n) in one.sizes.iter().zip(sizes) {
        let manifest::Size { name, low, high } = size;
        fixed.name = fixed.name.replace(&format!("{name}={low}..{high}"), &format!("{name}={n}"));
    }
    Some(fixed)
}

/// Whether kernels do as much as they were made for: inputs have these shapes, and kernels of a
/// range do less at other sizes than the largest.
pub(crate) fn is_largest(one: &Specialisation, given: &[(&str, &[usize])]) -> bool {
    let largest = with_shapes(one, &[]);
    let ran = with_shapes(one, given);
    let shapes = |one: &Specialisation| -> Vec<Vec<usize>> {
        one.inputs.iter().map(|port| port.shape.clone()).collect()
    };
    shapes(&largest) == shapes(&ran)
}

/// A note on the size that is used, if there are several and nobody chose one.
pub(crate) fn which(model: &Model, one: &Specialisation, wanted: &Wanted) -> Option<String> {
    let n = model.specialisations().len();
    (n > 1 && wanted.is_any())
        .then(|| format!("{} is one of {n} sizes; --dim or --shape chooses another", one.name))
}
