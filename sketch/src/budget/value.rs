//! Blocks: what one takes in all copies that unrolling makes of it.

use std::collections::BTreeSet;

use ansc_graph::{BinOp, BufId, Combiner, Expr, VarId};
use ansc_runtime::DType;
use foldhash::{HashMap, HashMapExt};

use super::walk::Walk;
use super::weights::{self, On};
use crate::affine::{self, Digit, Source, Sum};
use crate::lowering::{self, Places};
use crate::program::{Access, Block, Body};

/// Copies of a block that stand for all, where unrolled loops decide its conditions.
const SAMPLES: usize = 12;
/// A mask is made, and applied.
const MASK: usize = 2;
/// A lane that is accessed alone: taken out or put in, and the access.
const LANE: usize = 2;
/// A quotient or remainder by a constant, as part of an index.
const DIVISION: usize = 6;
/// A lane whose place depends on data: whether it is active decides where it loads from.
const LOOKED_UP: usize = 6;
/// Instructions that compare, choose and store the positions in one register.
const POSITION: usize = 8;

/// The loops that an expression depends on.
#[derive(Clone, Default)]
struct Mention {
    /// Bits of unrolled loops, by their place among the open ones.
    unrolled: u64,
    lanes: bool,
}

impl Mention {
    fn join(&mut self, other: Mention) {
        self.unrolled |= other.unrolled;
        self.lanes |= other.lanes;
    }
}

/// The expressions of one block that were counted, and what each depends on.
struct Seen<'e>(HashMap<&'e Expr, Mention>);

