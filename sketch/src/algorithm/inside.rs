//! A convolution of a padded image as a product for each tap of the window, at the places where the
//! tap meets the image; the rest would be multiplied by zeros.
//!
//! ```text
//! pad[y, x, c]  = select(12 <= y < 44 and 12 <= x < 44, in[y - 12, x - 12, c], 0)
//! conv[y, x, k] = sum{r, s, c} pad[y + r * 12, x + s * 12, c] * w[r, s, c, k]      y, x < 32
//! =>
//! tap_0[y, x, k] = sum{c} in[y, x, c] * w[0, 0, c, k]                              y, x < 20
//! ..
//! conv[y, x, k]  = select(12 <= y and 12 <= x, tap_0[y - 12, x - 12, k], 0) + ..
//! ```
//!
//! Windows that are wide apart miss the image with most of their taps. The padded image is not
//! made. Bytes and halves are taken several at a time where that pays, as by
//! [`dots`](super::dots); a convolution of groups does not count.

use std::ops::Range;

use ansc_graph::arith::Linear;
use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};

use super::dots::{self, Terms};
use super::{Replacing, Rewritten, in_floats, without};
use crate::task::Task;

/// At most this share of the products is computed, or it does not pay to add up taps.
const MOST: f64 = 0.8;
/// Each tap is a nest of its own.
const MOST_TAPS: usize = 32;

pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let Rewritten { task, prepared } = as_multiplied(task);
    let slides = |stage| Sliding::of(&task.compute, stage);
    let sliding = (0..task.compute.stages.len()).find_map(slides)?;
    let compute = sliding.by_taps(&task.compute)?;
    Some(Rewritten { task: Task { compute, ..task }, prepared })
}

/// The task whose products are those that the machine multiplies best.
fn as_multiplied(task: &Task) -> Rewritten {
    let narrow = [Terms::Quads, Terms::Halves].into_iter().find(|&terms| dots::pays(task, terms));
    let made = narrow.and_then(|terms| dots::rewrite(task, terms));
    made.unwrap_or_else(|| in_floats(task))
}

/// A sum of products with windows that slide over an image, which a stage puts zeros around.
struct Sliding<'a> {
    stage: usize,
    s: &'a Stage,
    /// The stage that pads, which nothing but the sum reads, and its buffer.
    pad: usize,
    padded: BufId,
    /// An element of the image, over the axes of that stage, and where it has those.
    element: &'a Expr,
    within: Vec<Range<i64>>,
    /// In the order of the image's axes.
    windows: Vec<Window>,
}

/// `axis * stride + kernel * dilation`
struct Window {
    /// The axis of results, and its extent.
    axis: VarId,
    outputs: usize,
    /// The variable that runs over the window, and its extent.
    kernel: VarId,
    size: usize,
    stride: usize,
    dilation: usize,
    /// The axis of the image.
    of: usize,
}

/// A tap, and the places of results that it meets the image from.
struct Tap {
    /// The place in the window, along each of its axes.
    kernel: Vec<usize>,
    /// Along each axis that windows slide over.
    places: Vec<Range<i64>>,
}

impl<'a> Sliding<'a> {
    fn of(compute: &'a Compute, stage: usize) -> Option<Sliding<'a>> {
        let s = &compute.stages[stage];
        let is_sum = s.reduce.as_ref()?.combiner == Combiner::Sum;
        let Expr::Binary(op, a, b) = &s.body else { return None };
        let is_product = matches!(op, BinOp::Mul | BinOp::Dot4 | BinOp::Dot2 | BinOp::DotBf16);
        if !is_sum || !is_product || s.extents().contains(&0) {
            return None;
        }
        let sides = [(&**a, &**b), (&**b, &**a)];
        sides.into_iter().find_map(|(image, weight)| Sliding::over(compute, stage, image, weight))
    }

    fn over(
        compute: &'a Compute,
        stage: usize,
        image: &Expr,
        weight: &Expr,
    ) -> Option<Sliding<'a>> {
        let s = &compute.stages[stage];
        let loads = image.loads();
        let padded = loads.first()?.0;
        let pad = compute.stage_of(padded)?;
        let Expr::Select(condition, element, outside) = &compute.stages[pad].body else {
            return None;
        };
        let of_weight = weight.vars();
        let is_shared = |v: &VarId| v.index() < s.ty.rank() && of_weight.contains(v);
        let is_image = loads.iter().all(|(buffer, _)| *buffer == padded) && vanishes(image);
        if !is_image
            || image.vars().iter().any(is_shared)
            || !outside.as_const().is_some_and(|value| value.is_zero())
        {
            return None;
        }
        let shape = &compute.stages[pad].ty.shape;
        let mut within: Vec<Range<i64>> = shape.iter().map(|&n| 0..n as i64).collect();
        narrow(condition, &mut within)?;
        let indices: Vec<&[Expr]> = loads.into_iter().map(|(_, at)| at).collect();
        let windows: Vec<Window> =
            (0..shape.len()).filter_map(|of| Window::of(s, &indices, of)).collect();
        let is_whole = |of: usize| within[of] == (0..shape[of] as i64);
        let slides = |of: usize| windows.iter().any(|w| w.of == of);
        let fits = (0..shape.len()).all(|of| slides(of) || is_whole(of));
        let has_channels = s.extents().len() - s.ty.rank() > windows.len();
        (fits && has_channels).then_some(Sliding {
            stage,
            s,
            pad,
            padded,
            element,
            within,
            windows,
        })
    }

