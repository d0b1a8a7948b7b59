//! Products of 8-bit integers, four at a time, or two where a machine multiplies words and no
//! bytes; and products of `bf16`, two at a time.
//!
//! ```text
//! y[i, j] = sum{k: 512} i32(a[i, k]) * i32(b[k, j])              a: u8[64, 512], b: i8[512, 32]
//! =>
//! y[i, j] = sum{k: 128} dot4(quad of a[i, k * 4 ..], quads[k, j])  quads: i32[128, 32], made when compiling if b is constant
//! or
//! y[i, j] = sum{k: 256} dot2(pairs_of_a[i, k], pairs[k, j])    both: i32, two integers of 16 bits
//!
//! y[i, j] = sum{k: 512} f32(a[i, k]) * f32(b[k, j])            a, b: bf16
//! =>
//! y[i, j] = sum{k: 256} dot_bf16(pair of a[i, k * 2 ..], pairs[k, j])   pairs: i32, two bf16
//! ```
//!
//! Columns of groups go apart first (`groups`). A group of channels is a part of an axis, which
//! begins with an instruction's terms.
//!
//! With bytes, one factor has no sign and the other has, as [`BinOp::Dot4`] wants them; the import
//! of quantised operators sees to it. An axis of the sum is alone in one index of each factor: that
//! of a product of matrices, the channels of a convolution. If its extent does not divide by four,
//! or two, both factors are filled up with zeros: a constant while its quads are made, any other
//! factor in a stage of its own. A factor whose bytes lie side by side, and that no vector walks,
//! is read as it lies: code generation makes one load of the four. The other one becomes quads
//! first: four bytes of its axis as one integer, little end first, with as many bytes as before.
//! Pairs of words take twice as many, and both factors become them first: what multiplies them need
//! not take bytes apart. All results are those of the sum of the widened products, modulo 2^32.
//! Pairs of `bf16` are to those what quads are to bytes; their sums are rounded in another order.

use ansc_graph::arith::Linear;
use ansc_graph::{BinOp, BufId, Compute, Expr, Scalar, Stage, TensorType, VarId};
use ansc_runtime::DType;

use super::{Replacing, Rewritten, groups};
use crate::packed::in_turn;
use crate::task::Task;
use crate::usage::factors;

/// Bytes that one instruction takes from each factor.
pub(super) const QUAD: usize = 4;

/// Making quads takes about as many instructions as products with so many rows save.
const MIN_USES: usize = 4;
/// The same of pairs, which have to be read back as well.
const MIN_USES_OF_PAIRS: usize = 32;
/// Zeros among the terms, as a share of the others: channels of a picture are three.
const MOST_ZEROS: f64 = 0.34;
/// Rows from which on weights of twice the size do not matter: they wait for no memory.
const MIN_ROWS: usize = 16;

/// The terms that an instruction takes from each factor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Four bytes.
    Quads,
    /// Two words.
    Pairs,
    /// Two `bf16`.
    Halves,
}

impl Terms {
    fn count(self) -> usize {
        match self {
            Terms::Quads => QUAD,
            Terms::Pairs | Terms::Halves => 2,
        }
    }

    /// The types of both factors, and of what they are widened to and summed in.
    fn types(self) -> ([DType; 2], DType) {
        match self {
            Terms::Quads | Terms::Pairs => ([DType::U8, DType::I8], DType::I32),
            Terms::Halves => ([DType::BF16; 2], DType::F32),
        }
    }

    /// Whether the machine has an instruction for them, or does without.
    fn suit(self, task: &Task) -> bool {
        self != Terms::Halves || (task.gpu.is_none() && task.machine.units.bf16)
    }

    fn op(self) -> BinOp {
        match self {
            Terms::Quads => BinOp::Dot4,
            Terms::Pairs => BinOp::Dot2,
            Terms::Halves => BinOp::DotBf16,
        }
    }
}

/// The stage that is such a sum.
struct Sum {
    stage: usize,
    terms: Terms,
    /// The variable that runs over the terms of one instruction.
    var: VarId,
    /// The factor without a sign comes first.
    factors: [Factor; 2],
}

struct Factor {
    buffer: BufId,
    /// Along `axis` in instructions, along others in elements.
    at: Vec<Expr>,
    /// The axis of the buffer that the sum's variable indexes, and the terms on it.
    axis: usize,
    extent: usize,
    /// Whether nothing but the variable does.
    is_whole: bool,
}

