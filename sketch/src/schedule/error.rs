//! Why a primitive could not be applied, and where.

use std::fmt;

use ansc_graph::BufId;

use super::LoopRef;
use crate::program::{ForKind, Program};
use crate::text::{self, Mark};

/// The primitive, the cause, and the loop nest with the culprit marked by `<---`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleError {
    /// The primitive's name, as its method is called.
    pub primitive: &'static str,
    /// The reason, without the place.
    pub cause: Cause,
    mark: Option<Mark>,
    program: Box<Program>,
}

/// The reason why a primitive does not apply. The texts of errors say what each means.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Cause {
    #[error("there is no block `{0}`")]
    NoSuchBlock(String),
    #[error("the loop is not in the program any more")]
    NoSuchLoop,
    #[error("there is no buffer `{0}`")]
    NoSuchBuffer(String),
    #[error("the block is not under the loop")]
    NotUnder,
    #[error("a loop of kind {0} cannot be transformed; only serial ones can")]
    Kind(ForKind),
    #[error("factors {factors:?} do not cover an extent of {extent}")]
    Factors { factors: Vec<usize>, extent: usize },
    #[error("no loops are given")]
    NoLoops,
    #[error("a loop is given twice")]
    RepeatedLoop,
    #[error("the loops are not nested one directly in the other")]
    NotAChain,
    #[error("one loop is of a reduction and the other is not")]
    MixedLoops,
    #[error("the terms of an arg-reduction must come in order")]
    TermOrder,
    #[error("the loop is not the outermost of its nest")]
    NotOutermost,
    #[error("the loop is part of the reduction of block `{0}`")]
    ReductionLoop(String),
    #[error("iterations may write the same elements of `{buffer}` in block `{block}`")]
    SharedWrites { block: String, buffer: String },
    #[error("the result would be too large to address")]
    TooLarge,
    #[error("the block would compute an expression of more than {0} parts")]
    TooMuchInOne(usize),
    #[error("more than {0} loops would be nested")]
    TooDeep(usize),
    #[error("`{buffer}` is written by several blocks")]
    SeveralWriters { buffer: String },
    #[error("the block would leave a loop that it shares with `{0}`, with which it exchanges data")]
    LeavesNeighbour(String),
    #[error("the block would come before `{0}`, which writes what it reads")]
    BeforeProducer(String),
    #[error("the block would come after `{0}`, which reads what it writes")]
    AfterConsumer(String),
    #[error("the block writes a result of the program")]
    WritesResult,
    #[error("nothing reads what the block writes")]
    NoConsumer,
    #[error("`{0}` reads what the block writes, and is somewhere else")]
    ConsumerElsewhere(String),
    #[error("no block under the loop writes what the block reads")]
    NoProducer,
    #[error("an index is not simply an iterator of its own")]
    IndexNotPlain,
    #[error("what is written to `{buffer}` in one iteration is not known to be a box")]
    NotABox { buffer: String },
    #[error("the block reads parts of different position or size")]
    DifferentParts,
    #[error("`{0}` produces only a part of an operand in each iteration")]
    PartlyProduced(String),
    #[error("terms of the reduction would be added more than once")]
    RepeatedTerms,
    #[error("the block is a reduction")]
    IsReduction,
    #[error("the block is not a reduction that initialises its result")]
    NotInitialising,
    #[error("the block has a predicate")]
    HasPredicate,
    #[error("the block does not read what another block writes at one place only")]
    NotOneProducer,
    #[error("other blocks read `{buffer}` too")]
    OtherReaders { buffer: String },
    #[error("`{buffer}` is an input or a result, whose layout and scope are fixed")]
    Fixed { buffer: String },
    #[error("`{buffer}` would be copied, but it may not be written completely")]
    PartlyWritten { buffer: String },
    #[error("`{buffer}` is no input")]
    NotAnInput { buffer: String },
    #[error("the block does not access `{buffer}`")]
    NotAccessed { buffer: String },
    #[error("a loop of the reduction of the block is further out")]
    ReductionFurtherOut,
    #[error("`{buffer}` would be private to iterations that share it")]
    SharedByIterations { buffer: String },
    #[error("the axis {axis} does not exist")]
    NoSuchAxis { axis: usize },
    #[error("arg-reductions are not supported here")]
    ArgReduction,
    #[error("the loop is not one of the reduction")]
    NotAReductionLoop,
    #[error("the iterator is not bound to a loop of its own")]
    BindingNotPlain,
    #[error("the map does not fit: {0}")]
    Map(String),
    #[error("a condition decides whether `{buffer}` is read at all")]
    ConditionalRead { buffer: String },
    #[error("the block accesses `{buffer}` at several places")]
    SeveralPlaces { buffer: String },
    #[error("no padding of `{buffer}` gives that stride")]
    Alignment { buffer: String },
    #[error("an axis of `{buffer}` has a stride that was asked for")]
    Aligned { buffer: String },
    #[error("the loop does not contain one block alone")]
    NotOneBlock,
    #[error("an iterator is no multiple of what the loops cover plus a part of it")]
    NotATile,
    #[error("the block does not choose between a value and a constant")]
    NoPadding,
    #[error("points {points:?} do not part an extent of {extent}")]
    Points { points: Vec<usize>, extent: usize },
    #[error("the reduction `{0}` would be initialised by each part; decompose it before")]
    Initialising(String),
    #[error("block `{0}` cannot run twice: it does more than assign, or changes what is read")]
    Repeats(String),
    #[error("the guard of block `{0}` depends on a loop further out too; begin there")]
    GuardFurtherOut(String),
    #[error(
        "the guard of block `{0}` does not begin to fail somewhere in the loop and fail from there on"
    )]
    GuardForm(String),
    #[error("iterations may not be independent: `{block}` and `{other}` may meet in `{buffer}`")]
    Dependent { block: String, other: String, buffer: String },
    #[error("the loop has {extent} iterations, more than {most}")]
    TooManyIterations { extent: usize, most: usize },
    #[error("a vector would be inside of another one")]
    NestedVectors,
    #[error("the loops do not follow each other directly")]
    NotSiblings,
    #[error("the loops differ in their number of iterations or in how these are executed")]
    DifferentLoops,
    #[error("the block does not combine the elements along one axis of `{buffer}`, as they are")]
    NotAFold { buffer: String },
    #[error("the block is not the first of a chain of cumulative sums that covers an axis")]
    NoChain,
    #[error("the block does not begin a sum with zero")]
    NoSum,
    #[error("the block adds nothing, or not in any case, to the sum that it reads")]
    NoAddend,
    #[error("`{other}` reads in each iteration what `{block}` has added up so far")]
    Running { block: String, other: String },
    #[error("the last result cannot be cut into slices of {lengths:?}")]
    NoSlices { lengths: Vec<usize> },
    #[error("there is no intrinsic `{0}`")]
    NoSuchIntrinsic(String),
    #[error("the loops do not do what `{intrinsic}` does: {what}")]
    Mismatch { intrinsic: String, what: &'static str },
}

/// A cause, before the program is known.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) mark: Option<Mark>,
}

impl Cause {
    pub(crate) fn at_loop(self, l: LoopRef) -> Failure {
        Failure { cause: self, mark: Some(Mark::Loop(l.0)) }
    }

    pub(crate) fn at_block(self, block: &str) -> Failure {
        Failure { cause: self, mark: Some(Mark::Block(block.to_owned())) }
    }

    pub(crate) fn at_buffer(self, buffer: BufId) -> Failure {
        Failure { cause: self, mark: Some(Mark::Buffer(buffer)) }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Failure {
        Failure { cause, mark: None }
    }
}

impl ScheduleError {
    pub(crate) fn new(
        primitive: &'static str,
        failure: Failure,
        program: &Program,
    ) -> ScheduleError {
        let Failure { cause, mark } = failure;
        ScheduleError { primitive, cause, mark, program: Box::new(program.clone()) }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.primitive, self.cause)?;
        f.write_str(&text::render(&self.program, self.mark.as_ref()))
    }
}

impl std::error::Error for ScheduleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The name of a buffer, for messages.
pub(crate) fn buffer_name(program: &Program, buffer: BufId) -> String {
    program.buffer(buffer).name.clone()
}
