//! The things that a session on a GPU owns: memory on the device, a stream, and the graph of a run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::code::Code;
use super::plan::{Op, Work};
use crate::driver::{Address, Driver, Fill, Owned, Reach, Resource, Result};
use crate::exec::{Exec, IndexCheck, Kernels};
use crate::host::Chance;
use crate::manifest::{BufferInfo, Specialisation, Storage};
use crate::program::{self, Program};
use crate::run_error::RunError;
use crate::tensor::byte_len;
use crate::validate::bytes_of;

/// Where buffers begin that are not in the arena: what the driver itself promises of memory.
const ALIGN: usize = 256;

/// Memory, stream and graph. Released in this order, after the work is done.
pub(crate) struct Runs {
    graph: Option<Owned>,
    marks: Vec<Owned>,
    /// Something to write, so that nothing else is left in the caches.
    trash: Option<Owned>,
    /// The address of every buffer of the specialisation.
    addresses: Vec<Address>,
    /// The addresses of all arguments of kernels.
    args: Vec<Address>,
    stream: Owned,
    _memory: Owned,
    code: Arc<Code>,
    /// The index of the specialisation.
    index: usize,
}

/// More than the caches of any GPU that we know.
const TRASH_BYTES: usize = 256 << 20;

/// The caller's bytes that a run reads and writes.
pub(crate) struct Io<'a> {
    /// The bytes of each input; none for one that is a weight.
    pub(crate) inputs: &'a [Option<&'a [u8]>],
    /// The room for each output; none for one that is not wanted.
    pub(crate) outputs: Vec<Option<&'a mut [u8]>>,
}

/// The shapes and times that a run notes.
pub(crate) struct Notes<'a> {
    /// Shapes of buffers that hold less than declared.
    pub(crate) actual: &'a mut [Option<Box<[usize]>>],
    /// Time and number of runs of each step, if wanted.
    pub(crate) times: Option<&'a mut [(Duration, u64)]>,
    /// Decides random numbers.
    pub(crate) chance: Chance,
}

impl Runs {
    /// For the `index`-th specialisation.
    pub(crate) fn new(
        code: &Arc<Code>,
        index: usize,
        one: &Specialisation,
        program: &Program,
    ) -> Result<Runs> {
        let driver = &code.driver;
        let stream = Owned::new(driver, Resource::Stream(driver.stream()?));
        let (own, bytes) = layout(one);
        let memory = Owned::memory(driver, bytes, code.reach())?;
        let weights = code.weights.address();
        let address = |(buffer, own): (&BufferInfo, &usize)| match buffer.storage {
            Storage::Weight { offset } => weights + offset as u64,
            _ => memory.address() + *own as u64,
        };
        let addresses: Vec<Address> = one.buffers.iter().zip(&own).map(address).collect();
        let args = program.args.iter().map(|id| addresses[id.0 as usize]).collect();
        Ok(Runs {
            graph: None,
            marks: vec![],
            trash: None,
            addresses,
            args,
            stream,
            _memory: memory,
            code: code.clone(),
            index,
        })
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.code.driver
    }

    pub(crate) fn stream(&self) -> usize {
        self.stream.handle()
    }

    pub(crate) fn address(&self, buffer: usize) -> Address {
        self.addresses[buffer]
    }

    /// Whether runs are a graph, to which the host only says when.
    pub(crate) fn is_graph(&self) -> bool {
        self.code.ops[self.index].is_some()
    }

    /// Inputs from the host, a run, outputs to the host.
    pub(crate) fn run(
        &mut self,
        (one, program): (&Specialisation, &Program),
        io: Io<'_>,
        mut notes: Notes<'_>,
    ) -> std::result::Result<(), RunError> {
        if self.is_graph() {
            check_inputs(one, program, io.inputs)?;
        }
        self.put_inputs(one, io.inputs)?;
        self.begin((one, program), &mut notes)?;
        self.take_outputs(one, io.outputs, notes.actual)?;
        Ok(())
    }

    /// Begins a run on what lies in the inputs' memory. With a graph it goes on after the call
    /// returns.
    pub(crate) fn begin(
        &mut self,
        (one, program): (&Specialisation, &Program),
        notes: &mut Notes<'_>,
    ) -> std::result::Result<(), RunError> {
        notes.actual.fill(None);
        let code = self.code.clone();
        let Some(ops) = &code.ops[self.index] else {
            return self.with_the_host(one, program, notes);
        };
        match &mut notes.times {
            Some(times) => self.timed(ops, times)?,
            None => self.launch_graph(ops)?,
        }
        Ok(())
    }

