//! Which specialisation a run is of, and whether what it was given is right.
//!
//! In: inputs and outputs by name. Out: the same in the model's order, for the one specialisation
//! that takes inputs of these shapes; or a [`RunError`] that says what there is.
//!
//! `x: [4, 3]` with specialisations for `x: [1, 3]` and `x: [4, 3]` is a run of the second one.

use crate::manifest::{BufferId, Port, Specialisation, Storage};
use crate::model::Parts;
use crate::run_error::{Named, PortKind, RunError};
use crate::validate::bytes_of;
use crate::view::{View, ViewMut};

/// A run whose inputs are right.
pub(crate) struct Request<'a> {
    pub(crate) specialisation: usize,
    /// In the model's order; those not given are bound.
    pub(crate) inputs: Vec<Option<View<'a>>>,
}

impl Parts {
    pub(crate) fn request<'a>(&self, inputs: &[(&str, View<'a>)]) -> Result<Request<'a>, RunError> {
        let all = &self.manifest.specialisations;
        let inputs = sort_inputs(&all[0].inputs, inputs)?;
        let shapes: Vec<_> = inputs.iter().map(|view| view.map(|v| v.shape())).collect();
        let specialisation = choose(all, &shapes)?;
        for (port, view) in all[specialisation].inputs.iter().zip(&inputs) {
            let own = port.bound.map(|id| self.weight(specialisation, id));
            match (view, own) {
                (None, None) => return Err(RunError::Missing { name: port.name.clone() }),
                (Some(view), Some(own)) if own != view.bytes() => {
                    return Err(RunError::Bound { name: port.name.clone() });
                }
                _ => {}
            }
        }
        Ok(Request { specialisation, inputs })
    }

    /// The bytes of a buffer of a specialisation that is a weight.
    pub(crate) fn weight(&self, specialisation: usize, id: BufferId) -> &[u8] {
        let buffer = &self.manifest.specialisations[specialisation].buffers[id.0 as usize];
        match buffer.storage {
            Storage::Weight { offset } => &self.artifact.weights()[offset..][..bytes_of(buffer)],
            _ => &[],
        }
    }
}

/// Inputs in the model's order. All but shapes is the same in all specialisations, and right.
fn sort_inputs<'a>(
    ports: &[Port],
    inputs: &[(&str, View<'a>)],
) -> Result<Vec<Option<View<'a>>>, RunError> {
    let mut sorted = vec![None; ports.len()];
    for (name, view) in inputs {
        let index = find(PortKind::Input, ports, name)?;
        check_type(PortKind::Input, &ports[index], view.dtype())?;
        if sorted[index].replace(*view).is_some() {
            return Err(RunError::Duplicate { kind: PortKind::Input, name: (*name).to_owned() });
        }
    }
    Ok(sorted)
}

/// The first specialisation whose inputs have these shapes, as far as they are known.
pub(crate) fn choose(
    all: &[Specialisation],
    shapes: &[Option<&[usize]>],
) -> Result<usize, RunError> {
    let fits = |port: &Port, shape: &Option<&[usize]>| shape.is_none_or(|s| s == port.shape);
    let takes = |one: &Specialisation| one.inputs.iter().zip(shapes).all(|(p, s)| fits(p, s));
    match all.iter().position(takes) {
        Some(index) => Ok(index),
        None => Err(no_specialisation(all, shapes)),
    }
}

