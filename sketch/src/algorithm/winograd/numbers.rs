//! The numbers that Winograd's convolution computes with.
//!
//! Floats are what the expression has. Bytes become words, with which F(2, 3) is exact:
//!
//! ```text
//! half   = Bt d, d: u8          -510 to 510, in 16 bits
//! points = half B               -1020 to 1020, in 16 bits
//! u      = (2 G) w (2 Gt)       whole numbers from -1152 to 1152, in 16 bits
//! conv   = (At sum A) >> 2      the sum is four times that of the expression
//! ```
//!
//! Sums are those of the expression modulo 2^32, so that intermediate ones may wrap around. Four
//! times the result has to fit, which it does for up to 1827 channels.

use ansc_graph::{BinOp, Expr};
use ansc_runtime::DType;

use super::Tile;
use crate::algorithm::rational::Rational;
use crate::algorithm::toom_cook::{Filter, filter};

/// The factor that makes transforms of weights along one axis whole.
const WHOLE: i64 = 2;
/// The largest byte, and the largest one with a sign.
const LARGEST: [usize; 2] = [255, 128];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    /// Floats of 32 bits.
    Floats,
    /// Words that were bytes; two products are one instruction.
    Words,
}

/// The types of the weights of a stage: of the constant, of the transform, and of its results.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    pub(super) from: DType,
    pub(super) through: DType,
    pub(super) to: DType,
}

impl Numbers {
    /// The types of both factors.
    pub(super) fn factors(self) -> [DType; 2] {
        match self {
            Numbers::Floats => [DType::F32; 2],
            Numbers::Words => [DType::U8, DType::I8],
        }
    }

    /// The type of inputs that are transformed along one axis.
    pub(super) fn half(self) -> DType {
        match self {
            Numbers::Floats => DType::F32,
            Numbers::Words => DType::I16,
        }
    }

    /// That of points: the bits of words, which pairs are made of.
    pub(super) fn point(self) -> DType {
        match self {
            Numbers::Floats => DType::F32,
            Numbers::Words => DType::U16,
        }
    }

    /// That of sums of products.
    pub(super) fn sum(self) -> DType {
        match self {
            Numbers::Floats => DType::F32,
            Numbers::Words => DType::I32,
        }
    }

    /// Bytes of a transformed weight.
    pub(super) fn weight_bytes(self) -> usize {
        self.half().size()
    }

    /// How weights are transformed when compiling.
    pub(super) fn prepared(self) -> Widths {
        let [_, from] = self.factors();
        match self {
            Numbers::Floats => Widths { from, through: DType::F64, to: DType::F32 },
            Numbers::Words => Widths { from, through: DType::I32, to: DType::I32 },
        }
    }

    /// Products of one term.
    pub(super) fn per_term(self) -> usize {
        match self {
            Numbers::Floats => 1,
            Numbers::Words => 2,
        }
    }

    /// The matrices, those of words being whole.
    pub(super) fn filter(self, tile: &Tile) -> Filter {
        let mut filter = filter(tile.outputs, tile.window);
        if self == Numbers::Words {
            let whole = Rational::new(WHOLE, 1);
            filter.weight.iter_mut().flatten().for_each(|part| part.factor = part.factor * whole);
        }
        filter
    }

    /// Whether results of so many channels under such a window come out right.
    pub(super) fn fit(self, window: usize, channels: usize) -> bool {
        let [a, b] = LARGEST;
        let largest = (WHOLE as usize).pow(2) * a * b * window * channels;
        self == Numbers::Floats || (largest < 1 << 31 && channels.is_multiple_of(self.per_term()))
    }

    /// A term of a product: `point(j)` is the element of the term's `j`-th product, and `weight`
    /// all of its weights.
    pub(super) fn term(self, point: &dyn Fn(usize) -> Expr, weight: Expr) -> Expr {
        match self {
            Numbers::Floats => point(0) * weight,
            Numbers::Words => {
                let pair = pair(&|j| Expr::cast(self.point(), DType::I32, point(j)));
                Expr::binary(BinOp::Dot2, pair, weight)
            }
        }
    }

    /// The result that is this much of a sum.
    pub(super) fn result(self, sum: Expr) -> Expr {
        match self {
            Numbers::Floats => sum,
            Numbers::Words => {
                let by = Expr::float(DType::I32, f64::from(2 * WHOLE.ilog2()));
                Expr::binary(BinOp::Shr, sum, by)
            }
        }
    }
}

/// Two words as one integer, of which the first one has no sign.
pub(super) fn pair(word: &dyn Fn(usize) -> Expr) -> Expr {
    word(0).or(Expr::binary(BinOp::Shl, word(1), Expr::float(DType::I32, 16.0)))
}

/// The lower bits of a number, for the first word of a pair.
pub(super) fn lower(word: Expr) -> Expr {
    word.and(Expr::float(DType::I32, 65535.0))
}

#[cfg(test)]
mod tests {
    use super::super::Weights;
    use super::*;

    #[test]
    fn transforms_of_words_are_whole() {
        let tile = Tile { outputs: 2, window: 3, weights: Weights::Early, numbers: Numbers::Words };
        let filter = Numbers::Words.filter(&tile);
        let rows = [&filter.weight, &filter.input, &filter.output].into_iter().flatten();
        for part in rows.flatten() {
            let whole = |c: Rational| c.to_f64().fract() == 0.0;
            assert!(whole(part.factor) && part.terms.iter().all(|(_, c)| whole(*c)), "{part:?}");
        }
    }

    #[test]
    fn four_times_the_largest_result_fits() {
        assert!(Numbers::Words.fit(9, 1826) && !Numbers::Words.fit(9, 1828));
        assert!(!Numbers::Words.fit(9, 63) && Numbers::Floats.fit(9, 63));
    }
}
