//! Why text could not be read.

use crate::compute::TensorType;

/// Where and why reading stopped. Lines and columns (in characters) count from one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {cause}")]
pub struct ParseError {
    pub line: usize,
    pub column: usize,
    pub cause: Cause,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    #[error("expected {expected}, found {found}")]
    Expected { expected: String, found: String },
    #[error("there is no {what} `{name}` here")]
    Unknown { what: &'static str, name: String },
    #[error("the {what} `{name}` is declared twice")]
    Duplicate { what: &'static str, name: String },
    #[error("{name} takes {expected} operands, {found} are given")]
    Operands { name: String, expected: usize, found: usize },
    #[error("`{operator}` needs a value to give, or a kind")]
    NoValue { operator: String },
    #[error("the expression is nested too deeply")]
    TooDeep,
    #[error("{0} has more elements than this machine can address")]
    TooLarge(TensorType),
    #[error("{ty} has {} elements, {found} are given", ty.len())]
    Elements { ty: TensorType, found: usize },
    #[error(
        "the contents of constant @0x{hash:016x} ({ty}) are not in the text: parse it with a table of constants"
    )]
    UnknownConstant { hash: u64, ty: TensorType },
    #[error("constant @0x{hash:016x} is {found}, not {expected}")]
    WrongConstant { hash: u64, expected: TensorType, found: TensorType },
    #[error("host operator: {0}")]
    Host(String),
}
