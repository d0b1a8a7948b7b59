//! Self-attention with several heads, over lists of rows.
//!
//! ```text
//! q, k, v = x W + b, in heads of equal width d      for each list and head:
//! shares = softmax(q k^T / sqrt(d))                 mixed = shares v
//! y = mixed V + c
//! ```
//!
//! There is no mask and no notion of positions: rows in another order give the same rows in that
//! order. A row that stands for several has the share of all of them. Lists are shared out among
//! threads, each of which does whole lists.

use rand::rngs::StdRng;
use rayon::prelude::*;

use super::lanes::{exp, widest};
use super::lists::{List, parts, parts_mut};
use super::{Linear, Matrix, Parameters};

/// Also its gradient.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attention {
    /// To queries, keys and values, side by side.
    taken: Linear,
    out: Linear,
    heads: usize,
}

/// The results of the layer, which the backward pass needs.
pub(crate) struct Attended {
    taken: Matrix,
    /// For each list and head the shares of all keys, a row for each query.
    shares: Vec<Vec<Matrix>>,
    mixed: Matrix,
    pub(crate) out: Matrix,
}

impl Attention {
    /// # Panics
    /// If `heads` do not divide the width.
    pub(crate) fn random(width: usize, heads: usize, random: &mut StdRng) -> Attention {
        assert!(heads > 0 && width.is_multiple_of(heads), "{heads} heads share {width} columns");
        let taken = Linear::random(width, 3 * width, random);
        Attention { taken, out: Linear::random(width, width, random), heads }
    }

    /// The rows of `x` are those of the lists.
    pub(crate) fn forward(&self, x: &Matrix, lists: &[List]) -> Attended {
        let taken = self.taken.forward(x);
        let heads = Heads { count: self.heads, width: x.columns };
        let mut mixed = Matrix::zeros(x.rows, x.columns);
        let sizes = |columns: usize| lists.iter().map(move |list| list.rows * columns);
        let of_lists = parts_mut(&mut mixed.data, sizes(x.columns));
        let of_lists = of_lists.into_par_iter().zip(parts(&taken.data, sizes(taken.columns)));
        let mix = |((mixed, taken), list): ((&mut [f32], &[f32]), &List)| {
            widest(|| heads.mix(*list, taken, mixed))
        };
        let shares = of_lists.zip(lists).map(mix).collect();
        Attended { out: self.out.forward(&mixed), taken, shares, mixed }
    }

    /// The gradients of the layer and of its input.
    pub(crate) fn backward(
        &self,
        x: &Matrix,
        lists: &[List],
        given: &Attended,
        of_y: &Matrix,
    ) -> (Attention, Matrix) {
        let out = Linear::gradient(&given.mixed, of_y);
        let of_mixed = self.out.backward(of_y);
        let heads = Heads { count: self.heads, width: x.columns };
        let mut of_taken = Matrix::zeros(x.rows, given.taken.columns);
        let sizes = |columns: usize| lists.iter().map(move |list| list.rows * columns);
        let of_lists = parts_mut(&mut of_taken.data, sizes(given.taken.columns))
            .into_par_iter()
            .zip(parts(&given.taken.data, sizes(given.taken.columns)))
            .zip(&given.shares)
            .zip(parts(&of_mixed.data, sizes(x.columns)));
        of_lists.for_each(|(((of_taken, taken), shares), of_mixed)| {
            widest(|| heads.unmix(taken, shares, of_mixed, of_taken));
        });
        let taken = Linear::gradient(x, &of_taken);
        (Attention { taken, out, heads: self.heads }, self.taken.backward(&of_taken))
    }
}

/// The heads of one list.
#[derive(Clone, Copy)]
struct Heads {
    count: usize,
    /// Columns of all heads.
    width: usize,
}

/// The parts of a head in each row, in this order.
#[derive(Clone, Copy)]
enum Part {
    Query,
    Key,
    Value,
}

const PARTS: [Part; 3] = [Part::Query, Part::Key, Part::Value];

/// Keys are filled up with zeros to a multiple of this, so that no vector is cut.
const LANES: usize = 16;

impl Heads {
    /// Columns of a head.
    fn each(self) -> usize {
        self.width / self.count
    }

    fn scale(self) -> f32 {
        1.0 / (self.each() as f32).sqrt()
    }

