//! The convolution in a subgraph, found by the products that it sums up.
//!
//! ```text
//! conv[i0, i1, i2, i3] = sum{r0: 3, r1: 3, r2: 64} x[i0, i1 + r0, i2 * 2 + r1, r2] * w[r0, r1, r2, i3]
//! =>
//! batch i0; windows (i1, r0), (i2, r1) of stride 2; channels r2 in, i3 out
//! ```
//!
//! Axes may be in any order. A grouped convolution does not count: there the output channel decides
//! which elements are read.

use ansc_graph::arith::Linear;
use ansc_graph::{BufId, Compute, Expr, Stage, VarId};
use ansc_runtime::DType;

use crate::usage::factors;

/// `sum x * w` with windows that slide over some axes of `x`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Convolution {
    pub(crate) stage: usize,
    pub(crate) input: BufId,
    pub(crate) weight: BufId,
    /// Spatial axes of the stage that index the input alone.
    pub(crate) batch: Vec<usize>,
    /// In the order of the input's axes.
    pub(crate) windows: Vec<Window>,
    /// The axis of the stage, and the number of channels.
    pub(crate) out: (usize, usize),
    /// The variable of the stage's body, and the number of channels.
    pub(crate) channel: (VarId, usize),
    input_at: Vec<Index>,
    weight_at: Vec<VarId>,
}

/// `axis * stride + kernel * dilation`
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Window {
    /// The spatial axis of the stage, and its extent.
    pub(crate) axis: usize,
    pub(crate) outputs: usize,
    /// The variable of the stage's body, and its extent.
    kernel: VarId,
    pub(crate) size: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    /// The axis of the input.
    pub(crate) of: usize,
}

/// The part of the convolution that indexes an axis of the input.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Index {
    /// This one of the batch axes.
    Batch(usize),
    Channel,
    /// This one of the windows.
    Window(usize),
}

impl Convolution {
    /// The first stage of the subgraph that is a convolution of floats.
    pub(crate) fn find(compute: &Compute) -> Option<Convolution> {
        (0..compute.stages.len()).find_map(|stage| Convolution::of(compute, stage))
    }

    fn of(compute: &Compute, stage: usize) -> Option<Convolution> {
        let s = &compute.stages[stage];
        let [Expr::Load(a, at_a), Expr::Load(b, at_b)] = factors(s)? else { return None };
        let is_float = |b: &BufId| compute.buffer_type(*b).dtype == DType::F32;
        if !is_float(a) || !is_float(b) {
            return None;
        }
        let found = Convolution::read(s, stage, (*a, at_a), (*b, at_b));
        found.or_else(|| Convolution::read(s, stage, (*b, at_b), (*a, at_a)))
    }

    /// The first stage that is a convolution of narrower elements, which it widens.
    pub(crate) fn of_narrow(compute: &Compute) -> Option<Convolution> {
        let narrow = |e: &Expr| match e {
            Expr::Cast(_, x) => match &**x {
                Expr::Load(b, at) => Some((*b, at.clone())),
                _ => None,
            },
            _ => None,
        };
        compute.stages.iter().enumerate().find_map(|(stage, s)| {
            let [a, b] = factors(s)?;
            let ((a, at_a), (b, at_b)) = (narrow(a)?, narrow(b)?);
            let found = Convolution::read(s, stage, (a, &at_a), (b, &at_b));
            found.or_else(|| Convolution::read(s, stage, (b, &at_b), (a, &at_a)))
        })
    }

    fn read(
        s: &Stage,
        stage: usize,
        (input, input_at): (BufId, &[Expr]),
        (weight, weight_at): (BufId, &[Expr]),
    ) -> Option<Convolution> {
        let (rank, extents) = (s.ty.rank(), s.extents());
        let plain = |e: &Expr| if let Expr::Var(v) = e { Some(*v) } else { None };
        let weight_at: Vec<VarId> = weight_at.iter().map(plain).collect::<Option<_>>()?;
        let mut spatial = weight_at.iter().filter(|v| v.index() < rank);
        let out = spatial.next()?.index();
        if spatial.next().is_some() {
            return None;
        }
        let (mut batch, mut windows, mut channel) = (vec![], vec![], None);
        let mut at = vec![];
        for (of, index) in input_at.iter().enumerate() {
            match Term::of(index, rank)? {
                Term::Spatial(axis) => {
                    batch.push(axis);
                    at.push(Index::Batch(batch.len() - 1));
                }
                Term::Reduced(v) if channel.is_none() => {
                    channel = Some((v, extents[v.index()]));
                    at.push(Index::Channel);
                }
                Term::Reduced(_) => return None,
                Term::Window { axis, kernel, stride, dilation } => {
                    let (outputs, size) = (extents[axis], extents[kernel.index()]);
                    windows.push(Window { axis, outputs, kernel, size, stride, dilation, of });
                    at.push(Index::Window(windows.len() - 1));
                }
            }
        }
        let found = Convolution {
            stage,
            input,
            weight,
            batch,
            windows,
            out: (out, extents[out]),
            channel: channel?,
            input_at: at,
            weight_at,
        };
        found.uses_each_axis_once(rank, extents.len()).then_some(found)
    }

