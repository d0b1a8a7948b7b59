//! The distinct kernels of a model.
//!
//! Two groups with the same expression and the same constant parameters share a kernel: networks
//! repeat their blocks, and a kernel is compiled once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ansc_graph::demand::{Demand, Limits};
use ansc_graph::fuse::{self, Group};
use ansc_graph::{Compute, Expr, Graph, TensorType, UnOp, cost};
use ansc_runtime::manifest::Tuning;
use ansc_runtime::{DType, Precision};
use ansc_sketch::packed::Packing;
use ansc_sketch::verify as program;
use rayon::prelude::*;

use super::prepared::result;
use crate::Error;
use crate::choice::{Aim, Chosen, Form, Schedules};

#[derive(Clone)]
pub struct Kernel {
    pub symbol: String,
    pub compute: Compute,
    /// Which of its inputs are constants everywhere.
    pub constant: Vec<bool>,
    /// The sizes that it reads after its inputs.
    pub sizes: Vec<usize>,
    pub form: Form,
    pub packings: Vec<Packing>,
    /// Operations of the program; none where a GPU gets another one.
    pub work: Option<u64>,
    /// Where its schedule comes from records.
    pub tuning: Option<Tuning>,
    /// As in the manifest.
    pub algorithm: Option<&'static str>,
    /// The time that scheduling it took, on one thread.
    pub spent: Duration,
}

/// An expression, and which of its inputs are constants.
pub(super) type Subgraph = (Compute, Vec<bool>);

pub struct KernelTable {
    schedules: Schedules,
    index: HashMap<Subgraph, usize>,
    /// Kernels of all subgraphs, as they are where everything is needed.
    whole: Vec<Kernel>,
    /// Those that are used, by what they are made of.
    made: HashMap<(usize, Demand), usize>,
    pub kernels: Vec<Kernel>,
}

/// One place where a kernel runs.
pub struct KernelUse {
    pub kernel: usize,
    pub name: String,
    pub nodes: Vec<String>,
    pub flops: u64,
    pub bytes: u64,
    /// Arguments that it only reads.
    pub reads: usize,
    /// As in the manifest.
    pub precision: Option<Precision>,
}

impl Kernel {
    /// The types of the tensors that it reads, then of those that it writes. A constant that is
    /// packed for the kernel has the type of its packed form.
    pub(crate) fn operands(&self) -> Vec<TensorType> {
        let packed = |param: usize| self.packings.iter().find(|p| p.param == param);
        let input = |(param, ty)| packed(param).map_or(ty, |p| result(&p.compute));
        let inputs = self.compute.inputs.iter().enumerate().map(input).cloned();
        let sizes = self.sizes.iter().map(|_| TensorType::new(DType::I64, []));
        let outputs = self.compute.output_types();
        inputs.chain(sizes).chain(outputs).collect()
    }
}

impl KernelTable {
    pub fn new(schedules: Schedules) -> KernelTable {
        KernelTable {
            schedules,
            index: HashMap::new(),
            whole: Vec::new(),
            made: HashMap::new(),
            kernels: Vec::new(),
        }
    }

    pub(super) fn aim(&self) -> &Aim {
        &self.schedules.aim
    }

    pub(super) fn fusion(&self) -> fuse::Options {
        self.schedules.fusion()
    }

    /// The whole kernel of a subgraph, if there is one.
    pub(super) fn find(&self, subgraph: &Subgraph) -> Option<usize> {
        self.index.get(subgraph).copied()
    }

    /// Schedules subgraphs that are all different and have no kernel yet, side by side.
    pub(super) fn add(&mut self, new: Vec<Subgraph>) -> Result<(), Error> {
        let first = self.whole.len();
        let kernel = |(place, subgraph)| self.kernel(first + place, subgraph);
        let made: Vec<_> = new.par_iter().enumerate().map(kernel).collect();
        for (subgraph, kernel) in new.into_iter().zip(made) {
            self.index.insert(subgraph, self.whole.len());
            self.whole.push(kernel?);
        }
        Ok(())
    }

    /// Lets kernels of further specialisations read constants in the panels of those that there
    /// are, where that costs them little.
    pub(super) fn settle(&mut self) {
        for kernel in &self.whole {
            for packing in &kernel.packings {
                let ty = &kernel.compute.inputs[packing.param];
                if let Some(width) = result(&packing.compute).shape.last() {
                    self.schedules.widths.entry(ty.clone()).or_insert(*width);
                }
            }
        }
    }