/// None where no stage is such a sum. All that are become sums of what the instruction gives.
pub(super) fn rewrite(task: &Task, terms: Terms) -> Option<Rewritten> {
    terms.suit(task).then_some(())?;
    let Rewritten { task, prepared } = in_groups(task);
    let first = Sum::find(&task.compute, terms)?.rewrite(&task);
    let (mut task, mut prepared) = (first.task, in_turn(prepared, first.prepared));
    while let Some(sum) = Sum::find(&task.compute, terms) {
        let next = sum.rewrite(&task);
        prepared = in_turn(prepared, next.prepared);
        task = Task { compute: maps_of_inputs_first(&next.task.compute), ..next.task };
    }
    Some(Rewritten { task, prepared })
}

/// The task with columns of groups apart, if it has groups of many.
fn in_groups(task: &Task) -> Rewritten {
    groups::rewrite(task).unwrap_or_else(|| Rewritten::as_it_is(task))
}

/// Whether there is such a sum, and whatever is made into quads or pairs at run time is used often
/// enough afterwards.
pub(crate) fn pays(task: &Task, terms: Terms) -> bool {
    if !terms.suit(task) {
        return false;
    }
    let task = &in_groups(task).task;
    let pays = |sum: Sum| {
        let stage = &task.compute.stages[sum.stage];
        sum.factors.iter().all(|factor| {
            sum.zeros() == 0.0 && factor.is_read_as_it_lies(stage, sum.var)
                || task.sole_constant(factor.buffer).is_some()
                || factor.uses(stage) >= MIN_USES
        })
    };
    let mut sums = Sum::all(&task.compute, terms).peekable();
    sums.peek().is_some() && sums.all(pays)
}

/// Whether the machine multiplies pairs of words and no bytes, and there are rows and columns
/// enough for pairs.
pub(crate) fn pays_in_pairs(task: &Task) -> bool {
    let sum = Sum::find(&task.compute, Terms::Pairs).filter(|_| task.machine.units.pairs);
    sum.is_some_and(|sum| {
        let stage = &task.compute.stages[sum.stage];
        let [a, b] = &sum.factors;
        [(a, b), (b, a)].into_iter().any(|(read, weight)| {
            task.sole_constant(weight.buffer).is_some()
                && weight.uses(stage) >= MIN_ROWS
                && read.uses(stage) >= MIN_USES_OF_PAIRS
        })
    })
}

impl Sum {
    fn find(compute: &Compute, terms: Terms) -> Option<Sum> {
        Sum::all(compute, terms).next()
    }

    fn all(compute: &Compute, terms: Terms) -> impl Iterator<Item = Sum> {
        (0..compute.stages.len()).filter_map(move |stage| Sum::of(compute, stage, terms))
    }

    fn of(compute: &Compute, stage: usize, terms: Terms) -> Option<Sum> {
        let s = &compute.stages[stage];
        let [a, b] = factors(s)?;
        let (narrow, wide) = terms.types();
        if s.ty.dtype != wide {
            return None;
        }
        let read = |e, dtype| widened(compute, e, [dtype, wide]);
        let in_order = |a, b| Some((read(a, narrow[0])?, read(b, narrow[1])?));
        let (first, second) = in_order(a, b).or_else(|| in_order(b, a))?;
        let extents = s.extents();
        let factor = |(buffer, at): (BufId, &[Expr]), var: VarId| {
            let count = terms.count();
            let (axis, place) = place(at, var, count as i64)?;
            let extent = compute.buffer_type(buffer).shape[axis];
            let is_whole = place == Expr::Var(var);
            let fits = match is_whole {
                true => extent == extents[var.index()],
                false => [extent, extents[var.index()]].iter().all(|n| n.is_multiple_of(count)),
            };
            let mut at = at.to_vec();
            at[axis] = place;
            fits.then_some(Factor { buffer, at, axis, extent, is_whole })
        };
        let reduced = (s.ty.rank()..extents.len()).map(VarId::new);
        let sums = reduced.filter_map(|var| {
            let factors = [factor(first, var)?, factor(second, var)?];
            Some(Sum { stage, terms, var, factors })
        });
        let parts = |sum: &Sum| sum.factors.iter().filter(|factor| !factor.is_whole).count();
        let order =
            |a: &Sum, b: &Sum| a.zeros().total_cmp(&b.zeros()).then(parts(a).cmp(&parts(b)));
        let least = sums.min_by(order)?;
        (least.zeros() <= MOST_ZEROS).then_some(least)
    }

    /// Zeros that fill the last instruction up, as a share of the terms.
    fn zeros(&self) -> f64 {
        let extent = self.factors[0].extent;
        (extent.next_multiple_of(self.terms.count()) - extent) as f64 / extent as f64
    }