    /// The first column of a head.
    fn column(self, part: Part, head: usize) -> usize {
        part as usize * self.width + head * self.each()
    }

    /// A head's columns of what was taken of a list.
    #[inline(always)]
    fn cut(self, taken: &[f32], part: Part, head: usize) -> Matrix {
        cut(taken, 3 * self.width, self.column(part, head), self.each())
    }

    /// The shares of each head.
    #[inline(always)]
    fn mix(self, list: List, taken: &[f32], mixed: &mut [f32]) -> Vec<Matrix> {
        let mut all = Vec::with_capacity(self.count);
        for head in 0..self.count {
            let [query, key, value] = PARTS.map(|part| self.cut(taken, part, head));
            let mut shares = query.times_alone(&filled(key).transposed());
            for row in shares.data.chunks_exact_mut(shares.columns) {
                share_out(row, list, self.scale());
            }
            let found = shares.times_alone(&filled(value));
            paste(&found, mixed, self.width, head * self.each());
            all.push(shares);
        }
        all
    }

    /// The gradient of queries, keys and values.
    #[inline(always)]
    fn unmix(self, taken: &[f32], shares: &[Matrix], of_mixed: &[f32], of_taken: &mut [f32]) {
        let scale = self.scale();
        for (head, shares) in shares.iter().enumerate() {
            let [query, key, value] = PARTS.map(|part| self.cut(taken, part, head));
            let of_out = cut(of_mixed, self.width, head * self.each(), self.each());
            let mut of_logits = of_out.times_alone(&filled(value).transposed());
            let rows = of_logits.data.chunks_exact_mut(shares.columns);
            for (of_row, row) in rows.zip(shares.data.chunks_exact(shares.columns)) {
                let mean = dot(of_row, row);
                of_row.iter_mut().zip(row).for_each(|(of, s)| *of = scale * s * (*of - mean));
            }
            let of_parts = [
                of_logits.times_alone(&filled(key)),
                of_logits.transposed().times_alone(&query),
                shares.transposed().times_alone(&of_out),
            ];
            for (part, found) in PARTS.into_iter().zip(of_parts) {
                paste(&found, of_taken, 3 * self.width, self.column(part, head));
            }
        }
    }
}

/// Some columns of rows.
#[inline(always)]
fn cut(rows: &[f32], columns: usize, first: usize, width: usize) -> Matrix {
    let mut data = Vec::with_capacity(rows.len() / columns * width);
    for row in rows.chunks_exact(columns) {
        data.extend_from_slice(&row[first..first + width]);
    }
    Matrix { rows: rows.len() / columns, columns: width, data }
}

/// With rows of zeros, so that no vector of shares is cut.
fn filled(mut matrix: Matrix) -> Matrix {
    matrix.rows = matrix.rows.next_multiple_of(LANES);
    matrix.data.resize(matrix.rows * matrix.columns, 0.0);
    matrix
}

/// Writes columns of rows; more rows than there are do not count.
#[inline(always)]
fn paste(found: &Matrix, rows: &mut [f32], columns: usize, first: usize) {
    let rows = rows.chunks_exact_mut(columns);
    for (to, from) in rows.zip(found.data.chunks_exact(found.columns)) {
        to[first..first + found.columns].copy_from_slice(from);
    }
}

