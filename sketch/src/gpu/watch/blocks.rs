//! Which thread blocks of a launch are run.
//!
//! An axis of the grid often stands for several axes of the result: `b // 12 % 4`. Its places of
//! interest are its ends and those of each such digit; all the others look like one of them or like
//! one between.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, Expr};

use crate::gpu::{Axis, Kernel};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    All,
    /// The corners of the grid, the ends of what an axis is made of, and some between; all of a
    /// small grid.
    Sampled,
}

/// A grid of so many blocks is small.
const SMALL: usize = 16;

/// Thread blocks between the corners.
const BETWEEN: usize = 3;

impl Blocks {
    pub(super) fn of(self, kernel: &Kernel) -> Vec<[usize; 3]> {
        let extents = kernel.grid.map(|axis| axis.extent);
        match self {
            Blocks::Sampled if kernel.blocks() > SMALL => sampled(kernel).into_iter().collect(),
            _ => (0..kernel.blocks()).map(|n| place(n, extents)).collect(),
        }
    }
}

/// The number of a block, which counts along the first axis first, as its place.
fn place(number: usize, [x, y, _]: [usize; 3]) -> [usize; 3] {
    [number % x, number / x % y, number / x / y]
}

fn sampled(kernel: &Kernel) -> BTreeSet<[usize; 3]> {
    let extents = kernel.grid.map(|axis| axis.extent);
    let mut chosen = BTreeSet::new();
    for corner in 0..8 {
        chosen.insert([0, 1, 2].map(|i| if corner >> i & 1 == 1 { extents[i] - 1 } else { 0 }));
    }
    let between = (1..=BETWEEN).map(|i| place(kernel.blocks() * i / (BETWEEN + 1), extents));
    chosen.extend(between);
    for (i, axis) in kernel.grid.iter().enumerate() {
        for end in ends(kernel, *axis) {
            let mut place = [0; 3];
            place[i] = end;
            chosen.insert(place);
        }
    }
    chosen
}

/// Where the digits of an axis of the grid have their last value first, and their first value last.
fn ends(kernel: &Kernel, axis: Axis) -> BTreeSet<usize> {
    let mut ends = BTreeSet::new();
    kernel.visit_blocks(&mut |block| {
        let bindings = block.iters.iter().map(|iter| &iter.binding);
        bindings.chain(block.exprs()).for_each(|e| {
            e.visit(&mut |e| {
                if let Some(period) = period(e, axis) {
                    ends.extend([period - 1, axis.extent - period]);
                }
            });
        });
    });
    ends
}

/// After how many blocks a digit of the axis begins anew, or has its next value.
fn period(e: &Expr, axis: Axis) -> Option<usize> {
    let Expr::Binary(BinOp::FloorDiv | BinOp::FloorMod, a, b) = e else { return None };
    let period = usize::try_from(b.as_const()?.as_i64()).ok()?;
    let inside = (1..=axis.extent).contains(&period);
    (inside && a.vars().contains(&axis.var)).then_some(period)
}

#[cfg(test)]
mod tests {
    use ansc_graph::VarId;

    use super::*;
    use crate::gpu::Step;
    use crate::program::{Access, Block, Body, Shared, Stmt};

    /// Threads that write `y[index]`.
    fn kernel(grid: [usize; 3], index: Expr) -> Kernel {
        let var = |i| Axis { var: VarId::new(i), extent: 1 };
        let [x, y, z] = [0, 1, 2].map(|i| Axis { extent: grid[i], ..var(i) });
        let dst = Access { buffer: ansc_graph::BufId::new(0), indices: vec![index] };
        let body = Body::Assign { dst, value: Expr::int(0) };
        let block = Block { name: "y".into(), iters: vec![], predicate: None, body };
        let body = vec![Step::Run(Stmt::Block(Shared::new(block)))];
        Kernel { name: "k".into(), grid: [x, y, z], block: [3, 4, 5].map(var), body }
    }

    #[test]
    fn corners_ends_of_digits_and_some_between() {
        let chosen = Blocks::Sampled.of(&kernel([100, 1, 1], Expr::var(0)));
        assert_eq!(chosen.iter().map(|p| p[0]).collect::<Vec<_>>(), [0, 25, 50, 75, 99]);
        let digits = Expr::var(0).floor_div(20) + Expr::var(0).floor_mod(20);
        let chosen = Blocks::Sampled.of(&kernel([100, 1, 1], digits));
        assert_eq!(chosen.iter().map(|p| p[0]).collect::<Vec<_>>(), [0, 19, 25, 50, 75, 80, 99]);
        let chosen = Blocks::Sampled.of(&kernel([9, 8, 7], Expr::var(1)));
        assert_eq!(chosen.len(), 8 + BETWEEN);
        assert!(chosen.contains(&[8, 0, 6]) && chosen.contains(&[8, 7, 6]));
    }

    #[test]
    fn small_grids_run_completely() {
        assert_eq!(Blocks::Sampled.of(&kernel([2, 3, 2], Expr::var(0))).len(), 12);
        assert_eq!(Blocks::All.of(&kernel([9, 8, 7], Expr::var(0))).len(), 504);
        assert!(Blocks::Sampled.of(&kernel([9, 0, 7], Expr::var(0))).is_empty());
    }
}
