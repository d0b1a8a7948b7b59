//! The threads of a block go through their plan together.

use std::collections::BTreeSet;

use ansc_graph::{BufId, VarId};

use super::lanes::{Mask, Node, Value};
use super::memory::{Fault, Memory};
use super::plan::{Code, Plan, Touch, What};
use crate::exec::ExecError;
use crate::gpu::Kernel;
use crate::program::Program;

pub(super) fn run(
    program: &Program,
    kernel: &Kernel,
    plan: &Plan,
    blocks: &[[usize; 3]],
) -> Result<(), ExecError> {
    let mut used = BTreeSet::new();
    kernel.visit_blocks(&mut |b| used.extend(b.buffers()));
    let threads = plan.threads.count;
    let memory = Memory::new(program, threads, |b| used.contains(&b));
    let memory =
        memory.map_err(|b| ExecError::TooLarge { buffer: program.buffer(b).name.clone() })?;
    let mut team = Team { program, threads, memory, vars: vec![0; program.vars.len()] };
    for block in blocks {
        for (axis, place) in kernel.grid.iter().zip(block) {
            team.vars[axis.var.index()] = *place as i64;
        }
        team.memory.begin();
        team.run(&plan.body)?;
    }
    Ok(())
}

struct Team<'a> {
    program: &'a Program,
    threads: usize,
    memory: Memory,
    /// Values of loops and of the axes of the grid.
    vars: Vec<i64>,
}

impl Team<'_> {
    fn run(&mut self, body: &[Code]) -> Result<(), ExecError> {
        body.iter().try_for_each(|code| match code {
            Code::Barrier => {
                self.memory.barrier();
                Ok(())
            }
            Code::For { var, extent, fresh, body } => (0..*extent).try_for_each(|i| {
                fresh.iter().for_each(|b| self.memory.forget(*b));
                self.vars[var.index()] = i as i64;
                self.run(body)
            }),
            Code::Block { name, touches } => {
                touches.iter().try_for_each(|touch| self.under(name, touch, &touch.loops))
            }
        })
    }

    fn under(
        &mut self,
        block: &str,
        touch: &Touch,
        loops: &[(VarId, usize)],
    ) -> Result<(), ExecError> {
        let Some(((var, extent), inner)) = loops.split_first() else {
            return self.touch(block, touch);
        };
        (0..*extent).try_for_each(|i| {
            self.vars[var.index()] = i as i64;
            self.under(block, touch, inner)
        })
    }

    fn touch(&mut self, block: &str, touch: &Touch) -> Result<(), ExecError> {
        let mask = Mask::of(&touch.conditions, &self.vars);
        match &touch.what {
            _ if matches!(mask, Mask::Nobody) => Ok(()),
            What::Iterator { name, extent, value } => {
                let value = value.eval(&self.vars);
                let outside = mask.outside(&value, *extent, self.threads);
                outside.map_or(Ok(()), |lane| {
                    let (block, iter) = (block.to_owned(), name.clone());
                    let value = value.lane(lane);
                    Err(ExecError::Iterator { block, iter, value, extent: *extent })
                })
            }
            What::Access { buffer, indices, write } => {
                self.access(block, *buffer, indices, *write, &mask)
            }
        }
    }

    fn access(
        &mut self,
        block: &str,
        buffer: BufId,
        indices: &[Node],
        write: bool,
        mask: &Mask,
    ) -> Result<(), ExecError> {
        let shape = &self.program.buffer(buffer).ty.shape;
        let mut offset = Value::Same(0);
        for (index, &extent) in indices.iter().zip(shape) {
            let index = index.eval(&self.vars);
            if let Some(lane) = mask.outside(&index, extent, self.threads) {
                return Err(self.out_of_bounds(block, buffer, indices, lane));
            }
            offset = offset.along(extent, index);
        }
        let done = self.memory.access(buffer, &offset, mask, write);
        done.map_err(|fault| self.fault(block, buffer, indices, fault))
    }

    fn at(&self, indices: &[Node], lane: usize) -> Vec<i64> {
        indices.iter().map(|index| index.eval(&self.vars).lane(lane)).collect()
    }

    fn out_of_bounds(
        &self,
        block: &str,
        buffer: BufId,
        indices: &[Node],
        lane: usize,
    ) -> ExecError {
        let described = self.program.buffer(buffer);
        ExecError::OutOfBounds {
            block: block.to_owned(),
            buffer: described.name.clone(),
            indices: self.at(indices, lane),
            ty: described.ty.clone(),
        }
    }

    fn fault(&self, block: &str, buffer: BufId, indices: &[Node], fault: Fault) -> ExecError {
        let (block, buffer) = (block.to_owned(), self.program.buffer(buffer).name.clone());
        match fault {
            Fault::WritesInput => ExecError::WritesInput { block, buffer },
            Fault::Uninitialised(lane) => {
                ExecError::Uninitialised { block, buffer, indices: self.at(indices, lane) }
            }
            Fault::Race(lane) => {
                let (indices, var) = (self.at(indices, lane), "threads".to_owned());
                ExecError::Race { block, buffer, indices, var }
            }
        }
    }
}
