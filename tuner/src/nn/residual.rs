//! A layer that adds to what it is given: `relu(x W + b) + x`.

use rand::rngs::StdRng;

use super::{Linear, Matrix, Parameters, relu, relu_backward};

/// Also its gradient.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Residual(Linear);

/// The results of a layer, which the backward pass needs.
pub(crate) struct Added {
    added: Matrix,
    pub(crate) out: Matrix,
}

impl Residual {
    pub(crate) fn random(size: usize, random: &mut StdRng) -> Residual {
        Residual(Linear::random(size, size, random))
    }

    pub(crate) fn forward(&self, x: &Matrix) -> Added {
        let added = relu(self.0.forward(x));
        Added { out: added.clone().plus(x), added }
    }

    /// The gradients of the layer and of its input.
    pub(crate) fn backward(&self, x: &Matrix, given: &Added, of_y: Matrix) -> (Residual, Matrix) {
        let of_added = relu_backward(of_y.clone(), &given.added);
        let of_x = self.0.backward(&of_added).plus(&of_y);
        (Residual(Linear::gradient(x, &of_added)), of_x)
    }
}

impl Parameters for Residual {
    fn parts(&self) -> Vec<&[f32]> {
        self.0.parts()
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        self.0.parts_mut()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::nn::testing::{check_gradient, check_input, numbers, squares};

    #[test]
    fn gradients_agree_with_differences() {
        for seed in 0..4 {
            let random = &mut StdRng::seed_from_u64(seed);
            let (layer, x) = (Residual::random(5, random), numbers(6, 5, random));
            let given = layer.forward(&x);
            let (gradient, of_x) = layer.backward(&x, &given, squares(&given.out).1);
            let loss = |l: &Residual, x: &Matrix| squares(&l.forward(x).out).0;
            check_gradient(&layer, &gradient, &|moved| loss(moved, &x), random);
            check_input(&x, &of_x, &|moved| loss(&layer, moved), random);
        }
    }
}
