//! The instructions of a trace, each declared once.
//!
//! A row gives an instruction's name, its arguments, the variable that it defines, and what it
//! does to a schedule. All the rest follows: the data that is stored, the method of [`Recorder`]
//! that records it, its text, its operands. The four instructions that sample are written out, as
//! each of them decides in its own way (`decide`).
//!
//! ```text
//! /// Cuts a loop into parts.
//! Split split(target: LoopVar, factors: Vec<Number>) -> out: Vec<LoopVar> [factors.len()]
//!     => r.split_loop(target, factors)
//! =>
//! recorder.split(l1, &[v2, v3])   l4, l5 = split(l1, [v2, v3])   {"op": "split", "target": 1, ..}
//! ```
//!
//! In brackets: how many variables a list has. After the arrow: an expression over the recorder `r`
//! and references to the arguments; its result is the variable's value.

use serde::{Deserialize, Serialize};

use super::StepError;
use super::argument::{Argument, Operand, list};
use super::execute::Made;
use super::instruction::{BlockVar, Decision, LoopVar, Note, Number, Outputs, ValueVar};
use super::record::{Fresh, Recorder};
use crate::algorithm::Algorithm;
use crate::index_map::IndexMap;
use crate::program::{ForKind, Scope, ThreadAxis};
use crate::schedule::Rest;

type Result<T> = std::result::Result<T, StepError>;

/// The type of an instruction's variable, if it has one.
macro_rules! type_of {
    () => {
        ()
    };
    ($defined:ty) => {
        $defined
    };
}

