//! A program that is scheduled, and its constants in the layouts that it reads.

use crate::packed::Packing;
use crate::program::Program;

/// Padding to whole tiles takes room too: a sixteenth is no other form of the weights.
const PADDING: usize = 16;

/// A program that is scheduled, and its constants in the layouts that it reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled {
    /// Its parameters are those of the task, but for constants that are packed.
    pub program: Program,
    /// One for each parameter that is a constant in another form.
    pub packings: Vec<Packing>,
}

impl Scheduled {
    /// Whether the constants take more room in the form in which the program reads them.
    pub fn enlarges(&self) -> bool {
        let before: usize = self.packings.iter().map(|p| p.compute.inputs[0].bytes()).sum();
        let after = self.packings.iter().flat_map(|p| p.compute.output_types());
        after.map(|ty| ty.bytes()).sum::<usize>() > before + before / PADDING
    }
}