    fn rewrite(&self, task: &Task) -> Rewritten {
        let original = &task.compute.stages[self.stage];
        let mut compute = Replacing::new(&task.compute, self.stage);
        let mut prepared = vec![];
        let [a, b] = self.factors.each_ref().map(|factor| {
            if self.terms != Terms::Pairs && factor.is_read_as_it_lies(original, self.var) {
                let filled = factor.filled(self.terms, &task.compute);
                let buffer = filled.map_or(factor.buffer, |stage| compute.push(stage));
                let dtype = task.compute.buffer_type(factor.buffer).dtype;
                let term = |j| Expr::Load(buffer, factor.term(self.terms, &factor.at, j));
                return match self.terms {
                    Terms::Halves => halves(term),
                    _ => quad(|j| Expr::cast(dtype, DType::U8, term(j))),
                };
            }
            let quads = compute.laid_out(task, factor.buffer, &mut prepared, |from| {
                factor.rearranged(self.terms, &task.compute, from)
            });
            Expr::Load(quads, factor.at.clone())
        });
        let mut stage = original.clone();
        stage.body = Expr::binary(self.terms.op(), a, b);
        let reduce = stage.reduce.as_mut().expect("a sum");
        let extent = &mut reduce.extents[self.var.index() - original.ty.rank()];
        *extent = extent.div_ceil(self.terms.count());
        compute.push(stage);
        Rewritten { task: Task { compute: compute.done(), ..task.clone() }, prepared }
    }
}

impl Factor {
    /// Its bytes lie side by side, and the innermost axis of the result, which goes into vectors,
    /// is not among its own.
    fn is_read_as_it_lies(&self, stage: &Stage, var: VarId) -> bool {
        let last = stage.ty.rank().checked_sub(1).map(VarId::new);
        let walked = |e: &Expr| last.is_some_and(|last| e.vars().contains(&last));
        let is_last = self.axis + 1 == self.at.len() && mentions(&self.at[self.axis], var);
        is_last && !self.at.iter().any(walked)
    }

    /// How often each of its elements is multiplied.
    fn uses(&self, stage: &Stage) -> usize {
        let lacks = |axis: &usize| !self.at.iter().any(|e| e.vars().contains(&VarId::new(*axis)));
        (0..stage.ty.rank()).filter(lacks).map(|axis| stage.ty.shape[axis]).product()
    }

    /// All of its quads or pairs, read from `buffer`.
    fn rearranged(&self, terms: Terms, compute: &Compute, buffer: BufId) -> Stage {
        let TensorType { dtype, mut shape } = compute.buffer_type(self.buffer).clone();
        shape[self.axis] = self.extent.div_ceil(terms.count());
        let at: Vec<Expr> = (0..shape.len()).map(Expr::var).collect();
        let (name, body) = match terms {
            Terms::Quads => ("quads", self.quad(&at, buffer, dtype)),
            Terms::Pairs => ("pairs", self.pair(&at, buffer, dtype)),
            Terms::Halves => ("pairs", halves(|j| self.element(terms, &at, j, buffer, dtype))),
        };
        Stage::map(name, TensorType::new(DType::I32, shape), body)
    }

    /// Itself with as many terms as instructions take, if it has fewer:
    /// `filled[i, k] = select(k < 511, a[i, k], 0)`.
    fn filled(&self, terms: Terms, compute: &Compute) -> Option<Stage> {
        let ty = compute.buffer_type(self.buffer);
        let mut shape = ty.shape.clone();
        shape[self.axis] = self.extent.next_multiple_of(terms.count());
        let at: Vec<Expr> = (0..shape.len()).map(Expr::var).collect();
        let ty = TensorType::new(ty.dtype, shape);
        let is_short = self.extent < ty.shape[self.axis];
        is_short.then(|| Stage::map("filled", ty.clone(), self.or_zero(at, self.buffer, ty.dtype)))
    }

    /// The element of `buffer` at this place, or zero behind the last term.
    fn or_zero(&self, at: Vec<Expr>, buffer: BufId, dtype: DType) -> Expr {
        let is_term = at[self.axis].clone().lt(Expr::index(self.extent));
        Expr::select(is_term, Expr::Load(buffer, at), Expr::Const(Scalar::zero(dtype)))
    }

    /// Two bytes as words: `a[k * 2] & 65535 | a[k * 2 + 1] << 16`, where a byte without a sign
    /// needs no mask.
    fn pair(&self, at: &[Expr], buffer: BufId, dtype: DType) -> Expr {
        let word =
            |j| Expr::cast(dtype, DType::I32, self.element(Terms::Pairs, at, j, buffer, dtype));
        let low = match dtype {
            DType::U8 => word(0),
            _ => word(0).and(Expr::float(DType::I32, 65535.0)),
        };
        low.or(Expr::binary(BinOp::Shl, word(1), Expr::float(DType::I32, 16.0)))
    }

