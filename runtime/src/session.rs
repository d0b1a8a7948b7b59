//! Running a model: a session owns the memory that a run needs, so that runs allocate nothing.
//!
//! In: inputs by name, in tensors or in the caller's own memory. Out: outputs, likewise. Names,
//! types and shapes are checked before anything runs, and choose the [`Specialisation`] that runs.
//! Where inputs are smaller than its buffers, they are copied to the session's own; where outputs
//! are, from them. Tensors that the model was compiled to keep stay from one run to the next, see
//! [`Session::states`].
//! Sessions of one model may run at the same time, each on its own threads or on a [`Pool`] they
//! share.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::boxes::Share;
use crate::cuda::{CudaError, Device, Io, Notes, Runs};
use crate::exec::{Exec, OnThreads};
use crate::float::Denormals;
use crate::host::Chance;
use crate::manifest::{Port, Specialisation, State};
use crate::memory::Memory;
use crate::model::Model;
use crate::parts::Parts;
use crate::pool::{Pool, PoolError, PoolOptions};
use crate::program::StepKind;
use crate::run_error::RunError;
use crate::select::{self, Held, Request, shape_of};
use crate::states::States;
use crate::tables::{Tables, lacking, zeros};
use crate::tensor::Tensor;
use crate::trace::{Recorder, Trace, TraceEvent};
use crate::view::{View, ViewMut};

/// How a [`Session`] is made.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Threads that run a kernel, the calling one included; 0 for one per available core.
    pub threads: usize,
    /// How long workers spin before they sleep; see [`PoolOptions::spin`].
    pub spin: Option<Duration>,
    /// Cores to pin workers to; see [`PoolOptions::affinity`].
    pub affinity: Vec<usize>,
    /// A pool to share with other sessions; then the options above are ignored.
    pub pool: Option<Arc<Pool>>,
    /// Computes with numbers below the smallest normal one of their type (`1.2e-38` for `f32`),
    /// which takes processors a hundred times as long; else they are zeros, as operands and as
    /// results. Either way `f16` keeps its own, and the mode of the calling thread is left as it
    /// is. A GPU always keeps them.
    pub keep_denormals: bool,
}

/// Why a [`Session`] could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no memory for the arena.
    #[error("the session needs {bytes} bytes of memory: {source}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// There are no threads.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The GPU has no memory for the session, or failed.
    #[error("the GPU failed: {0}")]
    Device(#[from] CudaError),
}

/// The time that a step of the plan took; see [`Session::profile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// The name of the kernel, node or buffer.
    pub name: String,
    /// The kind of the step. The time of an `If` or `Loop` includes the steps inside it.
    pub kind: StepKind,
    /// How many `If`s and `Loop`s it is inside of.
    pub depth: usize,
    /// How often it ran.
    pub runs: u64,
    /// All its runs together.
    pub total: Duration,
}

/// Memory and threads to run a [`Model`] with.
pub struct Session {
    parts: Arc<Parts>,
    pool: Arc<Pool>,
    states: States,
    memory: Memory,
    denormals: Denormals,
    /// One for each specialisation, from its first run on.
    tables: Vec<Option<Tables>>,
    /// The specialisation of the last run.
    current: usize,
    /// Decides the random numbers of the next run.
    chance: Chance,
    /// The next runs are timed.
    timed: bool,
    trace: Option<Recorder>,
}

/// Large enough for every specialisation.
fn memory_of(parts: &Parts, threads: usize) -> Result<Memory, SessionError> {
    let arenas = parts.manifest.specialisations.iter().map(|one| one.arena_bytes);
    let bytes = if parts.gpu.is_some() { 0 } else { arenas.max().unwrap_or(0) };
    Memory::new(&parts.kernels, bytes, threads)
        .map_err(|source| SessionError::Memory { bytes, source })
}

impl Model {
    /// A session with a thread per available core.
    pub fn session(&self) -> Result<Session, SessionError> {
        self.session_with(&SessionOptions::default())
    }

    /// A session with options.
    pub fn session_with(&self, options: &SessionOptions) -> Result<Session, SessionError> {
        Session::new(self, options)
    }
}