    /// The subgraph with a sum for each tap in place of the one over windows.
    fn by_taps(&self, compute: &Compute) -> Option<Compute> {
        let taps = self.taps()?;
        let mut result = Replacing::new(compute, self.stage);
        let zero = Expr::float(self.s.ty.dtype, 0.0);
        let mut sum: Option<Expr> = None;
        for (number, tap) in taps.iter().enumerate() {
            let product = result.push(self.product(number, tap));
            let here = self.added(tap, product, &zero);
            sum = Some(sum.map_or(here.clone(), |sum| sum + here));
        }
        result.push(Stage::map(&self.s.name, self.s.ty.clone(), sum.unwrap_or(zero)));
        without(&result.done(), self.pad)
    }

    /// The taps that meet the image; none if these are nearly all that there is.
    fn taps(&self) -> Option<Vec<Tap>> {
        let sizes: Vec<usize> = self.windows.iter().map(|w| w.size).collect();
        let all: usize = sizes.iter().product();
        if !(2..=MOST_TAPS).contains(&all) {
            return None;
        }
        let tap = |number: usize| {
            let mut rest = number;
            let mut kernel: Vec<usize> = sizes
                .iter()
                .rev()
                .map(|n| {
                    let place = rest % n;
                    rest /= n;
                    place
                })
                .collect();
            kernel.reverse();
            let met = self.windows.iter().zip(&kernel);
            let places = met.map(|(w, &k)| self.places(w, k)).collect();
            Tap { kernel, places }
        };
        let taps: Vec<Tap> = (0..all).map(tap).filter(|tap| self.share(tap) > 0.0).collect();
        let share = taps.iter().map(|tap| self.share(tap)).sum::<f64>() / all as f64;
        (share <= MOST).then_some(taps)
    }

    /// The places from which this tap of the window meets the image.
    fn places(&self, w: &Window, kernel: usize) -> Range<i64> {
        let (stride, offset) = (w.stride as i64, (kernel * w.dilation) as i64);
        let first_from = |at: i64| {
            let next = ((at - offset).max(0) + stride - 1) / stride;
            next.min(w.outputs as i64)
        };
        let within = &self.within[w.of];
        first_from(within.start)..first_from(within.end).max(first_from(within.start))
    }

    /// The share of the results that a tap has a part in.
    fn share(&self, tap: &Tap) -> f64 {
        let along = |(w, p): (&Window, &Range<i64>)| (p.end - p.start) as f64 / w.outputs as f64;
        self.windows.iter().zip(&tap.places).map(along).product()
    }

    /// The products of one tap.
    fn product(&self, number: usize, tap: &Tap) -> Stage {
        let (rank, extents) = (self.s.ty.rank(), self.s.extents());
        let is_kernel = |v: &usize| self.windows.iter().any(|w| w.kernel.index() == *v);
        let terms: Vec<usize> = (rank..extents.len()).filter(|v| !is_kernel(v)).collect();
        let of_tap = |v: VarId| {
            let mut windows = self.windows.iter().enumerate();
            let place = windows.find_map(|(i, w)| match v {
                v if v == w.axis => Some(Expr::Var(v) + Expr::int(tap.places[i].start)),
                v if v == w.kernel => Some(Expr::index(tap.kernel[i])),
                _ => None,
            });
            let term = || terms.iter().position(|&term| term == v.index());
            place.or_else(|| term().map(|place| Expr::var(rank + place)))
        };
        let body = self.s.body.substitute(&of_tap).rewrite(&mut |e| match e {
            Expr::Load(buffer, at) if *buffer == self.padded => Some(self.element_at(at)),
            _ => None,
        });
        let mut shape = self.s.ty.shape.clone();
        for (w, places) in self.windows.iter().zip(&tap.places) {
            shape[w.axis.index()] = (places.end - places.start) as usize;
        }
        let (name, ty) = (format!("tap_{number}"), TensorType::new(self.s.ty.dtype, shape));
        let terms = terms.into_iter().map(|term| extents[term]).collect();
        Stage::reduction(&name, ty, Combiner::Sum, terms, body)
    }

