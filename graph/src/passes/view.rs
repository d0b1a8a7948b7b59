//! Strided views: what transposes and reshapes of a dense tensor look like without copying it.

/// Extent and stride, in elements of the dense tensor, of each axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct View(Vec<(usize, usize)>);

impl View {
    /// The dense tensor itself.
    pub(crate) fn contiguous(shape: &[usize]) -> View {
        let mut axes = Vec::with_capacity(shape.len());
        let mut stride = 1;
        for &extent in shape.iter().rev() {
            axes.push((extent, stride));
            stride *= extent.max(1);
        }
        axes.reverse();
        View(axes)
    }

    pub(crate) fn transposed(&self, perm: &[usize]) -> View {
        View(perm.iter().map(|&axis| self.0[axis]).collect())
    }

    /// The view under another shape, if that is a view too.
    pub(crate) fn reshaped(&self, shape: &[usize]) -> Option<View> {
        let axes: Vec<_> = self.0.iter().copied().filter(|&(extent, _)| extent != 1).collect();
        let mut result = Vec::with_capacity(shape.len());
        let (mut i, mut o) = (0, 0);
        while o < shape.len() {
            if shape[o] == 1 {
                result.push((1, 0));
                o += 1;
                continue;
            }
            let (i0, o0) = (i, o);
            let (mut from, mut to) = (axes.get(i)?.0, shape[o]);
            (i, o) = (i + 1, o + 1);
            while from != to {
                if from < to {
                    from *= axes.get(i)?.0;
                    i += 1;
                } else {
                    to *= shape.get(o)?;
                    o += 1;
                }
            }
            split(merged(&axes[i0..i])?, &shape[o0..o], &mut result);
        }
        (i == axes.len()).then_some(View(result))
    }

    /// Whether elements lie in row-major order.
    pub(crate) fn is_contiguous(&self) -> bool {
        let mut stride = 1;
        self.0.iter().rev().filter(|(extent, _)| *extent != 1).all(|&(extent, s)| {
            let fits = s == stride;
            stride *= extent;
            fits
        })
    }
}

/// The stride of the one axis that `axes` are together.
fn merged(axes: &[(usize, usize)]) -> Option<usize> {
    let joins = axes.windows(2).all(|pair| pair[0].1 == pair[1].1 * pair[1].0);
    joins.then(|| axes[axes.len() - 1].1)
}

fn split(stride: usize, shape: &[usize], result: &mut Vec<(usize, usize)>) {
    let mut strides = vec![stride; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    result.extend(shape.iter().copied().zip(strides));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshapes_of_transposes() {
        let x = View::contiguous(&[2, 3, 4]);
        assert!(x.is_contiguous());
        let turned = x.transposed(&[1, 2, 0]);
        assert!(!turned.is_contiguous());
        let merged = turned.reshaped(&[12, 2]).unwrap();
        assert_eq!(merged.reshaped(&[3, 1, 4, 2]).unwrap().transposed(&[3, 1, 0, 2]).0[0], (2, 12));
        assert!(merged.transposed(&[1, 0]).is_contiguous());
        assert_eq!(turned.reshaped(&[24]), None);
        assert_eq!(turned.reshaped(&[3, 8]), None);
    }
}
