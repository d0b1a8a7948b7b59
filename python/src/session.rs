//! Running a model on arrays.
//!
//! In: a dictionary of arrays. Out: a dictionary of arrays, which the run writes to in place. What
//! does not change from run to run (names as strings of Python, extents as tuples, element types)
//! is made once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ansc_runtime::manifest::{Port, State};
use ansc_runtime::{Model, PortKind, RunError, Session, View, ViewMut};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use pyo3::types::{PyDict, PySlice, PyString, PyTuple};

use crate::array::Memory;
use crate::model::{PyPort, ports};
use crate::{dtype, error};

/// Memory and threads to run a model with, one run at a time.
#[pyclass(name = "Session", frozen)]
pub(crate) struct PySession {
    model: Model,
    session: Mutex<Session>,
    threads: usize,
    /// For each specialisation, from its first run on.
    outputs: Vec<PyOnceLock<Vec<NewArray>>>,
    /// `numpy.empty`
    empty: PyOnceLock<Py<PyAny>>,
}

/// How the array of an output is made.
struct NewArray {
    name: Py<PyString>,
    shape: Py<PyTuple>,
    dtype: Py<PyAny>,
}

/// An array that a run writes to.
struct Target<'a, 'py> {
    /// Which of the model's outputs.
    index: usize,
    port: &'a Port,
    name: Bound<'py, PyString>,
    array: Bound<'py, PyAny>,
    memory: Memory<'py>,
}

type Inputs<'a, 'py> = Vec<(&'a str, Memory<'py>)>;

#[pymethods]
impl PySession {
    /// The inputs, with the shapes of the first specialisation.
    #[getter]
    fn inputs(&self) -> Vec<PyPort> {
        ports(self.model.inputs())
    }

    /// The outputs, with the shapes of the first specialisation.
    #[getter]
    fn outputs(&self) -> Vec<PyPort> {
        ports(self.model.outputs())
    }

    /// The tensors that the session keeps from one run to the next: each has the name of the input
    /// that it stands in for, and the largest shape that it can have.
    #[getter]
    fn states(&self) -> Vec<PyPort> {
        ports(self.kept().iter().map(|state| &state.input))
    }

    /// Threads that run the model, the calling one included.
    #[getter]
    fn threads(&self) -> usize {
        self.threads
    }

    /// Runs the model on arrays by name, and returns new arrays by name, in the model's order. With
    /// `outputs`, only those.
    #[pyo3(signature = (inputs, outputs=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        outputs: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)> = items(inputs)?;
        let inputs = self.read(&given)?;
        let (specialisation, shapes) = self.choose(py, &inputs)?;
        let ports = &self.model.specialisations()[specialisation].outputs;
        let wanted = outputs.map(|names| positions(ports, &names)).transpose()?;
        let is_wanted = |i: &usize| wanted.as_ref().is_none_or(|wanted| wanted.contains(i));
        let new = self.new_arrays(py, specialisation)?;
        let targets = (0..ports.len()).filter(is_wanted).map(|index| {
            let NewArray { name, shape, dtype } = &new[index];
            let shape = match &shapes {
                Some(shapes) => PyTuple::new(py, &shapes[index])?,
                None => shape.bind(py).clone(),
            };
            let array = self.empty(py)?.call1((shape, dtype.bind(py)))?;
            let memory = Memory::write(&array, &ports[index].name)?;
            Ok(Target { index, port: &ports[index], name: name.bind(py).clone(), array, memory })
        });
        self.execute(py, &inputs, targets.collect::<PyResult<_>>()?)
    }

    /// Runs the model on arrays by name, and writes into other arrays by name. Outputs that are not
    /// given are dropped.
    ///
    /// Returns the given arrays; of one whose size the data decides, the part that was used.
    fn run_into<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        outputs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given = items(inputs)?;
        let inputs = self.read(&given)?;
        let (specialisation, _) = self.choose(py, &inputs)?;
        let ports = &self.model.specialisations()[specialisation].outputs;
        let targets = items(outputs)?.into_iter().map(|(name, array)| {
            let index = position(PortKind::Output, ports, name.to_str()?)?;
            let memory = Memory::write(&array, &ports[index].name)?;
            Ok(Target { index, port: &ports[index], name, array, memory })
        });
        let targets = targets.collect::<PyResult<Vec<_>>>()?;
        refuse_overlaps(&inputs, &targets)?;
        self.execute(py, &inputs, targets)
    }

    /// The shapes that inputs of these shapes, by name, give the outputs: with the states that the
    /// session has now. Where the data decides too, they are the largest ones.
    fn output_shapes<'py>(
        &self,
        py: Python<'py>,
        inputs: HashMap<String, Vec<usize>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given: Vec<_> =
            inputs.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
        let shapes = self.idle(py).output_shapes(&given).map_err(error::run)?;
        let results = PyDict::new(py);
        for (port, shape) in self.model.outputs().iter().zip(shapes) {
            results.set_item(&port.name, PyTuple::new(py, shape)?)?;
        }
        Ok(results)
    }

    /// Begins another sequence of random numbers. With the same seed the next runs repeat what
    /// those of a new session gave, whose seed is 0.
    fn seed(&self, py: Python<'_>, seed: u64) {
        self.idle(py).seed(seed);
    }

    /// Forgets what earlier runs left: all states are as in a new session, and random numbers begin
    /// anew.
    fn reset(&self, py: Python<'_>) {
        let mut session = self.idle(py);
        let session = &mut *session;
        py.detach(|| session.reset());
    }

    /// Keeps the first `length` elements of each state along the axis that runs add to, such as the
    /// keys and values of so many tokens. Shorter states stay as they are.
    fn truncate(&self, py: Python<'_>, length: usize) -> PyResult<()> {
        let mut session = self.idle(py);
        let session = &mut *session;
        py.detach(|| session.truncate(length)).map_err(error::run)
    }

    /// A copy of what a state holds now.
    fn state<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (index, port) = self.find_state(name)?;
        let shape = self.idle(py).state_shape(index);
        let dtype = dtype::object(py, port.dtype, name)?;
        let array = self.empty(py)?.call1((PyTuple::new(py, shape)?, dtype))?;
        let mut memory = Memory::write(&array, name)?;
        let mut view = memory.view_mut()?;
        let session = self.idle(py);
        let session = &*session;
        py.detach(|| session.state_into(name, &mut view)).map_err(error::run)?;
        Ok(array)
    }

    /// Lets the next run find this array in a state. With what `state` gave, it goes on from there,
    /// in this session or in another one of the model.
    fn set_state(&self, py: Python<'_>, name: &str, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let (_, port) = self.find_state(name)?;
        let memory = Memory::read(array, port)?;
        let view = memory.view()?;
        let mut session = self.idle(py);
        let session = &mut *session;
        py.detach(|| session.set_state(name, view)).map_err(error::run)
    }

    fn __repr__(&self) -> String {
        format!("Session({:?}, threads={})", self.model.manifest().model.name, self.threads)
    }
}

