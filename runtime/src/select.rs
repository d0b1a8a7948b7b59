//! Which specialisation a run is of, and whether what it was given is right.
//!
//! In: inputs and outputs by name. Out: the same in the model's order, for the one specialisation
//! that takes inputs of these shapes; or a [`RunError`] that says what there is.
//!
//! `x: [4, 3]` with specialisations for `x: [1, 3]` and `x: [4, 3]` is a run of the second one.
//! With one for `x: [n, 3]`, `y: [n + 1]` and `n` of 1 to 8 it is one of that at `n = 4`, with
//! `y: [5]`.

use crate::extent::Extent;
use crate::manifest::{Port, Specialisation, State};
use crate::parts::Parts;
use crate::ports::{check_type, find, wrong_shape};
use crate::run_error::{Named, PortKind, RunError, Taken};
use crate::states::States;
use crate::view::{View, ViewMut};

/// A run whose inputs are right.
pub(crate) struct Request<'a> {
    pub(crate) specialisation: usize,
    /// In the model's order; those not given are bound.
    pub(crate) inputs: Vec<Option<View<'a>>>,
    /// One for each size of the specialisation.
    pub(crate) sizes: Vec<i64>,
    /// The shapes that the sizes give outputs, for [`shape_of`].
    pub(crate) shapes: Vec<Vec<usize>>,
}

/// A specialisation, with the sizes that are known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) specialisation: usize,
    sizes: Sizes,
}

/// One for each size of a specialisation, if the inputs that were given tell it.
type Sizes = Vec<Option<i64>>;

/// The shape of the `index`-th port in a run. `shapes` are those of all ports, or none if no port's
/// shape differs from the declared one.
pub(crate) fn shape_of<'a>(shapes: &'a [Vec<usize>], index: usize, port: &'a Port) -> &'a [usize] {
    shapes.get(index).unwrap_or(&port.shape)
}

/// The facts about the states that a run finds.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a> {
    /// Those of a session.
    By(&'a States),
    /// Nothing.
    Anything,
}

impl Parts {
    pub(crate) fn request<'a>(
        &self,
        inputs: &[(&str, View<'a>)],
        states: &States,
    ) -> Result<Request<'a>, RunError> {
        let all = &self.manifest.specialisations;
        let inputs = sort_inputs(&all[0].inputs, inputs)?;
        let shapes: Vec<_> = inputs.iter().map(|view| view.map(|v| v.shape())).collect();
        let choice = choose(all, &shapes, Held::By(states))?;
        let specialisation = choice.specialisation;
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
        let (sizes, shapes) = choice.outputs(&all[specialisation])?;
        Ok(Request { specialisation, inputs, sizes, shapes })
    }

    /// The specialisation for inputs of these shapes.
    pub(crate) fn choose(
        &self,
        inputs: &[(&str, &[usize])],
        held: Held<'_>,
    ) -> Result<Choice, RunError> {
        let ports = &self.first().inputs;
        let mut shapes = vec![None; ports.len()];
        for (name, shape) in inputs {
            shapes[find(PortKind::Input, ports, name)?] = Some(*shape);
        }
        choose(&self.manifest.specialisations, &shapes, held)
    }

