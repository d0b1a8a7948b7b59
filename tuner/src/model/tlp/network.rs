//! The network of TLP, with a head for each platform as in MTL-TLP.
//!
//! ```text
//! row -> w/4 -> w/2 -> w -> w    self-attention + x    relu(h W + b) + h, twice      (shared)
//!     -> w -> w/2 -> w/4 -> 1    sum over the rows of a list                         (each head)
//! ```
//!
//! With `w` 256 and 8 heads of attention these are the sizes of the paper. There is no layer norm,
//! no mask and no encoding of positions, as in its code.

use rand::rngs::StdRng;

use crate::nn::{Added, Attended, Attention, Chain, List, Matrix, Parameters, Residual};

/// Lists of rows, one after the other.
pub(super) struct Batch {
    pub(super) rows: Matrix,
    pub(super) lists: Vec<List>,
}

/// Also a gradient of all its layers.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Network {
    encoder: Chain,
    attention: Attention,
    residual: [Residual; 2],
    heads: Vec<Chain>,
}

/// The sizes of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sizes {
    /// Numbers of a row.
    pub(super) inputs: usize,
    pub(super) width: usize,
    /// The number of heads of the attention.
    pub(super) attention: usize,
    /// One for each platform.
    pub(super) heads: usize,
}

/// The results of the layers, which the backward pass needs.
pub(super) struct Passed {
    encoded: Vec<Matrix>,
    attended: Attended,
    /// The rows with what they attended to.
    mixed: Matrix,
    added: [Added; 2],
    /// The results of the layers of each head that was asked, from the first head on.
    decoded: Vec<Vec<Matrix>>,
    /// The scores of each such head, one for each list.
    pub(super) scores: Vec<Vec<f32>>,
}

impl Network {
    pub(super) fn random(sizes: Sizes, random: &mut StdRng) -> Network {
        let w = sizes.width;
        Network {
            encoder: Chain::random(&[sizes.inputs, w / 4, w / 2, w, w], true, random),
            attention: Attention::random(w, sizes.attention, random),
            residual: std::array::from_fn(|_| Residual::random(w, random)),
            heads: (0..sizes.heads)
                .map(|_| Chain::random(&[w, w, w / 2, w / 4, 1], false, random))
                .collect(),
        }
    }

    /// Asks the first `heads` heads.
    pub(super) fn forward(&self, batch: &Batch, heads: usize) -> Passed {
        let encoded = self.encoder.forward(&batch.rows);
        let last = encoded.last().expect("an encoder has layers");
        let attended = self.attention.forward(last, &batch.lists);
        let mixed = attended.out.clone().plus(last);
        let first = self.residual[0].forward(&mixed);
        let second = self.residual[1].forward(&first.out);
        let asked = self.heads.iter().take(heads);
        let decoded: Vec<Vec<Matrix>> = asked.map(|head| head.forward(&second.out)).collect();
        let scores = decoded.iter().map(|given| sums(given, &batch.lists)).collect();
        Passed { encoded, attended, mixed, added: [first, second], decoded, scores }
    }

    /// The gradient of the layers, from those of the scores of the heads that were asked. A head
    /// whose gradients are all zero adds exactly nothing.
    pub(super) fn backward(
        &self,
        batch: &Batch,
        passed: &Passed,
        of_scores: &[Vec<f32>],
    ) -> Network {
        let Passed { encoded, attended, mixed, added: [first, second], decoded, .. } = passed;
        let mut heads = vec![];
        let mut of_last = Matrix::zeros(mixed.rows, mixed.columns);
        for ((head, given), of_scores) in self.heads.iter().zip(decoded).zip(of_scores) {
            let of_rows = Matrix { rows: mixed.rows, columns: 1, data: spread(of_scores, batch) };
            let (gradient, of_input) = head.backward(&second.out, given, of_rows);
            of_last = of_last.plus(&of_input);
            heads.push(gradient);
        }
        let (of_second, of_first) = self.residual[1].backward(&first.out, second, of_last);
        let (of_residual, of_mixed) = self.residual[0].backward(mixed, first, of_first);
        let last = encoded.last().expect("an encoder has layers");
        let (attention, of_taken) =
            self.attention.backward(last, &batch.lists, attended, &of_mixed);
        let of_encoded = of_taken.plus(&of_mixed);
        let (encoder, _) = self.encoder.backward(&batch.rows, encoded, of_encoded);
        Network { encoder, attention, residual: [of_residual, of_second], heads }
    }
}

/// For each list the sum over its rows of what the last layer gave.
fn sums(given: &[Matrix], lists: &[List]) -> Vec<f32> {
    let mut rows = given.last().expect("a head has layers").data.iter();
    let sum = |list: &List| list.weights().zip(&mut rows).map(|(weight, x)| weight * x).sum();
    lists.iter().map(sum).collect()
}

