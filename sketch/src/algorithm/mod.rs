//! Other ways to compute the same subgraph.
//!
//! In: a [`Task`] one of whose stages is a convolution, a sum of products of 8-bit integers, or a
//! window, told by its accesses. Out: a task whose expression computes the same with other stages,
//! and how constants are prepared for it. The new task is scheduled like any other.
//!
//! ```text
//! pad; conv; relu  =>  winograd_4: pad; transform; 36 products; transform back; relu
//! pad; conv; relu  =>  winograd_large: the same for larger windows and strides, dealt out to more channels
//! pad; conv; relu  =>  winograd_4_late: the same, with weights transformed in each run
//! pad; conv; relu  =>  winograd_2_words: the same of bytes, which become words, exactly
//! pad; conv; relu  =>  im2col: pad; columns; one product; relu
//! pad; conv; relu  =>  taps: pad; one product with columns for each tap; their sums; relu
//! u8 by i8 product =>  dot4: a product whose terms are four bytes by four bytes
//! u8 by i8 product =>  dot2: a product whose terms are two words by two words
//! bf16 product     =>  dot_bf16: a product whose terms are two halves by two halves
//! bf16 convolution =>  winograd_4: the same as of floats, which its operands become
//! f32 by 4 bits    =>  narrow: products of integers, block by block, with weights that stay as narrow as they are
//! argmax           =>  place: the maximum, and then the first place that has it
//! bf16 product     => tiles: a product of panels as a unit for matrices wants them
//! f16 product      => matrices: a product of two matrices as the warps of a GPU multiply them
//! f16 product      => matrices_in_parts: the same of parts of the terms, and sums of the parts
//! sum of groups     =>  groups: a sum with an axis of its own for groups
//! strided window    =>  strides: columns that lie a stride apart, side by side
//! few columns      =>  lanes: vectors of terms, then sums of their lanes
//! max of a window  =>  separate: of each column of the window, then of those of a row
//! ```
//!
//! An algorithm is an instruction of a trace, so that a search finds out where which of them wins.
//! Results may differ by rounding: see `winograd`, which a task may forbid ([`Sums`]); those of
//! integers do not.

pub(crate) mod convolution;
pub(crate) mod dots;
mod groups;
mod im2col;
mod inside;
mod lanes;
pub(crate) mod matrices;
pub(crate) mod narrow;
mod parts;
mod place;
mod rational;
mod separate;
mod strides;
mod sums;
mod taps;
pub(crate) mod tiles;
mod toom_cook;
mod wide;
pub(crate) mod winograd;

#[cfg(test)]
mod tests;

use ansc_graph::{BufId, Compute, Expr, Stage};
use serde::{Deserialize, Serialize};

use crate::packed::{Packing, in_turn};
use crate::task::Task;
use convolution::Convolution;
use dots::Terms;
use winograd::{Numbers, Tile, Weights};

/// How a convolution or a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// F(2x2, 3x3)
    #[serde(rename = "winograd_2")]
    Winograd2,
    /// F(4x4, 4x4)
    #[serde(rename = "winograd_large")]
    WinogradLarge,
    /// F(4x4, 3x3)
    #[serde(rename = "winograd_4")]
    Winograd4,
    /// The same, with weights that are transformed in each run, a few output channels at a time.
    #[serde(rename = "winograd_4_late")]
    Winograd4Late,
    /// F(2x2, 3x3) of bytes, exactly.
    #[serde(rename = "winograd_2_words")]
    Winograd2Words,
    /// The elements under each window side by side, and one product of matrices.
    Im2col,
    /// One product of matrices with columns for each tap of the window.
    Taps,
    /// A product of matrices for each tap of the window, where it meets the image.
    Inside,
    /// Four products of bytes at a time.
    Dot4,
    /// Two products of words that were bytes.
    Dot2,
    /// Two products of `bf16` at a time.
    #[serde(rename = "dot_bf16")]
    DotBf16,
    /// Products of integers with weights of few bits.
    Narrow,
    /// Columns of each group of a convolution apart.
    Groups,
    /// The axes of a window one after the other.
    Separate,
    /// Columns that lie a stride apart side by side.
    Strides,
    /// Terms in the lanes of vectors.
    Lanes,
    /// An extreme, and then its place.
    Place,
    /// Panels of the second factor, for a unit for matrices.
    Tiles,
    /// A product of two matrices, for the warps of a GPU.
    Matrices,
    /// The same, with sums in parts that different blocks of threads compute.
    MatricesInParts,
}

