//! Faults of a program, in words.

use ansc_graph::verify::Problem;
use ansc_runtime::DType;

/// Something that does not hold of a program, and where.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("two buffers are named `{buffer}`")]
    SameName { buffer: String },
    #[error("block `{block}` names buffer {index}, and there are {buffers}")]
    NoSuchBuffer { block: String, index: usize, buffers: usize },
    #[error("{place} names variable {index}, and there are {variables}")]
    NoSuchVariable { place: String, index: usize, variables: usize },
    #[error("{place} binds variable `{var}`, which is bound elsewhere too")]
    BoundTwice { place: String, var: String },
    #[error(
        "block `{block}` uses variable `{var}`, which no loop around it and no iterator of it binds"
    )]
    OutOfScope { block: String, var: String },
    #[error(
        "buffer `{buffer}` is an input or output, and is {count} of the parameters instead of one"
    )]
    Parameter { buffer: String, count: usize },
    #[error("parameter `{buffer}` is neither input nor output")]
    PrivateParameter { buffer: String },
    #[error("block `{block}` writes the input `{buffer}`")]
    WritesInput { block: String, buffer: String },
    #[error("block `{block}` gives `{buffer}` {found} indices, and it has {rank} axes")]
    Rank { block: String, buffer: String, rank: usize, found: usize },
    #[error("block `{block}` is ill typed: {problem}")]
    IllTyped { block: String, problem: Problem },
    #[error("{what} of block `{block}` is {found} instead of {expected}")]
    Type { block: String, what: &'static str, expected: DType, found: DType },
    #[error("parallel loop `{var}` is inside of another loop")]
    InnerParallel { var: String },
    #[error("vectorised loop `{var}` runs over terms that block `{block}` adds up")]
    VectorOfTerms { block: String, var: String },
    #[error(
        "`{buffer}` is private to an iteration of loop `{var}`, and is used inside and outside of it"
    )]
    Lifetime { buffer: String, var: String },
    #[error("iterator `{iter}` of block `{block}` can be {value}, outside of 0..{extent}")]
    Iterator { block: String, iter: String, value: i64, extent: usize },
    #[error(
        "block `{block}` can access axis {axis} of `{buffer}` at {value}, outside of 0..{extent}"
    )]
    OutOfBounds { block: String, buffer: String, axis: usize, value: i64, extent: usize },
    #[error("a part of the guard of block `{block}` depends on results and on terms")]
    MixedGuard { block: String },
    #[error(
        "block `{block}` initialises `{buffer}` again in loop `{var}`, over terms that are added up"
    )]
    InitialisedAgain { block: String, buffer: String, var: String },
    #[error(
        "blocks `{other}` and `{block}` both initialise the same elements of `{buffer}`, which nothing reads between them"
    )]
    InitialisedTwice { block: String, other: String, buffer: String },
    #[error("the terms of block `{block}` come in another order than their numbers")]
    TermOrder { block: String },
    #[error(
        "blocks `{block}` and `{other}` touch the same element of `{buffer}` in two iterations of loop `{var}`"
    )]
    Race { block: String, other: String, buffer: String, var: String },
    #[error("block `{block}` reads `{buffer}` before anything is written there")]
    Undefined { block: String, buffer: String },
    #[error("output `{buffer}` is not written completely: nothing writes {element:?}")]
    Uncovered { buffer: String, element: Vec<i64> },
}

/// A kernel got a program of which something does not hold.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error(
    "the schedule of kernel {kernel} is invalid: {fault}. This is a defect of ansc: please report it with the model"
)]
pub struct Defect {
    pub kernel: String,
    pub fault: Box<Fault>,
}
