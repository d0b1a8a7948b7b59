//! Self-attention with several heads, over lists of rows that all have the same length.
//!
//! ```text
//! q, k, v = x W + b, in heads of equal width d      for each list and head:
//! shares = softmax(q k^T / sqrt(d))                 mixed = shares v
//! y = mixed V + c
//! ```
//!
//! There is no mask and no notion of positions: rows in another order give the same rows in that
//! order. Lists are shared out among threads, each of which does whole lists.

use rand::rngs::StdRng;
use rayon::prelude::*;

use super::lanes::widest;
use super::{Linear, Matrix, Parameters, softmax};

/// Also its gradient.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attention {
    /// To queries, keys and values, side by side.
    taken: Linear,
    out: Linear,
    heads: usize,
}

/// What the layer made of its input, for the way back.
pub(crate) struct Attended {
    taken: Matrix,
    /// For each list and head a square: a row for each query.
    shares: Matrix,
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

    /// `length` rows make a list.
    pub(crate) fn forward(&self, x: &Matrix, length: usize) -> Attended {
        let taken = self.taken.forward(x);
        let heads = Heads::new(self, x.columns, length);
        let mut shares = Matrix::zeros(x.rows / length * self.heads, length * length);
        let mut mixed = Matrix::zeros(x.rows, x.columns);
        let lists = mixed
            .data
            .par_chunks_mut(length * x.columns)
            .zip(shares.data.par_chunks_mut(self.heads * length * length))
            .zip(taken.data.par_chunks(length * taken.columns));
        lists.for_each(|((mixed, shares), taken)| widest(|| heads.mix(taken, shares, mixed)));
        Attended { out: self.out.forward(&mixed), taken, shares, mixed }
    }

    /// The gradients of the layer and of its input.
    pub(crate) fn backward(
        &self,
        x: &Matrix,
        length: usize,
        given: &Attended,
        of_y: &Matrix,
    ) -> (Attention, Matrix) {
        let out = Linear::gradient(&given.mixed, of_y);
        let of_mixed = self.out.backward(of_y);
        let heads = Heads::new(self, x.columns, length);
        let mut of_taken = Matrix::zeros(x.rows, given.taken.columns);
        let lists = of_taken
            .data
            .par_chunks_mut(length * given.taken.columns)
            .zip(given.taken.data.par_chunks(length * given.taken.columns))
            .zip(given.shares.data.par_chunks(self.heads * length * length))
            .zip(of_mixed.data.par_chunks(length * x.columns));
        lists.for_each(|(((of_taken, taken), shares), of_mixed)| {
            widest(|| heads.unmix(taken, shares, of_mixed, of_taken));
        });
        let taken = Linear::gradient(x, &of_taken);
        (Attention { taken, out, heads: self.heads }, self.taken.backward(&of_taken))
    }
}

/// The heads of one list.
struct Heads {
    count: usize,
    length: usize,
    /// Columns of all heads, and of one.
    width: usize,
    each: usize,
    scale: f32,
}

impl Heads {
    fn new(layer: &Attention, width: usize, length: usize) -> Heads {
        let each = width / layer.heads;
        Heads { count: layer.heads, length, width, each, scale: 1.0 / (each as f32).sqrt() }
    }

    /// Where a head's query (0), key (1) or value (2) of a row lies.
    fn part(&self, row: usize, which: usize, head: usize) -> std::ops::Range<usize> {
        let first = row * 3 * self.width + which * self.width + head * self.each;
        first..first + self.each
    }

    fn mixed(&self, row: usize, head: usize) -> std::ops::Range<usize> {
        let first = row * self.width + head * self.each;
        first..first + self.each
    }

    #[inline(always)]
    fn mix(&self, taken: &[f32], shares: &mut [f32], mixed: &mut [f32]) {
        for head in 0..self.count {
            for row in 0..self.length {
                let query = &taken[self.part(row, 0, head)];
                let logit = |k| self.scale * dot(query, &taken[self.part(k, 1, head)]);
                let of_row = softmax(&(0..self.length).map(logit).collect::<Vec<_>>());
                let out = &mut mixed[self.mixed(row, head)];
                for (k, share) in of_row.iter().enumerate() {
                    add_scaled(out, *share, &taken[self.part(k, 2, head)]);
                }
                let first = (head * self.length + row) * self.length;
                shares[first..first + self.length].copy_from_slice(&of_row);
            }
        }
    }

    /// The gradient of queries, keys and values.
    #[inline(always)]
    fn unmix(&self, taken: &[f32], shares: &[f32], of_mixed: &[f32], of_taken: &mut [f32]) {
        for head in 0..self.count {
            for row in 0..self.length {
                let of_out = &of_mixed[self.mixed(row, head)];
                let first = (head * self.length + row) * self.length;
                let of_row = &shares[first..first + self.length];
                let of_share = |k| dot(of_out, &taken[self.part(k, 2, head)]);
                let of_shares: Vec<f32> = (0..self.length).map(of_share).collect();
                let mean = dot(of_row, &of_shares);
                for (k, share) in of_row.iter().enumerate() {
                    add_scaled(&mut of_taken[self.part(k, 2, head)], *share, of_out);
                    let of_logit = self.scale * share * (of_shares[k] - mean);
                    let (query, key) = (self.part(row, 0, head), self.part(k, 1, head));
                    add_scaled(&mut of_taken[query.clone()], of_logit, &taken[key.clone()]);
                    add_scaled(&mut of_taken[key], of_logit, &taken[query]);
                }
            }
        }
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Eight sums side by side, so that they become vectors.
    let (whole_a, rest_a) = a.as_chunks::<8>();
    let (whole_b, rest_b) = b.as_chunks::<8>();
    let mut sums = [0.0f32; 8];
    for (a, b) in whole_a.iter().zip(whole_b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[inline(always)]
fn add_scaled(out: &mut [f32], by: f32, x: &[f32]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out += by * x);
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

    #[test]
    fn gradients_agree_with_differences() {
        for (seed, heads) in [(0, 1), (1, 2), (2, 3), (3, 6)] {
            let random = &mut StdRng::seed_from_u64(seed);
            let (layer, x) = (Attention::random(6, heads, random), numbers(3 * LENGTH, 6, random));
            let given = layer.forward(&x, LENGTH);
            let (gradient, of_x) = layer.backward(&x, LENGTH, &given, &squares(&given.out).1);
            let loss = |l: &Attention, x: &Matrix| squares(&l.forward(x, LENGTH).out).0;
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
        for (a, b) in layer.forward(&x, LENGTH).out.data.iter().zip(&expected.data) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn lists_do_not_see_one_another() {
        let random = &mut StdRng::seed_from_u64(6);
        let (layer, x) = (Attention::random(4, 2, random), numbers(2 * LENGTH, 4, random));
        let both = layer.forward(&x, LENGTH).out;
        let data = x.data[..4 * LENGTH].to_vec();
        let alone = layer.forward(&Matrix { rows: LENGTH, columns: 4, data }, LENGTH).out;
        assert_eq!(both.data[..4 * LENGTH], alone.data);
    }
}
