//! The addresses of all buffers of a specialisation, which a session keeps.
//!
//! In: a manifest, and for each run the caller's memory. Out: addresses for the steps of a run.
//! Inputs that are smaller than their buffers, or not aligned, are copied to memory of the
//! session, and outputs from there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use crate::boxes::{self, Corner, Share};
use crate::cuda::Runs;
use crate::manifest::{BufferInfo, Port, Specialisation, Storage};
use crate::memory::Memory;
use crate::parts::Parts;
use crate::program::Program;
use crate::run_error::RunError;
use crate::select::{Request, shape_of};
use crate::states::States;
use crate::tensor::{Tensor, TensorError, byte_len};

/// The tables that a session keeps for a specialisation.
pub(crate) struct Tables {
    /// Address of every buffer; those of inputs, outputs and states are set in each run.
    pub(crate) addresses: Vec<*mut u8>,
    /// Addresses of all arguments of kernels.
    pub(crate) args: Vec<*mut u8>,
    /// Which of `args` change from run to run.
    pub(crate) changing_args: Vec<usize>,
    /// Which of `addresses` do.
    pub(crate) changing: Vec<(usize, Storage)>,
    pub(crate) actual: Vec<Option<Box<[usize]>>>,
    /// The sizes of a run, where buffers of sizes lie.
    pub(crate) sizes: Vec<i64>,
    /// The shapes that the sizes gave outputs in the last run, for [`shape_of`].
    pub(crate) shapes: Vec<Vec<usize>>,
    /// Copies of inputs that are not aligned, or smaller than their buffers.
    pub(crate) own_inputs: BTreeMap<usize, Tensor>,
    /// Memory for outputs that the caller does not want, that are not aligned, or smaller than
    /// their buffers.
    pub(crate) own_outputs: BTreeMap<usize, Tensor>,
    pub(crate) times: Option<Vec<(Duration, u64)>>,
    /// In place of all that, if the model is for a GPU.
    pub(crate) gpu: Option<Runs>,
}

// SAFETY: the pointers go to memory that the session or its model owns; those to the caller's
// memory are used only while it is borrowed, inside of a run, which takes the session by unique
// reference.
unsafe impl Send for Tables {}
// SAFETY: as above; shared references only read what does not change but in a run.
unsafe impl Sync for Tables {}

impl Tables {
    pub(crate) fn new(parts: &Parts, specialisation: usize, memory: &Memory) -> Tables {
        let Specialisation { buffers, sizes, .. } = &parts.manifest.specialisations[specialisation];
        let mut sizes = vec![0; sizes.len()];
        let program = &parts.programs[specialisation];
        let prepared = parts.prepared.as_ref().map_or(std::ptr::null(), |p| p.as_ptr());
        let places = Places {
            arena: memory.arena(),
            weights: parts.artifact.weights().as_ptr().cast_mut(),
            prepared: prepared.cast_mut(),
            sizes: sizes.as_mut_ptr(),
        };
        let addresses = places.of(buffers);
        let changes = |storage: Storage| match storage {
            Storage::Input(_) | Storage::Output(_) => true,
            Storage::State(_) | Storage::NextState(_) => true,
            Storage::Size(_) => false,
            Storage::Arena { .. } | Storage::Weight { .. } | Storage::Prepared { .. } => false,
        };
        let changing_arg = |i: &usize| changes(buffers[program.args[*i].0 as usize].storage);
        let storages = buffers.iter().map(|buffer| buffer.storage).enumerate();
        Tables {
            args: program.args.iter().map(|id| addresses[id.0 as usize]).collect(),
            changing_args: (0..program.args.len()).filter(changing_arg).collect(),
            changing: storages.filter(|(_, storage)| changes(*storage)).collect(),
            actual: vec![None; addresses.len()],
            addresses,
            sizes,
            shapes: vec![],
            own_inputs: BTreeMap::new(),
            own_outputs: BTreeMap::new(),
            times: None,
            gpu: None,
        }
    }

