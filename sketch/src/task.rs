//! A subgraph to be scheduled, for a machine.
//!
//! Two tasks that differ in names only have the same [`Task::key`].

use ansc_graph::{BufId, Compute};
use xxhash_rust::xxh3::xxh3_128;

use crate::gpu::GpuLimits;
use crate::machine::Machine;
use crate::program::Program;

#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    pub name: String,
    pub compute: Compute,
    /// Which inputs are known when compiling, and may be packed.
    pub constant: Vec<bool>,
    pub machine: Machine,
    /// Threads that the schedule is for.
    pub cores: usize,
    /// The limits of the GPU that the schedule is for; `None` for a CPU.
    pub gpu: Option<GpuLimits>,
    /// Wishes of the rest of the artifact, for the schedule that nobody tuned. They are no part of
    /// the key.
    pub wishes: Wishes,
    /// Which algorithms there are for it. Two tasks that differ only in this have the same key, as
    /// a trace says what it uses.
    pub sums: Sums,
}

/// Which ways there are to compute a sum of products.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sums {
    /// All: where Winograd's convolutions are faster, they are taken, though they round more.
    #[default]
    Any,
    /// Only those that multiply what the expression multiplies, and add that up. Long sums are
    /// summed by blocks.
    Direct,
}

/// Wishes that kernels of an artifact have of each other, and its runs of all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wishes {
    /// For each input, the columns of the panels in which it lies already: of tiles that take about
    /// as long, one that reads these is taken. None is known of what is not listed.
    pub widths: Vec<Option<usize>>,
    /// Axes stay apart, because runs need a part of each.
    pub apart: bool,
}

impl Task {
    /// A task for a GPU without tensor cores, no input of which is a constant.
    pub fn on_gpu(name: &str, compute: &Compute, limits: &GpuLimits) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: vec![false; compute.inputs.len()],
            machine: Machine::new(16, 16),
            cores: 1,
            gpu: Some(limits.clone()),
            wishes: Default::default(),
            sums: Sums::Any,
        }
    }

    /// A task for a CPU with one thread, in which any algorithm is allowed.
    pub fn on_cpu(name: &str, compute: &Compute, constant: &[bool], machine: &Machine) -> Task {
        Task {
            name: name.into(),
            compute: compute.clone(),
            constant: constant.to_vec(),
            machine: machine.clone(),
            cores: 1,
            gpu: None,
            wishes: Default::default(),
            sums: Sums::Any,
        }
    }

    /// The program that nothing was done to.
    pub fn naive(&self) -> Program {
        crate::lower(&self.name, &self.compute)
    }

    /// A key for the space of schedules, as 32 digits. It depends on the expression and on which
    /// inputs are constant.
    pub fn key(&self) -> String {
        let mut compute = self.compute.clone();
        for (i, stage) in compute.stages.iter_mut().enumerate() {
            stage.name = format!("s{i}");
        }
        let text = format!("{compute}{:?}", self.constant);
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// The number of the input that the buffer is, if that is a constant which one place of the
    /// subgraph reads: it may be laid out as that place wants it.
    pub(crate) fn sole_constant(&self, buffer: BufId) -> Option<usize> {
        let param = buffer.index();
        let loads = self.compute.stages.iter().flat_map(|s| s.body.loads());
        let is_constant = self.constant.get(param).copied().unwrap_or(false);
        (is_constant && loads.filter(|(b, _)| *b == buffer).count() == 1).then_some(param)
    }
}