/// The error is about inputs whose shape there is a choice of, unless another one's is wrong.
fn no_specialisation(all: &[Specialisation], shapes: &[Option<&[usize]>]) -> RunError {
    let ports = &all[0].inputs;
    let varies = |i: usize| all.iter().any(|one| one.inputs[i].shape != ports[i].shape);
    let given = shapes.iter().enumerate().filter_map(|(i, shape)| Some((i, (*shape)?)));
    for (i, shape) in given.clone() {
        if !varies(i) && ports[i].shape != shape {
            return wrong_shape(PortKind::Input, &ports[i], shape);
        }
    }
    let varying: Vec<usize> = given.clone().map(|(i, _)| i).filter(|i| varies(*i)).collect();
    let named =
        |i: usize, shape: &[usize]| Named { name: ports[i].name.clone(), shape: shape.to_vec() };
    RunError::Specialisation {
        given: given.filter(|(i, _)| varies(*i)).map(|(i, shape)| named(i, shape)).collect(),
        available: all
            .iter()
            .map(|one| varying.iter().map(|&i| named(i, &one.inputs[i].shape)).collect())
            .collect(),
    }
}

/// The caller's memory for outputs, in the model's order.
pub(crate) fn sort_outputs<'a>(
    ports: &[Port],
    outputs: &'a mut [(&str, ViewMut<'_>)],
) -> Result<Vec<Option<&'a mut [u8]>>, RunError> {
    let mut sorted: Vec<Option<&mut [u8]>> = ports.iter().map(|_| None).collect();
    for (name, view) in outputs {
        let index = find(PortKind::Output, ports, name)?;
        let port = &ports[index];
        check_type(PortKind::Output, port, view.dtype())?;
        if port.shape != view.shape() {
            return Err(wrong_shape(PortKind::Output, port, view.shape()));
        }
        if sorted[index].replace(view.bytes_mut()).is_some() {
            return Err(RunError::Duplicate { kind: PortKind::Output, name: (*name).to_owned() });
        }
    }
    Ok(sorted)
}

pub(crate) fn find(kind: PortKind, ports: &[Port], name: &str) -> Result<usize, RunError> {
    ports.iter().position(|port| port.name == name).ok_or_else(|| RunError::Unknown {
        kind,
        name: name.to_owned(),
        known: ports.iter().map(|port| port.name.clone()).collect(),
    })
}

fn check_type(kind: PortKind, port: &Port, found: crate::DType) -> Result<(), RunError> {
    if port.dtype == found {
        return Ok(());
    }
    Err(RunError::Type { kind, name: port.name.clone(), expected: port.dtype, found })
}

fn wrong_shape(kind: PortKind, port: &Port, found: &[usize]) -> RunError {
    let (expected, found) = (port.shape.clone(), found.to_vec());
    RunError::Shape { kind, name: port.name.clone(), expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn specialisation(shapes: &[(&str, &[usize])]) -> Specialisation {
        let port = |(name, shape): &(&str, &[usize])| Port {
            name: (*name).into(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            buffer: BufferId(0),
            bound: None,
        };
        Specialisation { inputs: shapes.iter().map(port).collect(), ..Specialisation::default() }
    }

    #[test]
    fn shapes_choose() {
        let all = [
            specialisation(&[("x", &[1, 3]), ("y", &[1]), ("z", &[5])]),
            specialisation(&[("x", &[4, 3]), ("y", &[1]), ("z", &[5])]),
            specialisation(&[("x", &[4, 3]), ("y", &[4]), ("z", &[5])]),
        ];
        let at =
            |x: &'static [usize], y: Option<&'static [usize]>| choose(&all, &[Some(x), y, None]);
        assert_eq!(at(&[1, 3], Some(&[1])), Ok(0));
        assert_eq!(at(&[4, 3], Some(&[4])), Ok(2));
        assert_eq!(at(&[4, 3], None), Ok(1));
        let error = at(&[1, 3], Some(&[4])).unwrap_err().to_string();
        assert_eq!(
            error,
            "the model was not compiled for x [1, 3], y [4], only for x [1, 3], y [1]; \
             x [4, 3], y [1]; x [4, 3], y [4]"
        );
        let z: &[usize] = &[6];
        let error = choose(&all, &[None, None, Some(z)]).unwrap_err();
        assert!(matches!(error, RunError::Shape { name, .. } if name == "z"));
    }
}