/// A task that computes the same.
#[derive(Clone, PartialEq, Debug)]
pub struct Rewritten {
    /// The task with the other expression, constants and all.
    pub task: Task,
    /// How the constants of the new task are made from the original ones.
    pub prepared: Vec<Packing>,
}

impl Algorithm {
    /// Every algorithm once, in the order of the variants.
    pub const ALL: [Algorithm; 20] = [
        Algorithm::Winograd2,
        Algorithm::WinogradLarge,
        Algorithm::Winograd4,
        Algorithm::Winograd4Late,
        Algorithm::Winograd2Words,
        Algorithm::Im2col,
        Algorithm::Taps,
        Algorithm::Inside,
        Algorithm::Dot4,
        Algorithm::Dot2,
        Algorithm::DotBf16,
        Algorithm::Narrow,
        Algorithm::Groups,
        Algorithm::Separate,
        Algorithm::Strides,
        Algorithm::Lanes,
        Algorithm::Place,
        Algorithm::Tiles,
        Algorithm::Matrices,
        Algorithm::MatricesInParts,
    ];

    /// As traces, the names of sketches and manifests have it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Winograd2 => "winograd_2",
            Algorithm::WinogradLarge => "winograd_large",
            Algorithm::Winograd4 => "winograd_4",
            Algorithm::Winograd4Late => "winograd_4_late",
            Algorithm::Winograd2Words => "winograd_2_words",
            Algorithm::Im2col => "im2col",
            Algorithm::Taps => "taps",
            Algorithm::Inside => "inside",
            Algorithm::Dot4 => "dot4",
            Algorithm::Dot2 => "dot2",
            Algorithm::DotBf16 => "dot_bf16",
            Algorithm::Narrow => "narrow",
            Algorithm::Groups => "groups",
            Algorithm::Separate => "separate",
            Algorithm::Strides => "strides",
            Algorithm::Lanes => "lanes",
            Algorithm::Place => "place",
            Algorithm::Tiles => "tiles",
            Algorithm::Matrices => "matrices",
            Algorithm::MatricesInParts => "matrices_in_parts",
        }
    }

    pub(crate) fn tile(self) -> Option<Tile> {
        let (outputs, window, weights, numbers) = match self {
            Algorithm::Winograd2 => (2, 3, Weights::Early, Numbers::Floats),
            Algorithm::WinogradLarge => (4, 4, Weights::Early, Numbers::Floats),
            Algorithm::Winograd4 => (4, 3, Weights::Early, Numbers::Floats),
            Algorithm::Winograd4Late => (4, 3, Weights::Late, Numbers::Floats),
            Algorithm::Winograd2Words => (2, 3, Weights::Early, Numbers::Words),
            Algorithm::Im2col
            | Algorithm::Taps
            | Algorithm::Inside
            | Algorithm::Dot4
            | Algorithm::Dot2
            | Algorithm::DotBf16
            | Algorithm::Narrow
            | Algorithm::Groups
            | Algorithm::Separate
            | Algorithm::Strides
            | Algorithm::Lanes
            | Algorithm::Place
            | Algorithm::Tiles
            | Algorithm::Matrices
            | Algorithm::MatricesInParts => return None,
        };
        Some(Tile { outputs, window, weights, numbers })
    }

    /// None where the algorithm does not apply, or the task does not allow it.
    pub fn rewrite(self, task: &Task) -> Option<Rewritten> {
        task.sums.allow(Some(self)).then_some(())?;
        let conv = || Convolution::find(&task.compute);
        let narrow = || Convolution::of_narrow(&task.compute);
        match self {
            Algorithm::Dot4 => dots::rewrite(task, Terms::Quads),
            Algorithm::Dot2 => dots::rewrite(task, Terms::Pairs),
            Algorithm::DotBf16 => dots::rewrite(task, Terms::Halves),
            Algorithm::Narrow => narrow::rewrite(task),
            Algorithm::Groups => groups::rewrite(task),
            Algorithm::Separate => separate::rewrite(task),
            Algorithm::Strides => strides::rewrite(task),
            Algorithm::Lanes => lanes::rewrite(task),
            Algorithm::Place => place::rewrite(task),
            Algorithm::Tiles => tiles::rewrite(task),
            Algorithm::Matrices => matrices::rewrite(task),
            Algorithm::MatricesInParts => matrices::rewrite_in_parts(task),
            Algorithm::Im2col => im2col::rewrite(task, &conv()?),
            Algorithm::Taps => taps::rewrite(task, &conv()?),
            Algorithm::Inside => of_floats(task, inside::rewrite),
            Algorithm::Winograd2Words => winograd::rewrite(task, &narrow()?, self.tile()?),
            Algorithm::Winograd2
            | Algorithm::WinogradLarge
            | Algorithm::Winograd4
            | Algorithm::Winograd4Late => {
                let tile = self.tile()?;
                of_floats(task, |task, conv| winograd::rewrite(task, conv, tile))
            }
        }
    }
}

