//! Methods that record instructions on parts of loops, layouts and units of code.

use super::StepError;
use super::instruction::{BlockVar, Instruction, LoopVar};
use super::record::Recorder;
use crate::index_map::IndexMap;
use crate::program::Scope;

type Result<T> = std::result::Result<T, StepError>;

impl Recorder {
    /// A loop for each part, of which there is one more than points.
    pub fn loop_partition(&mut self, target: LoopVar, points: &[usize]) -> Result<Vec<LoopVar>> {
        let out = self.new_loops(points.len() + 1);
        let points = points.to_vec();
        self.plain(Instruction::LoopPartition { target, points, out: out.clone() })?;
        Ok(out)
    }

    pub fn storage_align(
        &mut self,
        buffer: &str,
        axis: usize,
        factor: usize,
        offset: usize,
    ) -> Result<()> {
        let buffer = buffer.to_owned();
        self.plain(Instruction::StorageAlign { buffer, axis, factor, offset })
    }

    pub fn re_index_read(
        &mut self,
        block: BlockVar,
        buffer: &str,
        scope: Scope,
    ) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::ReIndexRead { block, buffer: buffer.to_owned(), scope, out })?;
        Ok(out)
    }

    pub fn re_index_write(&mut self, block: BlockVar, scope: Scope) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::ReIndexWrite { block, scope, out })?;
        Ok(out)
    }

    pub fn transform_layout(&mut self, buffer: &str, map: &IndexMap) -> Result<()> {
        let (buffer, map) = (buffer.to_owned(), map.clone());
        self.plain(Instruction::TransformLayout { buffer, map })
    }

    pub fn transform_block_layout(&mut self, block: BlockVar, map: &IndexMap) -> Result<()> {
        self.plain(Instruction::TransformBlockLayout { block, map: map.clone() })
    }

    pub fn decompose_padding(&mut self, block: BlockVar, target: LoopVar) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::DecomposePadding { block, target, out })?;
        Ok(out)
    }

    pub fn blockize(&mut self, target: LoopVar) -> Result<BlockVar> {
        let out = BlockVar(self.fresh());
        self.plain(Instruction::Blockize { target, out })?;
        Ok(out)
    }

    pub fn tensorize(&mut self, target: LoopVar, intrinsic: &str) -> Result<()> {
        self.plain(Instruction::Tensorize { target, intrinsic: intrinsic.to_owned() })
    }
}
