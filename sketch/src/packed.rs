//! Constants in the order in which a kernel reads them.

use ansc_graph::Compute;

/// Parameter `param` of a program is not the constant itself but what `compute`, which has that constant
/// as its only input, makes of it: the compiler evaluates it once.
#[derive(Clone, PartialEq, Debug)]
pub struct Packing {
    pub param: usize,
    pub compute: Compute,
}
