//! The arguments of instructions: how methods are given them, and how they read.

use std::fmt::{self, Display, Formatter};

use super::instruction::{BlockVar, LoopVar, Note, Number, ValueVar};
use crate::algorithm::Algorithm;
use crate::index_map::IndexMap;
use crate::program::{Scope, ThreadAxis};
use crate::schedule::Rest;

/// A type that instructions store.
pub trait Argument {
    /// The type in which methods take it.
    type Given<'a>;
    fn stored(given: Self::Given<'_>) -> Self;
    fn operand(&self) -> Operand<'_>;
}

/// An argument, for whoever treats all instructions alike.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    Block(BlockVar),
    Loop(LoopVar),
    Loops(&'a [LoopVar]),
    Number(Number),
    Numbers(&'a [Number]),
    Note(&'a Note),
    Name(&'a str),
    Lengths(&'a [usize]),
    Plain(&'a dyn Display),
}

impl Operand<'_> {
    /// The variable of a sampled number.
    pub(super) fn value(self) -> Option<ValueVar> {
        match self {
            Operand::Number(Number::Var { var })
            | Operand::Note(&Note::Number(Number::Var { var })) => Some(var),
            _ => None,
        }
    }
}

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Block(var) => write!(f, "{var}"),
            Operand::Loop(var) => write!(f, "{var}"),
            Operand::Loops(vars) => f.write_str(&list(vars)),
            Operand::Number(number) => write!(f, "{number}"),
            Operand::Numbers(numbers) => write!(f, "[{}]", list(numbers)),
            Operand::Note(note) => write!(f, "{note}"),
            Operand::Name(name) => write!(f, "{name:?}"),
            Operand::Lengths(lengths) => write!(f, "[{}]", list(lengths)),
            Operand::Plain(plain) => write!(f, "{plain}"),
        }
    }
}

pub(super) fn list<T: Display>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

macro_rules! given_as_stored {
    ($($ty:ty: |$it:ident| $operand:expr;)*) => {$(
        impl Argument for $ty {
            type Given<'a> = $ty;

            fn stored(given: $ty) -> $ty {
                given
            }

            fn operand(&self) -> Operand<'_> {
                let $it = self;
                $operand
            }
        }
    )*};
}

given_as_stored! {
    BlockVar: |var| Operand::Block(*var);
    LoopVar: |var| Operand::Loop(*var);
    Number: |number| Operand::Number(*number);
    Note: |note| Operand::Note(note);
    usize: |number| Operand::Plain(number);
    Scope: |scope| Operand::Plain(scope);
    ThreadAxis: |axis| Operand::Plain(axis);
    Algorithm: |algorithm| Operand::Plain(algorithm);
    Rest: |rest| Operand::Plain(rest);
}

macro_rules! given_by_reference {
    ($($ty:ty as $given:ty: |$it:ident| $operand:expr;)*) => {$(
        impl Argument for $ty {
            type Given<'a> = &'a $given;

            fn stored(given: &$given) -> $ty {
                given.to_owned()
            }

            fn operand(&self) -> Operand<'_> {
                let $it = self;
                $operand
            }
        }
    )*};
}

given_by_reference! {
    String as str: |name| Operand::Name(name);
    Vec<LoopVar> as [LoopVar]: |vars| Operand::Loops(vars);
    Vec<Number> as [Number]: |numbers| Operand::Numbers(numbers);
    Vec<usize> as [usize]: |lengths| Operand::Lengths(lengths);
    IndexMap as IndexMap: |map| Operand::Plain(map);
}
