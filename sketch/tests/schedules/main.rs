//! The untuned schedule keeps what is computed: for many expressions and machines, the program that
//! it makes, run by the suspicious interpreter, gives what the reference evaluator gives.

mod random;
mod support;
mod table;
