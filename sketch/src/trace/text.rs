//! Instructions as readable text.

use std::fmt::{self, Display, Formatter};

use super::Trace;
use super::argument::list;
use super::instruction::{BlockVar, Decision, LoopVar, Note, Number, Outputs, ValueVar};
use super::table::Instruction;
use crate::schedule::Annotation;

impl Display for BlockVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl Display for LoopVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl Display for ValueVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Number::Known(value) => write!(f, "{value}"),
            Number::Var { var } => write!(f, "{var}"),
        }
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Note::Number(number) => write!(f, "{number}"),
            Note::Fixed(Annotation::Int(value)) => write!(f, "{value}"),
            Note::Fixed(Annotation::Ints(values)) => write!(f, "[{}]", list(values)),
            Note::Fixed(Annotation::Text(text)) => write!(f, "{text:?}"),
        }
    }
}

impl Display for Decision {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Tile(lengths) => write!(f, "[{}]", list(lengths)),
            Decision::Choice(Decision::ROOT) => f.write_str("root"),
            Decision::Choice(Decision::INLINE) => f.write_str("inline"),
            Decision::Choice(index) => write!(f, "{index}"),
        }
    }
}

impl Display for Outputs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outputs::None => Ok(()),
            Outputs::Block(var) => write!(f, "{var} = "),
            Outputs::Loop(var) => write!(f, "{var} = "),
            Outputs::Value(var) => write!(f, "{var} = "),
            Outputs::Loops([]) | Outputs::Values([]) => Ok(()),
            Outputs::Loops(vars) => write!(f, "{} = ", list(vars)),
            Outputs::Values(vars) => write!(f, "{} = ", list(vars)),
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.outputs(), self.call())?;
        match self.decision() {
            Some(decision) => write!(f, "  # {decision}"),
            None => Ok(()),
        }
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
