//! The instructions of a trace and their variables.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::algorithm::Algorithm;
use crate::default::Knob;
use crate::index_map::IndexMap;
use crate::program::{Scope, ThreadAxis};
use crate::schedule::Annotation;

macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub(super) u32);

        impl<'a> Deserialize<'a> for $name {
            fn deserialize<D: Deserializer<'a>>(from: D) -> Result<$name, D::Error> {
                number(from).map($name)
            }
        }
    )*};
}

/// No trace has as many variables. Tables of their values are as long as the largest number.
const MOST_VARIABLES: u32 = 1 << 20;

/// The number of a variable in a trace from anywhere.
fn number<'a, D: Deserializer<'a>>(from: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(from)?;
    if number >= MOST_VARIABLES {
        return Err(D::Error::custom(format!("{number} is not the number of a variable")));
    }
    Ok(number)
}

variables! {
    /// A block of the program.
    BlockVar
    /// A loop, or where a loop might be: see `SampleComputeLocation`.
    LoopVar
    /// A number.
    ValueVar
}

/// A number that is known, or that an instruction gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    Known(i64),
    Var { var: ValueVar },
}

/// What an annotation says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Note {
    Number(Number),
    Fixed(Annotation),
}

impl From<ValueVar> for Note {
    fn from(var: ValueVar) -> Note {
        Note::Number(var.into())
    }
}

impl From<Annotation> for Note {
    fn from(value: Annotation) -> Note {
        Note::Fixed(value)
    }
}

impl From<ValueVar> for Number {
    fn from(var: ValueVar) -> Number {
        Number::Var { var }
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::Known(value as i64)
    }
}

/// What a sampling instruction chose.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Decision {
    /// Lengths of a tile's loops, outermost first.
    Tile(Vec<usize>),
    /// A position among the candidates; for a location also [`Decision::ROOT`] or [`Decision::INLINE`].
    Choice(i64),
}

impl Decision {
    /// The block stays where it is.
    pub const ROOT: i64 = -1;
    /// The block is inlined.
    pub const INLINE: i64 = -2;
}

/// One step of a trace. `out` are the variables that it defines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Instruction {
    GetBlock {
        name: String,
        out: BlockVar,
    },
    GetLoops {
        block: BlockVar,
        out: Vec<LoopVar>,
    },
    /// Lengths whose product is the loop's extent; the last is at most `max_innermost`.
    SamplePerfectTile {
        target: LoopVar,
        max_innermost: usize,
        out: Vec<ValueVar>,
        decision: Option<Decision>,
    },
    /// Lengths whose product is the loop's extent or a little more, see [`count_near_tiles`](super::count_near_tiles);
    /// the last is at most `max_innermost`.
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
    SampleComputeLocation {
        block: BlockVar,
        out: LoopVar,
        decision: Option<Decision>,
    },
    Split {
        target: LoopVar,
        factors: Vec<Number>,
        out: Vec<LoopVar>,
    },
    Fuse {
        loops: Vec<LoopVar>,
        out: LoopVar,
    },
    Reorder {
        loops: Vec<LoopVar>,
    },
    Parallel {
        target: LoopVar,
    },
    Vectorize {
        target: LoopVar,
    },
    Unroll {
        target: LoopVar,
    },
    Bind {
        target: LoopVar,
        axis: ThreadAxis,
    },
    AddUnitLoop {
        block: BlockVar,
        out: LoopVar,
    },
    CacheRead {
        block: BlockVar,
        buffer: String,
        scope: Scope,
        out: BlockVar,
    },
    CacheWrite {
        block: BlockVar,
        scope: Scope,
        out: BlockVar,
    },
    SetScope {
        buffer: String,
        scope: Scope,
    },
    ComputeAt {
        block: BlockVar,
        target: LoopVar,
    },
    ReverseComputeAt {
        block: BlockVar,
        target: LoopVar,
    },
    ComputeInline {
        block: BlockVar,
    },
    ReverseComputeInline {
        block: BlockVar,
    },
    DecomposeReduction {
        block: BlockVar,
        target: LoopVar,
        out: BlockVar,
    },
    Rfactor {
        block: BlockVar,
        target: LoopVar,
        axis: usize,
        out: BlockVar,
    },
    Pad {
        block: BlockVar,
        iter: usize,
        multiple: usize,
    },
    LoopPartition {
        target: LoopVar,
        points: Vec<usize>,
        out: Vec<LoopVar>,
    },
    StorageAlign {
        buffer: String,
        axis: usize,
        factor: usize,
        offset: usize,
    },
    ReIndexRead {
        block: BlockVar,
        buffer: String,
        scope: Scope,
        out: BlockVar,
    },
    ReIndexWrite {
        block: BlockVar,
        scope: Scope,
        out: BlockVar,
    },
    TransformLayout {
        buffer: String,
        map: IndexMap,
    },
    TransformBlockLayout {
        block: BlockVar,
        map: IndexMap,
    },
    DecomposePadding {
        block: BlockVar,
        target: LoopVar,
        out: BlockVar,
    },
    Blockize {
        target: LoopVar,
        out: BlockVar,
    },
    Tensorize {
        target: LoopVar,
        intrinsic: String,
    },
    Annotate {
        block: BlockVar,
        key: String,
        value: Note,
    },
    AnnotateLoop {
        target: LoopVar,
        key: String,
        value: Number,
    },
    Unannotate {
        block: BlockVar,
        key: String,
    },
    /// The naive program of the subgraph computed by another algorithm, in place of all that was done before.
    Algorithm {
        algorithm: Algorithm,
    },
    /// The default schedule of the whole subgraph with these choices, in place of all that was done before.
    DefaultSchedule {
        knobs: Vec<(Knob, Number)>,
    },
}

