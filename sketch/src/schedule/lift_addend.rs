//! lift_addend: a sum begins with what its reader adds to it.
//!
//! ```text
//! t = 0;      for k { t += x[b, k] };  y[b] = (t + c[b]) * s[b]
//! => lift_addend(t_init)
//! t = c[b];   for k { t += x[b, k] };  y[b] = t * s[b]
//! ```
//!
//! That saves an addition, and the register for what is added. It rounds as another order of the
//! terms does.

use std::collections::BTreeMap;

use ansc_graph::{BinOp, BufId, Combiner, Expr, VarId};

use super::compute_at::loads_of;
use super::error::{Cause, Failure, buffer_name};
use super::moves::{is_internal, plain_indices, readers, writers};
use super::query::{block_at, block_at_mut, block_path};
use super::{Result, Schedule};
use crate::affine::{Extents, Sum};
use crate::disjoint::bound;
use crate::program::{Block, Body, Program};
use crate::tree::Path;

type Checked<T> = std::result::Result<T, Failure>;

impl Schedule {
    /// `init` assigns zero to what a sum adds up. One block reads that, once, and adds something to
    /// it in any case: a function of the place in the buffer, of values that are there before.
    pub fn lift_addend(&mut self, init: &str) -> Result<()> {
        self.apply_in_place("lift_addend", |program| lift_addend(program, init))
    }
}

fn lift_addend(program: &mut Program, name: &str) -> Checked<()> {
    let path = block_path(program, name)?;
    let init = block_at(program, &path);
    let buffer = begins_sum(program, init)?;
    let reader_path = only_reader(program, buffer, name)?;
    let reader = block_at(program, &reader_path);
    let at = loads_of(reader, buffer).remove(0);
    let addend = addend(reader.body.value(), buffer);
    let addend = addend.ok_or_else(|| Cause::NoAddend.at_block(&reader.name))?;
    check_there_before(program, &path, addend)?;
    check_in_any_case(program, reader, addend)?;
    let value = moved(reader, at, init, addend)?;
    let rest = reader.body.value().rewrite(&mut |e| {
        let is_it = added(e, buffer).is_some();
        is_it.then(|| Expr::Load(buffer, at.to_vec()))
    });
    *block_at_mut(program, &reader_path).body.value_mut() = rest;
    *block_at_mut(program, &path).body.value_mut() = value;
    Ok(())
}

/// The buffer, to whose elements the block assigns zero, and all other writers add terms.
fn begins_sum(program: &Program, init: &Block) -> Checked<BufId> {
    let not_zero = || Cause::NoSum.at_block(&init.name);
    let Body::Assign { dst, value: Expr::Const(zero) } = &init.body else { return Err(not_zero()) };
    let buffer = dst.buffer;
    let is_sum = |b: &Block| {
        let adds = matches!(&b.body, Body::Reduce { combiner: Combiner::Sum, init: false, .. });
        adds && loads_of(b, buffer).is_empty()
    };
    let all = writers(program, buffer);
    let others = all.iter().map(|p| block_at(program, p)).filter(|b| b.name != init.name);
    if !zero.is_zero() || !is_internal(program, buffer) || !others.clone().all(is_sum) {
        return Err(not_zero());
    }
    Ok(buffer)
}

/// The block that loads from the buffer, once, and does not write it.
fn only_reader(program: &Program, buffer: BufId, init: &str) -> Checked<Path> {
    let mut all = readers(program, buffer);
    let loads = |p: &Path| loads_of(block_at(program, p), buffer).len();
    match (all.pop(), all.is_empty()) {
        (None, _) => Err(Cause::NoConsumer.at_block(init)),
        (Some(one), true) if loads(&one) == 1 => Ok(one),
        (Some(other), _) => {
            let name = block_at(program, &other).name.clone();
            Err(Cause::OtherReaders { buffer: buffer_name(program, buffer) }.at_block(&name))
        }
    }
}

