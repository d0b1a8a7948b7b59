//! Products with weights of 8 bits or fewer, which stay as narrow as they are in memory.
//!
//! ```text
//! y[i, j] = sum{k: 4096} x[i, k] * (f32(code[j, k]) - 8) * scale[k // 32, j]       code: 4 bits
//! =>
//! digits[i * 3 + d, b, k]: i8   x[i, b * 32 + k] = (digits of 256) * step[i, b]
//! part[r, b, j]: i32            sum{g: 4} dot4(words[b, g, j] & 15.., ..) + dot4(words[b, g, j] >> 4 & 15.., ..)
//! z[r, j]                       sum{b: 128} f32(part[r, b, j] - 8 * sums[r, b]) * step[r // 3, b] * scale[b, j]
//! y[i, j]                       z[i * 3, j] + 256 * z[i * 3 + 1, j] + 65536 * z[i * 3 + 2, j]
//! words[b, g, j]: i32           eight codes; bits 0..4 of its bytes are k = 8g .. 8g + 3, bits 4..8 the next; made when compiling
//! ```
//!
//! A block of activations is a step times integers of 24 bits, so that each product and the sum of
//! a block are exact: the activations are rounded by 2^-24 of the largest in their block, as a sum
//! of floats rounds anyway. An infinity or a NaN makes the whole row NaN. The three digits are rows
//! of the product, for which a weight is unpacked once. Activations that are bytes with steps of
//! blocks are one digit.
//!
//! [`factor`] finds the weight, [`digits`] makes the rows. Zero points and scales that differ
//! between blocks are prepared in the order of the blocks; scales of a whole column are applied at
//! the end.

mod digits;
mod factor;

use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};
use ansc_runtime::DType;

use super::dots::{QUAD, quad};
use super::{Replacing, Rewritten};
use crate::inline::drop_stages;
use crate::packed::Packing;
use crate::task::Task;
use crate::usage::readers;
use digits::{Rows, is_of_bytes};
use factor::{Axes, Factor, Zero};

/// Terms of a block at most: more activations would share a step.
const MOST: usize = 128;
/// Products with fewer weights are left as they are.
const LEAST: usize = 1 << 12;

/// Rows that wait for weights to come from memory, whatever the products take.
const FEW_ROWS: usize = 8;

/// A sum of products with such a weight.
struct Product {
    stage: usize,
    /// The other factor.
    x: Expr,
    weight: Factor,
    /// Axes of the sum's result; the term's variable follows them.
    rank: usize,
    terms: usize,
    /// Terms of a block of activations, and how many there are.
    block: usize,
    blocks: usize,
}

/// None where no stage is such a sum.
pub(super) fn rewrite(task: &Task) -> Option<Rewritten> {
    let product = (0..task.compute.stages.len()).find_map(|stage| Product::of(task, stage))?;
    product.rewrite(task)
}

/// Whether it applies, and the products of digits take no longer than those of floats, or do not
/// matter.
pub(crate) fn pays(task: &Task) -> bool {
    let stages = 0..task.compute.stages.len();
    let product = stages.into_iter().find_map(|stage| Product::of(task, stage));
    product.is_some_and(|p| {
        let shape = &task.compute.stages[p.stage].ty.shape;
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let is_fast = task.machine.units.bytes || is_of_bytes(&p, &task.compute);
        (rows <= FEW_ROWS || is_fast) && p.rewrite(task).is_some()
    })
}

