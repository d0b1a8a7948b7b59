//! Operands of the next tiles are fetched while the present tiles are computed.
//!
//! Weights lie in the order in which the tiles go through them. A panel of them is read for many
//! rows. The first time, it comes from memory, as fast as memory gives it, while the units wait.
//! From then on it comes from the caches, while memory has nothing to do. So each pass over a panel
//! fetches a part of the next one.
//!
//! In: the innermost loop of a nest. Out: at its beginning a few prefetches, if the loop walks a
//! panel of a large operand that loops around it pass over again. Prefetches change nothing but
//! time. Those behind the last panel are in vain; where there is no memory, the processor ignores
//! them.
//!
//! ```text
//! for p { for i in 0..32 { for r in 0..192 { .. w[p, r, 0..384] .. } } }     a panel has 4608 lines of 64 bytes
//! =>
//! for p { for i in 0..32 { for r in 0..192 {
//!     prefetch line min(i, 23) * 192 + r of w[p + 1];  .. w[p, r, 0..384] ..
//! } } }
//! ```

use std::collections::BTreeSet;

use ansc_graph::{BinOp, BufId, Expr, VarId};
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Scope, Stmt};

use crate::affine::{Affine, Scope as Known, Term, affine};
use crate::emit::function::{Emitter, Result};
use crate::ir::{Fetch, Near};

pub(super) const LINE: i64 = 64;
/// Smaller operands take next to no time to come, or are in a cache.
pub(super) const LEAST_BYTES: usize = 128 << 10;
/// Smaller panels are within reach of what the processor fetches by itself.
const LEAST_PANEL: i64 = 4096;
/// The next one of larger panels of tiles would take the place of the present one in the cache.
const MOST_IN_TILES: i64 = 512 << 10;
/// With more passes over a panel the first one hardly counts.
const MOST_PASSES: i64 = 512;
/// The most lines that one iteration fetches. More would delay what is needed now.
const MOST_LINES: i64 = 16;

/// The lines of a buffer that one iteration fetches, from the element `first` on.
struct Ahead {
    buffer: BufId,
    first: Affine,
    lines: i64,
}

/// How the loops around an access go through what it reads.
struct Walk {
    /// Elements that the inner loops go through, one after another.
    panel: i64,
    /// Iterations of these loops, and which one it is.
    steps: i64,
    step: Expr,
    /// How often loops around them go through the same, and which time it is.
    passes: i64,
    pass: Expr,
    /// Where the present panel begins.
    outer: Affine,
}

impl Emitter<'_, '_> {
    /// Fetches a part of what the iterations after the loops around `l` will read.
    pub(crate) fn fetch_ahead(&mut self, l: &For) -> Result<()> {
        if self.is_gpu() || self.lanes.is_some() || l.body.iter().any(|s| self.turns(s)) {
            return Ok(());
        }
        for Ahead { buffer, first, lines } in self.all_ahead(l) {
            let per_line = LINE / self.program.buffer(buffer).ty.dtype.size() as i64;
            for line in 0..lines {
                let at = first.clone().plus(&Affine::constant(line * per_line));
                let (at, _) = self.pointer(buffer, &at)?;
                self.ir.prefetch(at, Fetch::Read, Near::Second);
            }
        }
        Ok(())
    }