impl Rewritten {
    fn as_it_is(task: &Task) -> Rewritten {
        Rewritten { task: task.clone(), prepared: vec![] }
    }
}

/// The task with a convolution of floats, if it has one of halves.
pub(crate) fn in_floats(task: &Task) -> Rewritten {
    wide::rewrite(task).unwrap_or_else(|| Rewritten::as_it_is(task))
}

/// An algorithm's way to compute a convolution of floats, or one of halves as such.
fn of_floats(
    task: &Task,
    rewrite: impl Fn(&Task, &Convolution) -> Option<Rewritten>,
) -> Option<Rewritten> {
    let Rewritten { task, prepared } = in_floats(task);
    let made = rewrite(&task, &Convolution::find(&task.compute)?)?;
    Some(Rewritten { prepared: in_turn(prepared, made.prepared), ..made })
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The subgraph up to one of its stages, to which others are appended in place of that one.
struct Replacing<'a> {
    original: &'a Compute,
    stage: usize,
    compute: Compute,
}

impl<'a> Replacing<'a> {
    fn new(original: &'a Compute, stage: usize) -> Replacing<'a> {
        let mut compute = original.clone();
        compute.stages.truncate(stage);
        Replacing { original, stage, compute }
    }

    fn push(&mut self, stage: Stage) -> BufId {
        self.compute.push(stage)
    }

    /// A factor as `make` lays it out: when compiling, if it is a constant that nothing else reads,
    /// and else by a stage of its own.
    fn laid_out(
        &mut self,
        task: &Task,
        factor: BufId,
        prepared: &mut Vec<Packing>,
        make: impl FnOnce(BufId) -> Stage,
    ) -> BufId {
        let Some(param) = task.sole_constant(factor) else { return self.push(make(factor)) };
        let made = make(BufId::new(0));
        let whole = std::mem::replace(&mut self.compute.inputs[param], made.ty.clone());
        prepared.push(Packing { param, compute: Compute::single(vec![whole], made) });
        factor
    }

    /// The finished subgraph. The stage that was pushed last stands for the one that is replaced.
    fn done(self) -> Compute {
        let Replacing { original, stage, mut compute } = self;
        let added = compute.stages.len() - 1 - stage;
        let moved = |s: usize| if s < stage { s } else { s + added };
        for later in &original.stages[stage + 1..] {
            let mut later = later.clone();
            later.body = later.body.rewrite(&mut |e| match e {
                Expr::Load(b, indices) => original
                    .stage_of(*b)
                    .map(|s| Expr::Load(original.stage_buffer(moved(s)), indices.clone())),
                _ => None,
            });
            compute.push(later);
        }
        compute.outputs = original.outputs.iter().map(|&s| moved(s)).collect();
        compute
    }
}

/// The subgraph without a stage; none if something reads it.
fn without(compute: &Compute, stage: usize) -> Option<Compute> {
    let gone = compute.stage_buffer(stage);
    let is_read = compute.stages.iter().any(|s| s.body.loads().iter().any(|(b, _)| *b == gone));
    if is_read || compute.outputs.contains(&stage) {
        return None;
    }
    let mut stages = compute.stages.clone();
    stages.remove(stage);
    for later in &mut stages {
        later.body = later.body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if compute.stage_of(*b).is_some_and(|s| s > stage) => {
                Some(Expr::Load(BufId::new(b.index() - 1), at.clone()))
            }
            _ => None,
        });
    }
    let moved = |&s: &usize| if s > stage { s - 1 } else { s };
    let outputs = compute.outputs.iter().map(moved).collect();
    Some(Compute { inputs: compute.inputs.clone(), stages, outputs })
}