impl Walk<'_> {
    pub(super) fn block(&mut self, block: &Block) {
        let deciding = self.deciding(block);
        let copies: usize = deciding.iter().map(|(_, extent)| extent).product();
        if copies == 1 {
            return self.copy(block, self.all_copies());
        }
        // The loops that decide are fixed to values, as if they were not there.
        let all = self.unrolled.clone();
        let lanes = self.lanes;
        self.unrolled.retain(|l| !deciding.contains(l));
        if let Some(lanes) = &mut self.lanes {
            lanes.outside = all[..lanes.outside].iter().filter(|l| !deciding.contains(l)).count();
        }
        let samples = copies.min(SAMPLES);
        self.times(copies as f64 / samples as f64, |walk| {
            for sample in 0..samples {
                if let Some(fixed) = walk.fixed(block, &deciding, sample * copies / samples) {
                    walk.copy(&fixed, walk.all_copies() / copies);
                }
            }
        });
        (self.unrolled, self.lanes) = (all, lanes);
    }

    /// Unrolled loops that conditions of the block depend on.
    fn deciding(&self, block: &Block) -> Vec<(VarId, usize)> {
        let mut vars = BTreeSet::new();
        block.predicate.iter().for_each(|p| vars.extend(p.vars()));
        block.body.value().visit(&mut |e| {
            if let Expr::Select(condition, ..) = e
                && condition.loads().is_empty()
            {
                vars.extend(condition.vars());
            }
        });
        self.unrolled.iter().copied().filter(|(var, _)| vars.contains(var)).collect()
    }

    /// The block in the copy of this number; none where its predicate does not hold.
    fn fixed(&self, block: &Block, loops: &[(VarId, usize)], mut copy: usize) -> Option<Block> {
        let mut values = HashMap::new();
        for &(var, extent) in loops.iter().rev() {
            values.insert(var, Expr::index(copy % extent));
            copy /= extent;
        }
        let mut fixed = block.clone();
        fixed.visit_exprs_mut(&mut |e| {
            *e = affine::simplify(&e.substitute(&|v| values.get(&v).cloned()), &self.extents);
        });
        match fixed.predicate.as_ref().and_then(Expr::as_const) {
            Some(holds) if holds.is_zero() => return None,
            Some(_) => fixed.predicate = None,
            None => {}
        }
        Some(fixed)
    }

    /// A block that stands here in so many copies.
    fn copy(&mut self, block: &Block, copies: usize) {
        let mut seen = Seen(HashMap::new());
        if let Some(predicate) = &block.predicate {
            self.value(predicate, &mut seen);
            self.add(MASK, copies);
        }
        match &block.body {
            Body::Assign { dst, value } => {
                let from = self.value(value, &mut seen);
                let dtype = self.program.buffer(dst.buffer).ty.dtype;
                if self.registers.contains(&dst.buffer) && value.as_const().is_some() {
                    self.add(self.on(dtype, from.lanes).registers, copies);
                }
                self.store(dst, copies);
            }
            Body::Reduce { combiner, dst, value, .. } => {
                self.reduce(*combiner, dst, value, copies, &mut seen);
            }
            Body::ArgReduce { best, position, value, term, .. } => {
                self.value(value, &mut seen);
                self.value(term, &mut seen);
                let on = self.on(DType::I64, self.lanes.is_some());
                self.add(POSITION * on.registers, copies);
                [best, position].into_iter().for_each(|access| self.update(access, copies));
            }
        }
    }

    fn reduce<'e>(
        &mut self,
        combiner: Combiner,
        dst: &Access,
        value: &'e Expr,
        copies: usize,
        seen: &mut Seen<'e>,
    ) {
        let dtype = self.program.buffer(dst.buffer).ty.dtype;
        let on = self.on(dtype, self.lanes.is_some());
        let fused = |op: &BinOp| match op {
            BinOp::Mul => dtype.is_float() && combiner == Combiner::Sum,
            BinOp::Dot4 | BinOp::Dot2 | BinOp::DotBf16 => combiner == Combiner::Sum,
            _ => false,
        };
        match value {
            Expr::Binary(op, a, b) if fused(op) => {
                self.value(a, seen);
                self.value(b, seen);
                self.add(on.registers, copies);
            }
            _ => {
                self.value(value, seen);
                let op = match combiner {
                    Combiner::Sum => BinOp::Add,
                    Combiner::Prod => BinOp::Mul,
                    _ => BinOp::Max,
                };
                self.add(weights::binary(op, on, false), copies);
            }
        }
        self.update(dst, copies);
    }

    /// Counts the load and the store of an element that is updated.
    fn update(&mut self, access: &Access, copies: usize) {
        if !self.registers.contains(&access.buffer) {
            let (cost, times) = self.access(access.buffer, &access.indices, copies, false);
            self.add(cost, times);
        }
        self.store(access, copies);
    }

    fn store(&mut self, access: &Access, copies: usize) {
        if self.registers.contains(&access.buffer) {
            return;
        }
        let (cost, times) = self.access(access.buffer, &access.indices, copies, true);
        self.add(cost, times);
    }

    /// The operands of an operation on elements of this type.
    fn on(&self, dtype: DType, lanes: bool) -> On {
        let count = if lanes { self.lanes.map_or(1, |l| l.count) } else { 1 };
        let bytes = count * dtype.accumulator().size();
        On { dtype, registers: bytes.div_ceil(self.machine.vector_bytes).max(1), lanes: count }
    }

    fn copies_of(&self, mention: &Mention) -> usize {
        let bits = self
            .unrolled
            .iter()
            .enumerate()
            .filter(|(i, _)| mention.unrolled >> (*i).min(63) & 1 == 1);
        bits.map(|(_, (_, extent))| extent).product()
    }

    /// Whether elements side by side are loaded as one integer.
    fn is_one_load(&self, e: &Expr) -> bool {
        let is_or = matches!(e, Expr::Binary(BinOp::Or, ..));
        let Some(joined) = is_or.then(|| lowering::one_integer(self, e)).flatten() else {
            return false;
        };
        let Some(lanes) = self.lanes else { return true };
        let own = Digit::whole(Source::Var(lanes.var));
        let varies = |digit: &Digit| *digit != own && mentions(digit, lanes.var);
        let stride = joined.first.terms.get(&own).unwrap_or(0);
        [0, joined.elements].contains(&stride) && !joined.first.terms.keys().any(varies)
    }

    /// Counts the distinct expressions of `e`.
    fn value<'e>(&mut self, e: &'e Expr, seen: &mut Seen<'e>) -> Mention {
        if let Some(mention) = seen.0.get(e) {
            return mention.clone();
        }
        let mention = if self.is_one_load(e) {
            self.counted(e, self.mention(e), |_, _, _| 1)
        } else if let Some(own) = self.own(e).filter(|_| self.dtype(e) == DType::I64) {
            self.counted(e, own, Walk::position)
        } else if let Expr::Load(buffer, indices) = e {
            self.load(*buffer, indices, seen)
        } else {
            let mut all = Mention::default();
            for child in e.children() {
                all.join(self.value(child, seen));
            }
            self.counted(e, all, Walk::operation)
        };
        seen.0.insert(e, mention.clone());
        mention
    }

    /// Counts what `cost` says of an expression, in all copies of what it depends on.
    fn counted(
        &mut self,
        e: &Expr,
        mention: Mention,
        cost: impl Fn(&Self, &Expr, &Mention) -> usize,
    ) -> Mention {
        let (cost, copies) = (cost(self, e, &mention), self.copies_of(&mention));
        self.add(cost, copies);
        mention
    }

    fn load<'e>(&mut self, buffer: BufId, indices: &'e [Expr], seen: &mut Seen<'e>) -> Mention {
        let mention = self.indices(indices, seen);
        if !self.registers.contains(&buffer) {
            let (cost, times) = self.access(buffer, indices, self.copies_of(&mention), false);
            self.add(cost, times);
        }
        mention
    }

    /// The loops that an expression over variables alone depends on. `None` for other expressions,
    /// and for constants.
    fn own(&self, e: &Expr) -> Option<Mention> {
        if matches!(e, Expr::Const(_)) || !e.loads().is_empty() {
            return None;
        }
        (!e.vars().is_empty()).then(|| self.mention(e))
    }

    fn mention(&self, e: &Expr) -> Mention {
        let vars = e.vars();
        let lanes = self.lanes.is_some_and(|l| vars.contains(&l.var));
        let mut unrolled = 0;
        for (i, (var, _)) in self.unrolled.iter().enumerate() {
            unrolled |= u64::from(vars.contains(var)) << i.min(63);
        }
        Mention { unrolled, lanes }
    }

    /// The loops that the indices of a load depend on. Indices that depend on data are values, and
    /// counted as such.
    fn indices<'e>(&mut self, indices: &'e [Expr], seen: &mut Seen<'e>) -> Mention {
        let mut all = Mention::default();
        for index in indices {
            all.join(match self.own(index) {
                Some(own) => own,
                None => self.data_index(index, seen),
            });
        }
        all
    }

    /// An index that depends on data: where it differs between lanes, each computes its own, one by
    /// one.
    fn data_index<'e>(&mut self, index: &'e Expr, seen: &mut Seen<'e>) -> Mention {
        if seen.0.contains_key(index) {
            return self.value(index, seen);
        }
        let Some(lanes) = self.lanes.filter(|l| index.vars().contains(&l.var)) else {
            return self.value(index, seen);
        };
        let in_vectors = self.on(DType::F32, true).registers;
        self.times(lanes.count as f64 / in_vectors as f64, |walk| walk.value(index, seen))
    }

    /// An index as a value.
    fn position(&self, e: &Expr, mention: &Mention) -> usize {
        if self.is_hoisted(&e.vars()) {
            return 0;
        }
        let sum = Sum::of(e, &self.extents);
        let divisions = sum.terms.keys().filter(|d| !is_whole(d)).count();
        let on = self.on(DType::I64, mention.lanes);
        match self.lanes.filter(|_| mention.lanes) {
            Some(lanes) if sum.terms.keys().any(|d| !is_whole(d) && mentions(d, lanes.var)) => {
                lanes.count * (LANE + divisions)
            }
            _ => on.registers + divisions * DIVISION,
        }
    }

    fn operation(&self, e: &Expr, mention: &Mention) -> usize {
        let on = |dtype: DType| self.on(dtype, mention.lanes);
        match e {
            Expr::Const(_) | Expr::Var(_) | Expr::Load(..) => 0,
            Expr::Unary(op, x) => weights::unary(*op, on(self.dtype(x))),
            Expr::Binary(op, a, b) => {
                let constant = a.as_const().is_some() || b.as_const().is_some();
                weights::binary(*op, on(self.dtype(a)), constant)
            }
            Expr::Select(_, a, _) => on(self.dtype(a)).registers,
            Expr::Cast(to, x) => weights::cast(on(self.dtype(x)), on(*to)),
        }
    }

    /// Instructions of an access, and how many times they are there.
    fn access(
        &mut self,
        buffer: BufId,
        indices: &[Expr],
        copies: usize,
        stores: bool,
    ) -> (usize, usize) {
        let flat = self.flat(buffer, indices);
        self.address(buffer, &flat);
        let on = self.on(self.program.buffer(buffer).ty.dtype, true);
        let Some(lanes) = self.lanes else { return (1, copies) };
        let of_lane = |digit: &Digit| mentions(digit, lanes.var);
        let irregular: Vec<&Digit> =
            flat.terms.keys().filter(|d| of_lane(d) && !is_whole(d)).collect();
        let stride = flat.terms.get(&Digit::whole(Source::Var(lanes.var))).unwrap_or(0);
        if irregular.is_empty() {
            if let Some(square) = self.square(&flat, stride, copies, stores) {
                return square;
            }
            let each = match stride.unsigned_abs() {
                0 if stores => on.lanes * LANE,
                0 => 1,
                1 => on.registers,
                s @ 2..=4 if !stores => 2 * s as usize * on.registers,
                _ => on.lanes * LANE,
            };
            return (each, copies);
        }
        // The position of each lane is known but for a constant, or computed for each.
        let alone = |d: &&&Digit| !matches!(d.source, Source::Var(_));
        let computed = irregular.iter().filter(alone).count();
        let by_data = irregular.iter().any(|d| depends_on_data(d));
        let each = if by_data { LOOKED_UP } else { computed * DIVISION };
        (on.lanes * (LANE + each), copies)
    }

    /// Lanes that are rows of a square, whose columns an unrolled loop inside of them walks: whole
    /// vectors, and shuffles.
    fn square(
        &self,
        flat: &Sum,
        stride: i64,
        copies: usize,
        stores: bool,
    ) -> Option<(usize, usize)> {
        let lanes = self.lanes?;
        let inside = &self.unrolled[lanes.outside..];
        let walks = |(var, _): &&(VarId, usize)| {
            flat.terms.get(&Digit::whole(Source::Var(*var))) == Some(1)
        };
        let &(_, extent) = inside.iter().find(walks)?;
        let fits = stride.unsigned_abs() >= extent as u64 && lanes.count >= 4;
        let whole = stores || extent == lanes.count;
        if !fits || !whole || !copies.is_multiple_of(extent) {
            return None;
        }
        let (squares, rest) = (extent / lanes.count, extent % lanes.count);
        let shuffles = lanes.count * lanes.count.ilog2() as usize;
        let of_rest = usize::from(rest > 0) * shuffles + rest.count_ones() as usize * lanes.count;
        Some((squares * (shuffles + lanes.count) + of_rest, copies / extent))
    }

    /// An address takes its terms, once for all that are a constant away from it.
    fn address(&mut self, buffer: BufId, flat: &Sum) {
        let (mut cost, mut terms) = (0, vec![]);
        let mut copies = 1;
        for (digit, by) in flat.terms.iter() {
            let written_out = |v: VarId| {
                self.unrolled.iter().any(|(u, _)| *u == v)
                    || self.lanes.is_some_and(|lanes| lanes.var == v)
            };
            if matches!(digit.source, Source::Var(v) if written_out(v)) {
                continue;
            }
            if self.is_hoisted(&digit.source.to_expr().vars()) {
                continue;
            }
            for (var, extent) in &self.unrolled {
                copies *= if mentions(digit, *var) { *extent } else { 1 };
            }
            cost += if is_whole(digit) { 2 } else { DIVISION };
            terms.push(Sum::digit(digit.clone(), by).to_expr());
        }
        if cost > 0 && self.addresses.insert((buffer, terms)) {
            self.add(cost, copies);
        }
    }
}

impl Places for Walk<'_> {
    type Place = Sum;

    fn dtype(&self, e: &Expr) -> DType {
        e.dtype(&|b| self.program.buffer(b).ty.dtype)
    }

    fn decide(&self, condition: &Expr) -> Option<bool> {
        let decided = affine::simplify(condition, &self.extents);
        decided.as_const().map(|holds| !holds.is_zero())
    }

    fn place(&self, buffer: BufId, indices: &[Expr]) -> Sum {
        self.flat(buffer, indices)
    }

    fn beyond(&self, place: &Sum, elements: i64) -> Sum {
        place.clone().plus(&Sum::constant(elements))
    }
}

fn is_whole(digit: &Digit) -> bool {
    matches!(digit.source, Source::Var(_)) && digit.divisor == 1 && digit.modulus.is_none()
}

fn depends_on_data(digit: &Digit) -> bool {
    matches!(&digit.source, Source::Opaque(e) if !e.loads().is_empty())
}

fn mentions(digit: &Digit, var: VarId) -> bool {
    digit.depends_on(&|v| v == var)
}