impl Product {
    fn of(task: &Task, stage: usize) -> Option<Product> {
        let s = &task.compute.stages[stage];
        let reduce = s.reduce.as_ref().filter(|r| r.combiner == Combiner::Sum)?;
        let (&[terms], Some(column)) = (&reduce.extents[..], s.ty.rank().checked_sub(1)) else {
            return None;
        };
        if s.ty.dtype != DType::F32 || s.ty.is_empty() || terms * s.ty.shape[column] < LEAST {
            return None;
        }
        let Expr::Binary(BinOp::Mul, a, b) = with_constants(task, &s.body) else { return None };
        let axes = Axes {
            compute: &task.compute,
            column: VarId::new(column),
            term: VarId::new(s.ty.rank()),
        };
        [(&a, &b), (&b, &a)].into_iter().find_map(|(x, weight)| {
            if !is_constant(task, weight) || x.vars().contains(&axes.column) {
                return None;
            }
            let weight = axes.factor(weight)?;
            let block = block_of(&weight, terms)?;
            let (x, rank, blocks) = ((**x).clone(), s.ty.rank(), terms.div_ceil(block));
            Some(Product { stage, x, weight, rank, terms, block, blocks })
        })
    }

    fn rewrite(&self, task: &Task) -> Option<Rewritten> {
        let original = &task.compute.stages[self.stage];
        let mut compute = Replacing::new(&task.compute, self.stage);
        let mut prepared = vec![];
        let rows = Rows::push(self, original, &mut compute);
        let weight = &self.weight;
        let words = self.prepare(task, self.words(original), weight.buffer, &mut prepared);
        let rank = rows.shape.len();
        let columns = *original.ty.shape.last().expect("an axis of columns");
        let r: Vec<Expr> = (0..rank).map(Expr::var).collect();
        // The block follows the column in the sum over blocks.
        let (column, block) = (Expr::var(rank), Expr::var(rank + 1));
        let mut scales =
            vec![Expr::Load(rows.step, [rows.origin(&r), vec![block.clone()]].concat())];
        let mut last = vec![];
        for scale in &weight.scales {
            match self.block(task, scale) {
                0 => last.push(scale.clone()),
                _ => scales.push(self.parameter(task, scale, [&block, &column], &mut prepared)?),
            }
        }
        let part = Expr::Load(
            compute.push(self.part(&rows, words, columns)),
            [&r[..], &[block.clone(), column.clone()]].concat(),
        );
        let in_block = [&r[..], std::slice::from_ref(&block)].concat();
        let value = match (&weight.zero, rows.sums) {
            (Zero::Known(_), None) => Expr::Cast(DType::F32, Box::new(part)),
            (Zero::Known(_), Some(start)) => {
                Expr::Cast(DType::F32, Box::new(part + Expr::Load(start, in_block)))
            }
            (Zero::Integer(zero, _) | Zero::Float(zero), sums) => {
                let zero = self.parameter(task, zero, [&block, &column], &mut prepared)?;
                let sums = Expr::Load(sums?, in_block);
                Expr::Cast(DType::F32, Box::new(part)) - zero * sums
            }
        };
        let value = scales.into_iter().fold(value, |value, scale| value * scale);
        let ty = TensorType::new(DType::F32, [&rows.shape[..], &[columns]].concat());
        let sum = Stage::reduction("blocks", ty, Combiner::Sum, vec![self.blocks], value);
        let sum = compute.push(sum);
        let value = last.into_iter().fold(rows.joined(sum), |value, scale| value * scale);
        compute.push(Stage::map(&original.name, original.ty.clone(), value));
        for packing in &prepared {
            compute.compute.inputs[packing.param] = packing.compute.output_types().remove(0);
        }
        let compute = without_unread(compute.done());
        let sole = |p: &Packing| readers(&compute, BufId::new(p.param)).len() == 1;
        let fits = prepared.iter().all(sole);
        fits.then(|| Rewritten { task: Task { compute, ..task.clone() }, prepared })
    }