    /// The actual shape of an output.
    pub(crate) fn shape<'a>(&'a self, index: usize, port: &'a Port) -> &'a [usize] {
        let of_the_data = self.actual[port.buffer.0 as usize].as_deref();
        of_the_data.unwrap_or_else(|| shape_of(&self.shapes, index, port))
    }

    /// Whether the data made an output smaller in the last run: memory for the largest one is kept
    /// then, for it takes longer to get than what is there takes to be copied.
    pub(crate) fn was_smaller(&self, port: &Port) -> bool {
        self.gpu.is_none() && self.actual[port.buffer.0 as usize].is_some()
    }

    /// Where each input lies. Kernels expect elements to be aligned, and those of a smaller input
    /// where they are in the largest one, so others are copied.
    pub(crate) fn input_addresses(
        &mut self,
        parts: &Parts,
        request: &Request<'_>,
        share: Share<'_>,
    ) -> Result<Vec<*mut u8>, RunError> {
        let ports = &parts.manifest.specialisations[request.specialisation].inputs;
        let mut addresses = Vec::with_capacity(ports.len());
        for (i, (view, port)) in request.inputs.iter().zip(ports).enumerate() {
            let (shape, bytes) = match (view, port.bound) {
                (Some(view), _) => (view.shape(), view.bytes()),
                (None, Some(bound)) => {
                    (&port.shape[..], parts.weight(request.specialisation, bound))
                }
                (None, None) => (&port.shape[..], &[][..]),
            };
            let in_place = shape == port.shape || port.dense;
            addresses.push(if in_place && is_aligned(bytes.as_ptr(), port) {
                bytes.as_ptr().cast_mut()
            } else {
                let copy = own(&mut self.own_inputs, i, port)?;
                match port.dense {
                    true => copy.bytes_mut()[..bytes.len()].copy_from_slice(bytes),
                    false => boxes::spread(bytes, corner(shape, port), copy.bytes_mut(), share),
                }
                copy.bytes_mut().as_mut_ptr()
            });
        }
        Ok(addresses)
    }

    /// Where each output shall be written, and where the caller wants it in the end.
    pub(crate) fn output_addresses(
        &mut self,
        ports: &[Port],
        outputs: Vec<Option<&mut [u8]>>,
    ) -> Result<Vec<Target>, RunError> {
        let mut targets = Vec::with_capacity(outputs.len());
        for (i, (bytes, port)) in outputs.into_iter().zip(ports).enumerate() {
            let wanted = bytes.map(std::ptr::from_mut);
            let is_whole = shape_of(&self.shapes, i, port) == port.shape;
            let callers = wanted.map(|bytes| bytes.cast::<u8>());
            let written = match callers.filter(|at| is_whole && is_aligned(*at, port)) {
                Some(callers) => callers,
                None => own(&mut self.own_outputs, i, port)?.bytes_mut().as_mut_ptr(),
            };
            targets.push(Target { written, wanted });
        }
        Ok(targets)
    }

    /// Sets what is not where it was in the last run.
    pub(crate) fn set_addresses(
        &mut self,
        program: &Program,
        (inputs, outputs): (&[*mut u8], &[Target]),
        states: &States,
    ) {
        for &(buffer, storage) in &self.changing {
            match storage {
                Storage::Input(port) => self.addresses[buffer] = inputs[port as usize],
                Storage::Output(port) => self.addresses[buffer] = outputs[port as usize].written,
                Storage::State(state) => self.addresses[buffer] = states.now(state as usize),
                Storage::NextState(state) => self.addresses[buffer] = states.next(state as usize),
                Storage::Size(_)
                | Storage::Arena { .. }
                | Storage::Weight { .. }
                | Storage::Prepared { .. } => {}
            }
        }
        for &arg in &self.changing_args {
            self.args[arg] = self.addresses[program.args[arg].0 as usize];
        }
    }