    /// The element of the padding stage at a place where the image is.
    fn element_at(&self, at: &[Expr]) -> Expr {
        let moved = self.element.substitute(&|v| at.get(v.index()).cloned());
        moved.rewrite(&mut |e| match e {
            Expr::Load(buffer, at) => {
                let plain = |index: &Expr| Linear::from_expr(index).to_expr();
                Some(Expr::Load(*buffer, at.iter().map(plain).collect()))
            }
            _ => None,
        })
    }

    /// The part of a tap in a result.
    fn added(&self, tap: &Tap, products: BufId, zero: &Expr) -> Expr {
        let mut at: Vec<Expr> = (0..self.s.ty.rank()).map(Expr::var).collect();
        let mut met: Option<Expr> = None;
        for (w, places) in self.windows.iter().zip(&tap.places) {
            let here = Expr::Var(w.axis);
            let first = (places.start > 0).then(|| Expr::int(places.start).le(here.clone()));
            let last =
                (places.end < w.outputs as i64).then(|| here.clone().lt(Expr::int(places.end)));
            for bound in first.into_iter().chain(last) {
                met = Some(met.map_or(bound.clone(), |met| met.and(bound)));
            }
            let place = Linear::from_expr(&(here - Expr::int(places.start))).to_expr();
            at[w.axis.index()] = place;
        }
        let part = Expr::Load(products, at);
        match met {
            Some(met) => Expr::select(met, part, zero.clone()),
            None => part,
        }
    }
}

impl Window {
    /// The window over this axis of an image that is read at `indices`, if all of them are the same
    /// there, and nowhere else what they are here.
    fn of(s: &Stage, indices: &[&[Expr]], of: usize) -> Option<Window> {
        let (rank, extents) = (s.ty.rank(), s.extents());
        let index = &indices.first()?[of];
        let linear = Linear::from_expr(index);
        let [(Expr::Var(a), x), (Expr::Var(b), y)] = linear.terms() else { return None };
        let ((axis, stride), (kernel, dilation)) =
            if a.index() < rank { ((*a, *x), (*b, *y)) } else { ((*b, *y), (*a, *x)) };
        let is_own = |at: &&[Expr]| {
            let others = at.iter().enumerate().filter(|(other, _)| *other != of);
            let mut others = others.flat_map(|(_, index)| index.vars());
            at[of] == *index && !others.any(|v| v == axis || v == kernel)
        };
        let is_window = axis.index() < rank
            && kernel.index() >= rank
            && linear.constant() == 0
            && indices.iter().all(is_own);
        Some(Window {
            axis,
            outputs: extents[axis.index()],
            kernel,
            size: extents[kernel.index()],
            stride: usize::try_from(stride).ok().filter(|&n| n > 0 && is_window)?,
            dilation: usize::try_from(dilation).ok().filter(|&n| n > 0)?,
            of,
        })
    }
}

/// Whether a factor is zero where all that it loads is.
fn vanishes(e: &Expr) -> bool {
    match e {
        Expr::Load(..) => true,
        Expr::Cast(_, x) => vanishes(x),
        Expr::Binary(BinOp::PairBf16 | BinOp::Or, a, b) => vanishes(a) && vanishes(b),
        Expr::Binary(BinOp::Shl, a, b) => vanishes(a) && b.as_const().is_some(),
        _ => false,
    }
}

/// Takes bounds of axes out of a conjunction of comparisons with constants; none if it has others.
fn narrow(condition: &Expr, within: &mut [Range<i64>]) -> Option<()> {
    let constant = |e: &Expr| {
        let linear = Linear::from_expr(e);
        linear.terms().is_empty().then(|| linear.constant())
    };
    match condition {
        Expr::Binary(BinOp::And, a, b) => {
            narrow(a, within)?;
            narrow(b, within)
        }
        Expr::Binary(op @ (BinOp::Le | BinOp::Lt), a, b) => {
            let beyond = i64::from(*op == BinOp::Lt);
            match (&**a, &**b) {
                (low, Expr::Var(v)) => {
                    let axis = &mut within[v.index()];
                    axis.start = axis.start.max(constant(low)? + beyond);
                }
                (Expr::Var(v), high) => {
                    let axis = &mut within[v.index()];
                    axis.end = axis.end.min(constant(high)? + 1 - beyond);
                }
                _ => return None,
            }
            Some(())
        }
        _ => None,
    }
}