impl Session {
    fn new(model: &Model, options: &SessionOptions) -> Result<Session, SessionError> {
        let parts = model.parts().clone();
        let pool = match &options.pool {
            Some(pool) => pool.clone(),
            None if parts.gpu.is_some() => {
                Arc::new(Pool::new(&PoolOptions { threads: 1, ..PoolOptions::default() })?)
            }
            None => Arc::new(Pool::new(&PoolOptions {
                threads: options.threads,
                spin: options.spin,
                affinity: options.affinity.clone(),
            })?),
        };
        let memory = memory_of(&parts, pool.threads())?;
        let tables = parts.programs.iter().map(|_| None).collect();
        let states = States::new(&parts.manifest.specialisations)
            .map_err(|source| SessionError::Memory { bytes: parts.state_bytes(), source })?;
        let denormals = if options.keep_denormals { Denormals::Keep } else { Denormals::Flush };
        let mut session = Session {
            parts,
            pool,
            states,
            memory,
            denormals,
            tables,
            current: 0,
            chance: Chance::default(),
            timed: false,
            trace: None,
        };
        session.prepare(0)?;
        Ok(session)
    }

    /// The GPU's side of the last run's specialisation, at first of the first one; `None` if the
    /// model was compiled for a CPU.
    pub fn device(&mut self) -> Option<Device<'_>> {
        let specialisation = &self.parts.manifest.specialisations[self.current];
        let program = &self.parts.programs[self.current];
        let tables = self.tables[self.current].as_mut()?;
        let (runs, actual) = (tables.gpu.as_mut()?, &mut tables.actual[..]);
        Some(Device { runs, specialisation, program, actual, chance: &mut self.chance })
    }

    /// Makes what a specialisation needs, if it is new.
    fn prepare(&mut self, index: usize) -> Result<(), CudaError> {
        let parts = &*self.parts;
        let tables =
            self.tables[index].get_or_insert_with(|| Tables::new(parts, index, &self.memory));
        if let (Some(code), None) = (&parts.gpu, &tables.gpu) {
            let specialisation = &parts.manifest.specialisations[index];
            tables.gpu = Some(Runs::new(code, index, specialisation, &parts.programs[index])?);
        }
        Ok(())
    }

    /// The specialisation of the last run; before that, the first one.
    pub fn specialisation(&self) -> &Specialisation {
        &self.parts.manifest.specialisations[self.current]
    }

    /// The inputs, in the model's order, with the shapes of the last run, or the largest ones of
    /// its specialisation where that has sizes to choose.
    pub fn inputs(&self) -> &[Port] {
        &self.specialisation().inputs
    }

    /// The outputs, in the model's order, with shapes as [`Session::inputs`];
    /// [`Session::output_shape`] tells those of the last run.
    pub fn outputs(&self) -> &[Port] {
        &self.specialisation().outputs
    }

    /// Threads that run a kernel; one for a GPU, which it is that waits for it.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs the model and gives all outputs, in the model's order and with their actual shapes.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<(String, Tensor)>, RunError> {
        let parts = self.parts.clone();
        let views: Vec<_> =
            inputs.iter().map(|(name, tensor)| (*name, View::from(*tensor))).collect();
        let request = parts.request(&views, &self.states)?;
        let ports = &parts.manifest.specialisations[request.specialisation].outputs;
        let tables = self.tables[request.specialisation].as_ref();
        let make = |(i, port)| match tables.is_some_and(|tables| tables.was_smaller(port)) {
            true => Ok(None),
            false => zeros(port, shape_of(&request.shapes, i, port)).map(Some),
        };
        let outputs = ports.iter().enumerate().map(make);
        let mut outputs = outputs.collect::<Result<Vec<Option<Tensor>>, RunError>>()?;
        let targets = outputs.iter_mut().map(|tensor| Some(tensor.as_mut()?.bytes_mut())).collect();
        self.execute(request, targets)?;
        let tables = self.tables[self.current].as_ref().expect("it ran");
        let named = ports.iter().enumerate().zip(outputs).map(|((i, port), tensor)| {
            let shape = self.output_shape(i);
            let tensor = match tensor {
                Some(tensor) => tensor.shrunk(shape),
                None => tables.own_outputs[&i].first(shape),
            };
            Ok((port.name.clone(), tensor.map_err(lacking(port))?))
        });
        named.collect()
    }

    /// Runs the model on the caller's memory, without a copy where it is aligned to its elements.
    ///
    /// Outputs that are not listed are computed and dropped. The view of an output has the shape
    /// that the inputs give it, which [`Model::output_shapes`] tells. Where the data decides the
    /// size, that is the largest possible one, and [`Session::output_shape`] tells how much of it
    /// was used, densely packed from its beginning.
    ///
    /// ```no_run
    /// # use ansc_runtime::{Model, View, ViewMut};
    /// # let mut session = Model::load("model.ansc")?.session()?;
    /// let samples = vec![0f32; 3 * 224 * 224];
    /// let mut scores = vec![0f32; 1000];
    /// session.run_into(
    ///     &[("image", View::of_slice(&[1, 3, 224, 224], &samples)?)],
    ///     &mut [("scores", ViewMut::of_slice(&[1, 1000], &mut scores)?)],
    /// )?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_into(
        &mut self,
        inputs: &[(&str, View<'_>)],
        outputs: &mut [(&str, ViewMut<'_>)],
    ) -> Result<(), RunError> {
        let parts = self.parts.clone();
        let request = parts.request(inputs, &self.states)?;
        let ports = &parts.manifest.specialisations[request.specialisation].outputs;
        let outputs = select::sort_outputs(ports, &request.shapes, outputs)?;
        self.execute(request, outputs)
    }

    fn execute(
        &mut self,
        request: Request<'_>,
        outputs: Vec<Option<&mut [u8]>>,
    ) -> Result<(), RunError> {
        self.prepare(request.specialisation)?;
        let chance = self.chance;
        self.chance.run += 1;
        let parts = &*self.parts;
        self.current = request.specialisation;
        let specialisation = &parts.manifest.specialisations[self.current];
        let program = &parts.programs[self.current];
        let tables = self.tables[self.current].as_mut().expect("just prepared");
        if self.timed {
            tables.times.get_or_insert_with(|| vec![(Duration::ZERO, 0); program.steps.len()]);
        }
        if let Some(gpu) = &mut tables.gpu {
            let inputs: Vec<_> = request.inputs.iter().map(|v| v.map(|v| v.bytes())).collect();
            let io = Io { inputs: &inputs, outputs };
            let times = tables.times.as_deref_mut();
            return gpu.run(
                (specialisation, program),
                io,
                Notes { actual: &mut tables.actual, times, chance },
            );
        }
        let pool = &*self.pool;
        let share: Share<'_> = &|count, body| pool.run(count, &|_, range| body(range));
        let inputs = tables.input_addresses(parts, &request, share)?;
        tables.sizes.copy_from_slice(&request.sizes);
        let sizes = request.sizes;
        tables.shapes = request.shapes;
        let targets = tables.output_addresses(&specialisation.outputs, outputs)?;
        tables.set_addresses(program, (&inputs, &targets), &self.states);
        tables.actual.fill(None);
        self.states.begin();
        let mut kernels = OnThreads {
            kernels: &parts.kernels,
            pool: &self.pool,
            scratch: self.memory.scratch(),
            denormals: self.denormals,
            trace: self.trace.as_ref(),
        };
        let done = Exec {
            program,
            kernels: &mut kernels,
            buffers: &specialisation.buffers,
            addresses: &tables.addresses,
            args: &tables.args,
            actual: &mut tables.actual,
            times: tables.times.as_deref_mut(),
            chance,
        }
        .run()
        // A bad index must not stay beside what a later run gives.
        .inspect_err(|_| tables.own_inputs.clear())
        .and_then(|()| tables.finish_outputs(&specialisation.outputs, &targets, share));
        match done {
            Ok(()) => self.states.advance(specialisation, &sizes),
            Err(_) => self.states.recover(),
        }
        done
    }

    /// Begins another sequence of random numbers. With the same seed the next runs repeat what
    /// those of a new session gave, whose seed is 0. Nodes of the model that have a seed of their
    /// own begin anew as well.
    pub fn seed(&mut self, seed: u64) {
        self.chance = Chance { seed, run: 0 };
    }

    /// The shapes that inputs of these shapes give outputs, with the states that the session has
    /// now; else as [`Model::output_shapes`].
    pub fn output_shapes(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<Vec<usize>>, RunError> {
        self.parts.output_shapes(inputs, Held::By(&self.states))
    }

    /// The shape of the `index`-th output in the last run; before that, the largest one.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn output_shape(&self, index: usize) -> &[usize] {
        let port = &self.outputs()[index];
        self.tables[self.current].as_ref().map_or(&port.shape, |tables| tables.shape(index, port))
    }

    /// Begins to measure the time of each step, from zero, or ends it.
    pub fn profile(&mut self, on: bool) {
        self.timed = on;
        self.tables.iter_mut().flatten().for_each(|tables| tables.times = None);
    }

    /// The times of the specialisation of the last run since [`Session::profile`]: all steps in the
    /// order of the plan, nested ones after the step that they belong to. Empty if nothing was
    /// measured.
    pub fn step_times(&self) -> Vec<StepTime> {
        let steps = &self.parts.programs[self.current].steps;
        let times = self.tables[self.current].as_ref().and_then(|tables| tables.times.as_ref());
        let times = times.into_iter().flatten().zip(steps);
        times
            .map(|(&(total, runs), step)| StepTime {
                name: step.name.clone(),
                kind: step.kind,
                depth: step.depth,
                runs,
                total,
            })
            .collect()
    }
}

/// States.
impl Session {
    /// The tensors that the session keeps from run to run; `input` and `output` say how the model
    /// calls them, and how much room there is. None, unless the model was compiled with some.
    pub fn states(&self) -> &[State] {
        &self.specialisation().states
    }

    /// Forgets what earlier runs left: all states are as in a new session, and random numbers begin
    /// anew.
    pub fn reset(&mut self) {
        self.chance.run = 0;
        self.states.reset();
    }

    /// Keeps the first `length` elements along the axis that runs add to, such as the keys and
    /// values of so many tokens. Shorter states stay as they are.
    ///
    /// It is an error if a state does not grow along one axis: then there is no way back.
    pub fn truncate(&mut self, length: usize) -> Result<(), RunError> {
        self.states.truncate(length)
    }

    /// The shape of the `index`-th of [`Session::states`] now.
    ///
    /// # Panics
    /// If there is no such state.
    pub fn state_shape(&self, index: usize) -> Vec<usize> {
        self.states.shape(index)
    }

    /// The elements of a state now, by the name of its input.
    pub fn state(&self, name: &str) -> Result<Tensor, RunError> {
        self.states.get(name, &|count, body| self.pool.run(count, &|_, range| body(range)))
    }

    /// Copies what a state holds now to the caller's memory, which has its type and shape.
    pub fn state_into(&self, name: &str, to: &mut ViewMut<'_>) -> Result<(), RunError> {
        let share: Share<'_> = &|count, body| self.pool.run(count, &|_, range| body(range));
        self.states.get_into(name, to, share)
    }

    /// Lets the next run find this in a state. With what [`Session::state`] gave, it goes on from
    /// there, in this session or in another one of the model.
    pub fn set_state(&mut self, name: &str, value: View<'_>) -> Result<(), RunError> {
        let pool = &self.pool;
        self.states.set(name, value, &|count, body| pool.run(count, &|_, range| body(range)))
    }
}

/// Traces.
impl Session {
    /// Notes from now on what each thread does when: up to `room` pieces of work of each. A GPU's
    /// kernels are not among them. The result is the instant that [`TraceEvent::start`] counts
    /// from.
    pub fn start_trace(&mut self, room: usize) -> Instant {
        self.trace.insert(Recorder::new(self.pool.threads(), room)).origin()
    }

    /// Ends the trace, and gives what was noted of the specialisation of the last run; nothing if
    /// none was begun.
    pub fn take_trace(&mut self) -> Trace {
        let Some(recorder) = self.trace.take() else { return Trace::default() };
        let steps = &self.parts.programs[self.current].steps;
        let (spans, dropped) = recorder.into_spans();
        let events = spans.filter_map(|span| {
            let step = steps.get(span.step)?;
            Some(TraceEvent {
                step: span.step,
                name: step.name.clone(),
                kind: step.kind,
                thread: span.thread,
                start: span.start,
                duration: span.duration,
            })
        });
        Trace { events: events.collect(), dropped }
    }
}