    /// Copies outputs that the plan leaves elsewhere than where the caller wants them.
    pub(crate) fn finish_outputs(
        &self,
        ports: &[Port],
        targets: &[Target],
        share: Share<'_>,
    ) -> Result<(), RunError> {
        for (i, (target, port)) in targets.iter().zip(ports).enumerate() {
            let buffer = port.buffer.0 as usize;
            let (shape, actual) = (shape_of(&self.shapes, i, port), self.shape(i, port));
            // A tensor that the data makes smaller is dense, and not where sizes leave elements.
            if shape != port.shape && self.actual[buffer].is_some() {
                let (step, buffer) = (port.name.clone(), port.name.clone());
                return Err(RunError::Dynamic { step, buffer });
            }
            let source = self.addresses[buffer];
            let is_elsewhere = |wanted: &*mut [u8]| wanted.cast() != source && !wanted.is_empty();
            let Some(wanted) = target.wanted.filter(is_elsewhere) else { continue };
            let whole = byte_len(port.dtype, &port.shape).expect("checked when it was loaded");
            let bytes = byte_len(port.dtype, actual)
                .expect("an actual shape is no larger than the declared one");
            // SAFETY: the source is valid for the declared bytes of the port, and no step is left
            // to write there. The caller's outputs are borrowed uniquely, so they overlap nothing.
            let (source, wanted) =
                unsafe { (std::slice::from_raw_parts(source, whole), &mut *wanted) };
            match shape == port.shape {
                true => wanted[..bytes].copy_from_slice(&source[..bytes]),
                false => boxes::gather(source, corner(shape, port), wanted, share),
            }
        }
        Ok(())
    }
}

/// Where the value of an output goes.
pub(crate) struct Target {
    written: *mut u8,
    wanted: Option<*mut [u8]>,
}

/// Where a tensor of the port lies in its buffer.
fn corner<'a>(shape: &'a [usize], port: &'a Port) -> Corner<'a> {
    Corner { shape, room: &port.shape, size: port.dtype.size() }
}

/// Memory for a value of a port.
pub(crate) fn zeros(port: &Port, shape: &[usize]) -> Result<Tensor, RunError> {
    Tensor::try_zeros(port.dtype, shape).map_err(lacking(port))
}

pub(crate) fn lacking(port: &Port) -> impl FnOnce(TensorError) -> RunError {
    let name = port.name.clone();
    |source| RunError::Memory { name, source }
}

/// The memory that a session keeps for a port, made when it is first needed.
fn own<'a>(
    kept: &'a mut BTreeMap<usize, Tensor>,
    index: usize,
    port: &Port,
) -> Result<&'a mut Tensor, RunError> {
    Ok(match kept.entry(index) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(zeros(port, &port.shape)?),
    })
}

fn is_aligned(address: *const u8, port: &Port) -> bool {
    (address as usize).is_multiple_of(port.dtype.size())
}

/// Where the memory of buffers begins that stays where it is.
pub(crate) struct Places {
    pub(crate) arena: *mut u8,
    pub(crate) weights: *mut u8,
    pub(crate) prepared: *mut u8,
    pub(crate) sizes: *mut i64,
}

impl Places {
    /// Addresses of all buffers; null for those that change from run to run.
    pub(crate) fn of(&self, buffers: &[BufferInfo]) -> Vec<*mut u8> {
        let address = |storage| match storage {
            Storage::Arena { offset } => self.arena.wrapping_add(offset),
            Storage::Weight { offset } => self.weights.wrapping_add(offset),
            Storage::Prepared { offset } => self.prepared.wrapping_add(offset),
            Storage::Size(size) => self.sizes.wrapping_add(size as usize).cast(),
            Storage::Input(_) | Storage::Output(_) => std::ptr::null_mut(),
            Storage::State(_) | Storage::NextState(_) => std::ptr::null_mut(),
        };
        buffers.iter().map(|buffer| address(buffer.storage)).collect()
    }
}
