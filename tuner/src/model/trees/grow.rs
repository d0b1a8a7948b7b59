//! Growing one tree: at each node the split of the most gain, found in histograms of gradients.
//!
//! Only the histogram of the smaller child is summed up; that of the larger one is what is left of
//! the parent's.

use std::ops::{AddAssign, SubAssign};

use rayon::prelude::*;

use super::Config;
use super::bins::{Bins, Column};
use super::tree::{Node, Tree};

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Gradient {
    pub(super) slope: f64,
    pub(super) curvature: f64,
}

impl AddAssign for Gradient {
    fn add_assign(&mut self, other: Gradient) {
        self.slope += other.slope;
        self.curvature += other.curvature;
    }
}

impl SubAssign for Gradient {
    fn sub_assign(&mut self, other: Gradient) {
        self.slope -= other.slope;
        self.curvature -= other.curvature;
    }
}

pub(super) struct Grown {
    pub(super) tree: Tree,
    /// The value that the tree gives to each row of the training set.
    pub(super) values: Vec<f32>,
}

pub(super) fn grow(config: &Config, bins: &Bins, gradients: Vec<Gradient>) -> Grown {
    let mut rows: Vec<u32> = (0..gradients.len() as u32).collect();
    let values = vec![0.0; gradients.len()];
    let mut grower = Grower { config, bins, gradients, nodes: vec![], values, spare: vec![] };
    let histogram = grower.histogram(&rows);
    grower.node(&mut rows, histogram, 0);
    Grown { tree: Tree { nodes: grower.nodes }, values: grower.values }
}

/// Work of fewer additions than this is not worth a second thread.
const PARALLEL: usize = 1 << 18;

/// The gradients of a node's rows, summed up by column and bin.
type Histogram = Vec<Gradient>;

struct Grower<'a> {
    config: &'a Config,
    bins: &'a Bins,
    gradients: Vec<Gradient>,
    nodes: Vec<Node>,
    values: Vec<f32>,
    /// Histograms of nodes that are done.
    spare: Vec<Histogram>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Split {
    column: usize,
    /// The last one that goes to the left.
    bin: usize,
    gain: f64,
}

impl Grower<'_> {
    fn node(&mut self, rows: &mut [u32], histogram: Histogram, depth: usize) {
        let mut total = Gradient::default();
        rows.iter().for_each(|&row| total += self.gradients[row as usize]);
        let split = if depth < self.config.max_depth { self.best(&histogram, total) } else { None };
        match split {
            Some(split) => self.split(rows, histogram, split, depth),
            None => {
                self.leaf(rows, total);
                self.spare.push(histogram);
            }
        }
    }

    fn leaf(&mut self, rows: &[u32], total: Gradient) {
        let step = -total.slope / (total.curvature + self.config.lambda);
        let value = (self.config.eta * step) as f32;
        self.nodes.push(Node::Leaf(value));
        rows.iter().for_each(|&row| self.values[row as usize] = value);
    }

    fn split(&mut self, rows: &mut [u32], mut histogram: Histogram, split: Split, depth: usize) {
        let column = &self.bins.columns[split.column];
        let (feature, threshold) = (column.feature as u16, column.thresholds[split.bin]);
        let middle = partition(rows, |row| usize::from(column.bins[row as usize]) <= split.bin);
        let (left, right) = rows.split_at_mut(middle);
        let smaller = self.histogram(if left.len() <= right.len() { left } else { right });
        histogram.iter_mut().zip(&smaller).for_each(|(all, part)| *all -= *part);
        let (of_left, of_right) =
            if left.len() <= right.len() { (smaller, histogram) } else { (histogram, smaller) };
        let at = self.nodes.len();
        self.nodes.push(Node::Leaf(0.0));
        self.node(left, of_left, depth + 1);
        self.nodes[at] = Node::Split(feature, threshold, self.nodes.len() as u32);
        self.node(right, of_right, depth + 1);
    }

    fn histogram(&mut self, rows: &[u32]) -> Histogram {
        let size = self.bins.columns.iter().map(Column::bin_count).sum();
        let mut histogram = self.spare.pop().unwrap_or_default();
        histogram.clear();
        histogram.resize(size, Gradient::default());
        let gradients: Vec<Gradient> =
            rows.iter().map(|&row| self.gradients[row as usize]).collect();
        let mut parts = parts_mut(&mut histogram, &self.bins.columns);
        let fill = |(column, part): &mut (&Column, &mut [Gradient])| {
            for (&row, &gradient) in rows.iter().zip(&gradients) {
                part[usize::from(column.bins[row as usize])] += gradient;
            }
        };
        if rows.len() * parts.len() < PARALLEL {
            parts.iter_mut().for_each(fill);
        } else {
            parts.par_iter_mut().for_each(fill);
        }
        histogram
    }

    /// The first one of the most gain, if that is enough.
    fn best(&self, histogram: &Histogram, total: Gradient) -> Option<Split> {
        let mut best: Option<Split> = None;
        let mut rest = &histogram[..];
        for (index, column) in self.bins.columns.iter().enumerate() {
            let (part, after) = rest.split_at(column.bin_count());
            rest = after;
            let floor = best.map_or(self.config.gamma, |b| b.gain);
            if let Some((bin, gain)) = self.best_bin(part, total, floor) {
                best = Some(Split { column: index, bin, gain });
            }
        }
        best
    }

    /// The bin after which to split, if the gain is more than `floor`.
    fn best_bin(&self, part: &[Gradient], total: Gradient, mut floor: f64) -> Option<(usize, f64)> {
        let whole = self.reduction(total);
        let mut left = Gradient::default();
        let mut best = None;
        for (bin, &gradient) in part[..part.len() - 1].iter().enumerate() {
            left += gradient;
            let mut right = total;
            right -= left;
            let gain = 0.5 * (self.reduction(left) + self.reduction(right) - whole);
            if gain > floor {
                floor = gain;
                best = Some((bin, gain));
            }
        }
        best
    }

    /// Twice how much one leaf for rows of this sum lowers the loss.
    fn reduction(&self, sum: Gradient) -> f64 {
        sum.slope * sum.slope / (sum.curvature.max(0.0) + self.config.lambda)
    }
}

/// The part of each column.
fn parts_mut<'h, 'c>(
    histogram: &'h mut [Gradient],
    columns: &'c [Column],
) -> Vec<(&'c Column, &'h mut [Gradient])> {
    let mut rest = histogram;
    let mut parts = Vec::with_capacity(columns.len());
    for column in columns {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(column.bin_count());
        parts.push((column, part));
        rest = after;
    }
    parts
}

/// Moves the rows for which `f` holds to the front, keeps the order among them and among the
/// others, and returns how many they are.
fn partition(rows: &mut [u32], f: impl Fn(u32) -> bool) -> usize {
    let mut others = vec![];
    let mut kept = 0;
    for at in 0..rows.len() {
        let row = rows[at];
        if f(row) {
            rows[kept] = row;
            kept += 1;
        } else {
            others.push(row);
        }
    }
    rows[kept..].copy_from_slice(&others);
    kept
}
