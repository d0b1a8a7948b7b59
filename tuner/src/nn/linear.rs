//! A layer `y = x W + b`.

use rand::RngExt;
use rand::rngs::StdRng;

use super::{Matrix, Parameters};

/// Also the gradient of a layer, and what an optimiser remembers of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Linear {
    /// Inputs x outputs.
    pub(crate) weight: Matrix,
    pub(crate) bias: Vec<f32>,
}

impl Linear {
    /// Uniform within one over the root of the number of inputs.
    pub(crate) fn random(inputs: usize, outputs: usize, random: &mut StdRng) -> Linear {
        let bound = 1.0 / (inputs as f32).sqrt();
        let mut layer = Linear::zeros(inputs, outputs);
        for value in layer.weight.data.iter_mut().chain(&mut layer.bias) {
            *value = random.random_range(-bound..bound);
        }
        layer
    }

    pub(crate) fn zeros(inputs: usize, outputs: usize) -> Linear {
        Linear { weight: Matrix::zeros(inputs, outputs), bias: vec![0.0; outputs] }
    }

    pub(crate) fn forward(&self, x: &Matrix) -> Matrix {
        let mut y = x.times(&self.weight);
        for row in y.data.chunks_mut(self.bias.len()) {
            row.iter_mut().zip(&self.bias).for_each(|(y, b)| *y += b);
        }
        y
    }

    /// The gradient of the layer, from its input and the gradient of its output.
    pub(crate) fn gradient(x: &Matrix, of_y: &Matrix) -> Linear {
        let mut bias = vec![0.0; of_y.columns];
        for row in of_y.data.chunks(of_y.columns) {
            bias.iter_mut().zip(row).for_each(|(b, y)| *b += y);
        }
        Linear { weight: x.transposed_times(of_y), bias }
    }

    /// The gradient of the layer's input.
    pub(crate) fn backward(&self, of_y: &Matrix) -> Matrix {
        of_y.times(&self.weight.transposed())
    }
}

impl Parameters for Linear {
    fn parts(&self) -> Vec<&[f32]> {
        vec![&self.weight.data, &self.bias]
    }

    fn parts_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.weight.data, &mut self.bias]
    }
}

pub(crate) fn relu(mut x: Matrix) -> Matrix {
    x.data.iter_mut().for_each(|v| *v = v.max(0.0));
    x
}

/// The gradient of what went into a `relu` that gave `y`.
pub(crate) fn relu_backward(mut of_y: Matrix, y: &Matrix) -> Matrix {
    for (gradient, &y) in of_y.data.iter_mut().zip(&y.data) {
        if y <= 0.0 {
            *gradient = 0.0;
        }
    }
    of_y
}
