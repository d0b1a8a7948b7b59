//! Group 2: what a store does with each buffer, for the buffers that move most cache lines.
//!
//! A buffer is one slot, even if it is read and written. Slots are sorted by cache lines, then
//! bytes, most first; equal ones stay in the order of appearance.

use std::cmp::Ordering;

use ansc_graph::{BufId, Expr};

use super::Config;
use super::nest::Nest;
use super::reach::{self, Interval};
use super::store::{Accesses, Direction, Store};
use super::stride::stride;
use crate::program::Program;

/// Buffers that a row has room for.
pub const SLOTS: usize = 5;

/// Numbers per slot.
pub(super) const LEN: usize = 18;

pub(super) const NAMES: [&str; LEN] = [
    "acc_type.read",
    "acc_type.write",
    "acc_type.read_write",
    "bytes",
    "unique_bytes",
    "lines",
    "unique_lines",
    "reuse_type.loop_multiple_read",
    "reuse_type.serial_multiple_read_write",
    "reuse_type.none",
    "reuse_dis_iter",
    "reuse_dis_bytes",
    "reuse_ct",
    "bytes_d_reuse_ct",
    "unique_bytes_d_reuse_ct",
    "lines_d_reuse_ct",
    "unique_lines_d_reuse_ct",
    "stride",
];

pub(super) struct Slot {
    direction: Direction,
    volume: Volume,
    reuse: Reuse,
    stride: f64,
}

/// The volume that all executions of the store move, and the part of it that is distinct.
struct Volume {
    bytes: f64,
    unique_bytes: f64,
    lines: f64,
    unique_lines: f64,
}

/// The innermost place where an element is accessed again.
struct Reuse {
    kind: ReuseKind,
    /// The iterations between two accesses; `bytes` are those that are touched in between.
    iterations: f64,
    bytes: f64,
    count: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReuseKind {
    /// By another iteration of a loop that the indices do not depend on.
    Loop,
    /// By another statement.
    Serial,
    None,
}

pub(super) fn slots(
    program: &Program,
    config: &Config,
    nest: &Nest<'_>,
    store: &Store<'_>,
) -> Vec<Slot> {
    let whole = nest.all_running();
    let mut slots: Vec<Slot> =
        store.accesses.iter().map(|a| slot(program, config, nest, a, &whole)).collect();
    slots.sort_by(|a, b| more(a.volume.lines, b.volume.lines, a.volume.bytes, b.volume.bytes));
    slots.truncate(config.max_buffers.min(SLOTS));
    slots
}

fn more(a_lines: f64, b_lines: f64, a_bytes: f64, b_bytes: f64) -> Ordering {
    b_lines.total_cmp(&a_lines).then(b_bytes.total_cmp(&a_bytes))
}

pub(super) fn write(slots: &[Slot], out: &mut [f64]) {
    out.fill(0.0);
    for (slot, out) in slots.iter().zip(out.chunks_exact_mut(LEN)) {
        slot.write(out);
    }
}

impl Slot {
    fn write(&self, out: &mut [f64]) {
        let Volume { bytes, unique_bytes, lines, unique_lines } = self.volume;
        let volume = [bytes, unique_bytes, lines, unique_lines];
        out[self.direction as usize] = 1.0;
        out[3..7].copy_from_slice(&volume);
        out[7 + self.reuse.kind as usize] = 1.0;
        out[10..13].copy_from_slice(&[self.reuse.iterations, self.reuse.bytes, self.reuse.count]);
        out[13..17].copy_from_slice(&volume.map(|v| self.reuse.share(v)));
        out[17] = self.stride;
    }
}

impl Reuse {
    const NONE: Reuse = Reuse { kind: ReuseKind::None, iterations: 0.0, bytes: 0.0, count: 0.0 };