    pub(crate) fn wait(&self) -> Result<()> {
        self.driver().wait(self.stream())
    }

    /// Leaves nothing of the model in the caches.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.trash.is_none() {
            self.trash = Some(Owned::memory(self.driver(), TRASH_BYTES, Reach::Device)?);
        }
        let trash = self.trash.as_ref().map_or(0, Owned::address);
        self.driver().fill(self.stream(), trash, Fill::Byte(1), TRASH_BYTES)
    }

    /// Seconds between the beginning and the end of what `work` begins.
    pub(crate) fn seconds(
        &mut self,
        work: impl FnOnce(&mut Runs) -> std::result::Result<(), RunError>,
    ) -> std::result::Result<f64, RunError> {
        self.make_marks(2)?;
        self.mark(0)?;
        work(self)?;
        self.mark(1)?;
        self.wait()?;
        Ok(self.between(0)?)
    }

    fn make_marks(&mut self, count: usize) -> Result<()> {
        while self.marks.len() < count {
            let driver = self.driver().clone();
            self.marks.push(Owned::new(&driver, Resource::Event(driver.event()?)));
        }
        Ok(())
    }

    fn mark(&self, index: usize) -> Result<()> {
        self.driver().record(self.stream(), self.marks[index].handle())
    }

    fn between(&self, index: usize) -> Result<f64> {
        self.driver().seconds(self.marks[index].handle(), self.marks[index + 1].handle())
    }

    fn launch_graph(&mut self, ops: &[Op]) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        if self.graph.is_none() {
            self.graph = Some(self.capture(ops)?);
        }
        let graph = self.graph.as_ref().expect("just made");
        self.driver().launch_graph(self.stream(), graph.handle())
    }

    fn capture(&self, ops: &[Op]) -> Result<Owned> {
        let (driver, stream) = (self.driver(), self.stream());
        driver.begin_graph(stream)?;
        let noted = ops.iter().try_for_each(|op| self.work(&op.work));
        // The stream notes work until it is told to end, whatever happened.
        let graph = driver.end_graph(stream).map(|g| Owned::new(driver, Resource::Graph(g)));
        noted?;
        graph
    }

    /// One operation after the other, with the time of each.
    fn timed(&mut self, ops: &[Op], times: &mut [(Duration, u64)]) -> Result<()> {
        self.make_marks(ops.len() + 1)?;
        self.mark(0)?;
        for (i, op) in ops.iter().enumerate() {
            self.work(&op.work)?;
            self.mark(i + 1)?;
        }
        self.wait()?;
        for (i, op) in ops.iter().enumerate() {
            times[op.step].0 += Duration::from_secs_f64(self.between(i)?.max(0.0));
            times[op.step].1 += 1;
        }
        Ok(())
    }

    fn work(&self, work: &Work) -> Result<()> {
        let (driver, stream) = (self.driver(), self.stream());
        let at = |id: crate::manifest::BufferId| self.addresses[id.0 as usize];
        match work {
            Work::Kernel { kernel, args } => self.launch(*kernel, args),
            Work::Copy { from, to, pieces } => {
                let [from, to] = [from, to].map(|s| at(s.buffer) + s.offset as u64);
                driver.copy(stream, from, to, *pieces)
            }
            Work::Number { to, value } => {
                // Little endian, as the device is.
                let words = [*value as u32, (*value >> 32) as u32];
                words.into_iter().zip([0, 4]).try_for_each(|(word, offset)| {
                    driver.fill(stream, at(*to) + offset, Fill::Word(word), 1)
                })
            }
            Work::True { to } => driver.fill(stream, at(*to), Fill::Byte(1), 1),
        }
    }

    fn launch(&self, kernel: usize, args: &Range<usize>) -> Result<()> {
        launch(&self.code, self.stream(), kernel, &self.args[args.clone()])
    }

    fn put_inputs(&self, one: &Specialisation, inputs: &[Option<&[u8]>]) -> Result<()> {
        let given = one.inputs.iter().zip(inputs);
        for (port, bytes) in given.filter_map(|(port, bytes)| Some((port, (*bytes)?))) {
            let buffer = port.buffer.0 as usize;
            let is_weight = matches!(one.buffers[buffer].storage, Storage::Weight { .. });
            if !is_weight && !bytes.is_empty() {
                self.driver().upload(self.stream(), bytes, self.addresses[buffer])?;
            }
        }
        Ok(())
    }

    /// Copies the actual elements of outputs, and waits.
    fn take_outputs(
        &self,
        one: &Specialisation,
        outputs: Vec<Option<&mut [u8]>>,
        actual: &[Option<Box<[usize]>>],
    ) -> Result<()> {
        let wanted = one.outputs.iter().zip(outputs);
        for (port, bytes) in wanted.filter_map(|(port, bytes)| Some((port, bytes?))) {
            let buffer = port.buffer.0 as usize;
            let shape = actual[buffer].as_deref().unwrap_or(&port.shape);
            let used = byte_len(port.dtype, shape)
                .expect("an actual shape is no larger than the declared one");
            if used > 0 {
                let bytes = &mut bytes[..used];
                self.driver().download(self.stream(), self.addresses[buffer], bytes)?;
            }
        }
        self.wait()
    }

    fn with_the_host(
        &mut self,
        one: &Specialisation,
        program: &Program,
        notes: &mut Notes<'_>,
    ) -> std::result::Result<(), RunError> {
        // Copies to the device must be done before the host reads the data.
        self.wait()?;
        let of_both = |addresses: &[Address]| -> Vec<*mut u8> {
            addresses.iter().map(|&a| a as *mut u8).collect()
        };
        let (addresses, args) = (of_both(&self.addresses), of_both(&self.args));
        let mut kernels = OnDevice { code: &self.code, stream: self.stream() };
        Exec {
            program,
            kernels: &mut kernels,
            buffers: &one.buffers,
            addresses: &addresses,
            args: &args,
            actual: notes.actual,
            times: notes.times.as_deref_mut(),
            chance: notes.chance,
        }
        .run()?;
        self.wait()?;
        Ok(())
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // If the wait fails nothing runs any more.
        let _ = self.wait();
    }
}

