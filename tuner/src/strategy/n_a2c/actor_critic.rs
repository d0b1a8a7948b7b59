//! Two networks with one body: the actor says how likely each action should be, the critic how good
//! a state is.
//!
//! ```text
//! state -> 128 (relu) -> actor: one number for each action, a softmax over those that are possible
//!                     -> critic: the value of the state
//! ```
//!
//! The loss of a transition with reward `r` from `s` to `s'` by action `a`, where `A = r + discount
//! V(s') - V(s)` counts as a constant in the first term: `-ln pi(a | s) A + A^2 / 2 - entropy *
//! H(pi)`.

use rand::rngs::StdRng;

use crate::nn::{Linear, Matrix, Parameters, relu, relu_backward, softmax};

/// Also a gradient.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ActorCritic {
    body: Linear,
    actor: Linear,
    critic: Linear,
}

/// One step of a walk whose end was measured.
#[derive(Clone, Debug)]
pub(super) struct Transition<'a> {
    pub(super) state: &'a [f32],
    /// The actions that were possible.
    pub(super) possible: &'a [usize],
    pub(super) action: usize,
    pub(super) reward: f32,
    pub(super) next: &'a [f32],
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// How much the value of the next state counts.
    pub(super) discount: f32,
    /// How much it counts that many actions stay possible.
    pub(super) entropy: f32,
}

struct Passed {
    hidden: Matrix,
    logits: Matrix,
    values: Vec<f32>,
}

impl ActorCritic {
    pub(super) fn random(
        inputs: usize,
        hidden: usize,
        actions: usize,
        random: &mut StdRng,
    ) -> ActorCritic {
        ActorCritic {
            body: Linear::random(inputs, hidden, random),
            // At first every action is as likely as the others.
            actor: Linear::zeros(hidden, actions),
            critic: Linear::random(hidden, 1, random),
        }
    }

    fn forward(&self, states: &Matrix) -> Passed {
        let hidden = relu(self.body.forward(states));
        let logits = self.actor.forward(&hidden);
        let values = self.critic.forward(&hidden).data;
        Passed { hidden, logits, values }
    }

    /// The probabilities of the possible actions.
    pub(super) fn policy(&self, state: &[f32], possible: &[usize]) -> Vec<f32> {
        let passed = self.forward(&rows(&[state]));
        shares(passed.logits.row(0), possible)
    }