    pub(crate) fn output_shapes(
        &self,
        inputs: &[(&str, &[usize])],
        held: Held<'_>,
    ) -> Result<Vec<Vec<usize>>, RunError> {
        let choice = self.choose(inputs, held)?;
        let one = &self.manifest.specialisations[choice.specialisation];
        let (_, shapes) = choice.outputs(one)?;
        let ports = one.outputs.iter().enumerate();
        Ok(ports.map(|(i, port)| shape_of(&shapes, i, port).to_vec()).collect())
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

/// The first specialisation whose inputs have these shapes, as far as they are known. Those without
/// sizes to choose come first: what was compiled for one shape only is the faster code for it.
pub(crate) fn choose(
    all: &[Specialisation],
    shapes: &[Option<&[usize]>],
    held: Held<'_>,
) -> Result<Choice, RunError> {
    let find = |held: Held<'_>, is_ranged: bool| {
        let mut some = all.iter().enumerate().filter(|(_, one)| one.sizes.is_empty() != is_ranged);
        some.find_map(|(i, one)| Some(Choice { specialisation: i, sizes: fit(one, shapes, held)? }))
    };
    let any = |held| find(held, false).or_else(|| find(held, true));
    any(held).ok_or_else(|| match (held, any(Held::Anything)) {
        (Held::By(states), Some(_)) => full(&all[0], states),
        _ => no_specialisation(all, shapes),
    })
}

/// The error if only the states do not fit.
fn full(one: &Specialisation, states: &States) -> RunError {
    let states = one.states.iter().zip(states.shapes());
    let kept = states.map(|(state, shape)| named(&state.input, shape.unwrap_or(&[])));
    RunError::Full { kept: kept.collect() }
}

impl Choice {
    /// All sizes, and the shapes that they give outputs. Inputs that were not given may be needed
    /// to tell them.
    pub(crate) fn outputs(
        &self,
        one: &Specialisation,
    ) -> Result<(Vec<i64>, Vec<Vec<usize>>), RunError> {
        if one.sizes.is_empty() {
            return Ok((vec![], vec![]));
        }
        let known = || {
            let sizes: Vec<i64> = self.sizes.iter().copied().collect::<Option<_>>()?;
            let shapes = one.outputs.iter().map(|port| port.shape_at(&sizes));
            Some((shapes.collect::<Option<_>>()?, sizes))
        };
        match known() {
            Some((shapes, sizes)) => Ok((sizes, shapes)),
            None => Err(self.missing(one)),
        }
    }

