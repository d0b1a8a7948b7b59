//! The loops around a store: the rest of group 1, and group 5.
//!
//! Where an annotated loop stands among spatial and reduction loops is not told after lowering: the
//! one-hot is `none` without such a loop, else `mixed`. Lengths of GPU axes are 1 where there is
//! none. The limit of the `unroll` annotation is no part of a finished program, in which loops are
//! unrolled by it: that number is 0.

use super::nest::Nest;
use crate::program::{ForKind, ThreadAxis};

const POSITIONS: usize = 8;
const ANNOTATION: usize = 3 + POSITIONS;
const GPU: usize = 8;

/// Numbers of group 1 after the operations.
pub(super) const LEN: usize = 3 * ANNOTATION + GPU;

/// Numbers of group 5.
pub(super) const SURROUNDINGS: usize = 3;

pub(super) const KINDS: [&str; 3] = ["vec", "unroll", "parallel"];

pub(super) const ANNOTATION_NAMES: [&str; ANNOTATION] = [
    "num",
    "prod",
    "len",
    "type.none",
    "type.inner_spatial",
    "type.middle_spatial",
    "type.outer_spatial",
    "type.inner_reduce",
    "type.middle_reduce",
    "type.outer_reduce",
    "type.mixed",
];

pub(super) const GPU_NAMES: [&str; GPU] = [
    "is_gpu",
    "blockIdx_x_len",
    "blockIdx_y_len",
    "blockIdx_z_len",
    "threadIdx_x_len",
    "threadIdx_y_len",
    "threadIdx_z_len",
    "vthread_len",
];

pub(super) const SURROUNDINGS_NAMES: [&str; SURROUNDINGS] =
    ["outer_prod", "num_loops", "auto_unroll_max_step"];

const FIRST_POSITION: usize = 3;
const LAST_POSITION: usize = ANNOTATION - 1;

pub(super) fn annotations(nest: &Nest<'_>, out: &mut [f64]) {
    let kinds = [ForKind::Vectorized, ForKind::Unrolled, ForKind::Parallel];
    let (annotations, gpu) = out.split_at_mut(3 * ANNOTATION);
    for (kind, out) in kinds.into_iter().zip(annotations.chunks_exact_mut(ANNOTATION)) {
        annotation(nest, kind, out);
    }
    axes(nest, gpu);
}

fn annotation(nest: &Nest<'_>, kind: ForKind, out: &mut [f64]) {
    out.fill(0.0);
    out[FIRST_POSITION] = 1.0;
    for level in nest.levels.iter().filter(|level| level.l.kind == kind) {
        out[0] += 1.0;
        out[1] = level.extent() * if out[0] == 1.0 { 1.0 } else { out[1] };
        out[2] = level.extent();
        out[FIRST_POSITION] = 0.0;
        out[LAST_POSITION] = 1.0;
    }
}

fn axes(nest: &Nest<'_>, out: &mut [f64]) {
    out.fill(1.0);
    out[0] = 0.0;
    for level in &nest.levels {
        let ForKind::Bound(axis) = level.l.kind else { continue };
        out[0] = 1.0;
        match axis {
            ThreadAxis::BlockX => out[1] = level.extent(),
            ThreadAxis::BlockY => out[2] = level.extent(),
            ThreadAxis::BlockZ => out[3] = level.extent(),
            ThreadAxis::ThreadX => out[4] = level.extent(),
            ThreadAxis::ThreadY => out[5] = level.extent(),
            ThreadAxis::ThreadZ => out[6] = level.extent(),
            ThreadAxis::Virtual => out[7] *= level.extent(),
        }
    }
}

pub(super) fn surroundings(nest: &Nest<'_>, out: &mut [f64]) {
    out.copy_from_slice(&[nest.iterations(), nest.levels.len() as f64, 0.0]);
}
