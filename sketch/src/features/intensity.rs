//! Group 3: floating-point operations per touched byte, over how much of the work is looked at.
//!
//! Each loop around the store gives a point: the operations of one run of it, and their ratio to
//! the bytes that it touches. Between the points the curve is straight, before the first one it is
//! flat. It is read at every tenth of all operations.

use super::nest::Nest;

pub(super) const LEN: usize = 10;

/// `floats` are the operations of one execution; `bytes` are those of each level, innermost first.
pub(super) fn write(nest: &Nest<'_>, floats: f64, bytes: &[f64], out: &mut [f64]) {
    out.fill(0.0);
    let points = points(nest, floats, bytes);
    let Some(total) = points.last().map(|p| p.ops).filter(|&ops| ops > 0.0) else { return };
    for (tenth, out) in (1..=LEN).zip(out) {
        *out = at(&points, total * tenth as f64 / LEN as f64);
    }
}

struct Point {
    ops: f64,
    intensity: f64,
}

fn points(nest: &Nest<'_>, floats: f64, bytes: &[f64]) -> Vec<Point> {
    let mut ops = floats;
    let levels = nest.levels.iter().rev().zip(bytes);
    levels
        .map(|(level, bytes)| {
            ops *= level.extent();
            Point { ops, intensity: ops / bytes.max(1.0) }
        })
        .collect()
}

fn at(points: &[Point], ops: f64) -> f64 {
    // A tenth may be off by a rounding.
    let reaches = |p: &Point| p.ops >= ops * (1.0 - 1e-9);
    let next = points.iter().position(reaches).unwrap_or(points.len() - 1);
    let right = &points[next];
    match next.checked_sub(1).map(|i| &points[i]) {
        None => right.intensity,
        Some(left) => {
            let slope = (right.intensity - left.intensity) / (right.ops - left.ops);
            left.intensity + slope * (ops - left.ops)
        }
    }
}
