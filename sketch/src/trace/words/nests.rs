//! Words for steps that write a nest down to vectors and threads.
//!
//! ```text
//! annotate_loop(l3, "outer", 0); peel(l4, pieces); parallel_nests("outer", "rows", 0)
//! =>
//! cut off what is left of loop 0 of mm
//! run loops 1.0 of mm in parallel
//! ```

use super::super::instruction::{LoopVar, Number};
use super::super::table::Instruction;
use super::{Words, part};

impl Words {
    pub(super) fn on_nests(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            Peel { target, .. } => {
                Some(format!("cut off what is left of loop {}", self.name(*target)))
            }
            PartitionGuards { target } => {
                Some(format!("part loop {} where padding begins and ends", self.name(*target)))
            }
            UnrollJam { target } => {
                Some(format!("write out loop {}, its iterations side by side", self.name(*target)))
            }
            LoopPartition { target, points, out } => self.parted(*target, points, out),
            LoopCover { target, length, last, out } => self.covered(*target, *length, *last, out),
            AnnotateLoop { target, key, .. } => {
                let name = self.name(*target);
                self.noted.entry(key.clone()).or_default().push(name);
                None
            }
            PartitionNoted { key } => {
                let loops = self.loops_with(&[key]);
                (!loops.is_empty())
                    .then(|| format!("part loops {loops} where padding begins and ends"))
            }
            JamNoted { key } => {
                Some(format!("do the iterations of loops {} side by side", self.loops_with(&[key])))
            }
            FuseNests { outer, more, few } => {
                Some(format!("make one loop of loops {}", self.outer_loops(outer, more, *few)))
            }
            ParallelNests { outer, more, few } => {
                Some(format!("run loops {} in parallel", self.outer_loops(outer, more, *few)))
            }
            PartitionChoices {} => Some("part loops where they turn to another tensor".into()),
            Collapse {} => Some("make one axis of those that everything walks as one".into()),
            Complete {} => None,
            on_data => self.on_data(on_data),
        }
    }

    fn on_data(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            Pack { block, buffer, width, out, .. } => {
                self.blocks.insert(out.0, format!("the panels of {buffer}"));
                let (reader, width) = (self.block(*block), self.product(width));
                Some(format!("lay {buffer} out in panels of {width} for {reader}"))
            }
            PackInput { buffer, width, .. } => {
                let width = self.product(width);
                Some(format!("lay {buffer} out in panels of {width} when compiling"))
            }
            TransformLayout { buffer, map } => Some(format!("lay {buffer} out as {map}")),
            TransformBlockLayout { block, map } => {
                Some(format!("walk {} as {map}", self.block(*block)))
            }
            StorageAlign { buffer, axis, .. } => {
                Some(format!("leave gaps between the rows of axis {axis} of {buffer}"))
            }
            ReIndexRead { block, buffer, scope, out } => {
                self.blocks.insert(out.0, format!("the copy of {buffer}"));
                let reader = self.block(*block);
                Some(format!("copy {buffer} to a {scope} buffer as {reader} walks it"))
            }
            ReIndexWrite { block, scope, out } => {
                let name = self.block(*block);
                self.blocks.insert(out.0, format!("the copy of {name}"));
                Some(format!("collect {name} in a {scope} buffer, as it walks"))
            }
            Pad { block, iter, factors } => {
                let (name, whole) = (self.block(*block), self.product(factors));
                Some(format!("round axis {iter} of {name} up to a multiple of {whole}"))
            }
            on_terms => self.on_terms(on_terms),
        }
    }

    fn on_terms(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            DecomposeReduction { block, target, out } => {
                let (name, place) = (self.block(*block), self.name(*target));
                self.blocks.insert(out.0, format!("the beginning of {name}"));
                Some(format!("begin {name} before loop {place}"))
            }
            DecomposePadding { block, target, out } => {
                let (name, place) = (self.block(*block), self.name(*target));
                self.blocks.insert(out.0, format!("the padding of {name}"));
                Some(format!("fill the padding of {name} before loop {place}"))
            }
            LiftAddend { block } => {
                Some(format!("start from what the reader adds in {}", self.block(*block)))
            }
            Slice { lengths, .. } => {
                let lengths: Vec<String> = lengths.iter().map(|n| self.number(*n)).collect();
                let lengths = lengths.join(" x ");
                Some(format!("cut the result into slices of {lengths}, and what feeds them"))
            }
            JoinNoted { .. } => Some("do all of a slice before the next one".to_owned()),
            Scan { block, target, out } | ScanIn { block, target, out, .. } => {
                let (name, place) = (self.block(*block), self.name(*target));
                self.blocks.insert(out.0, format!("the running values of {name}"));
                Some(format!("go along loop {place} with a running value of {name}"))
            }
            FoldTree { block } => {
                Some(format!("combine partial results of {} by halves", self.block(*block)))
            }
            PeelTerms { block, .. } => {
                Some(format!("pass over terms of {} that do not exist", self.block(*block)))
            }
            AddUnitLoop { block, out } => {
                let name = self.block(*block);
                self.loops.insert(out.0, format!("once of {name}"));
                None
            }
            Blockize { target, out } => {
                let place = self.name(*target);
                self.blocks.insert(out.0, format!("the tile under loop {place}"));
                Some(format!("take all that is under loop {place} for one step"))
            }
            Tensorize { target, intrinsic } => {
                Some(format!("compute what is under loop {} by {intrinsic}", self.name(*target)))
            }
            other => Some(other.to_string()),
        }
    }

    fn covered(
        &mut self,
        target: LoopVar,
        length: usize,
        last: usize,
        out: &[LoopVar],
    ) -> Option<String> {
        let whole = self.name_parts(target, out);
        Some(format!("part loop {whole} into lengths of {length}, and the last {last} iterations"))
    }

    /// Names the parts of a loop; tells its own name.
    fn name_parts(&mut self, target: LoopVar, out: &[LoopVar]) -> String {
        let whole = self.name(target);
        for (i, l) in out.iter().enumerate() {
            self.loops.insert(l.0, part(&whole, i));
        }
        whole
    }

    fn parted(&mut self, target: LoopVar, points: &[usize], out: &[LoopVar]) -> Option<String> {
        let whole = self.name_parts(target, out);
        let points: Vec<String> = points.iter().map(usize::to_string).collect();
        Some(format!("part loop {whole} before iterations {}", points.join(", ")))
    }

    /// The loops that were noted, outermost notes first.
    fn loops_with(&self, keys: &[&String]) -> String {
        let all = keys.iter().filter_map(|key| self.noted.get(*key)).flatten();
        all.cloned().collect::<Vec<_>>().join(", ")
    }

    fn outer_loops(&self, outer: &String, more: &String, few: Number) -> String {
        match self.number(few).as_str() {
            "0" => self.loops_with(&[outer]),
            few => format!(
                "{}, and if that are fewer than {few} iterations {},",
                self.loops_with(&[outer]),
                self.loops_with(&[more])
            ),
        }
    }

    fn product(&self, factors: &[Number]) -> String {
        factors.iter().map(|&f| self.number(f)).collect::<Vec<_>>().join(" x ")
    }
}
