//! Layers one after another, with `relu` between them.
//!
//! ```text
//! sizes 22, 64, 128:    x -> relu(x W1 + b1) -> relu(.. W2 + b2)      or without the last relu
//! ```

use rand::rngs::StdRng;

use super::{Linear, Matrix, Parameters, relu, relu_backward};

/// Also the gradient of a chain.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chain {
    layers: Vec<Linear>,
    /// Whether there is a `relu` after the last layer as well.
    bends: bool,
}

impl Chain {
    /// From the first size to the last.
    pub(crate) fn random(sizes: &[usize], bends: bool, random: &mut StdRng) -> Chain {
        let layer = |pair: &[usize]| Linear::random(pair[0], pair[1], random);
        Chain { layers: sizes.windows(2).map(layer).collect(), bends }
    }

    /// The result of each layer, in order.
    pub(crate) fn forward(&self, x: &Matrix) -> Vec<Matrix> {
        let mut given: Vec<Matrix> = Vec::with_capacity(self.layers.len());
        for (at, layer) in self.layers.iter().enumerate() {
            let y = layer.forward(given.last().unwrap_or(x));
            given.push(if self.is_bent(at) { relu(y) } else { y });
        }
        given
    }

    /// The gradients of the layers and of the input, from what the layers gave and the gradient of
    /// the last one.
    pub(crate) fn backward(&self, x: &Matrix, given: &[Matrix], of_y: Matrix) -> (Chain, Matrix) {
        let mut layers = vec![];
        let mut of_output = of_y;
        for (at, layer) in self.layers.iter().enumerate().rev() {
            if self.is_bent(at) {
                of_output = relu_backward(of_output, &given[at]);
            }
            let input = if at == 0 { x } else { &given[at - 1] };
            layers.push(Linear::gradient(input, &of_output));
            of_output = layer.backward(&of_output);
        }
        layers.reverse();
        (Chain { layers, bends: self.bends }, of_output)
    }

    fn is_bent(&self, layer: usize) -> bool {
        self.bends || layer + 1 < self.layers.len()
    }
}

impl Parameters for Chain {
    fn parts(&self) -> Vec<&[f32]> {
        self.layers.iter().flat_map(Parameters::parts).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        self.layers.iter_mut().flat_map(Parameters::parts_mut).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::nn::testing::{check_gradient, check_input, numbers, squares};

    #[test]
    fn gradients_agree_with_differences() {
        for (seed, bends) in [(0, false), (1, true), (2, false), (3, true)] {
            let random = &mut StdRng::seed_from_u64(seed);
            let (chain, x) = (Chain::random(&[5, 7, 4, 3], bends, random), numbers(6, 5, random));
            let given = chain.forward(&x);
            let last = given.last().unwrap();
            assert!(!bends || last.data.iter().all(|v| *v >= 0.0));
            let (gradient, of_x) = chain.backward(&x, &given, squares(last).1);
            let loss = |c: &Chain, x: &Matrix| squares(c.forward(x).last().unwrap()).0;
            check_gradient(&chain, &gradient, &|moved| loss(moved, &x), random);
            check_input(&x, &of_x, &|moved| loss(&chain, moved), random);
        }
    }
}