    /// Whether there is a loop that stays one: instructions on tiles are none.
    pub(super) fn turns(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::For(l) if self.tiles.is_some() && matches!(l.kind, ForKind::Tensor(_)) => false,
            Stmt::For(l) if l.kind == ForKind::Unrolled => l.body.iter().any(|s| self.turns(s)),
            _ => has_counted_loop(stmt),
        }
    }

    fn all_ahead(&mut self, l: &For) -> Vec<Ahead> {
        let mut reads = vec![];
        l.body.iter().for_each(|stmt| self.large_reads(stmt, &mut vec![], &mut reads));
        let mut known = BTreeSet::new();
        let new = reads.into_iter().filter(|read| known.insert(read.buffer));
        new.filter_map(|read| self.ahead(&read)).collect()
    }

    /// Where the blocks of `stmt` read large inputs, with the variables of loops inside of it as
    /// they are.
    fn large_reads(&mut self, stmt: &Stmt, inner: &mut Vec<Loop>, reads: &mut Vec<LargeRead>) {
        match stmt {
            Stmt::For(l) => {
                self.ranges.insert(l.var, (0, l.extent as i64 - 1));
                inner.push((l.var, l.extent as i64));
                l.body.iter().for_each(|stmt| self.large_reads(stmt, inner, reads));
                inner.pop();
                self.ranges.remove(&l.var);
            }
            Stmt::Block(block) => {
                let iters: Vec<_> =
                    block.iters.iter().map(|i| (i.var, affine(&i.binding, self))).collect();
                self.bindings.extend(iters);
                for (buffer, indices) in block.body.value().loads() {
                    let info = self.program.buffer(buffer);
                    if info.scope == Scope::Input && info.ty.bytes() >= LEAST_BYTES {
                        let flat = self.flatten(buffer, indices);
                        reads.push(LargeRead { buffer, flat, inner: inner.clone() });
                    }
                }
                block.iters.iter().for_each(|i| _ = self.bindings.remove(&i.var));
            }
        }
    }

    fn ahead(&self, LargeRead { buffer, flat, inner }: &LargeRead) -> Option<Ahead> {
        let buffer = *buffer;
        let open = self.frames.iter().rev().filter_map(|f| Some(f.var?.0));
        let around = |var| {
            let extent = self.ranges.get(&var)?.1 + 1;
            let ends_early = self.program.need(var).is_some();
            Some(Around { var, extent, sure: if ends_early { extent / 2 } else { extent } })
        };
        let loops: Option<Vec<Around>> = open.map(around).collect();
        let size = self.program.buffer(buffer).ty.dtype.size() as i64;
        let walk = Walk::of(flat, &loops?, inner, size)?;
        if self.tiles.is_some() && walk.panel * size > MOST_IN_TILES {
            return None;
        }
        let (first, lines) = walk.fetched(size, self)?;
        Some(Ahead { buffer, first, lines })
    }
}

/// A variable and its extent.
type Loop = (VarId, i64);

/// A loop around an access.
#[derive(Clone, Copy)]
struct Around {
    var: VarId,
    extent: i64,
    /// Iterations that it is taken for, if it passes over a panel: half of them, if it ends where a
    /// run's sizes do. The largest size of a part of a range is about twice the smallest one.
    sure: i64,
}

/// A large input that is read, and the loops that are written out around the access.
struct LargeRead {
    buffer: BufId,
    flat: Affine,
    inner: Vec<Loop>,
}

impl Walk {
    /// The walk of an access at `flat` in loops, the innermost first, to elements of `size` bytes.
    /// None if it goes through its buffer in another way. Passes over less than a panel do not
    /// count. Loops that are written out inside may go on with panels side by side, which are one.
    fn of(flat: &Affine, loops: &[Around], inner: &[Loop], size: i64) -> Option<Walk> {
        let (mut panel, mut steps, mut step) = (0, 1, Expr::int(0));
        let (mut passes, mut pass) = (1, Expr::int(0));
        let mut rest = loops.iter();
        let (var, extent, outside) = loop {
            let &Around { var, extent, sure } = rest.next()?;
            let small = passes == 1 || panel * size < LEAST_PANEL;
            match stride_of(flat, var) {
                Some(stride) if panel == 0 || (stride == panel && small) => {
                    (panel, step) = (stride * extent, step + Expr::Var(var) * Expr::int(steps));
                    steps *= extent;
                    (passes, pass) = (1, Expr::int(0));
                }
                None if !depends(flat, var) => {
                    let sure = sure.max(1);
                    let time = Expr::Var(var);
                    let time = if sure < extent { time.min(Expr::int(sure - 1)) } else { time };
                    pass = pass + time * Expr::int(passes);
                    passes *= sure;
                }
                _ => break (var, extent, loops.len() - rest.len() - 1),
            }
        };
        let beside = |(var, _): &&Loop| panel > 0 && stride_of(flat, *var) == Some(panel);
        panel *= inner.iter().find(beside).map_or(1, |(_, extent)| *extent);
        let (grain, stride) = grain_of(flat, var)?;
        if grain > 1 {
            pass = pass + Expr::Var(var).floor_mod(grain) * Expr::int(passes);
            passes *= grain.min(extent);
        }
        let outer = part(flat, |v| loops[outside..].iter().any(|l| l.var == *v))?;
        (panel > 0 && stride == panel).then_some(Walk { panel, steps, step, passes, pass, outer })
    }