impl PySession {
    pub(crate) fn new(_py: Python<'_>, model: Model, session: Session) -> PySession {
        let outputs = model.specialisations().iter().map(|_| PyOnceLock::new()).collect();
        let threads = session.threads();
        let session = Mutex::new(session);
        PySession { model, session, threads, outputs, empty: PyOnceLock::new() }
    }

    fn read<'a, 'py>(
        &self,
        given: &'a [(Bound<'py, PyString>, Bound<'py, PyAny>)],
    ) -> PyResult<Inputs<'a, 'py>> {
        let ports = self.model.inputs();
        let input = |(name, array): &'a (Bound<'py, PyString>, Bound<'py, PyAny>)| {
            let name = name.to_str()?;
            let port = &ports[position(PortKind::Input, ports, name)?];
            Ok((name, Memory::read(array, port)?))
        };
        given.iter().map(input).collect()
    }

    fn kept(&self) -> &[State] {
        &self.model.specialisations()[0].states
    }

    /// The number of a state, and its port.
    fn find_state(&self, name: &str) -> PyResult<(usize, &Port)> {
        let all: Vec<&Port> = self.kept().iter().map(|state| &state.input).collect();
        let index = position(PortKind::State, all.iter().copied(), name)?;
        Ok((index, all[index]))
    }

    /// The specialisation that takes the inputs, and the shapes of its outputs, if they follow from
    /// the shapes of the inputs. With states, any specialisation does: their outputs differ in
    /// shapes only.
    fn choose(
        &self,
        py: Python<'_>,
        inputs: &Inputs<'_, '_>,
    ) -> PyResult<(usize, Option<Vec<Vec<usize>>>)> {
        let all = self.model.specialisations();
        if all.len() == 1 && all[0].sizes.is_empty() {
            return Ok((0, None));
        }
        let given: Vec<_> = inputs.iter().map(|(name, memory)| (*name, memory.shape())).collect();
        if !self.kept().is_empty() {
            let shapes = self.idle(py).output_shapes(&given).map_err(error::run)?;
            return Ok((0, Some(shapes)));
        }
        let chosen = self.model.specialisation(&given).map_err(error::run)?;
        let index = all.iter().position(|one| std::ptr::eq(one, chosen)).unwrap_or(0);
        let shapes = (!chosen.sizes.is_empty())
            .then(|| self.model.output_shapes(&given).map_err(error::run))
            .transpose()?;
        Ok((index, shapes))
    }

    fn new_arrays(&self, py: Python<'_>, specialisation: usize) -> PyResult<&Vec<NewArray>> {
        self.outputs[specialisation].get_or_try_init(py, || {
            let ports = self.model.specialisations()[specialisation].outputs.iter();
            let new = ports.map(|port| {
                Ok(NewArray {
                    name: PyString::new(py, &port.name).unbind(),
                    shape: PyTuple::new(py, &port.shape)?.unbind(),
                    dtype: dtype::object(py, port.dtype, &port.name)?.unbind(),
                })
            });
            new.collect()
        })
    }

    fn empty<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let make = || Ok::<_, PyErr>(py.import("numpy")?.getattr("empty")?.unbind());
        Ok(self.empty.get_or_try_init(py, make)?.bind(py))
    }

    /// Runs, and returns the arrays by name. Other threads of Python run meanwhile.
    fn execute<'py>(
        &self,
        py: Python<'py>,
        inputs: &Inputs<'_, 'py>,
        mut targets: Vec<Target<'_, 'py>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let shapes = {
            let mut views: Vec<(&str, View<'_>)> = Vec::with_capacity(inputs.len());
            for (name, memory) in inputs {
                views.push((name, memory.view()?));
            }
            let mut outputs: Vec<(&str, ViewMut<'_>)> = Vec::with_capacity(targets.len());
            for target in &mut targets {
                outputs.push((&target.port.name, target.memory.view_mut()?));
            }
            let mut session = self.idle(py);
            let session = &mut *session;
            py.detach(|| session.run_into(&views, &mut outputs)).map_err(error::run)?;
            used(session, &targets)
        };
        let results = PyDict::new(py);
        for (target, shape) in targets.into_iter().zip(shapes) {
            let array = match shape {
                None => target.array,
                Some(shape) => beginning(&target.array, &shape)?,
            };
            results.set_item(target.name, array)?;
        }
        Ok(results)
    }

    /// The session, when no other thread runs it.
    fn idle(&self, py: Python<'_>) -> MutexGuard<'_, Session> {
        // A run that panicked left nothing half done: each run sets all that it reads, and removes
        // what the one before added to states without an end.
        self.session.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shapes of outputs that are smaller than the arrays for them.
fn used(session: &Session, targets: &[Target<'_, '_>]) -> Vec<Option<Vec<usize>>> {
    let shape = |target: &Target<'_, '_>| {
        let shape = session.output_shape(target.index);
        (shape != target.memory.shape()).then(|| shape.to_vec())
    };
    targets.iter().map(shape).collect()
}

fn items<'py>(
    dict: &Bound<'py, PyDict>,
) -> PyResult<Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>> {
    let item = |(name, array): (Bound<'py, PyAny>, Bound<'py, PyAny>)| match name.cast_into() {
        Ok(name) => Ok((name, array)),
        Err(e) => Err(error::usage(format!(
            "inputs and outputs are given by names, which are strings and not {}",
            e.into_inner().get_type().name()?
        ))),
    };
    dict.iter().map(item).collect()
}

fn position<'a, I>(kind: PortKind, ports: I, name: &str) -> PyResult<usize>
where
    I: IntoIterator<Item = &'a Port, IntoIter: Clone>,
{
    let ports = ports.into_iter();
    let position = ports.clone().position(|port| port.name == name);
    position.ok_or_else(|| {
        let known = ports.map(|port| port.name.clone()).collect();
        error::run(RunError::Unknown { kind, name: name.to_owned(), known })
    })
}

fn positions(ports: &[Port], names: &[String]) -> PyResult<Vec<usize>> {
    names.iter().map(|name| position(PortKind::Output, ports, name)).collect()
}

/// Outputs of a run must not overlap its inputs, or each other.
fn refuse_overlaps(inputs: &Inputs<'_, '_>, targets: &[Target<'_, '_>]) -> PyResult<()> {
    for (i, target) in targets.iter().enumerate() {
        let read = inputs.iter().map(|(name, memory)| (*name, memory));
        let written = targets[..i].iter().map(|other| (other.port.name.as_str(), &other.memory));
        if let Some((other, _)) = read.chain(written).find(|(_, m)| target.memory.overlaps(m)) {
            let name = &target.port.name;
            let problem = format!("the array for output `{name}` overlaps that of `{other}`");
            return Err(error::usage(problem));
        }
    }
    Ok(())
}

/// The elements at the beginning of an array, seen in another shape.
fn beginning<'py>(array: &Bound<'py, PyAny>, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let flat = array.call_method1(intern!(py, "reshape"), (-1,))?;
    let elements = shape.iter().product::<usize>();
    let used = flat.get_item(PySlice::new(py, 0, elements as isize, 1))?;
    used.call_method1(intern!(py, "reshape"), (PyTuple::new(py, shape)?,))
}
