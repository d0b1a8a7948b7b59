//! Why text could not be read.

use crate::compute::TensorType;

/// Where and why reading stopped. Lines and columns (in characters) count from one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {cause}")]
pub struct ParseError {
    /// The line of the token at fault, counted from 1.
    pub line: usize,
    /// The column where that token begins, counted from 1.
    pub column: usize,
    /// The reason.
    pub cause: Cause,
}

/// The reason why a text cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    /// Another token should be there.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// The token that should be there.
        expected: String,
        /// The token that is there.
        found: String,
    },
    /// A name stands for nothing.
    #[error("there is no {what} `{name}` here")]
    Unknown {
        /// The kind of thing that should have the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name stands for two things.
    #[error("the {what} `{name}` is declared twice")]
    Duplicate {
        /// The kind of both.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An operation has another number of operands.
    #[error("{name} takes {expected} operands, {found} are given")]
    Operands {
        /// The operation.
        name: String,
        /// How many it takes.
        expected: usize,
        /// How many are given.
        found: usize,
    },
    /// An operator is known by its kind or its value, and has neither.
    #[error("`{operator}` needs a value to give, or a kind")]
    NoValue {
        /// The name of the operator.
        operator: String,
    },
    /// The reader would run out of stack.
    #[error("the expression is nested too deeply")]
    TooDeep,
    /// A tensor has too many elements.
    #[error("{0} has more elements than this machine can address")]
    TooLarge(TensorType),
    /// A constant has another number of elements than its type.
    #[error("{ty} has {} elements, {found} are given", ty.len())]
    Elements {
        /// The type.
        ty: TensorType,
        /// How many elements are given.
        found: usize,
    },
    /// The table of constants does not have one.
    #[error(
        "the contents of constant @0x{hash:016x} ({ty}) are not in the text: parse it with a table of constants"
    )]
    UnknownConstant {
        /// The hash that stands for it.
        hash: u64,
        /// Its type.
        ty: TensorType,
    },
    /// The table of constants has another one.
    #[error("constant @0x{hash:016x} is {found}, not {expected}")]
    WrongConstant {
        /// The hash that stands for it.
        hash: u64,
        /// The type in the text.
        expected: TensorType,
        /// The type in the table.
        found: TensorType,
    },
    /// A host operator cannot be read.
    #[error("host operator: {0}")]
    Host(String),
}