/// The other part of the sum, if the expression adds something to the load.
fn added(e: &Expr, buffer: BufId) -> Option<&Expr> {
    let Expr::Binary(BinOp::Add, a, b) = e else { return None };
    let is_it = |e: &Expr| matches!(e, Expr::Load(l, _) if *l == buffer);
    match (is_it(a), is_it(b)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    }
}

/// The expression that is added to the load of the buffer, if no condition decides about it.
fn addend(e: &Expr, buffer: BufId) -> Option<&Expr> {
    match (added(e, buffer), e) {
        (Some(found), _) => Some(found),
        (_, Expr::Unary(_, a) | Expr::Cast(_, a)) => addend(a, buffer),
        (_, Expr::Binary(_, a, b)) => addend(a, buffer).or_else(|| addend(b, buffer)),
        (_, Expr::Select(condition, ..)) => addend(condition, buffer),
        _ => None,
    }
}

/// All that is read for it was written in nests before.
fn check_there_before(program: &Program, init: &Path, addend: &Expr) -> Checked<()> {
    for (buffer, _) in addend.loads() {
        if let Some(writer) = writers(program, buffer).iter().find(|w| w[0] >= init[0]) {
            let writer = block_at(program, writer).name.clone();
            return Err(Cause::BeforeProducer(writer).at_block(&block_at(program, init).name));
        }
    }
    Ok(())
}

/// The guards of the reader say no more than that its iterators stay within their extents: what is
/// read is there wherever the sum begins.
fn check_in_any_case(program: &Program, reader: &Block, addend: &Expr) -> Checked<()> {
    let extents = Extents::of(program);
    let value = |e: &Expr| Sum::of(&bound(reader, e), &extents);
    let values: Vec<(Sum, i64)> =
        reader.iters.iter().map(|i| (value(&Expr::Var(i.var)), i.extent as i64)).collect();
    let is_plain = |part: &Expr| match part {
        Expr::Binary(BinOp::Lt, a, b) => {
            let (sum, end) = (value(a), value(b).as_constant());
            values.iter().any(|(v, extent)| *v == sum && end.is_some_and(|end| end >= *extent))
        }
        Expr::Binary(BinOp::Le, zero, a) => {
            let sum = value(a);
            value(zero).as_constant() == Some(0) && values.iter().any(|(v, _)| *v == sum)
        }
        _ => false,
    };
    let Some((buffer, _)) = addend.loads().first().copied() else { return Ok(()) };
    let mut guards = reader.predicate.iter().flat_map(Expr::conjuncts);
    match guards.all(is_plain) {
        true => Ok(()),
        false => {
            let buffer = buffer_name(program, buffer);
            Err(Cause::ConditionalRead { buffer }.at_block(&reader.name))
        }
    }
}

/// The addend over iterators of the block that begins the sum, which the places in the buffer tell.
fn moved(reader: &Block, at: &[Expr], init: &Block, addend: &Expr) -> Checked<Expr> {
    let Body::Assign { dst, .. } = &init.body else {
        return Err(Cause::NoSum.at_block(&init.name));
    };
    let axes = plain_indices(&dst.indices);
    let axes = axes.ok_or_else(|| Cause::IndexNotPlain.at_block(&init.name))?;
    let extent = |block: &Block, v: VarId| Some(block.iters.iter().find(|i| i.var == v)?.extent);
    let place = |v: VarId| {
        let axis = at.iter().position(|index| *index == Expr::Var(v))?;
        let own = axes[axis]?;
        (extent(init, own)? <= extent(reader, v)?).then_some(Expr::Var(own))
    };
    let mut places = BTreeMap::new();
    for v in addend.vars() {
        let own = place(v).ok_or_else(|| Cause::IndexNotPlain.at_block(&reader.name))?;
        places.insert(v, own);
    }
    Ok(addend.substitute(&|v| places.get(&v).cloned()))
}
