//! loop_partition: the range of a loop in parts, each a loop of its own.
//!
//! ```text
//! for i in 0..13 { for j in 0..16 { block s: x[i * 16 + j] = .. where i * 16 + j < 197 } }
//! => loop_partition(i, [12])
//! for i in 0..12 { for j in 0..16 { block s: x[i * 16 + j] = .. } }
//! for i in 0..1 { for j in 0..16 { block s_1: x[j + 192] = .. where j < 5 } }
//! ```
//! The order of execution stays as it is. Predicates that hold in a part vanish from it; so do
//! blocks whose predicate holds nowhere in it.

use ansc_graph::{BufId, Expr};

use super::copies;
use super::error::{Cause, Failure};
use super::query::{blocks_under, bound_to, loop_at, loop_at_mut, loop_path, simplify_under};
use super::{LoopRef, Result, Schedule};
use crate::program::{Block, For, ForKind, IterKind, Program, Shared, Stmt};
use crate::tree::{self, Path};

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// Parts the serial loop `l` before each of the iterations `points`, which increase. The first
    /// part keeps the loop, its blocks and their names; blocks of the others are copies, with the
    /// same annotations. No reduction that the loop drives initialises its result under it.
    pub fn loop_partition(&mut self, l: LoopRef, points: &[usize]) -> Result<Vec<LoopRef>> {
        let (loops, twins) =
            self.apply_in_place("loop_partition", |program| partition(program, l, points))?;
        self.copy_all_notes(&twins);
        Ok(loops)
    }
}

pub(super) fn partition(
    program: &mut Program,
    l: LoopRef,
    points: &[usize],
) -> Checked<(Vec<LoopRef>, copies::Twins)> {
    let path = loop_path(program, l)?;
    let extent = check(program, &path, l, points)?;
    // Parts do not share what one iteration has for itself.
    let private = copies::private_buffers(program, l.0);
    let body = loop_at(program, &path).body.clone();
    let ends = points.iter().copied().chain([extent]);
    let (mut loops, mut twins) = (vec![l], copies::Twins::default());
    let mut start = 0;
    for (part, end) in ends.enumerate() {
        if part == 0 {
            loop_at_mut(program, &path).extent = end;
        } else {
            let (var, made) = add_part(program, &path, part, (start, end), &body, &private);
            loops.push(var);
            twins.loops.extend(made.loops);
            twins.blocks.extend(made.blocks);
        }
        start = end;
    }
    settle(program, &path, &loops);
    Ok((loops, twins))
}

/// Simplifies what stands in parts, the first of which is at `path`.
pub(super) fn settle(program: &mut Program, path: &Path, parts: &[LoopRef]) {
    for (part, l) in parts.iter().enumerate().rev() {
        let mut place = path.clone();
        *place.last_mut().expect("the path of a loop") += part;
        simplify_under(program, &place, &[l.0]);
        drop_dead(program, &place);
    }
}

fn check(program: &Program, path: &Path, l: LoopRef, points: &[usize]) -> Checked<usize> {
    let target = loop_at(program, path);
    if target.kind != ForKind::Serial {
        return Err(Cause::Kind(target.kind).at_loop(l));
    }
    let bounds = [&[0], points, &[target.extent]].concat();
    if points.is_empty() || !bounds.windows(2).all(|pair| pair[0] < pair[1]) {
        let (points, extent) = (points.to_vec(), target.extent);
        return Err(Cause::Points { points, extent }.at_loop(l));
    }
    let initialises =
        |block: &&&Block| block.has_init() && bound_to(block, IterKind::Reduce).contains(&l.0);
    match blocks_under(target).iter().find(initialises) {
        Some(block) => Err(Cause::Initialising(block.name.clone()).at_loop(l)),
        None => Ok(target.extent),
    }
}

/// The part `start..end`, after those before it.
pub(super) fn add_part(
    program: &mut Program,
    first: &Path,
    part: usize,
    (start, end): (usize, usize),
    body: &[Stmt],
    private: &[BufId],
) -> (LoopRef, copies::Twins) {
    let original = loop_at(program, first).var;
    let var = tree::twin(program, original);
    let (mut body, renaming) = copies::copy(program, body, private);
    let shifted = Expr::Var(var) + Expr::index(start);
    tree::visit_blocks_mut(&mut body, &mut |block| {
        block.substitute_loops(&|v| (v == original).then(|| shifted.clone()));
    });
    let l = For { var, extent: end - start, kind: ForKind::Serial, body };
    let (siblings, index) = tree::siblings_mut(&mut program.body, first);
    siblings.insert(index + part, Stmt::For(Shared::new(l)));
    let inner = renaming.vars.into_iter();
    let loops = inner.chain([(original, var)]).collect();
    (LoopRef(var), copies::Twins { loops, blocks: renaming.blocks })
}

/// Takes out blocks that never run, and loops that are left empty.
fn drop_dead(program: &mut Program, path: &Path) {
    let (siblings, index) = tree::siblings_mut(&mut program.body, path);
    let rest = tree::alive(vec![siblings.remove(index)]);
    siblings.splice(index..index, rest);
}