macro_rules! instructions {
    ($r:ident: $(
        $(#[$doc:meta])*
        $name:ident $method:ident($($arg:ident: $ty:ty),*)
            $(-> $out:ident: $defined:ty $([$count:expr])?)? => $does:expr;
    )*) => {
        /// One step of a trace. `out` are the variables that it defines.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(tag = "op", rename_all = "snake_case")]
        pub enum Instruction {
            /// Lengths whose product is the loop's extent; the last is at most `max_innermost`.
            SamplePerfectTile {
                target: LoopVar,
                max_innermost: usize,
                out: Vec<ValueVar>,
                decision: Option<Decision>,
            },
            /// Lengths whose product is the loop's extent or a little more, see
            /// [`count_near_tiles`](super::count_near_tiles); the last is at most `max_innermost`.
            SampleTile {
                target: LoopVar,
                max_innermost: usize,
                out: Vec<ValueVar>,
                decision: Option<Decision>,
            },
            /// One of the candidates, with these probabilities.
            SampleCategorical {
                candidates: Vec<i64>,
                weights: Vec<f64>,
                out: ValueVar,
                decision: Option<Decision>,
            },
            /// Where the block may be computed: at a loop of its consumer, where it is, or inlined.
            SampleComputeLocation { block: BlockVar, out: LoopVar, decision: Option<Decision> },
            $($(#[$doc])* $name { $($arg: $ty,)* $($out: $defined)? },)*
        }

        /// The instructions that decide nothing, as a pattern. Who matches on those that do names
        /// the others by this, and not by `_`.
        macro_rules! decides_nothing {
            () => { $(Instruction::$name { .. })|* };
        }
        pub(super) use decides_nothing;

        impl Instruction {
            pub(super) fn outputs(&self) -> Outputs<'_> {
                match self {
                    Instruction::SampleCategorical { out, .. } => out.into(),
                    Instruction::SampleComputeLocation { out, .. } => out.into(),
                    Instruction::SamplePerfectTile { out, .. }
                    | Instruction::SampleTile { out, .. } => out.into(),
                    $(Instruction::$name { $($out,)? .. } => {
                        Outputs::None $(.or($out.into()))?
                    })*
                }
            }

            /// The arguments, in order.
            pub(super) fn operands(&self) -> Vec<Operand<'_>> {
                match self {
                    Instruction::SamplePerfectTile { target, .. }
                    | Instruction::SampleTile { target, .. } => vec![target.operand()],
                    Instruction::SampleComputeLocation { block, .. } => vec![block.operand()],
                    Instruction::SampleCategorical { .. } => vec![],
                    $(Instruction::$name { $($arg,)* .. } => vec![$($arg.operand()),*],)*
                }
            }

            /// The names of all instructions, once each. New ones may come anywhere.
            pub const NAMES: &'static [&'static str] = &[
                "sample_perfect_tile",
                "sample_tile",
                "sample_categorical",
                "sample_compute_location",
                $(stringify!($method),)*
            ];

            /// As its text begins.
            pub fn name(&self) -> &'static str {
                match self {
                    Instruction::SamplePerfectTile { .. } => "sample_perfect_tile",
                    Instruction::SampleTile { .. } => "sample_tile",
                    Instruction::SampleCategorical { .. } => "sample_categorical",
                    Instruction::SampleComputeLocation { .. } => "sample_compute_location",
                    $(Instruction::$name { .. } => stringify!($method),)*
                }
            }

            /// The call, without variables and decisions.
            pub(super) fn call(&self) -> String {
                let name = self.name();
                match self {
                    Instruction::SamplePerfectTile { target, max_innermost, out, .. }
                    | Instruction::SampleTile { target, max_innermost, out, .. } => {
                        sampled_tile(name, *target, out, *max_innermost)
                    }
                    Instruction::SampleCategorical { candidates, weights, .. } => {
                        format!("{name}([{}], [{}])", list(candidates), list(weights))
                    }
                    Instruction::SampleComputeLocation { .. } | decides_nothing!() => {
                        format!("{name}({})", list(&self.operands()))
                    }
                }
            }
        }

        /// A method for each instruction that decides nothing.
        impl Recorder {
            $($(#[$doc])*
            pub fn $method(
                &mut self,
                $($arg: <$ty as Argument>::Given<'_>),*
            ) -> Result<type_of!($($defined)?)> {
                $(let $arg = <$ty as Argument>::stored($arg);)*
                $(
                    let $r = &mut *self;
                    let count = [1 $(, $count)?];
                    let $out: $defined = Fresh::fresh($r, count[count.len() - 1]);
                )?
                self.plain(Instruction::$name { $($arg,)* $($out: $out.clone())? })?;
                Ok(($($out)?))
            })*
        }

        impl Recorder {
            /// Does what the instruction says, and gives its variable a value.
            pub(super) fn execute(&mut self, instruction: &Instruction) -> Result<()> {
                let $r = &mut *self;
                let made: Made = match instruction {
                    $(Instruction::$name { $($arg,)* .. } => ($does)?.into(),)*
                    Instruction::SamplePerfectTile { .. }
                    | Instruction::SampleTile { .. }
                    | Instruction::SampleCategorical { .. }
                    | Instruction::SampleComputeLocation { .. } => {
                        return self.define_decision(instruction);
                    }
                };
                self.define(instruction.outputs(), made)
            }
        }
    };
}

fn sampled_tile(name: &str, target: LoopVar, out: &[ValueVar], max_innermost: usize) -> String {
    format!("{name}({target}, parts={}, max_innermost={max_innermost})", out.len())
}

instructions! { r:
    /// The block of this name.
    GetBlock get_block(name: String) -> out: BlockVar => r.find_block(name);
    /// The loops around a block, outermost first.
    GetLoops get_loops(block: BlockVar) -> out: Vec<LoopVar> [r.find_loops(block)?.len()]
        => r.find_loops(*block);

    /// Cuts a loop into parts of these lengths, outermost first; 0 is as many as are left.
    Split split(target: LoopVar, factors: Vec<Number>) -> out: Vec<LoopVar> [factors.len()]
        => r.split_loop(*target, factors);
    /// Cuts a loop into two; the inner one has as many iterations as the product of these numbers.
    SplitBy split_by(target: LoopVar, inner: Vec<Number>) -> out: Vec<LoopVar> [2]
        => r.split_loop_by(*target, inner);
    /// Makes one loop of several that lie directly inside of one another.
    Fuse fuse(loops: Vec<LoopVar>) -> out: LoopVar => r.fuse_loops(loops);
    /// Makes one loop of two, one after the other, of as many iterations.
    FuseSiblings fuse_siblings(target: LoopVar, next: LoopVar)
        => r.on_two_loops(*target, *next, |s, l, next| s.fuse_siblings(l, next));
    /// Puts loops of a nest in this order.
    Reorder reorder(loops: Vec<LoopVar>) => r.reorder_loops(loops);
    /// Makes one axis of those that everything walks as one.
    Collapse collapse() => r.schedule.collapse().map_err(StepError::from);
    /// A loop around the block that runs once.
    AddUnitLoop add_unit_loop(block: BlockVar) -> out: LoopVar
        => r.on_block(*block, |s, name| s.add_unit_loop(name));
    /// Parts a loop before each of these iterations: a loop for each part.
    LoopPartition loop_partition(target: LoopVar, points: Vec<usize>)
        -> out: Vec<LoopVar> [points.len() + 1]
        => r.on_loop(*target, |s, l| s.loop_partition(l, points));
    /// Parts a loop into whole lengths and its last iterations, some of which the first part has.
    LoopCover loop_cover(target: LoopVar, length: usize, last: usize) -> out: Vec<LoopVar> [2]
        => r.on_loop(*target, |s, l| s.loop_cover(l, *length, *last)).map(|parts| parts.to_vec());
    /// Parts what runs beyond an inexact split from what does not, so that nothing is guarded.
    Peel peel(target: LoopVar, rest: Rest) => r.on_loop(*target, |s, l| s.peel(l, *rest)).map(drop);
    /// Parts a loop where padding begins and ends, so that choices between the two vanish.
    PartitionGuards partition_guards(target: LoopVar)
        => r.on_loop(*target, |s, l| s.partition_guards(l)).map(drop);
    /// The same for every loop with this note.
    PartitionNoted partition_noted(key: String)
        => r.schedule.partition_noted(key).map_err(StepError::from);
    /// Makes nests of what lies under loops with the note `outer`, and one loop of these, in the
    /// order of their notes, in each nest; where it has fewer iterations than `few`, loops with the
    /// note `more` join.
    FuseNests fuse_nests(outer: String, more: String, few: Number)
        => r.fuse_nests_of(outer, more, *few, ForKind::Serial);
    /// The same, and these loops run in parallel.
    ParallelNests parallel_nests(outer: String, more: String, few: Number)
        => r.fuse_nests_of(outer, more, *few, ForKind::Parallel);
    /// Cuts the last result into slices of these lengths along its first axes, and all nests that
    /// feed one slice at a time; their loops over slices have the note.
    Slice slice(lengths: Vec<Number>, key: String) => r.slice_by(lengths, key);
    /// Makes one loop of all that have the note, and local memory of what stands between nests.
    JoinNoted join_noted(key: String) => r.schedule.join_noted(key).map_err(StepError::from);
    /// Parts each innermost loop whose values are chosen among several tensors.
    PartitionChoices partition_choices() => r.part_choices();
    /// Does the iterations of every loop with this note side by side.
    JamNoted jam_noted(key: String) => r.schedule.jam_noted(key).map_err(StepError::from);
    /// Does the iterations of a loop side by side.
    UnrollJam unroll_jam(target: LoopVar) => r.on_loop(*target, |s, l| s.unroll_jam(l)).map(drop);
    /// Runs the iterations of a loop on all threads.
    Parallel parallel(target: LoopVar) => r.on_loop(*target, |s, l| s.parallel(l));
    /// Makes the iterations of a loop the lanes of vectors.
    Vectorize vectorize(target: LoopVar) => r.on_loop(*target, |s, l| s.vectorize(l));
    /// Writes the iterations of a loop out.
    Unroll unroll(target: LoopVar) => r.on_loop(*target, |s, l| s.unroll(l));
    /// Runs the iterations of a loop on the threads of a GPU.
    Bind bind(target: LoopVar, axis: ThreadAxis) => r.on_loop(*target, |s, l| s.bind(l, *axis));

    /// A copy of what the block reads of a buffer, before it.
    CacheRead cache_read(block: BlockVar, buffer: String, scope: Scope) -> out: BlockVar
        => r.on_block(*block, |s, name| s.cache_read(name, buffer, *scope));
    /// A buffer that the block writes in place of its own, and a copy after it.
    CacheWrite cache_write(block: BlockVar, scope: Scope) -> out: BlockVar
        => r.on_block(*block, |s, name| s.cache_write(name, *scope));
    /// The block reads a copy of the buffer in the order of the map, with an axis cut into panels.
    Pack pack(block: BlockVar, buffer: String, map: IndexMap, axis: usize, width: Vec<Number>)
        -> out: BlockVar => r.pack_for(*block, buffer, map, (*axis, width));
    /// The same of a constant, which is packed when compiling.
    PackInput pack_input(buffer: String, map: IndexMap, axis: usize, width: Vec<Number>)
        => r.pack_constant(buffer, map, (*axis, width));
    /// Where a buffer lives.
    SetScope set_scope(buffer: String, scope: Scope)
        => r.schedule.set_scope(buffer, *scope).map_err(StepError::from);
    /// Computes a block under a loop of its reader. At a sampled location this may leave the block
    /// where it is, or inline it.
    ComputeAt compute_at(block: BlockVar, target: LoopVar) => r.compute_at_place(*block, *target);
    /// Computes a block under a loop of what it reads.
    ReverseComputeAt reverse_compute_at(block: BlockVar, target: LoopVar)
        => r.at_loop(*block, *target, |s, name, l| s.reverse_compute_at(name, l));
    /// Computes a block wherever it is read.
    ComputeInline compute_inline(block: BlockVar)
        => r.on_block(*block, |s, name| s.compute_inline(name));
    /// Computes a block where one of its readers needs it, and leaves it to the others.
    InlineInto inline_into(block: BlockVar, reader: BlockVar) => r.inline_for(*block, *reader);
    /// Computes a block where what it reads is made.
    ReverseComputeInline reverse_compute_inline(block: BlockVar)
        => r.on_block(*block, |s, name| s.reverse_compute_inline(name));
    /// Parts the initial value of a reduction from its terms: a block before the loop.
    DecomposeReduction decompose_reduction(block: BlockVar, target: LoopVar) -> out: BlockVar
        => r.at_loop(*block, *target, |s, name, l| s.decompose_reduction(name, l));
    /// A sum begins with what its reader adds to it; the block is the one that begins it.
    LiftAddend lift_addend(block: BlockVar) => r.on_block(*block, |s, name| s.lift_addend(name));
    /// The block that reduces partially, along the loop; `block` goes on to name the one that does
    /// the rest.
    Rfactor rfactor(block: BlockVar, target: LoopVar, axis: usize) -> out: BlockVar
        => r.at_loop(*block, *target, |s, name, l| s.rfactor(name, l, *axis));
    /// Goes along the loop with a running value, in place of a chain of blocks that begins with
    /// this one; the block that stores running values.
    Scan scan(block: BlockVar, target: LoopVar) -> out: BlockVar
        => r.scan_at(*block, *target, *target);
    /// The same, with running values stored in the loop `place`, inside of that loop.
    ScanIn scan_in(block: BlockVar, target: LoopVar, place: LoopVar) -> out: BlockVar
        => r.scan_at(*block, *target, *place);
    /// Combines partial results by halves.
    FoldTree fold_tree(block: BlockVar)
        => r.on_block(*block, |s, name| s.fold_tree(name)).map(drop);
    /// Passes over terms that do not exist, in place of adding nothing, and parts the loop over
    /// terms so that no iteration is guarded.
    PeelTerms peel_terms(block: BlockVar, target: LoopVar, rest: Rest)
        => r.at_loop(*block, *target, |s, name, l| s.peel_terms(name, l, *rest)).map(drop);
    /// Rounds the extent of an iterator up to a multiple of the product of these numbers.
    Pad pad(block: BlockVar, iter: usize, factors: Vec<Number>)
        => r.pad_iter(*block, *iter, factors);

    /// The stride of an axis is `offset` more than a multiple of `factor`.
    StorageAlign storage_align(buffer: String, axis: usize, factor: usize, offset: usize)
        => r.schedule.storage_align(buffer, *axis, *factor, *offset).map_err(StepError::from);
    /// A copy of what the block reads, in the order of its iterators.
    ReIndexRead re_index_read(block: BlockVar, buffer: String, scope: Scope) -> out: BlockVar
        => r.on_block(*block, |s, name| s.re_index_read(name, buffer, *scope));
    /// The block writes in the order of its iterators, and a copy follows.
    ReIndexWrite re_index_write(block: BlockVar, scope: Scope) -> out: BlockVar
        => r.on_block(*block, |s, name| s.re_index_write(name, *scope));
    /// Another order of a buffer's elements.
    TransformLayout transform_layout(buffer: String, map: IndexMap)
        => r.schedule.transform_layout(buffer, map).map_err(StepError::from);
    /// Other iterators of a block.
    TransformBlockLayout transform_block_layout(block: BlockVar, map: IndexMap)
        => r.on_block(*block, |s, name| s.transform_block_layout(name, map));
    /// Parts what is padding from what is not: a block that fills, before the loop.
    DecomposePadding decompose_padding(block: BlockVar, target: LoopVar) -> out: BlockVar
        => r.at_loop(*block, *target, |s, name, l| s.decompose_padding(name, l));

    /// One block of all that is under the loop.
    Blockize blockize(target: LoopVar) -> out: BlockVar
        => r.on_loop(*target, |s, l| s.blockize(l));
    /// Computes all that is under the loop by an instruction of the machine.
    Tensorize tensorize(target: LoopVar, intrinsic: String)
        => r.on_loop(*target, |s, l| s.tensorize(l, intrinsic));
    /// A note for what is done after the trace.
    Annotate annotate(block: BlockVar, key: String, value: Note)
        => r.annotate_block(*block, key, value);
    /// The same at a loop.
    AnnotateLoop annotate_loop(target: LoopVar, key: String, value: Number)
        => r.annotate_at_loop(*target, key, *value);
    /// Takes a note back.
    Unannotate unannotate(block: BlockVar, key: String)
        => r.on_block(*block, |s, name| { s.unannotate(name, key); Ok(()) });

    /// Vectors, threads and the order of constants are as the trace says: nothing follows from it.
    Complete complete() => r.complete_program();
    /// The naive program of the subgraph computed by another algorithm, in place of all that was
    /// done before.
    Algorithm algorithm(algorithm: Algorithm) => r.compute_by(*algorithm);
}
