//! The network of TenSet: each row is encoded, rows of a program are added up, the sum is scored.
//!
//! ```text
//! row (174) -> 256 -> 256    sum over the rows    h = relu(h W + b) + h, twice    -> 1
//! ```

use rand::rngs::StdRng;

use crate::nn::{Linear, Matrix, Parameters, relu, relu_backward};

/// Programs, as rows of inputs one program after the other.
pub(super) struct Batch {
    pub(super) rows: Matrix,
    /// Rows of each program.
    pub(super) lengths: Vec<usize>,
}

/// Also a gradient of all its layers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Network {
    encoder: [Linear; 2],
    residual: [Linear; 2],
    head: Linear,
}

/// The results of the layers, which the backward pass needs.
pub(super) struct Passed {
    encoded: [Matrix; 2],
    /// Sums of encoded rows, then what each residual layer makes of them.
    levels: [Matrix; 3],
    /// The part of each residual layer that is added.
    added: [Matrix; 2],
    pub(super) scores: Vec<f32>,
}

impl Network {
    pub(super) fn random(inputs: usize, hidden: usize, random: &mut StdRng) -> Network {
        Network {
            encoder: [
                Linear::random(inputs, hidden, random),
                Linear::random(hidden, hidden, random),
            ],
            residual: std::array::from_fn(|_| Linear::random(hidden, hidden, random)),
            head: Linear::random(hidden, 1, random),
        }
    }

    pub(super) fn forward(&self, batch: &Batch) -> Passed {
        let first = relu(self.encoder[0].forward(&batch.rows));
        let second = relu(self.encoder[1].forward(&first));
        let sums = sum_rows(&second, &batch.lengths);
        let added_first = relu(self.residual[0].forward(&sums));
        let middle = plus(added_first.clone(), &sums);
        let added_second = relu(self.residual[1].forward(&middle));
        let last = plus(added_second.clone(), &middle);
        let scores = self.head.forward(&last).data;
        Passed {
            encoded: [first, second],
            levels: [sums, middle, last],
            added: [added_first, added_second],
            scores,
        }
    }

    /// The gradient of the layers, from that of the scores.
    pub(super) fn backward(&self, batch: &Batch, passed: &Passed, of_scores: &[f32]) -> Network {
        let Passed { encoded, levels, added, .. } = passed;
        let of_scores = Matrix { rows: of_scores.len(), columns: 1, data: of_scores.to_vec() };
        let head = Linear::gradient(&levels[2], &of_scores);
        let of_last = self.head.backward(&of_scores);
        let (second_residual, of_middle) =
            self.residual_backward(1, &levels[1], &added[1], of_last);
        let (first_residual, of_sums) = self.residual_backward(0, &levels[0], &added[0], of_middle);
        let of_second = relu_backward(spread_rows(&of_sums, &batch.lengths), &encoded[1]);
        let second = Linear::gradient(&encoded[0], &of_second);
        let of_first = relu_backward(self.encoder[1].backward(&of_second), &encoded[0]);
        let first = Linear::gradient(&batch.rows, &of_first);
        Network { encoder: [first, second], residual: [first_residual, second_residual], head }
    }

    /// The gradients of a residual layer and of its input.
    fn residual_backward(
        &self,
        layer: usize,
        input: &Matrix,
        added: &Matrix,
        of_output: Matrix,
    ) -> (Linear, Matrix) {
        let of_added = relu_backward(of_output.clone(), added);
        let of_input = plus(self.residual[layer].backward(&of_added), &of_output);
        (Linear::gradient(input, &of_added), of_input)
    }

    fn layers(&self) -> impl Iterator<Item = &Linear> {
        self.encoder.iter().chain(&self.residual).chain([&self.head])
    }
}

impl Parameters for Network {
    fn parts(&self) -> Vec<&[f32]> {
        self.layers().flat_map(Parameters::parts).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        let layers = self.encoder.iter_mut().chain(&mut self.residual).chain([&mut self.head]);
        layers.flat_map(Parameters::parts_mut).collect()
    }
}

fn plus(mut a: Matrix, b: &Matrix) -> Matrix {
    a.data.iter_mut().zip(&b.data).for_each(|(a, b)| *a += b);
    a
}

/// A row for each program: the sum of its rows.
fn sum_rows(rows: &Matrix, lengths: &[usize]) -> Matrix {
    let mut sums = Matrix::zeros(lengths.len(), rows.columns);
    let mut next = 0;
    for (program, &length) in lengths.iter().enumerate() {
        for row in next..next + length {
            sums.row_mut(program).iter_mut().zip(rows.row(row)).for_each(|(sum, x)| *sum += x);
        }
        next += length;
    }
    sums
}

/// Each program's row, as often as it has rows.
fn spread_rows(sums: &Matrix, lengths: &[usize]) -> Matrix {
    let mut data = Vec::with_capacity(lengths.iter().sum::<usize>() * sums.columns);
    for (program, &length) in lengths.iter().enumerate() {
        (0..length).for_each(|_| data.extend_from_slice(sums.row(program)));
    }
    Matrix { rows: lengths.iter().sum(), columns: sums.columns, data }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::nn::testing::check_gradient;

    fn batch(random: &mut StdRng) -> Batch {
        let lengths = vec![2, 1, 0, 3];
        let mut rows = Matrix::zeros(6, 5);
        rows.data.iter_mut().for_each(|v| *v = random.random_range(0.0..1.0));
        Batch { rows, lengths }
    }

    /// Any function of the scores with a known gradient.
    fn loss(scores: &[f32]) -> f64 {
        scores.iter().enumerate().map(|(i, &s)| f64::from(s).powi(2) * (i + 1) as f64).sum()
    }

    fn loss_gradient(scores: &[f32]) -> Vec<f32> {
        scores.iter().enumerate().map(|(i, s)| 2.0 * s * (i + 1) as f32).collect()
    }

    #[test]
    fn gradients_agree_with_differences() {
        for seed in 0..5 {
            let random = &mut StdRng::seed_from_u64(seed);
            let (network, batch) = (Network::random(5, 8, random), batch(random));
            let passed = network.forward(&batch);
            let gradient = network.backward(&batch, &passed, &loss_gradient(&passed.scores));
            let loss = |moved: &Network| loss(&moved.forward(&batch).scores);
            check_gradient(&network, &gradient, &loss, random);
        }
    }

    #[test]
    fn the_order_of_rows_within_a_program_does_not_matter() {
        let random = &mut StdRng::seed_from_u64(9);
        let (network, mut batch) = (Network::random(5, 8, random), batch(random));
        let before = network.forward(&batch).scores;
        let last = batch.rows.data.split_off(25);
        let rest = batch.rows.data.split_off(15);
        batch.rows.data.extend(last.into_iter().chain(rest));
        for (a, b) in before.iter().zip(network.forward(&batch).scores) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}
