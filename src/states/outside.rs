//! Sessions with states, seen as models without: states are inputs and outputs like others.
//!
//! In: values for inputs and for states. Out: the outputs, and the states that the run left, by the
//! names that the model has for them.

use ansc_runtime::manifest::{Port, Specialisation};
use ansc_runtime::{RunError, Session, Tensor, View};

/// The specialisation with its states among inputs and outputs.
pub fn opened(one: &Specialisation) -> Specialisation {
    let mut opened = one.clone();
    let largest: Vec<i64> = one.sizes.iter().map(|size| size.high as i64).collect();
    let port = |port: &Port| {
        let shape = port.shape_at(&largest).unwrap_or_else(|| port.shape.clone());
        Port { shape, ..port.clone() }
    };
    opened.inputs.extend(one.states.iter().map(|state| port(&state.input)));
    opened.outputs.extend(one.states.iter().map(|state| port(&state.output)));
    opened
}

/// Values of inputs, and of states before a run.
pub struct Start<'a> {
    inputs: Vec<(&'a str, &'a Tensor)>,
    states: Vec<(&'a str, &'a Tensor)>,
}

impl<'a> Start<'a> {
    pub fn new(session: &Session, values: &[(&'a str, &'a Tensor)]) -> Start<'a> {
        let is_state = |name: &str| session.states().iter().any(|state| state.input.name == name);
        let (states, inputs) = values.iter().copied().partition(|(name, _)| is_state(name));
        Start { inputs, states }
    }

    /// Gives states their values. Those that are not among the values are left as they are.
    pub fn set(&self, session: &mut Session) -> Result<(), RunError> {
        let mut each = self.states.iter();
        each.try_for_each(|(name, value)| session.set_state(name, View::from(*value)))
    }

    /// After runs, as [`Start::set`], where states may hold what they were given before all they
    /// were given since.
    pub fn set_again(&self, session: &mut Session) -> Result<(), RunError> {
        let lengths = self.states.iter().map(|(name, value)| {
            let state = session.states().iter().find(|state| state.input.name == *name)?;
            let axis = (0..value.shape().len()).find(|&axis| state.grows(axis))?;
            Some(value.shape()[axis])
        });
        let lengths: Vec<Option<usize>> = lengths.collect();
        match lengths.first() {
            None => Ok(()),
            Some(Some(length)) if lengths.iter().all(|other| *other == Some(*length)) => {
                session.truncate(*length)
            }
            Some(_) => self.set(session),
        }
    }

    pub fn run(&self, session: &mut Session) -> Result<Vec<(String, Tensor)>, RunError> {
        session.run(&self.inputs)
    }
}

/// One run, from these values.
pub fn run(
    session: &mut Session,
    values: &[(&str, &Tensor)],
) -> Result<Vec<(String, Tensor)>, RunError> {
    let start = Start::new(session, values);
    start.set(session)?;
    let mut outputs = start.run(session)?;
    for state in session.states().to_vec() {
        outputs.push((state.output.name, session.state(&state.input.name)?));
    }
    Ok(outputs)
}
