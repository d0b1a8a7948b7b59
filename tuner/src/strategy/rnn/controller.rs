//! A recurrent network that answers questions one after the other, and learns from how good the
//! answers were.
//!
//! ```text
//! last answer, question -> LSTM -> the question's own layer -> a softmax over the possible answers
//! ```
//!
//! The loss of a sequence of answers with advantage `A`: the sum over the answers of `-ln
//! pi(answer) A - entropy * H(pi)`. Layers of questions are made when they are asked first, and
//! give every answer the same chance.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

use super::questions::{Asked, Question};
use crate::nn::{Linear, Lstm, Matrix, Parameters, Turn, draw, softmax};

/// Also a gradient.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Controller {
    cell: Lstm,
    heads: Vec<Linear>,
    numbers: BTreeMap<Question, Head>,
    hidden: usize,
}

#[derive(Clone, PartialEq, Debug)]
struct Head {
    /// Which layer.
    number: usize,
    /// The answer that each of its outputs stands for.
    vocabulary: Vec<i64>,
}

/// One answer, and what is needed to learn from it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Answer {
    input: Vec<f32>,
    head: usize,
    /// Outputs of the layer that were possible. An answer that it does not know has none.
    possible: Vec<Option<usize>>,
    chosen: usize,
}

/// A sequence under way.
pub(super) struct Dialogue {
    turns: Vec<Turn>,
    pub(super) answers: Vec<Answer>,
    last: i64,
}

/// Positions of the last answer that are told apart, and lengths of tiles.
const LAST: usize = 12;
const PARTS: usize = 6;
const INPUTS: usize = LAST + PARTS + 2;

impl Controller {
    pub(super) fn random(hidden: usize, random: &mut StdRng) -> Controller {
        let cell = Lstm::random(INPUTS, hidden, random);
        Controller { cell, heads: vec![], numbers: BTreeMap::new(), hidden }
    }

    pub(super) fn begin(&self) -> Dialogue {
        Dialogue { turns: vec![], answers: vec![], last: 0 }
    }

    /// The position of the answer that is drawn.
    pub(super) fn answer(
        &mut self,
        dialogue: &mut Dialogue,
        asked: &Asked<'_>,
        random: &mut dyn Rng,
    ) -> usize {
        let head = self.head(asked);
        let known = &self.numbers[&asked.question].vocabulary;
        let possible = asked.answers.iter().map(|a| known.binary_search(a).ok()).collect();
        let input = input(dialogue.last, asked.question);
        let turn = self.cell.turn(&input, dialogue.turns.last());
        let mut answer = Answer { input, head, possible, chosen: 0 };
        let policy = self.policy(&answer, &turn);
        answer.chosen = draw(&policy, random);
        let chosen = answer.chosen;
        dialogue.last = asked.answers[chosen];
        dialogue.turns.push(turn);
        dialogue.answers.push(answer);
        chosen
    }

    fn head(&mut self, asked: &Asked<'_>) -> usize {
        let next = self.heads.len();
        let made = || Head { number: next, vocabulary: asked.vocabulary.to_vec() };
        let number = self.numbers.entry(asked.question).or_insert_with(made).number;
        if number == next {
            self.heads.push(Linear::zeros(self.hidden, asked.vocabulary.len()));
        }
        number
    }

    fn policy(&self, answer: &Answer, turn: &Turn) -> Vec<f32> {
        let outputs = self.heads[answer.head].forward(&row(&turn.state)).data;
        let logits = answer.possible.iter().map(|output| output.map_or(0.0, |o| outputs[o]));
        softmax(&logits.collect::<Vec<f32>>())
    }

    fn turns(&self, answers: &[Answer]) -> Vec<Turn> {
        let mut turns: Vec<Turn> = vec![];
        for answer in answers {
            turns.push(self.cell.turn(&answer.input, turns.last()));
        }
        turns
    }

    /// A network of the same shape that is zero everywhere.
    fn zeros(&self) -> Controller {
        let mut zeros = self.clone();
        zeros.parts_mut().into_iter().for_each(|part| part.fill(0.0));
        zeros
    }

    /// The gradient of the mean loss of some sequences with their advantages.
    pub(super) fn gradient(&self, batch: &[(&[Answer], f32)], entropy: f32) -> Controller {
        let mut sum = self.zeros();
        for &(answers, advantage) in batch {
            let turns = self.turns(answers);
            let mut of_states = vec![];
            for (answer, turn) in answers.iter().zip(&turns) {
                let policy = self.policy(answer, turn);
                let of_outputs = self.of_outputs(answer, &policy, advantage, entropy);
                let layer = Linear::gradient(&row(&turn.state), &of_outputs);
                add(&mut sum.heads[answer.head], &layer);
                of_states.push(self.heads[answer.head].backward(&of_outputs).data);
            }
            add(&mut sum.cell, &self.cell.backward(&turns, &of_states));
        }
        let share = 1.0 / batch.len().max(1) as f32;
        sum.parts_mut().into_iter().flatten().for_each(|x| *x *= share);
        sum
    }