/// Turns the products of a query with the keys into the shares of the rows of a list, and what lies
/// beyond the list into zeros.
#[inline(always)]
fn share_out(row: &mut [f32], list: List, scale: f32) {
    let (own, beyond) = row.split_at_mut(list.rows);
    beyond.fill(0.0);
    own.iter_mut().for_each(|logit| *logit *= scale);
    own[list.rows - 1] += (list.copies as f32).ln();
    let most = own.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    own.iter_mut().for_each(|logit| *logit = exp(*logit - most));
    let sum: f32 = own.iter().sum();
    own.iter_mut().for_each(|power| *power /= sum);
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Sixteen sums side by side, so that they become vectors.
    let (whole_a, rest_a) = a.as_chunks::<LANES>();
    let (whole_b, rest_b) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in whole_a.iter().zip(whole_b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

impl Parameters for Attention {
    fn parts(&self) -> Vec<&[f32]> {
        [&self.taken, &self.out].into_iter().flat_map(Parameters::parts).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        [&mut self.taken, &mut self.out].into_iter().flat_map(Parameters::parts_mut).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::nn::testing::{check_gradient, check_input, numbers, squares};

    const LENGTH: usize = 4;

    fn lists(lengths: &[usize]) -> Vec<List> {
        lengths.iter().map(|&rows| List { rows, copies: 1 }).collect()
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (seed, heads) in [(0, 1), (1, 2), (2, 3), (3, 6)] {
            let random = &mut StdRng::seed_from_u64(seed);
            let (layer, x) = (Attention::random(6, heads, random), numbers(12, 6, random));
            let mut lists = lists(&[4, 1, 7]);
            lists[2].copies = 3;
            let given = layer.forward(&x, &lists);
            let (gradient, of_x) = layer.backward(&x, &lists, &given, &squares(&given.out).1);
            let loss = |l: &Attention, x: &Matrix| squares(&l.forward(x, &lists).out).0;
            check_gradient(&layer, &gradient, &|moved| loss(moved, &x), random);
            check_input(&x, &of_x, &|moved| loss(&layer, moved), random);
        }
    }

    /// The same by the definition, with one head and in doubles.
    #[test]
    fn rows_are_mixed_by_their_shares() {
        let random = &mut StdRng::seed_from_u64(5);
        let (layer, x) = (Attention::random(3, 1, random), numbers(LENGTH, 3, random));
        let taken = layer.taken.forward(&x);
        let part = |row: usize, which: usize, c: usize| f64::from(taken.row(row)[3 * which + c]);
        let mut mixed = Matrix::zeros(LENGTH, 3);
        for row in 0..LENGTH {
            let logit = |k| (0..3).map(|c| part(row, 0, c) * part(k, 1, c)).sum::<f64>();
            let powers: Vec<f64> = (0..LENGTH).map(|k| (logit(k) / 3f64.sqrt()).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for c in 0..3 {
                let value: f64 = (0..LENGTH).map(|k| powers[k] / sum * part(k, 2, c)).sum();
                mixed.row_mut(row)[c] = value as f32;
            }
        }
        let expected = layer.out.forward(&mixed);
        let found = layer.forward(&x, &lists(&[LENGTH])).out;
        for (a, b) in found.data.iter().zip(&expected.data) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn lists_do_not_see_one_another() {
        let random = &mut StdRng::seed_from_u64(6);
        let (layer, x) = (Attention::random(4, 2, random), numbers(LENGTH + 21, 4, random));
        let both = layer.forward(&x, &lists(&[LENGTH, 21])).out;
        let data = x.data[..4 * LENGTH].to_vec();
        let alone = Matrix { rows: LENGTH, columns: 4, data };
        let alone = layer.forward(&alone, &lists(&[LENGTH])).out;
        assert_eq!(both.data[..4 * LENGTH], alone.data);
    }

    #[test]
    fn a_row_stands_for_several() {
        let random = &mut StdRng::seed_from_u64(7);
        let (layer, short) = (Attention::random(4, 2, random), numbers(3, 4, random));
        let mut long = Matrix { rows: 5, ..short.clone() };
        (0..2).for_each(|_| long.data.extend_from_slice(short.row(2)));
        let given = layer.forward(&short, &[List { rows: 3, copies: 3 }]);
        let all = layer.forward(&long, &lists(&[5]));
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&given.out.data, &all.out.data));
        // The gradient of the row is that of all of its copies.
        let of_long = numbers(5, 4, random);
        let mut of_short = Matrix { rows: 3, columns: 4, data: of_long.data[..12].to_vec() };
        for copy in [3, 4] {
            of_short.row_mut(2).iter_mut().zip(of_long.row(copy)).for_each(|(a, b)| *a += b);
        }
        let (layer_of_all, of_all) = layer.backward(&long, &lists(&[5]), &all, &of_long);
        let (layer_of_given, of_given) =
            layer.backward(&short, &[List { rows: 3, copies: 3 }], &given, &of_short);
        assert!(close(&layer_of_given.numbers(), &layer_of_all.numbers()));
        let last: Vec<f32> =
            (0..4).map(|c| [2, 3, 4].iter().map(|&row| of_all.row(row)[c]).sum()).collect();
        assert!(close(of_given.row(2), &last) && close(of_given.row(0), of_all.row(0)));
    }
}
