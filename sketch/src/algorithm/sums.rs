//! The algorithms that may compute a kernel, and words for the one that does.

use ansc_graph::{BinOp, Combiner, Compute, Expr, Stage};

use super::Algorithm;
use super::winograd::Numbers;
use crate::task::{Sums, Task};

impl Sums {
    /// None is the algorithm of the expression.
    pub fn allow(self, algorithm: Option<Algorithm>) -> bool {
        self == Sums::Any || algorithm.is_none_or(Algorithm::is_direct)
    }
}

impl Algorithm {
    /// Whether each result is the sum of the very products that the expression says, or equals it,
    /// and rounds no more than such a sum does.
    pub fn is_direct(self) -> bool {
        self.tile().is_none_or(|tile| tile.numbers == Numbers::Words)
    }

    /// Whether it is one of Winograd's, of whatever window and numbers.
    pub fn is_winograd(self) -> bool {
        self.tile().is_some()
    }
}

impl Task {
    /// How the subgraph is computed, as manifests have it: the name of the algorithm, or `direct`
    /// for the expression itself. None if it is neither a convolution nor another sum of products.
    pub fn computed_by(&self, algorithm: Option<Algorithm>) -> Option<&'static str> {
        match algorithm {
            Some(algorithm) => Some(algorithm.name()),
            None => sums_products(&self.compute).then_some("direct"),
        }
    }
}

fn sums_products(compute: &Compute) -> bool {
    let is_sum = |s: &Stage| s.reduce.as_ref().is_some_and(|r| r.combiner == Combiner::Sum);
    compute.stages.iter().any(|s| is_sum(s) && is_product(&s.body))
}

/// A product of elements of two buffers. A sum of squares is none.
fn is_product(e: &Expr) -> bool {
    match e {
        Expr::Cast(_, x) => is_product(x),
        Expr::Select(_, a, b) => is_product(a) || is_product(b),
        Expr::Binary(BinOp::Mul, a, b) => {
            let of = |e: &Expr| e.loads().into_iter().map(|(buffer, _)| buffer).collect::<Vec<_>>();
            let (a, b) = (of(a), of(b));
            !a.is_empty() && !b.is_empty() && a != b
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{conv, matmul_bias_relu};

    #[test]
    fn only_winograd_is_not_direct() {
        let indirect: Vec<_> = Algorithm::ALL.into_iter().filter(|a| !a.is_direct()).collect();
        assert!(indirect.iter().all(|a| a.in_words().starts_with("Winograd")), "{indirect:?}");
        assert_eq!(indirect.len(), 4);
        assert!(Algorithm::ALL.into_iter().all(|a| Sums::Any.allow(Some(a))));
        assert!(!Sums::Direct.allow(Some(Algorithm::Winograd2)));
        assert!(Sums::Direct.allow(Some(Algorithm::Im2col)) && Sums::Direct.allow(None));
    }

    #[test]
    fn sums_of_products_are_told_from_others() {
        let depthwise = "compute(in0: f32[9, 8], in1: f32[3, 8]) -> y {
          y: f32[7, 8] = sum{r0: 3} mul(in0[add(i0, r0), i1], in1[r0, i1])
        }";
        let squares = "compute(in0: f32[9, 8]) -> y {
          y: f32[9] = sum{r0: 8} mul(in0[i0, r0], in0[i0, r0])
        }";
        let bytes = "compute(in0: u8[9, 8], in1: i8[8, 4]) -> y {
          y: i32[9, 4] = sum{r0: 8} mul(i32(in0[i0, r0]), i32(in1[r0, i1]))
        }";
        let parsed = |text: &str| sums_products(&Compute::parse(text).unwrap());
        assert!(parsed(depthwise) && parsed(bytes) && !parsed(squares));
        assert!(sums_products(&conv(4, 3, 9, 9, 1)) && sums_products(&matmul_bias_relu(4, 4, 4)));
    }
}