    /// The gradient of the outputs of a question's layer.
    fn of_outputs(&self, answer: &Answer, policy: &[f32], advantage: f32, entropy: f32) -> Matrix {
        let mut of_outputs = Matrix::zeros(1, self.heads[answer.head].bias.len());
        let disorder: f32 = policy.iter().map(|p| -p * p.max(1e-12).ln()).sum();
        for (i, (output, p)) in answer.possible.iter().zip(policy).enumerate() {
            let hit = if i == answer.chosen { 1.0 } else { 0.0 };
            let slope = (p - hit) * advantage + entropy * p * (p.max(1e-12).ln() + disorder);
            if let Some(output) = *output {
                of_outputs.data[output] += slope;
            }
        }
        of_outputs
    }
}

fn row(numbers: &[f32]) -> Matrix {
    Matrix { rows: 1, columns: numbers.len(), data: numbers.to_vec() }
}

/// The last answer by its power of two, which length is asked for, and how far the trace has come.
fn input(last: i64, question: Question) -> Vec<f32> {
    let mut input = vec![0.0; INPUTS];
    let power = (last.max(0) as f32 + 1.0).log2();
    input[(power as usize).min(LAST - 1)] = 1.0;
    input[LAST + question.part.min(PARTS - 1)] = 1.0;
    input[LAST + PARTS] = power / 10.0;
    input[LAST + PARTS + 1] = question.decision as f32 / 10.0;
    input
}

fn add(sum: &mut impl Parameters, part: &impl Parameters) {
    for (sum, part) in sum.parts_mut().into_iter().zip(part.parts()) {
        sum.iter_mut().zip(part).for_each(|(a, b)| *a += b);
    }
}

impl Parameters for Controller {
    fn parts(&self) -> Vec<&[f32]> {
        self.cell.parts().into_iter().chain(self.heads.iter().flat_map(Parameters::parts)).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        let heads = self.heads.iter_mut().flat_map(Parameters::parts_mut);
        self.cell.parts_mut().into_iter().chain(heads).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::nn::testing::check_gradient;
    use crate::nn::{Adam, Rates};

    /// Three questions; what may be answered to the last depends on the first.
    fn converse(network: &mut Controller, random: &mut StdRng) -> (Vec<Answer>, Vec<i64>) {
        let mut dialogue = network.begin();
        let mut said: Vec<i64> = vec![];
        for decision in 0..3 {
            let answers: &[i64] = if decision == 2 && said[0] == 1 { &[2, 4] } else { &[1, 2, 4] };
            let question = Question { sketch: 0, decision, part: 0 };
            let asked = Asked { question, vocabulary: &[1, 2, 4], answers };
            let chosen = network.answer(&mut dialogue, &asked, random);
            said.push(answers[chosen]);
        }
        (dialogue.answers, said)
    }

    #[test]
    fn gradients_agree_with_differences() {
        const ENTROPY: f32 = 0.1;
        for seed in 0..5 {
            let random = &mut StdRng::seed_from_u64(seed);
            let mut network = Controller::random(6, random);
            converse(&mut network, random);
            for part in network.parts_mut() {
                part.iter_mut().for_each(|x| *x += random.random_range(-0.5..0.5));
            }
            let sequences: Vec<Vec<Answer>> =
                (0..3).map(|_| converse(&mut network, random).0).collect();
            let batch: Vec<(&[Answer], f32)> =
                sequences.iter().zip([0.7, -0.4, 0.1]).map(|(s, a)| (&s[..], a)).collect();
            let loss = |network: &Controller| -> f64 {
                let of = |&(answers, advantage): &(&[Answer], f32)| -> f64 {
                    let turns = network.turns(answers);
                    let each = answers.iter().zip(&turns).map(|(answer, turn)| {
                        let policy = network.policy(answer, turn);
                        let entropy: f32 = policy.iter().map(|p| -p * p.ln()).sum();
                        f64::from(-policy[answer.chosen].ln() * advantage - ENTROPY * entropy)
                    });
                    each.sum()
                };
                batch.iter().map(of).sum::<f64>() / batch.len() as f64
            };
            check_gradient(&network, &network.gradient(&batch, ENTROPY), &loss, random);
        }
    }

    /// The reward is for an answer that fits an earlier one, so the memory is needed.
    #[test]
    fn it_learns_what_is_rewarded() {
        let random = &mut StdRng::seed_from_u64(3);
        let mut network = Controller::random(16, random);
        converse(&mut network, random);
        let mut adam = Adam::new(&network, Rates { step: 0.02, decay: 0.0, clip: 1.0 });
        let good = |said: &[i64]| said[2] == said[0];
        for _ in 0..150 {
            let talks: Vec<_> = (0..16).map(|_| converse(&mut network, random)).collect();
            let batch: Vec<(&[Answer], f32)> = talks
                .iter()
                .map(|(answers, said)| (&answers[..], if good(said) { 0.6 } else { -0.4 }))
                .collect();
            let gradient = network.gradient(&batch, 0.01);
            adam.step(&mut network, &gradient);
        }
        let hits = (0..200).filter(|_| good(&converse(&mut network, random).1)).count();
        assert!(hits > 170, "{hits} of 200");
    }
}