    /// The gradient of the mean loss of some transitions.
    pub(super) fn gradient(&self, batch: &[Transition<'_>], weights: Weights) -> ActorCritic {
        let states = rows(&batch.iter().map(|t| t.state).collect::<Vec<_>>());
        let next = rows(&batch.iter().map(|t| t.next).collect::<Vec<_>>());
        let (passed, beyond) = (self.forward(&states), self.forward(&next).values);
        let mut of_logits = Matrix::zeros(batch.len(), self.actor.bias.len());
        let mut of_values = Matrix::zeros(batch.len(), 1);
        for (i, transition) in batch.iter().enumerate() {
            let target = transition.reward + weights.discount * beyond[i];
            let advantage = target - passed.values[i];
            of_values.data[i] = -advantage / batch.len() as f32;
            let policy = shares(passed.logits.row(i), transition.possible);
            let slopes = of_policy(&policy, transition, advantage, weights.entropy);
            for (&action, slope) in transition.possible.iter().zip(slopes) {
                of_logits.row_mut(i)[action] = slope / batch.len() as f32;
            }
        }
        let of_hidden = plus(self.actor.backward(&of_logits), &self.critic.backward(&of_values));
        let of_hidden = relu_backward(of_hidden, &passed.hidden);
        ActorCritic {
            body: Linear::gradient(&states, &of_hidden),
            actor: Linear::gradient(&passed.hidden, &of_logits),
            critic: Linear::gradient(&passed.hidden, &of_values),
        }
    }
}

/// The gradient of the possible actions' numbers.
fn of_policy(policy: &[f32], taken: &Transition<'_>, advantage: f32, entropy: f32) -> Vec<f32> {
    let disorder: f32 = policy.iter().map(|p| -p * p.max(1e-12).ln()).sum();
    let slope = |(&action, &p): (&usize, &f32)| {
        let hit = if action == taken.action { 1.0 } else { 0.0 };
        (p - hit) * advantage + entropy * p * (p.max(1e-12).ln() + disorder)
    };
    taken.possible.iter().zip(policy).map(slope).collect()
}

fn shares(logits: &[f32], possible: &[usize]) -> Vec<f32> {
    softmax(&possible.iter().map(|&action| logits[action]).collect::<Vec<_>>())
}

fn rows(all: &[&[f32]]) -> Matrix {
    Matrix { rows: all.len(), columns: all.first().map_or(0, |r| r.len()), data: all.concat() }
}

fn plus(mut a: Matrix, b: &Matrix) -> Matrix {
    a.data.iter_mut().zip(&b.data).for_each(|(a, b)| *a += b);
    a
}

impl Parameters for ActorCritic {
    fn parts(&self) -> Vec<&[f32]> {
        [&self.body, &self.actor, &self.critic].into_iter().flat_map(Parameters::parts).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        let all = [&mut self.body, &mut self.actor, &mut self.critic];
        all.into_iter().flat_map(Parameters::parts_mut).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::nn::testing::check_gradient;
    use crate::nn::{Adam, Rates};

    const WEIGHTS: Weights = Weights { discount: 0.5, entropy: 0.1 };

    fn numbers(n: usize, random: &mut StdRng) -> Vec<f32> {
        (0..n).map(|_| random.random_range(-1.0..1.0)).collect()
    }

    /// The loss, with the targets and advantages of `fixed` taken as constants.
    fn loss(network: &ActorCritic, fixed: &ActorCritic, batch: &[Transition<'_>]) -> f64 {
        let value =
            |network: &ActorCritic, state: &[f32]| network.forward(&rows(&[state])).values[0];
        let of = |t: &Transition<'_>| {
            let target = t.reward + WEIGHTS.discount * value(fixed, t.next);
            let advantage = target - value(fixed, t.state);
            let policy = network.policy(t.state, t.possible);
            let taken = t.possible.iter().position(|a| *a == t.action).unwrap();
            let entropy: f32 = policy.iter().map(|p| -p * p.ln()).sum();
            let error = target - value(network, t.state);
            f64::from(
                -policy[taken].ln() * advantage + error * error / 2.0 - WEIGHTS.entropy * entropy,
            )
        };
        batch.iter().map(of).sum::<f64>() / batch.len() as f64
    }

    #[test]
    fn gradients_agree_with_differences() {
        for seed in 0..5 {
            let random = &mut StdRng::seed_from_u64(seed);
            let mut network = ActorCritic::random(4, 7, 5, random);
            network.actor = Linear::random(7, 5, random);
            let states: Vec<Vec<f32>> = (0..6).map(|_| numbers(4, random)).collect();
            let possible = [vec![0, 2, 4], vec![1, 2], vec![0, 1, 2, 3, 4]];
            let transition = |i: usize| Transition {
                state: &states[i],
                possible: &possible[i],
                action: 2,
                reward: [0.2, 0.9, 0.0][i],
                next: &states[i + 3],
            };
            let batch: Vec<Transition<'_>> = (0..3).map(transition).collect();
            let gradient = network.gradient(&batch, WEIGHTS);
            let loss = |moved: &ActorCritic| loss(moved, &network, &batch);
            check_gradient(&network, &gradient, &loss, random);
        }
    }

    #[test]
    fn what_is_rewarded_becomes_likely() {
        let random = &mut StdRng::seed_from_u64(0);
        let mut network = ActorCritic::random(2, 16, 3, random);
        let mut adam = Adam::new(&network, Rates { step: 0.01, decay: 0.0, clip: 1.0 });
        // The first action is right in one state, the second in the other.
        let states = [[0.5, -0.5], [-0.5, 0.5]];
        let transition = |i: usize| Transition {
            state: &states[i % 2],
            possible: &[0, 1, 2],
            action: i % 3,
            reward: if i % 2 == i % 3 { 1.0 } else { 0.0 },
            next: &[0.0, 0.0],
        };
        let batch: Vec<Transition<'_>> = (0..6).map(transition).collect();
        for _ in 0..300 {
            let gradient = network.gradient(&batch, Weights { discount: 0.0, entropy: 0.01 });
            adam.step(&mut network, &gradient);
        }
        for (i, state) in states.iter().enumerate() {
            let policy = network.policy(state, &[0, 1, 2]);
            assert!(policy[i] > 0.8, "{policy:?}");
        }
    }
}
