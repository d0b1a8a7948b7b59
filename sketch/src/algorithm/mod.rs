//! Other ways to compute the same subgraph.
//!
//! In: a [`Task`] one of whose stages is a convolution, a sum of products of 8-bit integers, or a
//! window, told by its accesses. Out: a task whose expression computes the same with other stages,
//! and how constants are prepared for it. The new task is scheduled like any other.
//!
//! ```text
//! pad; conv; relu  =>  im2col: pad; columns; one product; relu
//! ```
//!
//! `table` has a row for each. An algorithm is an instruction of a trace, so that a search finds
//! out where which of them wins. Results may differ by rounding: see `winograd`, which a task may
//! forbid ([`Sums`](crate::task::Sums)); those of integers do not.

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
mod table;
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
use table::{Row, TABLE, Way};
use winograd::Tile;

/// How a convolution or a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Algorithm {
    /// F(2x2, 3x3)
    Winograd2,
    /// F(4x4, 4x4)
    WinogradLarge,
    /// F(4x4, 3x3)
    Winograd4,
    /// The same, with weights that are transformed in each run, a few output channels at a time.
    Winograd4Late,
    /// F(2x2, 3x3) of bytes, exactly.
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
    pub const ALL: [Algorithm; TABLE.len()] = table::all();

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// As traces, the names of sketches and manifests have it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// For people: reports call it so.
    pub fn in_words(self) -> &'static str {
        self.row().in_words
    }

    /// The algorithm of that name.
    pub fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The tile of a convolution by Winograd.
    pub(crate) fn tile(self) -> Option<Tile> {
        match self.row().way {
            Way::Winograd(tile) => Some(tile),
            Way::Any(_) | Way::Convolution(_) => None,
        }
    }

    /// None where the algorithm does not apply, or the task does not allow it.
    pub fn rewrite(self, task: &Task) -> Option<Rewritten> {
        task.sums.allow(Some(self)).then_some(())?;
        match self.row().way {
            Way::Any(rewrite) => rewrite(task),
            Way::Convolution(rewrite) => rewrite(task, &Convolution::find(&task.compute)?),
            Way::Winograd(tile) => winograd::rewrite(task, tile),
        }
    }
}

impl From<Algorithm> for &'static str {
    fn from(algorithm: Algorithm) -> &'static str {
        algorithm.name()
    }
}

impl TryFrom<String> for Algorithm {
    type Error = String;

    fn try_from(name: String) -> Result<Algorithm, String> {
        Algorithm::named(&name).ok_or_else(|| format!("there is no algorithm `{name}`"))
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
