//! Rows that are gone through several times: what comes next is fetched while units have the
//! processor to themselves.
//!
//! A row that is normalised is read several times. First it comes from memory or a far cache, and
//! the units wait; from then on it lies in the nearest cache. So the last loop to read a row
//! fetches that of the next iteration, and a loop before the one that writes a row fetches what
//! will be written. They change nothing but time: what lies behind the last row is fetched in vain.
//!
//! In: a loop, those before it and those behind it. Out: at its beginning, prefetches.
//!
//! ```text
//! for p { for i { sum += x[p, i] }  for i { squares += (x[p, i] - sum / n)^2 }  for i { y[p, i] = x[p, i] * .. } }
//! =>
//! for p { for i { sum += x[p, i] }  for i { prefetch y[p, i];  squares += .. }  for i { prefetch x[p + 1, i];  y[p, i] = .. } }
//! ```

use ansc_graph::{BufId, VarId};
use ansc_sketch::Stmt;
use ansc_sketch::program::For;

use crate::affine::Affine;
use crate::emit::after::{Lines, Side};
use crate::emit::ahead::{LINE, has_counted_loop, part, quotient, stride_of};
use crate::emit::function::{Emitter, Result};
use crate::ir::{Fetch, Near};

/// More would push out of the nearest cache what the present iteration reads again.
const MOST_BYTES: i64 = 8 << 10;

/// Lines of a buffer that a loop goes through, at equal distances.
#[derive(Clone, Debug)]
pub(crate) struct Strip {
    buffer: BufId,
    /// The place of the loop's first iteration.
    first: Affine,
    /// From one line to the next, in elements.
    step: i64,
    lines: i64,
    /// Elements of a line.
    in_line: i64,
}

/// The strips that a loop is to fetch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strips {
    to_read: Vec<Strip>,
    to_write: Vec<Strip>,
}

impl Emitter<'_, '_> {
    /// The strips that the loop `stmts[at]` is to fetch: those that it is the last one to read, for
    /// the next iteration of the loop around it, and those that the next loop writes.
    pub(crate) fn strips(&mut self, stmts: &[Stmt], at: usize) -> Strips {
        let around = self.frames.last().and_then(|f| Some(f.var?.0));
        let (Some(around), false) = (around, self.is_gpu() || self.lanes.is_some()) else {
            return Strips::default();
        };
        let (before, here, behind) = (&stmts[..at], &stmts[at], &stmts[at + 1..]);
        if !before.iter().any(has_counted_loop) || !has_counted_loop(here) {
            return Strips::default();
        }
        let before = self.strips_of(before.iter(), Side::Read);
        let again = |strip: &Strip| before.iter().any(|known| known.begins_as(strip));
        let mut to_read = self.strips_of([here].into_iter(), Side::Read);
        to_read.retain(again);
        if to_read.is_empty() {
            return Strips::default();
        }
        let later = self.strips_of(behind.iter(), Side::Read);
        to_read.retain(|strip| !later.iter().any(|later| later.begins_as(strip)));
        let to_read = to_read.into_iter().filter_map(|strip| strip.next(around)).collect();
        let next = behind.iter().filter(|stmt| has_counted_loop(stmt)).take(1);
        let to_write = self.strips_of(next, Side::Write);
        Strips { to_read, to_write }
    }

    /// The strips of the loops among `stmts` that have no other loops inside.
    fn strips_of<'s>(&mut self, stmts: impl Iterator<Item = &'s Stmt>, side: Side) -> Vec<Strip> {
        let loops = stmts.filter_map(|stmt| match stmt {
            Stmt::For(l) if has_counted_loop(stmt) && !l.body.iter().any(has_counted_loop) => {
                Some(l)
            }
            _ => None,
        });
        loops.flat_map(|l| self.strips_in(l, side)).collect()
    }

    fn strips_in(&mut self, l: &For, side: Side) -> Vec<Strip> {
        self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        let mut lines = Lines::of(side, Some(l.var));
        l.body.iter().for_each(|stmt| self.lines_of(stmt, &mut lines));
        self.ranges.remove(&l.var);
        let lines = lines.first.into_iter();
        joined(lines.filter_map(|(buffer, first)| self.strip(buffer, &first, l)).collect())
    }

    fn strip(&self, buffer: BufId, first: &Affine, l: &For) -> Option<Strip> {
        let size = self.program.buffer(buffer).ty.dtype.size() as i64;
        let stride = stride_of(first, l.var)?;
        let (in_line, of_line) = (LINE / size, (LINE / size / stride).max(1));
        let lines = quotient(l.extent as i64, of_line);
        let first = part(first, |v| *v != l.var)?;
        Some(Strip { buffer, first, step: stride * of_line, lines, in_line })
    }

    /// At the beginning of `l`: a part of each strip.
    pub(crate) fn fetch_strips(&mut self, l: &For, strips: Strips) -> Result<()> {
        let Strips { to_read, to_write } = strips;
        for (strips, fetch) in [(to_read, Fetch::Read), (to_write, Fetch::Write)] {
            if strips.iter().map(|strip| strip.lines * LINE).sum::<i64>() > MOST_BYTES {
                continue;
            }
            for (buffer, line) in strips.iter().flat_map(|strip| strip.part(l)) {
                let (at, _) = self.pointer(buffer, &line)?;
                self.ir.prefetch(at, fetch, Near::First);
            }
        }
        Ok(())
    }
}

impl Strip {
    fn begins_as(&self, other: &Strip) -> bool {
        self.buffer == other.buffer && self.first == other.first
    }

    fn next(mut self, around: VarId) -> Option<Strip> {
        let ahead = stride_of(&self.first, around)?;
        self.first = self.first.plus(&Affine::constant(ahead));
        Some(self)
    }

    /// The buffers that an iteration of `l` fetches, and where. If `l` has twice as many iterations
    /// as there are lines, two of them fetch the same line; if it has more, it fetches nothing.
    fn part(&self, l: &For) -> Vec<(BufId, Affine)> {
        let of_line = quotient(l.extent as i64, self.lines);
        if of_line > 2 {
            return Vec::new();
        }
        let each = quotient(self.lines, l.extent as i64);
        let line = |i: i64| {
            let here = Affine::var(l.var)
                .times(each)
                .plus(&Affine::constant(i))
                .times(self.step / of_line);
            (self.buffer, self.first.clone().plus(&here))
        };
        (0..each).map(line).collect()
    }
}

/// Strips that lie side by side, and whose steps leave room for just all of them, as one.
fn joined(mut strips: Vec<Strip>) -> Vec<Strip> {
    strips.sort_by_key(|s| (s.buffer, s.first.variable_part(), s.first.constant));
    let follows = |a: &Strip, b: &Strip| {
        let behind = a.first.clone().plus(&Affine::constant(a.in_line));
        (a.buffer, a.step, a.lines) == (b.buffer, b.step, b.lines) && behind == b.first
    };
    let mut all = Vec::new();
    for beside in strips.chunk_by(follows) {
        let wide = beside.len() as i64;
        if beside[0].step == beside[0].in_line * wide {
            let (step, lines) = (beside[0].in_line, beside[0].lines * wide);
            all.push(Strip { step, lines, ..beside[0].clone() });
        } else {
            all.extend_from_slice(beside);
        }
    }
    all
}
