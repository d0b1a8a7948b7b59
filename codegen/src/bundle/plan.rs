//! The plan of a model as a list of calls, with all addresses known but for the caller's.
//!
//! In: a manifest. Out: a [`Plan`], or a [`CodegenError::Bundle`] that names the first step that
//! needs the runtime.
//!
//! ```text
//! kernel 3 (x, weight at 64, arena at 128)  ->  k3_0(input 0, weights + 64, workspace + 128)
//! ```

use ansc_runtime::DType;
use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::{
    BufferId, BufferInfo, Launch, Manifest, Port, Specialisation, Step, Storage, WEIGHT_ALIGN,
};
use ansc_runtime::tensor::byte_len;

use crate::error::CodegenError;

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the caller's memory for the n-th pointer.
    Port(usize),
    Workspace(usize),
    Weights(usize),
}

/// The function takes these steps, in order.
pub(super) enum Call {
    Kernel {
        launches: Vec<Launch>,
        args: Vec<Place>,
    },
    Copy {
        from: Place,
        to: Place,
        bytes: usize,
    },
    /// The function fails if an index is out of range.
    Check {
        indices: Place,
        dtype: DType,
        count: usize,
        /// Extents of the axes that indices are of, in turn.
        extents: Vec<usize>,
    },
}

pub(super) struct Plan<'a> {
    /// Those that the caller gives a pointer for, in this order: inputs that are not fixed, then
    /// outputs.
    pub(super) inputs: Vec<&'a Port>,
    pub(super) outputs: Vec<&'a Port>,
    pub(super) calls: Vec<Call>,
    /// Bytes of the arena, and of the scratch memory behind it.
    pub(super) arena: usize,
    pub(super) scratch: usize,
}

impl Plan<'_> {
    pub(super) fn workspace(&self) -> usize {
        self.arena + self.scratch
    }
}

pub(super) fn plan(manifest: &Manifest) -> Result<Plan<'_>, CodegenError> {
    let one = only(manifest)?;
    let inputs: Vec<&Port> = one.inputs.iter().filter(|port| port.bound.is_none()).collect();
    let mut reader = Reader { one, inputs: inputs.len(), calls: vec![] };
    for step in &one.plan.steps {
        reader.step(manifest, step)?;
    }
    for (i, port) in one.outputs.iter().enumerate() {
        let (from, to) = (reader.place(port.buffer), Place::Port(inputs.len() + i));
        if from != to {
            let bytes = bytes_of(&one.buffers[port.buffer.0 as usize]);
            reader.calls.push(Call::Copy { from, to, bytes });
        }
    }
    let launches = manifest.kernels.iter().flat_map(|kernel| &kernel.launches);
    let scratch = launches.map(|launch| launch.scratch).max().unwrap_or(0);
    Ok(Plan {
        inputs,
        outputs: one.outputs.iter().collect(),
        calls: reader.calls,
        arena: one.arena_bytes.next_multiple_of(WEIGHT_ALIGN),
        scratch,
    })
}

fn only(manifest: &Manifest) -> Result<&Specialisation, CodegenError> {
    match &manifest.specialisations[..] {
        [one] if one.sizes.is_empty() => Ok(one),
        several => {
            let names: Vec<&str> = several.iter().map(|s| s.name.as_str()).collect();
            Err(CodegenError::BundleSizes { sizes: names.join("; ") })
        }
    }
}

struct Reader<'a> {
    one: &'a Specialisation,
    inputs: usize,
    calls: Vec<Call>,
}

impl Reader<'_> {
    fn step(&mut self, manifest: &Manifest, step: &Step) -> Result<(), CodegenError> {
        let needs =
            |node: &str, what: String| Err(CodegenError::Bundle { node: node.to_owned(), what });
        let call = match step {
            Step::Kernel { kernel, args } => Call::Kernel {
                launches: manifest.kernels[*kernel as usize].launches.clone(),
                args: args.iter().map(|&id| self.place(id)).collect(),
            },
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Host { call: HostOp::CheckIndices { extents }, inputs, .. } => {
                let id = inputs[0];
                let info = &self.one.buffers[id.0 as usize];
                Call::Check {
                    indices: self.place(id),
                    dtype: info.dtype,
                    count: bytes_of(info) / info.dtype.size(),
                    extents: extents.clone(),
                }
            }
            // The same bits, under another type.
            Step::Host { call: HostOp::BitCast { .. }, inputs, outputs, .. } => {
                self.copy(inputs[0], outputs[0])
            }
            Step::Host { name, call, .. } => return needs(name, call.name().to_owned()),
            Step::If { name, .. } => return needs(name, "If".into()),
            Step::Loop(l) => return needs(&l.name, "Loop".into()),
        };
        self.calls.push(call);
        Ok(())
    }

    fn copy(&self, from: BufferId, to: BufferId) -> Call {
        let bytes = bytes_of(&self.one.buffers[to.0 as usize]);
        Call::Copy { from: self.place(from), to: self.place(to), bytes }
    }

    fn place(&self, id: BufferId) -> Place {
        match self.one.buffers[id.0 as usize].storage {
            Storage::Input(port) => self.input(port as usize),
            Storage::Output(port) => Place::Port(self.inputs + port as usize),
            Storage::Arena { offset } => Place::Workspace(offset),
            Storage::Weight { offset } => Place::Weights(offset),
            Storage::Prepared { .. } => unreachable!("a bundle's constants are stored as read"),
            Storage::Size(_) => unreachable!("a bundle is of one size"),
            Storage::State(_) | Storage::NextState(_) => {
                unreachable!("a bundle keeps no state")
            }
        }
    }

    /// The pointer of an input, or the constant that it is fixed to.
    fn input(&self, port: usize) -> Place {
        match self.one.inputs[port].bound {
            Some(value) => self.place(value),
            None => {
                let before = self.one.inputs[..port].iter().filter(|p| p.bound.is_none());
                Place::Port(before.count())
            }
        }
    }
}

fn bytes_of(buffer: &BufferInfo) -> usize {
    byte_len(buffer.dtype, &buffer.shape).expect("sizes were checked at import")
}
