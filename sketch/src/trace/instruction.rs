//! The variables of a trace, and what its instructions define and decide.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::table::{Instruction, decides_nothing};
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

/// The value of an annotation.
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

/// The choice that a sampling instruction made.
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

impl<'a> Outputs<'a> {
    /// The variables of these, or of the others where there are none.
    pub(super) fn or(self, others: Outputs<'a>) -> Outputs<'a> {
        if self == Outputs::None { others } else { self }
    }

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

impl<'a> From<&'a BlockVar> for Outputs<'a> {
    fn from(var: &BlockVar) -> Outputs<'a> {
        Outputs::Block(*var)
    }
}

impl<'a> From<&'a LoopVar> for Outputs<'a> {
    fn from(var: &LoopVar) -> Outputs<'a> {
        Outputs::Loop(*var)
    }
}

impl<'a> From<&'a Vec<LoopVar>> for Outputs<'a> {
    fn from(vars: &'a Vec<LoopVar>) -> Outputs<'a> {
        Outputs::Loops(vars)
    }
}

impl<'a> From<&'a ValueVar> for Outputs<'a> {
    fn from(var: &ValueVar) -> Outputs<'a> {
        Outputs::Value(*var)
    }
}

impl<'a> From<&'a Vec<ValueVar>> for Outputs<'a> {
    fn from(vars: &'a Vec<ValueVar>) -> Outputs<'a> {
        Outputs::Values(vars)
    }
}

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
}