/// Kernels on a stream, for a plan that the host goes through.
struct OnDevice<'a> {
    code: &'a Code,
    stream: usize,
}

impl Kernels for OnDevice<'_> {
    fn run(
        &mut self,
        _step: usize,
        kernel: usize,
        args: &[*mut u8],
    ) -> std::result::Result<(), RunError> {
        let args: Vec<Address> = args.iter().map(|&a| a as Address).collect();
        Ok(launch(self.code, self.stream, kernel, &args)?)
    }

    fn wait(&mut self) -> std::result::Result<(), RunError> {
        Ok(self.code.driver.wait(self.stream)?)
    }
}

/// The checks of indices that a graph leaves to the host: those of inputs, which the host has.
fn check_inputs(
    one: &Specialisation,
    program: &Program,
    inputs: &[Option<&[u8]>],
) -> std::result::Result<(), RunError> {
    let mut result = Ok(());
    program::index_checks(&program.main, &mut |step, indices, extents| {
        let Storage::Input(port) = one.buffers[indices.0 as usize].storage else { return };
        if let (Some(bytes), Ok(())) = (inputs[port as usize], &result) {
            let node = &program.steps[step].name;
            let check = IndexCheck { node, buffers: &one.buffers, indices, extents };
            result = check.run(bytes, &|extent, body| body(0..extent));
        }
    });
    result
}

fn launch(code: &Code, stream: usize, kernel: usize, args: &[Address]) -> Result<()> {
    let launches = code.kernels[kernel].iter();
    launches.into_iter().try_for_each(|l| code.driver.launch(stream, l.function, l.threads, args))
}

/// The offset of every buffer in the memory of a session, and the bytes of that: the arena, then
/// inputs and outputs. Weights have none. All views of an input or output lie where it lies.
fn layout(one: &Specialisation) -> (Vec<usize>, usize) {
    let mut sizes: BTreeMap<PortOf, usize> = BTreeMap::new();
    for buffer in &one.buffers {
        if let Some(port) = port_of(buffer) {
            let size = sizes.entry(port).or_default();
            *size = (*size).max(bytes_of(buffer));
        }
    }
    let mut end = one.arena_bytes.next_multiple_of(ALIGN);
    let place = |(port, bytes): (PortOf, usize)| {
        let offset = end;
        end = (end + bytes).next_multiple_of(ALIGN);
        (port, offset)
    };
    let places: BTreeMap<PortOf, usize> = sizes.into_iter().map(place).collect();
    let offset = |buffer: &BufferInfo| match (buffer.storage, port_of(buffer)) {
        (_, Some(port)) => places[&port],
        (Storage::Arena { offset }, None) => offset,
        _ => 0,
    };
    (one.buffers.iter().map(offset).collect(), end)
}

/// Which input or output, and which of the two it is.
type PortOf = (bool, u32);

fn port_of(buffer: &BufferInfo) -> Option<PortOf> {
    match buffer.storage {
        Storage::Input(port) => Some((false, port)),
        Storage::Output(port) => Some((true, port)),
        _ => None,
    }
}