/// The variables that an instruction defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outputs<'a> {
    None,
    Block(BlockVar),
    Loop(LoopVar),
    Loops(&'a [LoopVar]),
    Value(ValueVar),
    Values(&'a [ValueVar]),
}

impl Outputs<'_> {
    /// The largest number among them.
    pub(super) fn last(self) -> Option<u32> {
        match self {
            Outputs::None => None,
            Outputs::Block(var) => Some(var.0),
            Outputs::Loop(var) => Some(var.0),
            Outputs::Loops(vars) => vars.iter().map(|v| v.0).max(),
            Outputs::Value(var) => Some(var.0),
            Outputs::Values(vars) => vars.iter().map(|v| v.0).max(),
        }
    }
}

/// The instructions that decide nothing, as a pattern. Who matches on those that do names the others by this,
/// and not by `_`: so an instruction that is new is missed by the compiler wherever it was forgotten.
macro_rules! decides_nothing {
    () => {
        Instruction::GetBlock { .. }
            | Instruction::GetLoops { .. }
            | Instruction::Split { .. }
            | Instruction::Fuse { .. }
            | Instruction::Reorder { .. }
            | Instruction::Parallel { .. }
            | Instruction::Vectorize { .. }
            | Instruction::Unroll { .. }
            | Instruction::Bind { .. }
            | Instruction::AddUnitLoop { .. }
            | Instruction::CacheRead { .. }
            | Instruction::CacheWrite { .. }
            | Instruction::SetScope { .. }
            | Instruction::ComputeAt { .. }
            | Instruction::ReverseComputeAt { .. }
            | Instruction::ComputeInline { .. }
            | Instruction::ReverseComputeInline { .. }
            | Instruction::DecomposeReduction { .. }
            | Instruction::Rfactor { .. }
            | Instruction::Pad { .. }
            | Instruction::LoopPartition { .. }
            | Instruction::StorageAlign { .. }
            | Instruction::ReIndexRead { .. }
            | Instruction::ReIndexWrite { .. }
            | Instruction::TransformLayout { .. }
            | Instruction::TransformBlockLayout { .. }
            | Instruction::DecomposePadding { .. }
            | Instruction::Blockize { .. }
            | Instruction::Tensorize { .. }
            | Instruction::Annotate { .. }
            | Instruction::AnnotateLoop { .. }
            | Instruction::Unannotate { .. }
            | Instruction::Algorithm { .. }
            | Instruction::DefaultSchedule { .. }
    };
}
pub(super) use decides_nothing;

/// The place of an instruction's decision, borrowed as the instruction is.
macro_rules! decision_of {
    ($instruction:expr) => {
        match $instruction {
            Instruction::SamplePerfectTile { decision, .. }
            | Instruction::SampleTile { decision, .. }
            | Instruction::SampleCategorical { decision, .. }
            | Instruction::SampleComputeLocation { decision, .. } => Some(decision),
            decides_nothing!() => None,
        }
    };
}

impl Instruction {
    pub fn decision(&self) -> Option<&Decision> {
        decision_of!(self)?.as_ref()
    }

    /// Does nothing to an instruction that does not sample.
    pub(super) fn set_decision(&mut self, new: Option<Decision>) {
        if let Some(decision) = decision_of!(self) {
            *decision = new;
        }
    }

    pub fn is_sampling(&self) -> bool {
        decision_of!(self).is_some()
    }

    pub(super) fn outputs(&self) -> Outputs<'_> {
        use Instruction::*;
        match self {
            GetBlock { out, .. }
            | CacheRead { out, .. }
            | CacheWrite { out, .. }
            | DecomposeReduction { out, .. }
            | DecomposePadding { out, .. }
            | ReIndexRead { out, .. }
            | ReIndexWrite { out, .. }
            | Blockize { out, .. }
            | Rfactor { out, .. } => Outputs::Block(*out),
            SampleComputeLocation { out, .. } | Fuse { out, .. } | AddUnitLoop { out, .. } => {
                Outputs::Loop(*out)
            }
            GetLoops { out, .. } | Split { out, .. } | LoopPartition { out, .. } => {
                Outputs::Loops(out)
            }
            SampleCategorical { out, .. } => Outputs::Value(*out),
            SamplePerfectTile { out, .. } | SampleTile { out, .. } => Outputs::Values(out),
            Reorder { .. }
            | Parallel { .. }
            | Vectorize { .. }
            | Unroll { .. }
            | Bind { .. }
            | SetScope { .. }
            | ComputeAt { .. }
            | ReverseComputeAt { .. }
            | ComputeInline { .. }
            | ReverseComputeInline { .. }
            | Pad { .. }
            | StorageAlign { .. }
            | TransformLayout { .. }
            | TransformBlockLayout { .. }
            | Tensorize { .. }
            | Annotate { .. }
            | AnnotateLoop { .. }
            | Unannotate { .. }
            | Algorithm { .. }
            | DefaultSchedule { .. } => Outputs::None,
        }
    }
}
