//! The table of algorithms, in the order of the variants.

use super::convolution::Convolution;
use super::dots::Terms;
use super::winograd::{Numbers, Tile, Weights};
use super::{Algorithm, Rewritten, dots, groups, im2col, inside, lanes, matrices, narrow};
use super::{place, separate, strides, taps, tiles};
use crate::task::Task;

pub(super) struct Row {
    algorithm: Algorithm,
    pub(super) name: &'static str,
    pub(super) in_words: &'static str,
    pub(super) way: Way,
}

/// How a subgraph is rewritten.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Whatever it is that the algorithm looks for.
    Any(fn(&Task) -> Option<Rewritten>),
    /// A convolution of floats.
    Convolution(fn(&Task, &Convolution) -> Option<Rewritten>),
    /// A convolution in tiles.
    Winograd(Tile),
}

pub(super) const TABLE: [Row; 20] = [
    // pad; conv => pad; transform; 16 products; transform back
    row(
        Algorithm::Winograd2,
        "winograd_2",
        "Winograd F(2x2,3x3)",
        winograd(2, 3, Weights::Early, Numbers::Floats),
    ),
    // the same for larger windows and strides, dealt out to more channels: 49 products
    row(
        Algorithm::WinogradLarge,
        "winograd_large",
        "Winograd F(4x4,4x4)",
        winograd(4, 4, Weights::Early, Numbers::Floats),
    ),
    // pad; conv => pad; transform; 36 products; transform back
    row(
        Algorithm::Winograd4,
        "winograd_4",
        "Winograd F(4x4,3x3)",
        winograd(4, 3, Weights::Early, Numbers::Floats),
    ),
    // the same, with weights transformed in each run
    row(
        Algorithm::Winograd4Late,
        "winograd_4_late",
        "Winograd F(4x4,3x3), weights transformed in each run",
        winograd(4, 3, Weights::Late, Numbers::Floats),
    ),
    // the same as the first, of bytes which become words, exactly
    row(
        Algorithm::Winograd2Words,
        "winograd_2_words",
        "Winograd F(2x2,3x3) of words, exactly",
        winograd(2, 3, Weights::Early, Numbers::Words),
    ),
    // pad; conv => pad; columns; one product
    row(Algorithm::Im2col, "im2col", "im2col", Way::Convolution(im2col::rewrite)),
    // pad; conv => pad; one product with columns for each tap; their sums
    row(Algorithm::Taps, "taps", "columns for each tap", Way::Convolution(taps::rewrite)),
    // pad; conv => for each tap a product where it meets the image; their sums
    row(
        Algorithm::Inside,
        "inside",
        "each tap where it meets the image",
        Way::Any(inside::rewrite),
    ),
    // u8 by i8 product => one whose terms are four bytes by four bytes
    row(
        Algorithm::Dot4,
        "dot4",
        "four bytes at a time",
        Way::Any(|task| dots::rewrite(task, Terms::Quads)),
    ),
    // u8 by i8 product => one whose terms are two words by two words
    row(
        Algorithm::Dot2,
        "dot2",
        "two words at a time",
        Way::Any(|task| dots::rewrite(task, Terms::Pairs)),
    ),
    // bf16 product => one whose terms are two halves by two halves
    row(
        Algorithm::DotBf16,
        "dot_bf16",
        "two halves at a time",
        Way::Any(|task| dots::rewrite(task, Terms::Halves)),
    ),
    // f32 by 4 bits => products of integers, block by block, with weights that stay narrow
    row(
        Algorithm::Narrow,
        "narrow",
        "integers of few bits, block by block",
        Way::Any(narrow::rewrite),
    ),
    // sum of groups => a sum with an axis of its own for groups
    row(Algorithm::Groups, "groups", "columns of each group apart", Way::Any(groups::rewrite)),
    // max of a window => of each column of the window, then of those of a row
    row(Algorithm::Separate, "separate", "windows one axis at a time", Way::Any(separate::rewrite)),
    // strided window => columns that lie a stride apart, side by side
    row(Algorithm::Strides, "strides", "columns a stride apart", Way::Any(strides::rewrite)),
    // few columns => vectors of terms, then sums of their lanes
    row(Algorithm::Lanes, "lanes", "terms in lanes", Way::Any(lanes::rewrite)),
    // argmax => the maximum, and then the first place that has it
    row(Algorithm::Place, "place", "an extreme, then its place", Way::Any(place::rewrite)),
    // bf16 product => a product of panels as a unit for matrices wants them
    row(Algorithm::Tiles, "tiles", "tiles of a matrix unit", Way::Any(tiles::rewrite)),
    // f16 product => a product of two matrices as the warps of a GPU multiply them
    row(Algorithm::Matrices, "matrices", "matrices of tensor cores", Way::Any(matrices::rewrite)),
    // the same of parts of the terms, and sums of the parts
    row(
        Algorithm::MatricesInParts,
        "matrices_in_parts",
        "matrices of tensor cores, sums in parts",
        Way::Any(matrices::rewrite_in_parts),
    ),
];

const fn row(algorithm: Algorithm, name: &'static str, in_words: &'static str, way: Way) -> Row {
    Row { algorithm, name, in_words, way }
}

const fn winograd(outputs: usize, window: usize, weights: Weights, numbers: Numbers) -> Way {
    Way::Winograd(Tile { outputs, window, weights, numbers })
}

/// The algorithms of the rows, which are in the order of the variants.
pub(super) const fn all() -> [Algorithm; TABLE.len()] {
    let mut all = [Algorithm::Winograd2; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        all[at] = TABLE[at].algorithm;
        assert!(all[at] as usize == at);
        at += 1;
    }
    all
}