    fn axes<'a>(&self, task: &'a Task) -> Axes<'a> {
        let (column, term) = (VarId::new(self.rank - 1), VarId::new(self.rank));
        Axes { compute: &task.compute, column, term }
    }

    fn block(&self, task: &Task, e: &Expr) -> usize {
        self.axes(task).block(e).unwrap_or(0)
    }

    /// Terms that each word holds.
    fn per_word(&self) -> usize {
        32 / self.weight.bits
    }

    /// All codes, in words: `words[b, g, j]`.
    fn words(&self, original: &Stage) -> Stage {
        let (rank, per_word) = (original.ty.rank(), self.per_word());
        let groups = self.block / per_word;
        let columns = original.ty.shape[rank - 1];
        let first = Expr::var(0) * Expr::index(self.block) + Expr::var(1) * Expr::index(per_word);
        let code = |at: usize| {
            let term = first.clone() + Expr::index(at);
            let code = self.at(&self.weight.code, &term, &Expr::var(2));
            let code = Expr::cast(DType::I32, DType::U8, code);
            let end = self.blocks * self.block;
            if end == self.terms {
                return code;
            }
            let none = Expr::float(DType::U8, 0.0);
            Expr::select(term.lt(Expr::index(self.terms)), code, none)
        };
        let field = |field: usize| {
            let quad = quad(|byte| code(field * QUAD + byte));
            let amount = Expr::float(DType::I32, (field * self.weight.bits) as f64);
            if field == 0 { quad } else { Expr::binary(BinOp::Shl, quad, amount) }
        };
        let body = (0..per_word / QUAD).map(field).reduce(Expr::or).expect("a field");
        let ty = TensorType::new(DType::I32, [self.blocks, groups, columns]);
        Stage::map("words", ty, body)
    }

    /// An expression of the weight for this term and column.
    fn at(&self, e: &Expr, term: &Expr, column: &Expr) -> Expr {
        e.substitute(&|v| match v.index() {
            v if v == self.rank => Some(term.clone()),
            v if v + 1 == self.rank => Some(column.clone()),
            _ => None,
        })
    }

    /// A zero point or scale of a block and column, from a constant in the order of blocks.
    fn parameter(
        &self,
        task: &Task,
        e: &Expr,
        [block, column]: [&Expr; 2],
        prepared: &mut Vec<Packing>,
    ) -> Option<Expr> {
        if e.loads().is_empty() {
            return Some(e.clone());
        }
        let columns = *task.compute.stages[self.stage].ty.shape.last()?;
        let axes = self.axes(task);
        let buffer = axes.only_load(e)?;
        let (stored, value) = stored(&axes, &self.weight.zero, e);
        let first = Expr::var(0) * Expr::index(self.block);
        let body = self.at(&value, &first, &Expr::var(1));
        let made = Stage::map("parameter", TensorType::new(stored, [self.blocks, columns]), body);
        let made = self.prepare(task, made, buffer, prepared);
        Some(Expr::cast(stored, DType::F32, Expr::Load(made, vec![block.clone(), column.clone()])))
    }

    /// The buffer of a constant that is prepared to be what the stage makes of it.
    fn prepare(
        &self,
        task: &Task,
        mut stage: Stage,
        buffer: BufId,
        prepared: &mut Vec<Packing>,
    ) -> BufId {
        stage.body = stage.body.rewrite(&mut |e| match e {
            Expr::Load(b, at) if *b == buffer => Some(Expr::Load(BufId::new(0), at.clone())),
            _ => None,
        });
        let param = buffer.index();
        let compute = Compute::single(vec![task.compute.inputs[param].clone()], stage);
        prepared.push(Packing { param, compute });
        buffer
    }

    /// The sums of blocks: `part[r.., b, j]`.
    fn part(&self, rows: &Rows, words: BufId, columns: usize) -> Stage {
        let rank = rows.shape.len();
        let (groups, bits) = (self.block / self.per_word(), self.weight.bits);
        let (block, column, group) = (Expr::var(rank), Expr::var(rank + 1), Expr::var(rank + 2));
        let r: Vec<Expr> = (0..=rank).map(Expr::var).collect();
        let word = Expr::Load(words, vec![block, group.clone(), column]);
        let term = |field: usize| {
            let first = group.clone() * Expr::index(self.per_word());
            let digits = quad(|byte| {
                let at = first.clone() + Expr::index(field * QUAD + byte);
                let digit = Expr::Load(rows.digits, [&r[..], &[at]].concat());
                Expr::cast(DType::I8, DType::U8, digit)
            });
            Expr::binary(BinOp::Dot4, unpacked(&word, field, bits), digits)
        };
        let body = (0..self.per_word() / QUAD).map(term).reduce(|a, b| a + b).expect("a field");
        let shape = [&rows.shape[..], &[self.blocks, columns]].concat();
        Stage::reduction(
            "part",
            TensorType::new(DType::I32, shape),
            Combiner::Sum,
            vec![groups],
            body,
        )
    }
}