    /// The first element that an iteration fetches, and how many lines from there on.
    fn fetched(self, size: i64, scope: &dyn Known) -> Option<(Affine, i64)> {
        let bytes = self.panel * size;
        if bytes < LEAST_PANEL || !(2..=MOST_PASSES).contains(&self.passes) {
            return None;
        }
        let all = quotient(bytes, LINE);
        let lines = quotient(all, self.steps * self.passes);
        let in_pass = self.steps * lines;
        let last = (all - 1) / in_pass;
        let pass = if last + 1 < self.passes { self.pass.min(Expr::int(last)) } else { self.pass };
        let line = affine(&(pass * Expr::int(in_pass) + self.step * Expr::int(lines)), scope);
        let first = self.outer.plus(&Affine::constant(self.panel)).plus(&line.times(LINE / size));
        (lines <= MOST_LINES).then_some((first, lines))
    }
}

/// Rounded up.
pub(super) fn quotient(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// The form with zero for all other variables; none if something else than a sum has one, or it
/// loads.
pub(super) fn part(flat: &Affine, stays: impl Fn(&VarId) -> bool) -> Option<Affine> {
    let mut part = Affine::constant(flat.constant);
    for (term, c) in flat.terms.iter() {
        let stays = vars_of(term).iter().all(&stays);
        match term {
            Term::Opaque(e) if !stays || !e.loads().is_empty() => return None,
            _ if stays => part.terms.add_copy(term, c),
            _ => {}
        }
    }
    Some(part)
}

/// Whether there is a loop that stays one.
pub(super) fn has_counted_loop(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(_) => false,
        Stmt::For(l) => {
            let written_out = matches!(l.kind, ForKind::Unrolled | ForKind::Vectorized);
            (l.extent > 1 && !written_out) || l.body.iter().any(has_counted_loop)
        }
    }
}

fn vars_of(term: &Term) -> Vec<VarId> {
    match term {
        Term::Var(v) => vec![*v],
        Term::Opaque(e) => e.vars().into_iter().collect(),
    }
}

fn depends(flat: &Affine, var: VarId) -> bool {
    flat.terms.keys().any(|t| vars_of(t).contains(&var))
}

/// The amount by which the form grows with each iteration of `var`. `None` if it does not grow, or
/// not by the same amount each time.
pub(super) fn stride_of(flat: &Affine, var: VarId) -> Option<i64> {
    let mut of_var = flat.terms.iter().filter(|(t, _)| vars_of(t).contains(&var));
    match (of_var.next()?, of_var.next()) {
        ((Term::Var(_), c), None) if c > 0 => Some(c),
        _ => None,
    }
}

/// After how many iterations the form changes, and by how much at least.
fn grain_of(flat: &Affine, var: VarId) -> Option<(i64, i64)> {
    let of_term = |(term, c): (&Term, i64)| match term {
        _ if !vars_of(term).contains(&var) => None,
        Term::Var(_) => Some((1, c)),
        Term::Opaque(e) => Some((grain(e, var), c)),
    };
    flat.terms.iter().filter_map(of_term).min()
}

/// A number of iterations of `var` in which the expression does not change, counted from zero.
fn grain(e: &Expr, var: VarId) -> i64 {
    match e {
        Expr::Binary(BinOp::FloorDiv, v, by) if **v == Expr::Var(var) => constant(by).unwrap_or(1),
        Expr::Binary(BinOp::FloorMod | BinOp::FloorDiv, e, by) if constant(by).is_some() => {
            grain(e, var)
        }
        _ => 1,
    }
}