    fn uses_each_axis_once(&self, rank: usize, axes: usize) -> bool {
        let windows = || self.windows.iter();
        let mut spatial: Vec<usize> = self
            .batch
            .iter()
            .copied()
            .chain(windows().map(|w| w.axis))
            .chain([self.out.0])
            .collect();
        let mut reduced: Vec<usize> =
            windows().map(|w| w.kernel.index()).chain([self.channel.0.index()]).collect();
        let mut of_weight: Vec<usize> =
            self.weight_at.iter().map(|v| v.index()).filter(|&v| v >= rank).collect();
        for axes in [&mut spatial, &mut reduced, &mut of_weight] {
            axes.sort_unstable();
        }
        spatial.into_iter().eq(0..rank)
            && reduced.into_iter().eq(rank..axes)
            && of_weight.into_iter().eq(rank..axes)
    }

    /// Indices of the input at these places along batch axes and windows.
    pub(crate) fn input_at(&self, batch: &[Expr], windows: &[Expr], channel: &Expr) -> Vec<Expr> {
        let index = |i: &Index| match *i {
            Index::Batch(at) => batch[at].clone(),
            Index::Channel => channel.clone(),
            Index::Window(at) => windows[at].clone(),
        };
        self.input_at.iter().map(index).collect()
    }

    /// Indices of the weight, given one for each window.
    pub(crate) fn weight_at(&self, kernel: &[Expr], channel: &Expr, out: &Expr) -> Vec<Expr> {
        let index = |v: &VarId| match self.windows.iter().position(|w| w.kernel == *v) {
            Some(at) => kernel[at].clone(),
            None if *v == self.channel.0 => channel.clone(),
            None => out.clone(),
        };
        self.weight_at.iter().map(index).collect()
    }
}

/// An index of what windows slide over.
pub(crate) enum Term {
    Spatial(usize),
    Reduced(VarId),
    Window { axis: usize, kernel: VarId, stride: usize, dilation: usize },
}

impl Term {
    pub(crate) fn of(index: &Expr, rank: usize) -> Option<Term> {
        let linear = Linear::from_expr(index);
        if linear.constant() != 0 {
            return None;
        }
        let mut terms = vec![];
        for (term, coefficient) in linear.terms() {
            let Expr::Var(v) = term else { return None };
            terms.push((*v, usize::try_from(*coefficient).ok()?));
        }
        terms.sort_unstable();
        match terms[..] {
            [(v, 1)] if v.index() < rank => Some(Term::Spatial(v.index())),
            [(v, 1)] => Some(Term::Reduced(v)),
            [(a, stride), (kernel, dilation)] if a.index() < rank && kernel.index() >= rank => {
                Some(Term::Window { axis: a.index(), kernel, stride, dilation })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{conv, matmul_bias_relu};

    fn parsed(body: &str) -> Option<Convolution> {
        let text = format!(
            "compute(in0: f32[2, 9, 9, 4], in1: f32[3, 3, 4, 5]) -> conv {{
               conv: f32[2, 4, 7, 5] = sum{{r0: 3, r1: 3, r2: 4}} {body}
             }}"
        );
        Convolution::find(&Compute::parse(&text).unwrap())
    }

    #[test]
    fn accesses_tell_a_convolution() {
        let weight = "in1[r0, r1, r2, i3]";
        let input = "in0[i0, add(mul(i1, 2), r0), add(i2, r1), r2]";
        let found = parsed(&format!("mul({input}, {weight})")).unwrap();
        let strides: Vec<usize> = found.windows.iter().map(|w| w.stride).collect();
        assert_eq!(
            (found.batch.as_slice(), found.out, &strides[..]),
            (&[0][..], (3, 5), &[2, 1][..])
        );
        assert_eq!(parsed(&format!("mul({weight}, {input})")).unwrap(), found);
    }

    #[test]
    fn other_accesses_are_none() {
        for (input, weight) in [
            ("in0[i0, add(i1, r0), add(i2, r1), i3]", "in1[r0, r1, r2, i3]"),
            ("in0[i0, add(i1, r0), add(i2, r0), r2]", "in1[r0, r1, r2, i3]"),
            ("in0[i0, add(add(i1, r0), 1), add(i2, r1), r2]", "in1[r0, r1, r2, i3]"),
            ("in0[i0, add(i1, r0), add(i1, r1), r2]", "in1[r0, r1, r2, i3]"),
        ] {
            let found = parsed(&format!("mul({input}, {weight})"));
            assert_eq!(found, None, "{input} {weight}");
        }
        assert_eq!(Convolution::find(&matmul_bias_relu(4, 4, 4)).map(|c| c.windows.len()), Some(0));
        assert_eq!(Convolution::find(&conv(4, 3, 9, 9, 1)).map(|c| c.stage), Some(1));
    }
}