    /// The share of the volume that each use costs. No use at all counts as worse than one.
    fn share(&self, volume: f64) -> f64 {
        if self.count > 0.5 { volume / self.count } else { 2.0 * volume }
    }
}

fn slot(
    program: &Program,
    config: &Config,
    nest: &Nest<'_>,
    access: &Accesses<'_>,
    whole: &[Interval],
) -> Slot {
    let ty = &program.buffer(access.buffer).ty;
    let element_bytes = ty.dtype.size() as f64;
    let bytes = nest.iterations() * element_bytes;
    let reuse = reuse(nest, access);
    let direction = access.direction;
    if nest.levels.is_empty() {
        let volume = Volume { bytes, unique_bytes: element_bytes, lines: 1.0, unique_lines: 1.0 };
        return Slot { direction, volume, reuse, stride: 0.0 };
    }
    let line = config.cache_line.max(1) as f64;
    let unique_bytes = unique_elements(nest, access.buffer) * element_bytes;
    let contiguous = element_bytes * contiguous(&access.indices, &ty.shape, whole);
    let walk = Walk::of(nest, &access.indices, &ty.shape);
    let moved = nest.iterations() / walk.repeats * (walk.stride * element_bytes / line).min(1.0);
    let volume = Volume {
        bytes,
        unique_bytes,
        lines: moved.max(1.0),
        unique_lines: (unique_bytes / contiguous.min(line)).max(1.0),
    };
    Slot { direction, volume, reuse, stride: if walk.innermost { walk.stride } else { 0.0 } }
}

/// Elements that the first store under the outermost loop touches.
fn unique_elements(nest: &Nest<'_>, buffer: BufId) -> f64 {
    let touches = &nest.levels[0].touches;
    touches.iter().find(|t| t.buffer == buffer).map_or(1.0, |t| t.elements)
}

/// The extent of the last axis of which every element is touched.
fn contiguous(accesses: &[&[Expr]], shape: &[usize], whole: &[Interval]) -> f64 {
    let is_whole = |axis: &usize| {
        reach::extent(accesses, *axis, shape[*axis], whole) == shape[*axis] && shape[*axis] > 0
    };
    (0..shape.len()).rev().find(is_whole).map_or(1.0, |axis| shape[axis] as f64)
}

/// How the innermost loop that matters moves through a buffer.
struct Walk {
    /// Elements; 0 where no loop matters.
    stride: f64,
    innermost: bool,
    /// Iterations of the loops further in: all at the same place.
    repeats: f64,
}

impl Walk {
    fn of(nest: &Nest<'_>, accesses: &[&[Expr]], shape: &[usize]) -> Walk {
        let mut walk = Walk { stride: 0.0, innermost: true, repeats: 1.0 };
        for level in nest.levels.iter().rev() {
            match stride(accesses, shape, level.l.var) {
                Some(found) if found != 0.0 => return Walk { stride: found, ..walk },
                _ => {
                    walk.innermost = false;
                    walk.repeats *= level.extent();
                }
            }
        }
        walk
    }
}

fn reuse(nest: &Nest<'_>, access: &Accesses<'_>) -> Reuse {
    let mut iterations = 1.0;
    let mut bytes: Option<f64> = None;
    for level in nest.levels.iter().rev() {
        let var = Expr::Var(level.l.var);
        let moves = access.indices.iter().flat_map(|i| *i).any(|i| i.any(&mut |e| *e == var));
        if !moves {
            let one_each = || level.touches.iter().map(|t| t.element_bytes).sum();
            let bytes = bytes.unwrap_or_else(one_each);
            return Reuse { kind: ReuseKind::Loop, iterations, bytes, count: level.extent() };
        }
        iterations *= level.extent();
        let touched = level.touched_bytes();
        bytes = Some(touched);
        let sizes = level.touches.iter().filter(|t| t.buffer == access.buffer).map(|t| t.elements);
        let (stores, least) =
            sizes.fold((0.0, f64::INFINITY), |(n, least), size| (n + 1.0, size.min(least)));
        if stores > 1.0 {
            return Reuse {
                kind: ReuseKind::Serial,
                iterations: least / level.extent(),
                bytes: touched / level.extent(),
                count: stores - 1.0,
            };
        }
    }
    Reuse::NONE
}