    /// The error for the first size that is not known.
    fn missing(&self, one: &Specialisation) -> RunError {
        let unknown = |extent: &Extent| match extent {
            Extent::Size(size) => self.sizes.get(*size as usize).is_none_or(Option::is_none),
            _ => false,
        };
        let mut ports = one.inputs.iter().chain(one.states.iter().map(|state| &state.input));
        let port = ports.find(|port| port.extents.iter().any(unknown));
        RunError::Missing { name: port.map(|port| port.name.clone()).unwrap_or_default() }
    }
}

/// The facts about the shape of a port.
#[derive(Clone, Copy)]
enum Given<'a> {
    Shape(&'a [usize]),
    /// A state before the first run: nothing along the axes that runs add to.
    Fresh(&'a State),
}

impl Given<'_> {
    fn extent(&self, axis: usize) -> Option<usize> {
        match self {
            Given::Shape(shape) => shape.get(axis).copied(),
            Given::Fresh(state) => state.grows(axis).then_some(0),
        }
    }

    fn is_of_rank(&self, rank: usize) -> bool {
        match self {
            Given::Shape(shape) => shape.len() == rank,
            Given::Fresh(_) => true,
        }
    }
}

impl<'a> Held<'a> {
    /// The ports of states, and what is known of each.
    fn given(self, one: &'a Specialisation) -> impl Iterator<Item = (&'a Port, Given<'a>)> {
        let states = match self {
            Held::By(states) => Some(states.shapes()),
            Held::Anything => None,
        };
        let given = |(state, shape): (&'a State, Option<&'a [usize]>)| {
            (&state.input, shape.map_or(Given::Fresh(state), Given::Shape))
        };
        one.states.iter().zip(states.into_iter().flatten()).map(given)
    }
}

/// The sizes that these shapes of inputs tell; `None` if the specialisation does not take them.
fn fit(one: &Specialisation, shapes: &[Option<&[usize]>], held: Held<'_>) -> Option<Sizes> {
    let given = || {
        let inputs = one.inputs.iter().zip(shapes);
        let inputs = inputs.filter_map(|(port, shape)| Some((port, Given::Shape((*shape)?))));
        inputs.chain(held.given(one))
    };
    let mut sizes = vec![None; one.sizes.len()];
    for (port, shape) in given() {
        for (axis, extent) in port.extents.iter().enumerate() {
            let (Extent::Size(size), Some(found)) = (extent, shape.extent(axis)) else { continue };
            let (range, known) = (one.sizes.get(*size as usize)?, sizes.get_mut(*size as usize)?);
            let in_range = (range.low..=range.high).contains(&found);
            let found = i64::try_from(found).ok().filter(|_| in_range)?;
            if known.replace(found).is_some_and(|other| other != found) {
                return None;
            }
        }
    }
    let all: Option<Vec<i64>> = sizes.iter().copied().collect();
    let fits = |(port, shape): (&Port, Given<'_>)| {
        let axis = |axis: usize| {
            let (Some(found), room) = (shape.extent(axis), port.shape[axis]) else { return true };
            match (port.extents.get(axis), &all) {
                (None, _) => found == room,
                (Some(extent), Some(all)) => extent.at(all) == i64::try_from(found).ok(),
                (Some(_), None) => found <= room,
            }
        };
        shape.is_of_rank(port.shape.len()) && (0..port.shape.len()).all(axis)
    };
    // Between the limits, extents of a damaged manifest may be anything.
    let gives = |all: &Vec<i64>| one.ports().all(|port| port.has_room(all));
    (given().all(fits) && all.as_ref().is_none_or(gives)).then_some(sizes)
}

/// The error is about inputs whose shape there is a choice of, unless another one's is wrong.
fn no_specialisation(all: &[Specialisation], shapes: &[Option<&[usize]>]) -> RunError {
    let ports = &all[0].inputs;
    let varies = |i: usize| {
        let differs = |port: &Port| !port.extents.is_empty() || port.shape != ports[i].shape;
        all.iter().any(|one| differs(&one.inputs[i]))
    };
    let given = shapes.iter().enumerate().filter_map(|(i, shape)| Some((i, (*shape)?)));
    for (i, shape) in given.clone() {
        if !varies(i) && ports[i].shape != shape {
            return wrong_shape(PortKind::Input, &ports[i], &ports[i].shape, shape);
        }
    }
    if let Some(error) = disagreement(all, shapes) {
        return error;
    }
    let varying: Vec<usize> = given.clone().map(|(i, _)| i).filter(|i| varies(*i)).collect();
    RunError::Specialisation {
        given: given.filter(|(i, _)| varies(*i)).map(|(i, s)| named(&ports[i], s)).collect(),
        available: all
            .iter()
            .map(|one| varying.iter().map(|&i| taken(one, &one.inputs[i])).collect())
            .collect(),
    }
}

/// The error if each input would do by itself, but two of them differ in a size that they share.
fn disagreement(all: &[Specialisation], shapes: &[Option<&[usize]>]) -> Option<RunError> {
    let alone = |one: &Specialisation, i: usize| {
        let only = |(at, shape): (usize, &Option<_>)| shape.filter(|_| at == i);
        let only: Vec<Option<&[usize]>> = shapes.iter().enumerate().map(only).collect();
        fit(one, &only, Held::Anything)
    };
    all.iter().filter(|one| !one.sizes.is_empty()).find_map(|one| {
        let told: Vec<Sizes> =
            (0..shapes.len()).map(|i| alone(one, i)).collect::<Option<Vec<_>>>()?;
        one.sizes.iter().enumerate().find_map(|(at, size)| {
            let telling: Vec<usize> = (0..told.len()).filter(|&i| told[i][at].is_some()).collect();
            telling.iter().find(|&&i| told[i][at] != told[telling[0]][at])?;
            let given = telling.iter().filter_map(|&i| Some(named(&one.inputs[i], shapes[i]?)));
            Some(RunError::Sizes { size: size.name.clone(), given: given.collect() })
        })
    })
}

fn named(port: &Port, shape: &[usize]) -> Named {
    Named { name: port.name.clone(), shape: shape.to_vec() }
}

/// The shapes that a specialisation takes for an input of it.
fn taken(one: &Specialisation, port: &Port) -> Taken {
    let lows = one.limits(|size| size.low).and_then(|sizes| port.shape_at(&sizes));
    let lows = lows.unwrap_or_else(|| port.shape.clone());
    let extents = lows.into_iter().zip(&port.shape).map(|(low, &high)| low..=high).collect();
    Taken { name: port.name.clone(), extents }
}

/// The caller's memory for outputs, in the model's order. `shapes` are those that they have in the
/// run, as for [`shape_of`].
pub(crate) fn sort_outputs<'a>(
    ports: &[Port],
    shapes: &[Vec<usize>],
    outputs: &'a mut [(&str, ViewMut<'_>)],
) -> Result<Vec<Option<&'a mut [u8]>>, RunError> {
    let mut sorted: Vec<Option<&mut [u8]>> = ports.iter().map(|_| None).collect();
    for (name, view) in outputs {
        let index = find(PortKind::Output, ports, name)?;
        let port = &ports[index];
        check_type(PortKind::Output, port, view.dtype())?;
        let shape = shape_of(shapes, index, port);
        if shape != view.shape() {
            return Err(wrong_shape(PortKind::Output, port, shape, view.shape()));
        }
        if sorted[index].replace(view.bytes_mut()).is_some() {
            return Err(RunError::Duplicate { kind: PortKind::Output, name: (*name).to_owned() });
        }
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::manifest::{BufferId, Size};

    fn specialisation(shapes: &[(&str, &[usize])]) -> Specialisation {
        let port = |(name, shape): &(&str, &[usize])| Port {
            name: (*name).into(),
            dtype: DType::F32,
            shape: shape.to_vec(),
            extents: vec![],
            dense: false,
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
        let at = |x: &'static [usize], y: Option<&'static [usize]>| {
            choose(&all, &[Some(x), y, None], Held::Anything).map(|it| it.specialisation)
        };
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
        let z = &[None, None, Some(z)];
        let error = choose(&all, z, Held::Anything).unwrap_err();
        assert!(matches!(error, RunError::Shape { name, .. } if name == "z"));
    }
    /// `x: [n, 3]`, `y: [n + 1]` with `n` from `low` to `high`.
    fn ranged(low: usize, high: usize) -> Specialisation {
        let mut one = specialisation(&[("x", &[high, 3]), ("y", &[high + 1])]);
        one.sizes = vec![Size { name: "n".into(), low, high }];
        one.inputs[0].extents = vec![Extent::Size(0), Extent::Constant(3)];
        one.inputs[1].extents = vec![Extent::Sum(vec![Extent::Size(0), Extent::Constant(1)])];
        one.outputs = vec![one.inputs[1].clone()];
        one
    }

    #[test]
    fn what_is_for_one_shape_only_comes_before_ranges() {
        let exact = specialisation(&[("x", &[4, 3]), ("y", &[5])]);
        let all = [ranged(2, 8), ranged(1, 16), exact];
        let at = |x: &[usize], y: Option<&[usize]>| {
            let choice = choose(&all, &[Some(x), y], Held::Anything)?;
            let outputs = choice.outputs(&all[choice.specialisation])?;
            Ok::<_, RunError>((choice.specialisation, outputs.0))
        };
        assert_eq!(at(&[4, 3], Some(&[5])), Ok((2, vec![])));
        assert_eq!(at(&[8, 3], Some(&[9])), Ok((0, vec![8])));
        assert_eq!(at(&[1, 3], Some(&[2])), Ok((1, vec![1])));
        assert_eq!(at(&[9, 3], None), Ok((1, vec![9])));
        let error = at(&[17, 3], Some(&[18])).unwrap_err().to_string();
        assert_eq!(
            error,
            "the model was not compiled for x [17, 3], y [18], only for x [2..=8, 3], y [3..=9]; \
             x [1..=16, 3], y [2..=17]; x [4, 3], y [5]"
        );
        for (x, y) in [(&[4, 2][..], &[5][..]), (&[4], &[5]), (&[3, 3], &[5]), (&[4, 3], &[5, 1])] {
            assert!(matches!(at(x, Some(y)), Err(RunError::Specialisation { .. })), "{x:?} {y:?}");
        }
        let y: &[usize] = &[3];
        let choice = choose(&all, &[None, Some(y)], Held::Anything).unwrap();
        assert_eq!(choice, Choice { specialisation: 0, sizes: vec![None] });
        let missing = choice.outputs(&all[0]).unwrap_err();
        assert_eq!(missing, RunError::Missing { name: "x".into() });
    }

    /// Validation looks at the limits of a range only.
    #[test]
    fn sizes_that_give_no_shape_are_not_taken() {
        let mut one = ranged(0, 9);
        let product = |a: Extent, b: Extent| Extent::Product(vec![a, b]);
        let minus = product(Extent::Constant(-1), Extent::Size(0));
        let hill = product(Extent::Size(0), Extent::Sum(vec![Extent::Constant(9), minus]));
        (one.outputs[0].extents, one.outputs[0].shape) = (vec![hill], vec![0]);
        let at = |x: &[usize], y: &[usize]| {
            choose(std::slice::from_ref(&one), &[Some(x), Some(y)], Held::Anything).is_ok()
        };
        assert!(at(&[0, 3], &[1]) && at(&[9, 3], &[10]) && !at(&[4, 3], &[5]));
    }
}