/// The field of each byte of a word.
fn unpacked(word: &Expr, field: usize, bits: usize) -> Expr {
    if bits == 8 {
        return word.clone();
    }
    let amount = Expr::float(DType::I32, (field * bits) as f64);
    let shifted = match field {
        0 => word.clone(),
        _ => Expr::binary(BinOp::Shr, word.clone(), amount),
    };
    let mask = (0..4).map(|byte| ((1i64 << bits) - 1) << (8 * byte)).sum::<i64>();
    shifted.and(Expr::float(DType::I32, mask as f64))
}

/// Terms that share a step: as many as share zero point and scale, or a part of them. None if words
/// would lie in two blocks.
fn block_of(weight: &Factor, terms: usize) -> Option<usize> {
    let per_word = 32 / weight.bits;
    match weight.block {
        0 => Some(MOST.min(terms.next_multiple_of(per_word))),
        block => (per_word..=MOST.min(block))
            .rev()
            .find(|part| block.is_multiple_of(*part) && part.is_multiple_of(per_word)),
    }
}

/// The type in which a zero point or scale is stored, and its value as that.
fn stored(axes: &Axes<'_>, zero: &Zero, e: &Expr) -> (DType, Expr) {
    if let Zero::Integer(zero, (least, most)) = zero
        && zero == e
    {
        let dtype = match () {
            () if *least >= 0 && *most <= 255 => DType::U8,
            () if *least >= -128 && *most <= 127 => DType::I8,
            () => DType::I32,
        };
        return (dtype, Expr::cast(DType::I32, dtype, e.clone()));
    }
    match e {
        Expr::Cast(DType::F32, x) if axes.dtype(x).size() < DType::F32.size() => {
            (axes.dtype(x), (**x).clone())
        }
        _ => (DType::F32, e.clone()),
    }
}

/// The expression with the bodies of stages that only read constants in place of their loads.
fn with_constants(task: &Task, e: &Expr) -> Expr {
    e.rewrite(&mut |e| {
        let Expr::Load(buffer, at) = e else { return None };
        let stage = &task.compute.stages[task.compute.stage_of(*buffer)?];
        if stage.reduce.is_some() {
            return None;
        }
        let body = with_constants(task, &stage.body);
        let made = body.substitute(&|v| at.get(v.index()).cloned());
        is_constant(task, &body).then_some(made)
    })
}

fn is_constant(task: &Task, e: &Expr) -> bool {
    let loads = e.loads();
    let known = |b: BufId| task.constant.get(b.index()).copied().unwrap_or(false);
    !loads.is_empty() && loads.into_iter().all(|(b, _)| known(b))
}

/// The subgraph without stages that nothing reads.
fn without_unread(mut compute: Compute) -> Compute {
    loop {
        let is_kept = |stage: usize| {
            let read = !readers(&compute, compute.stage_buffer(stage)).is_empty();
            read || compute.outputs.contains(&stage)
        };
        let kept: Vec<bool> = (0..compute.stages.len()).map(is_kept).collect();
        if kept.iter().all(|kept| *kept) {
            return compute;
        }
        compute = drop_stages(&compute, &kept);
    }
}