/// The gradient of the rows, from those of the sums.
fn spread(of_sums: &[f32], batch: &Batch) -> Vec<f32> {
    let lists = of_sums.iter().zip(&batch.lists);
    lists.flat_map(|(slope, list)| list.weights().map(move |weight| weight * slope)).collect()
}

impl Parameters for Network {
    fn parts(&self) -> Vec<&[f32]> {
        let shared = [self.encoder.parts(), self.attention.parts()];
        let residual = self.residual.iter().map(Parameters::parts);
        let heads = self.heads.iter().map(Parameters::parts);
        shared.into_iter().chain(residual).chain(heads).flatten().collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        let shared = [self.encoder.parts_mut(), self.attention.parts_mut()];
        let residual = self.residual.iter_mut().map(Parameters::parts_mut);
        let heads = self.heads.iter_mut().map(Parameters::parts_mut);
        shared.into_iter().chain(residual).chain(heads).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::nn::testing::{check_deep_gradient, numbers};

    const SIZES: Sizes = Sizes { inputs: 5, width: 8, attention: 2, heads: 2 };

    fn batch(random: &mut StdRng) -> Batch {
        let lists = [(3, 1), (2, 4), (6, 1), (1, 2)].map(|(rows, copies)| List { rows, copies });
        Batch { rows: numbers(12, 5, random), lists: lists.to_vec() }
    }

    /// Any function of the scores with a known gradient.
    fn loss(scores: &[Vec<f32>]) -> f64 {
        let all = scores.iter().flatten().enumerate();
        all.map(|(i, &s)| f64::from(s).powi(2) * (i + 1) as f64).sum()
    }

    fn loss_gradient(scores: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let mut place = 0.0;
        let mut slope = |s: &f32| {
            place += 1.0;
            2.0 * s * place
        };
        scores.iter().map(|of_head| of_head.iter().map(&mut slope).collect()).collect()
    }

    #[test]
    fn gradients_agree_with_differences() {
        for seed in 0..5 {
            let random = &mut StdRng::seed_from_u64(seed);
            let (network, batch) = (Network::random(SIZES, random), batch(random));
            let passed = network.forward(&batch, 2);
            let gradient = network.backward(&batch, &passed, &loss_gradient(&passed.scores));
            let loss = |moved: &Network| loss(&moved.forward(&batch, 2).scores);
            check_deep_gradient(&network, &gradient, &loss);
        }
    }

    #[test]
    fn a_head_without_labels_gets_exactly_no_gradient() {
        let random = &mut StdRng::seed_from_u64(1);
        let (network, batch) = (Network::random(SIZES, random), batch(random));
        let both = network.forward(&batch, 2);
        let of_first = loss_gradient(&both.scores)[0].clone();
        let masked = network.backward(&batch, &both, &[of_first.clone(), vec![0.0; 4]]);
        assert!(masked.heads[1].parts().into_iter().flatten().all(|g| *g == 0.0));
        // The shared layers get the same gradient as in a network without the second head.
        let single = Network { heads: network.heads[..1].to_vec(), ..network.clone() };
        let alone = single.backward(&batch, &single.forward(&batch, 1), &[of_first]);
        let shared = alone.parts().len();
        assert_eq!(masked.parts()[..shared], alone.parts()[..]);
    }

    #[test]
    fn lists_are_scored_on_their_own() {
        let random = &mut StdRng::seed_from_u64(2);
        let (network, batch) = (Network::random(SIZES, random), batch(random));
        let all = network.forward(&batch, 1).scores;
        let mut first = 0;
        for (place, list) in batch.lists.iter().enumerate() {
            let data = batch.rows.data[5 * first..][..5 * list.rows].to_vec();
            first += list.rows;
            let rows = Matrix { rows: list.rows, columns: 5, data };
            let alone = network.forward(&Batch { rows, lists: vec![*list] }, 1).scores;
            assert_eq!(alone[0][0], all[0][place]);
        }
    }

    /// A list of two rows of which the last stands for three is a list of four rows.
    #[test]
    fn equal_rows_are_scored_at_once() {
        let random = &mut StdRng::seed_from_u64(3);
        let (network, rows) = (Network::random(SIZES, random), numbers(2, 5, random));
        let mut all = Matrix { rows: 4, ..rows.clone() };
        (0..2).for_each(|_| all.data.extend_from_slice(rows.row(1)));
        let [short, long] = [(rows, 2, 3), (all, 4, 1)].map(|(matrix, rows, copies)| {
            let batch = Batch { rows: matrix, lists: vec![List { rows, copies }] };
            let passed = network.forward(&batch, 2);
            let of_scores = loss_gradient(&passed.scores);
            (passed.scores.concat(), network.backward(&batch, &passed, &of_scores).numbers())
        });
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4 * (1.0 + a.abs());
        assert!(short.0.iter().zip(&long.0).all(close) && short.1.iter().zip(&long.1).all(close));
    }
}