    /// The element that is the term `j` of the instruction at this place, if there is such a term.
    fn element(&self, terms: Terms, at: &[Expr], j: usize, buffer: BufId, dtype: DType) -> Expr {
        let term = self.term(terms, at, j);
        let last = (self.extent - 1) / terms.count() * terms.count();
        match last + j < self.extent {
            true => Expr::Load(buffer, term),
            false => self.or_zero(term, buffer, dtype),
        }
    }

    /// Where the term `j` of the instruction at this place is.
    fn term(&self, terms: Terms, at: &[Expr], j: usize) -> Vec<Expr> {
        let mut at = at.to_vec();
        let first = at[self.axis].clone() * Expr::index(terms.count());
        at[self.axis] = if j == 0 { first } else { first + Expr::index(j) };
        at
    }

    /// The four bytes from four times the index along the axis on: `a[k * 4] | a[k * 4 + 1] << 8 |
    /// ..`
    fn quad(&self, at: &[Expr], buffer: BufId, dtype: DType) -> Expr {
        quad(|j| Expr::cast(dtype, DType::U8, self.element(Terms::Quads, at, j, buffer, dtype)))
    }
}

/// The same stages, those first that are made of inputs alone: rows of a chain of products, slice
/// by slice, read pairs that are there as a whole.
fn maps_of_inputs_first(compute: &Compute) -> Compute {
    let mut first: Vec<usize> = vec![];
    for (stage, s) in compute.stages.iter().enumerate() {
        let is_first = |b: BufId| compute.stage_of(b).is_none_or(|s| first.contains(&s));
        if s.reduce.is_none() && s.body.loads().iter().all(|(b, _)| is_first(*b)) {
            first.push(stage);
        }
    }
    let others = (0..compute.stages.len()).filter(|stage| !first.contains(stage));
    let order: Vec<usize> = first.iter().copied().chain(others).collect();
    compute.in_order(&order)
}

/// Four bytes without a sign as one integer, little end first.
pub(super) fn quad(byte: impl Fn(usize) -> Expr) -> Expr {
    let placed = |j: usize| {
        let wide = Expr::cast(DType::U8, DType::I32, byte(j));
        let amount = Expr::float(DType::I32, (8 * j) as f64);
        if j == 0 { wide } else { Expr::binary(BinOp::Shl, wide, amount) }
    };
    (0..QUAD).map(placed).reduce(Expr::or).expect("four bytes")
}

/// Two `bf16` as a pair, the first one in the lower half.
fn halves(half: impl Fn(usize) -> Expr) -> Expr {
    let [a, b] = [0, 1].map(|j| Expr::cast(DType::BF16, DType::F32, half(j)));
    Expr::binary(BinOp::PairBf16, a, b)
}

/// The load of elements that are converted from one type to the other.
fn widened<'a>(
    compute: &Compute,
    e: &'a Expr,
    [from, to]: [DType; 2],
) -> Option<(BufId, &'a [Expr])> {
    let Expr::Cast(dtype, x) = e else { return None };
    let Expr::Load(buffer, at) = &**x else { return None };
    (*dtype == to && compute.buffer_type(*buffer).dtype == from).then_some((*buffer, at))
}

/// The only index that mentions the variable, and where it is in steps of so many elements, if it
/// walks them one by one from the beginning of a step on.
fn place(at: &[Expr], var: VarId, count: i64) -> Option<(usize, Expr)> {
    let mut mentioning = (0..at.len()).filter(|&i| mentions(&at[i], var));
    let axis = mentioning.next()?;
    if mentioning.next().is_some() {
        return None;
    }
    let (own, index) = (Expr::Var(var), Linear::from_expr(&at[axis]));
    let mut before = index.clone();
    before.add_scaled(&own, -1);
    let is_step = |(term, by): &(Expr, i64)| by % count == 0 && !mentions(term, var);
    let begins = before.constant() % count == 0 && before.terms().iter().all(is_step);
    let steps = |e: Expr, (term, by): &(Expr, i64)| e + term.clone() * Expr::int(by / count);
    let begin = before.terms().iter().fold(own, steps);
    let place = match before.constant() {
        0 => begin,
        constant => begin + Expr::int(constant / count),
    };
    (index.coefficient(&Expr::Var(var)) == 1 && begins).then_some((axis, place))
}

fn mentions(e: &Expr, var: VarId) -> bool {
    e.vars().contains(&var)
}