    /// The kernel to be run in place of a whole one, where no more than the demand is needed.
    pub(super) fn make(&mut self, whole: usize, demand: &Demand) -> usize {
        if let Some(known) = self.made.get(&(whole, demand.clone())) {
            return *known;
        }
        let mut new = self.whole[whole].clone();
        if self.schedules.aim.is_cpu()
            && is_of_parts(&new.compute, demand)
            && let Some(program) = self.schedules.apart(&new.compute, &new.constant)
        {
            new.form = Form::Cpu(program);
        }
        if let Form::Cpu(program) = &mut new.form {
            new.sizes = ansc_sketch::leave_out(program, &new.compute, demand);
        }
        let index = if new.sizes.is_empty() && !demand.is_empty() {
            self.make(whole, &Demand::default())
        } else {
            new.symbol = format!("ansc_kernel_{}", self.kernels.len());
            self.kernels.push(new);
            self.kernels.len() - 1
        };
        self.made.insert((whole, demand.clone()), index);
        index
    }

    /// How many terms of sums a whole kernel may add beyond where they are known to be zero.
    pub(super) fn terms_beyond(&self, whole: usize, demand: &Demand) -> Option<i64> {
        let Kernel { compute, form, .. } = &self.whole[whole];
        ansc_sketch::terms_beyond(form.cpu()?, compute, demand)
    }

    fn kernel(&self, number: usize, (compute, constant): &Subgraph) -> Result<Kernel, Error> {
        let start = Instant::now();
        let symbol = format!("ansc_kernel_{number}");
        let Chosen { form, packings, tuning, algorithm } =
            self.schedules.of(&symbol, compute, constant)?;
        let program = form.cpu().filter(|_| self.schedules.aim.is_cpu());
        let work = program.map(ansc_sketch::work);
        let (compute, constant) = (compute.clone(), constant.clone());
        let spent = start.elapsed();
        Ok(Kernel {
            symbol,
            compute,
            constant,
            sizes: vec![],
            form,
            packings,
            work,
            tuning,
            algorithm,
            spent,
        })
    }

    /// Checks the programs of all kernels. Those of a GPU are checked in their form for a CPU.
    pub(crate) fn verify(&self) -> Result<(), program::Defect> {
        for kernel in &self.kernels {
            let checked = match &kernel.form {
                Form::Cpu(program) => program::verify(program),
                Form::Gpu(gpu) => program::verify(&gpu.cpu_form()),
            };
            let kernel = || kernel.symbol.clone();
            checked
                .map_err(|fault| program::Defect { kernel: kernel(), fault: Box::new(fault) })?;
        }
        Ok(())
    }

    /// The sizes that a kernel reads after its inputs.
    pub(super) fn sizes(&self, kernel: usize) -> &[usize] {
        &self.kernels[kernel].sizes
    }

    pub(super) fn packing(&self, kernel: usize, param: usize) -> Option<&Packing> {
        self.kernels[kernel].packings.iter().find(|p| p.param == param)
    }
}

/// Whether runs need a part of an inner axis of what is computed element by element. Sums stay as
/// they are: others were told how many terms these add.
fn is_of_parts(compute: &Compute, demand: &Demand) -> bool {
    let is_map = compute.stages.iter().all(|stage| stage.reduce.is_none());
    let is_inner = |limits: &Limits| limits.iter().skip(1).any(Option::is_some);
    is_map && demand.needed.iter().any(is_inner)
}

impl KernelUse {
    pub(super) fn new(graph: &Graph, group: &Group, kernel: usize, sizes: usize) -> KernelUse {
        KernelUse {
            kernel,
            name: group.name.clone(),
            nodes: group.nodes.iter().map(|n| graph.node(*n).name.clone()).collect(),
            flops: cost::flops(&group.compute),
            bytes: cost::bytes(&group.compute),
            reads: group.inputs.len() + sizes,
            precision: reads_in(&group.compute),
        }
    }
}

/// The type of fewer bits than `f32` that an expression reads first, if it reads one.
pub(crate) fn reads_in(compute: &Compute) -> Option<Precision> {
    let stored = compute.inputs.iter().find_map(|ty| Precision::with_operands(ty.dtype));
    stored.or_else(|| reads_tf32(compute).then_some(Precision::Tf32))
}

/// Whether fewer bits of `f32` are read than are stored.
fn reads_tf32(compute: &Compute) -> bool {
    let is_tf32 = |e: &Expr| matches!(e, Expr::Unary(UnOp::Tf32, _));
    compute.stages.iter().any(|stage| stage.body.any(&mut { is_tf32 }))
}