fn constant(e: &Expr) -> Option<i64> {
    match e {
        Expr::Const(s) => Some(s.as_i64()).filter(|&n| n > 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables from zero to these.
    struct Ranges<'a>(&'a [Loop]);

    impl Known for Ranges<'_> {
        fn binding(&self, _: VarId) -> Option<Affine> {
            None
        }

        fn range(&self, var: VarId) -> Option<(i64, i64)> {
            let of_var = self.0.iter().find(|(v, _)| *v == var);
            of_var.map(|(_, extent)| (0, extent - 1))
        }
    }

    fn around(loops: &[Loop]) -> Vec<Around> {
        loops.iter().map(|&(var, extent)| Around { var, extent, sure: extent }).collect()
    }

    fn value(form: &Affine, at: &[(VarId, i64)]) -> i64 {
        let fixed = |v| at.iter().find(|(w, _)| *w == v).map(|(_, n)| Expr::int(*n));
        let e = form.to_expr().substitute(&fixed);
        affine(&e, &Ranges(&[])).as_constant().expect("all variables have values")
    }

    /// All values of the loops, the innermost fastest.
    fn iterations(loops: &[Loop]) -> Vec<Vec<(VarId, i64)>> {
        let Some(((var, extent), outer)) = loops.split_last().map(|(l, o)| (*l, o)) else {
            return vec![vec![]];
        };
        let inner = iterations(outer);
        let with = |n: i64| inner.iter().map(move |i| [&i[..], &[(var, n)]].concat());
        (0..extent).flat_map(with).collect()
    }

    /// Holds that while a panel is read, of `size` bytes each, all lines of the next one are
    /// fetched and no others.
    fn fetches_the_next_panel(flat: &Expr, loops: &[Loop], size: i64, panel: i64) {
        let scope = Ranges(loops);
        let flat = affine(flat, &scope);
        let (first, lines) =
            Walk::of(&flat, &around(loops), &[], size).unwrap().fetched(size, &scope).unwrap();
        let mut fetched: std::collections::BTreeMap<i64, BTreeSet<i64>> = Default::default();
        for at in iterations(loops) {
            let begin = value(&first, &at) * size / LINE;
            let of_panel = fetched.entry(value(&flat, &at) / panel).or_default();
            of_panel.extend(begin..begin + lines);
        }
        let in_panel = panel * size / LINE;
        for (at, lines) in fetched {
            let next: BTreeSet<i64> = ((at + 1) * in_panel..(at + 2) * in_panel).collect();
            assert!(next.is_subset(&lines), "panel {at}");
            let most = lines.last().unwrap() - in_panel * (at + 2);
            assert!(
                lines.first() == next.first() && most < in_panel / 4,
                "panel {at}: {most} more"
            );
        }
    }

    fn var(i: usize) -> (VarId, Expr) {
        (VarId::new(i), Expr::Var(VarId::new(i)))
    }

    #[test]
    fn passes_over_a_panel_fetch_the_next() {
        let [(p, of_p), (i, _), (r, of_r), (s, of_s), (t, _)] = [0, 1, 2, 3, 4].map(var);
        let n = Expr::int;
        let flat = of_p.clone() * n(1920) + of_r.clone() * n(96);
        fetches_the_next_panel(&flat, &[(r, 20), (i, 32), (p, 3)], 4, 1920);
        fetches_the_next_panel(&flat, &[(r, 20), (i, 2), (p, 3)], 4, 1920);
        // More passes than it takes, and two loops of them.
        fetches_the_next_panel(&flat, &[(r, 20), (i, 70), (s, 4), (p, 3)], 4, 1920);
        // Two loops through the panel.
        let flat = of_p.clone() * n(4800) + of_s.clone() * n(1600) + of_r.clone() * n(80);
        fetches_the_next_panel(&flat, &[(r, 20), (s, 3), (i, 7), (p, 3)], 4, 4800);
        // Passes over parts of it, which are as good as none.
        let flat = of_p.clone() * n(4800) + of_s.clone() * n(480) + of_r.clone() * n(96);
        fetches_the_next_panel(&flat, &[(r, 5), (t, 4), (s, 10), (i, 7), (p, 3)], 4, 4800);
        // Panels and passes in one loop.
        let flat = of_p.clone().floor_div(9) * n(4096) + of_r.clone() * n(256);
        fetches_the_next_panel(&flat, &[(r, 16), (p, 27)], 4, 4096);
        fetches_the_next_panel(&flat, &[(r, 16), (i, 3), (p, 27)], 1, 4096);
        let point = of_p.clone().floor_div(4) * n(4 * 2048);
        let flat = point + of_p.floor_mod(4) * n(2048) + of_r * n(64);
        fetches_the_next_panel(&flat, &[(r, 32), (i, 3), (p, 12)], 4, 2048);
    }

    #[test]
    fn passes_that_end_early_fetch_the_whole_panel() {
        let [(p, of_p), (i, _), (r, of_r)] = [0, 1, 2].map(var);
        let flat = of_p * Expr::int(1920) + of_r * Expr::int(96);
        let loops = [(r, 20), (i, 8), (p, 3)];
        let scope = Ranges(&loops);
        let mut all = around(&loops);
        all[1].sure = 4;
        let flat = affine(&flat, &scope);
        let (first, lines) = Walk::of(&flat, &all, &[], 4).unwrap().fetched(4, &scope).unwrap();
        let mut fetched = BTreeSet::new();
        for at in iterations(&[(r, 20), (i, 4)]) {
            let begin = value(&first, &[&at[..], &[(p, 0)]].concat()) * 4 / LINE;
            fetched.extend(begin..begin + lines);
        }
        assert!((120..240).all(|line| fetched.contains(&line)), "{fetched:?}");
    }

    #[test]
    fn panels_side_by_side_are_one() {
        let [(p, of_p), (r, of_r), (l, of_l)] = [0, 1, 2].map(var);
        let n = Expr::int;
        let flat = of_p * n(3840) + of_l * n(1920) + of_r * n(96);
        let (loops, all) = ([(r, 20), (p, 3)], [(r, 20), (p, 3), (l, 2)]);
        let flat = affine(&flat, &Ranges(&all));
        let panel =
            |inner: &[Loop]| Walk::of(&flat, &around(&loops), inner, 4).map(|walk| walk.panel);
        assert_eq!([panel(&[(l, 2)]), panel(&[])], [Some(3840), None]);
    }

    #[test]
    fn other_accesses_fetch_nothing() {
        let [(p, of_p), (i, of_i), (r, of_r)] = [0, 1, 2].map(var);
        let n = Expr::int;
        let none = |flat: Expr| {
            let loops = [(r, 64), (i, 32), (p, 8)];
            let (flat, scope) = (affine(&flat, &Ranges(&loops)), Ranges(&loops));
            Walk::of(&flat, &around(&loops), &[], 4)
                .and_then(|walk| walk.fetched(4, &scope))
                .is_none()
        };
        // Rows, columns of a matrix that is not packed, one panel for all, and what each iteration
        // reads anew.
        assert!(none(of_i.clone() * n(4096) + of_r.clone() * n(4)));
        assert!(none(of_p.clone() * n(64) + of_r.clone() * n(512)));
        assert!(none(of_r.clone() * n(512)));
        assert!(none(of_p * n(65536) + of_i * n(2048) + of_r * n(32)));
    }

    #[test]
    fn grains_of_fused_loops() {
        let ((p, v), (_, w)) = (var(0), var(1));
        assert_eq!(grain(&v.clone().floor_div(32), p), 32);
        assert_eq!(grain(&v.clone().floor_div(4).floor_mod(6), p), 4);
        assert_eq!(grain(&v.clone().floor_mod(4), p), 1);
        assert_eq!(grain(&(v + w).floor_div(4), p), 1);
    }
}
