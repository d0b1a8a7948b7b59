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

impl Instruction {
    pub fn decision(&self) -> Option<&Decision> {
        match self {
            Instruction::SamplePerfectTile { decision, .. }
            | Instruction::SampleTile { decision, .. }
            | Instruction::SampleCategorical { decision, .. }
            | Instruction::SampleComputeLocation { decision, .. } => decision.as_ref(),
            _ => None,
        }
    }

    /// Does nothing to an instruction that does not sample.
    pub(super) fn set_decision(&mut self, new: Option<Decision>) {
        match self {
            Instruction::SamplePerfectTile { decision, .. }
            | Instruction::SampleTile { decision, .. }
            | Instruction::SampleCategorical { decision, .. }
            | Instruction::SampleComputeLocation { decision, .. } => *decision = new,
            _ => {}
        }
    }

    pub fn is_sampling(&self) -> bool {
        matches!(
            self,
            Instruction::SamplePerfectTile { .. }
                | Instruction::SampleTile { .. }
                | Instruction::SampleCategorical { .. }
                | Instruction::SampleComputeLocation { .. }
        )
    }
}
