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
//! Windows that are wide apart miss the image with most of their taps.
//! The padded image is not made.

use std::ops::Range;

use ansc_graph::arith::Linear;
use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

use super::convolution::{Convolution, Window};
use super::{Replacing, Rewritten, without};
use crate::task::Task;

/// At most this share of the products is computed, or it does not pay to add up taps.
const MOST: f64 = 0.8;
/// Each tap is a nest of its own.
const MOST_TAPS: usize = 32;

pub(super) fn rewrite(task: &Task, conv: &Convolution) -> Option<Rewritten> {
    let image = Image::of(&task.compute, conv)?;
    let taps = image.taps(conv)?;
    let mut compute = Replacing::new(&task.compute, conv.stage);
    let stage = &task.compute.stages[conv.stage];
    let mut sum: Option<Expr> = None;
    for (number, tap) in taps.iter().enumerate() {
        let product = compute.push(image.product(conv, stage, number, tap));
        let here = tap.added(conv, stage, product);
        sum = Some(sum.map_or(here.clone(), |sum| sum + here));
    }
    let sum = sum.unwrap_or(Expr::float(DType::F32, 0.0));
    compute.push(Stage::map(&stage.name, stage.ty.clone(), sum));
    let compute = without(&compute.done(), image.stage)?;
    Some(Rewritten { task: Task { compute, ..task.clone() }, prepared: vec![] })
}

/// An image that a stage puts zeros around.
struct Image<'a> {
    /// The stage, which nothing but the convolution reads.
    stage: usize,
    source: BufId,
    /// The type of its elements.
    dtype: DType,
    /// Indices of the source, over the axes of the stage.
    at: &'a [Expr],
    /// Where the stage has elements of the source, along each axis.
    within: Vec<Range<i64>>,
}

/// A tap, and the places of results that it meets the image from.
struct Tap {
    /// The place in the window, along each of its axes.
    kernel: Vec<usize>,
    /// Along each axis that windows slide over.
    places: Vec<Range<i64>>,
}

impl<'a> Image<'a> {
    fn of(compute: &'a Compute, conv: &Convolution) -> Option<Image<'a>> {
        let stage = compute.stage_of(conv.input)?;
        let s = &compute.stages[stage];
        let Expr::Select(condition, inside, outside) = &s.body else { return None };
        let element = match &**inside {
            Expr::Cast(DType::F32, x) => x,
            _ => inside,
        };
        let Expr::Load(source, at) = &**element else { return None };
        let dtype = compute.buffer_type(*source).dtype;
        if **outside != Expr::float(DType::F32, 0.0) {
            return None;
        }
        let mut within: Vec<Range<i64>> = s.ty.shape.iter().map(|&n| 0..n as i64).collect();
        narrow(condition, &mut within)?;
        Some(Image { stage, source: *source, dtype, at, within })
    }

    /// The taps that meet the image; none if these are nearly all that there is.
    fn taps(&self, conv: &Convolution) -> Option<Vec<Tap>> {
        let sizes: Vec<usize> = conv.windows.iter().map(|w| w.size).collect();
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
            let met = conv.windows.iter().zip(&kernel);
            let places = met.map(|(w, &k)| self.places(w, k)).collect();
            Tap { kernel, places }
        };
        let taps: Vec<Tap> = (0..all).map(tap).filter(|tap| tap.share(conv) > 0.0).collect();
        let share = taps.iter().map(|tap| tap.share(conv)).sum::<f64>() / all as f64;
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

    /// The products of one tap.
    fn product(&self, conv: &Convolution, stage: &Stage, number: usize, tap: &Tap) -> Stage {
        let rank = stage.ty.rank();
        let channel = Expr::var(rank);
        let batch: Vec<Expr> = conv.batch.iter().map(|&axis| Expr::var(axis)).collect();
        let windows = conv.windows.iter().enumerate().map(|(i, w)| {
            let place = Expr::var(w.axis) + Expr::int(tap.places[i].start);
            place * Expr::index(w.stride) + Expr::index(tap.kernel[i] * w.dilation)
        });
        let in_stage = conv.input_at(&batch, &windows.collect::<Vec<_>>(), &channel);
        let in_source = |index: &Expr| {
            let index = index.substitute(&|v| Some(in_stage[v.index()].clone()));
            Linear::from_expr(&index).to_expr()
        };
        let element = Expr::Load(self.source, self.at.iter().map(in_source).collect());
        let element = Expr::cast(self.dtype, DType::F32, element);
        let kernel: Vec<Expr> = tap.kernel.iter().map(|&k| Expr::index(k)).collect();
        let weight = conv.weight_at(&kernel, &channel, &Expr::var(conv.out.0));
        let mut shape = stage.ty.shape.clone();
        for (w, places) in conv.windows.iter().zip(&tap.places) {
            shape[w.axis] = (places.end - places.start) as usize;
        }
        let (name, ty) = (format!("tap_{number}"), TensorType::new(DType::F32, shape));
        let terms = vec![conv.channel.1];
        Stage::reduction(&name, ty, Combiner::Sum, terms, element * Expr::Load(conv.weight, weight))
    }
}

impl Tap {
    /// The share of the results that it has a part in.
    fn share(&self, conv: &Convolution) -> f64 {
        let along = |(w, p): (&Window, &Range<i64>)| (p.end - p.start) as f64 / w.outputs as f64;
        conv.windows.iter().zip(&self.places).map(along).product()
    }

    /// Its part of a result.
    fn added(&self, conv: &Convolution, stage: &Stage, products: BufId) -> Expr {
        let mut at: Vec<Expr> = (0..stage.ty.rank()).map(Expr::var).collect();
        let mut met: Option<Expr> = None;
        for (w, places) in conv.windows.iter().zip(&self.places) {
            let here = Expr::var(w.axis);
            let first = (places.start > 0).then(|| Expr::int(places.start).le(here.clone()));
            let last =
                (places.end < w.outputs as i64).then(|| here.clone().lt(Expr::int(places.end)));
            for bound in first.into_iter().chain(last) {
                met = Some(met.map_or(bound.clone(), |met| met.and(bound)));
            }
            at[w.axis] = Linear::from_expr(&(here - Expr::int(places.start))).to_expr();
        }
        let part = Expr::Load(products, at);
        match met {
            Some(met) => Expr::select(met, part, Expr::float(DType::F32, 0.0)),
            None => part,
        }
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
