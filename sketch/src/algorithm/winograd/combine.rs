//! Multiples of elements, summed up as the rows of a matrix say.

use ansc_graph::Expr;
use ansc_runtime::DType;

use crate::algorithm::rational::Rational;
use crate::algorithm::toom_cook::{Part, Row};

/// Row `at` of the matrix times the vector of `element`s, written out for each row.
pub(super) fn switch(at: &Expr, rows: Vec<Expr>) -> Expr {
    let mut rows = rows.into_iter().enumerate().rev();
    let (_, last) = rows.next().expect("a matrix has rows");
    rows.fold(last, |rest, (i, row)| Expr::select(at.clone().eq(Expr::index(i)), row, rest))
}

/// Each row of the matrix times the vector of `element`s.
pub(super) fn rows(matrix: &[Row], dtype: DType, element: &dyn Fn(usize) -> Expr) -> Vec<Expr> {
    matrix.iter().map(|row| combination(row, dtype, element)).collect()
}

/// The sum of the row's parts, each a multiple of a sum of elements.
fn combination(row: &Row, dtype: DType, element: &dyn Fn(usize) -> Expr) -> Expr {
    let inner = |part: &Part| sum(dtype, part.terms.iter().map(|&(i, c)| (element(i), c)));
    sum(dtype, row.iter().map(|part| (inner(part), part.factor)))
}

/// The sum of multiples, none of which is by one or by zero.
fn sum(dtype: DType, terms: impl Iterator<Item = (Expr, Rational)>) -> Expr {
    let times = |e: Expr, c: Rational| match c == Rational::ONE {
        true => e,
        false => e * Expr::float(dtype, c.to_f64()),
    };
    let sum = terms.fold(None, |sum: Option<Expr>, (e, c)| {
        Some(match sum {
            None => times(e, c),
            Some(sum) if c.is_negative() => sum - times(e, c.abs()),
            Some(sum) => sum + times(e, c),
        })
    });
    sum.unwrap_or_else(|| Expr::float(dtype, 0.0))
}
