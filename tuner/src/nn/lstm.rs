//! A cell with long short-term memory, and its gradient through time.
//!
//! ```text
//! i, f, o = sigmoid, g = tanh of (x, h) W + b;   c' = f c + i g;   h' = o tanh(c')
//! ```

use rand::rngs::StdRng;

use super::{Linear, Matrix, Parameters};

/// Also a gradient of its weights.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lstm {
    /// The layer from the input and the state to the gates i, f, g and o.
    gates: Linear,
    hidden: usize,
}

/// One turn of the cell, for the way back.
pub(crate) struct Turn {
    /// The input and the state before.
    taken: Matrix,
    /// i, f, g, o.
    gates: [Vec<f32>; 4],
    before: Vec<f32>,
    memory: Vec<f32>,
    pub(crate) state: Vec<f32>,
}

impl Lstm {
    pub(crate) fn random(inputs: usize, hidden: usize, random: &mut StdRng) -> Lstm {
        let mut gates = Linear::random(inputs + hidden, 4 * hidden, random);
        // So that a new cell does not forget.
        gates.bias[hidden..2 * hidden].fill(1.0);
        Lstm { gates, hidden }
    }

    pub(crate) fn turn(&self, input: &[f32], last: Option<&Turn>) -> Turn {
        let zeros = vec![0.0; self.hidden];
        let (state, before) = last.map_or((&zeros, &zeros), |t| (&t.state, &t.memory));
        let data = [input, state].concat();
        let taken = Matrix { rows: 1, columns: data.len(), data };
        let all = self.gates.forward(&taken).data;
        let gate = |place: usize, bend: fn(f32) -> f32| -> Vec<f32> {
            all[place * self.hidden..][..self.hidden].iter().map(|&x| bend(x)).collect()
        };
        let gates = [gate(0, sigmoid), gate(1, sigmoid), gate(2, f32::tanh), gate(3, sigmoid)];
        let [i, f, g, o] = &gates;
        let memory: Vec<f32> = (0..self.hidden).map(|n| f[n] * before[n] + i[n] * g[n]).collect();
        let state = o.iter().zip(&memory).map(|(o, c)| o * c.tanh()).collect();
        Turn { taken, before: before.clone(), memory, state, gates }
    }

    /// The gradient of the weights, from those of each turn's state.
    pub(crate) fn backward(&self, turns: &[Turn], of_states: &[Vec<f32>]) -> Lstm {
        let inputs = self.gates.weight.rows;
        let mut gradient =
            Lstm { gates: Linear::zeros(inputs, 4 * self.hidden), hidden: self.hidden };
        let mut of_memory = vec![0.0; self.hidden];
        let mut of_state = vec![0.0; self.hidden];
        for (turn, of_output) in turns.iter().zip(of_states).rev() {
            of_state.iter_mut().zip(of_output).for_each(|(a, b)| *a += b);
            let of_gates = self.turn_backward(turn, &of_state, &mut of_memory);
            let layer = Linear::gradient(&turn.taken, &of_gates);
            for (sum, part) in gradient.gates.parts_mut().into_iter().zip(layer.parts()) {
                sum.iter_mut().zip(part).for_each(|(a, b)| *a += b);
            }
            of_state = self.gates.backward(&of_gates).data.split_off(inputs - self.hidden);
        }
        gradient
    }

    /// The gradient of what goes into the gates; that of the memory becomes that of the memory before.
    fn turn_backward(&self, turn: &Turn, of_state: &[f32], of_memory: &mut [f32]) -> Matrix {
        let [i, f, g, o] = &turn.gates;
        let mut of_gates = Matrix::zeros(1, 4 * self.hidden);
        for n in 0..self.hidden {
            let bent = turn.memory[n].tanh();
            let of_c = of_memory[n] + of_state[n] * o[n] * (1.0 - bent * bent);
            let slopes = [
                of_c * g[n] * i[n] * (1.0 - i[n]),
                of_c * turn.before[n] * f[n] * (1.0 - f[n]),
                of_c * i[n] * (1.0 - g[n] * g[n]),
                of_state[n] * bent * o[n] * (1.0 - o[n]),
            ];
            for (gate, slope) in slopes.into_iter().enumerate() {
                of_gates.data[gate * self.hidden + n] = slope;
            }
            of_memory[n] = of_c * f[n];
        }
        of_gates
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

impl Parameters for Lstm {
    fn parts(&self) -> Vec<&[f32]> {
        self.gates.parts()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        self.gates.parts_mut()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::nn::testing::check_gradient;

    fn run(cell: &Lstm, inputs: &[Vec<f32>]) -> Vec<Turn> {
        let mut turns: Vec<Turn> = vec![];
        for input in inputs {
            let turn = cell.turn(input, turns.last());
            turns.push(turn);
        }
        turns
    }

    #[test]
    fn gradients_agree_with_differences() {
        for seed in 0..5 {
            let random = &mut StdRng::seed_from_u64(seed);
            let cell = Lstm::random(3, 5, random);
            let inputs: Vec<Vec<f32>> =
                (0..4).map(|_| (0..3).map(|_| random.random_range(-1.0..1.0)).collect()).collect();
            // Each state counts differently.
            let loss = |cell: &Lstm| -> f64 {
                let turns = run(cell, &inputs);
                let each = turns.iter().enumerate();
                each.flat_map(|(t, turn)| {
                    turn.state.iter().map(move |s| f64::from(s * s) * (t + 1) as f64)
                })
                .sum()
            };
            let turns = run(&cell, &inputs);
            let of_states: Vec<Vec<f32>> = turns
                .iter()
                .enumerate()
                .map(|(t, turn)| turn.state.iter().map(|s| 2.0 * s * (t + 1) as f32).collect())
                .collect();
            check_gradient(&cell, &cell.backward(&turns, &of_states), &loss, random);
        }
    }

    #[test]
    fn what_came_before_matters() {
        let cell = Lstm::random(1, 4, &mut StdRng::seed_from_u64(1));
        let last = |first: f32| run(&cell, &[vec![first], vec![0.0]]).pop().unwrap().state;
        assert_ne!(last(1.0), last(-1.0));
    }
}
