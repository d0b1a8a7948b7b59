//! Loads and stores of elements: one, or a vector of them.
//!
//! How the address depends on the lane decides the instruction: not at all (one element for all
//! lanes), by one (a vector), by a small constant (vectors and a shuffle), in another way (lane by
//! lane). Under a mask nothing is accessed for lanes that are not active.

use ansc_graph::BufId;
use ansc_sketch::Scope as BufferScope;
use inkwell::values::{BasicValue, InstructionValue, IntValue, MetadataValue, PointerValue};

use crate::affine::{Affine, Term, affine};
use crate::emit::function::{Emitter, Lanes, Result};
use crate::ir::{Reg, lanes};
use crate::ops;

/// Strides that are loaded as vectors and shuffled.
const MAX_SHUFFLED: i64 = 4;

/// How an index depends on the lane.
pub(crate) enum Pattern {
    /// `base + stride * lane`
    Strided { base: Affine, stride: i64 },
    /// One form for each lane.
    Irregular(Vec<Affine>),
}

/// Places of lanes that are constants apart, and no more than two vectors wide.
struct Near {
    /// From the place of the first lane on.
    places: Vec<i64>,
    low: i64,
    high: i64,
}

impl Near {
    fn of(each: &[Affine]) -> Option<Near> {
        let first = each.first()?.clone().times(-1);
        let apart = |form: &Affine| form.clone().plus(&first).as_constant();
        let places: Vec<i64> = each.iter().map(apart).collect::<Option<_>>()?;
        let (low, high) = (*places.iter().min()?, *places.iter().max()?);
        let near = Near { places, low, high };
        (near.span() > 1 && near.span() <= 2 * each.len() as i64).then_some(near)
    }

    /// Elements from the first to the last.
    fn span(&self) -> i64 {
        self.high + 1 - self.low
    }
}

impl<'c> Emitter<'c, '_> {
    /// Whether the form differs between lanes.
    pub(crate) fn varies(&self, form: &Affine) -> bool {
        form.terms.keys().any(|term| self.differs(term))
    }

    /// Whether the term differs between lanes.
    pub(crate) fn differs(&self, term: &Term) -> bool {
        self.lanes.is_some_and(|lanes| self.term_varies(term, lanes))
    }

    fn term_varies(&self, term: &Term, lanes: Lanes) -> bool {
        match term {
            Term::Var(v) => *v == lanes.var,
            Term::Opaque(e) => {
                let of_lane = |b: &BufId| self.expanded.contains_key(b);
                e.vars().contains(&lanes.var) || e.loads().iter().any(|(b, _)| of_lane(b))
            }
        }
    }

    pub(crate) fn pattern(&mut self, form: &Affine) -> Pattern {
        let Some(lanes) = self.lanes.filter(|_| self.varies(form)) else {
            return Pattern::Strided { base: form.clone(), stride: 0 };
        };
        let mut base = form.clone();
        let stride = base.terms.remove(&Term::Var(lanes.var)).unwrap_or(0);
        if !self.varies(&base) {
            return Pattern::Strided { base, stride };
        }
        let expr = form.to_expr();
        let each: Vec<Affine> =
            (0..lanes.count).map(|i| self.in_lane(i, |e| affine(&expr, e))).collect();
        match progression(&each) {
            Some(stride) => Pattern::Strided { base: each[0].clone(), stride },
            None => Pattern::Irregular(each),
        }
    }

    /// Runs `f` with the lane variable fixed.
    pub(crate) fn in_lane<T>(&mut self, lane: u32, f: impl FnOnce(&mut Self) -> T) -> T {
        let lanes = self.lanes.take().expect("inside of a vectorised loop");
        let hidden = self.bindings.insert(lanes.var, Affine::constant(i64::from(lane)));
        debug_assert!(hidden.is_none(), "lanes are not nested");
        let result = f(self);
        self.bindings.remove(&lanes.var);
        self.lanes = Some(lanes);
        result
    }

    /// The value of an affine form: a scalar if it is the same in all lanes.
    pub(crate) fn index(&mut self, form: &Affine) -> Result<Reg<'c>> {
        if !self.varies(form) {
            return Ok(self.uniform_index(form)?.into());
        }
        match self.pattern(form) {
            Pattern::Strided { base, stride } => {
                let base = self.uniform_index(&base)?.into();
                Ok(self.progression(base, stride))
            }
            Pattern::Irregular(each) => {
                let mut values = Vec::with_capacity(each.len());
                for (lane, form) in each.iter().enumerate() {
                    let value = self.in_lane(lane as u32, |e| e.uniform_index(form))?;
                    values.push(value.into());
                }
                Ok(self.ir.join_lanes(&values))
            }
        }
    }

    /// `base + stride * lane` in each lane; `base` is an integer of any width.
    pub(crate) fn progression(&self, base: Reg<'c>, stride: i64) -> Reg<'c> {
        let count = self.lanes.expect("inside of a vectorised loop").count;
        let crate::ir::Kind::Int(bits) = self.ir.kind(base) else {
            unreachable!("an index is an integer")
        };
        let steps = self.ir.mul(self.ir.iota(bits, count), self.ir.int(bits, stride, Some(count)));
        self.ir.add(self.ir.splat(base, Some(count)), steps)
    }

    /// Loads the element at `flat` for each active lane.
    pub(crate) fn load(&mut self, buffer: BufId, flat: &Affine) -> Result<Reg<'c>> {
        let ty = &self.program.buffer(buffer).ty;
        let dtype = ty.dtype;
        if ty.is_empty() {
            // Nothing can be loaded from it, so this code does not run.
            return Ok(ops::constant(&self.ir, ansc_graph::Scalar::zero(dtype), None));
        }
        if let Some(known) = self.loaded.iter().find(|l| (l.buffer, &l.flat) == (buffer, flat)) {
            return Ok(ops::from_stored(&self.ir, self.target, dtype, known.raw));
        }
        let pattern = self.pattern(flat);
        if let Some(value) = self.load_shared(buffer, &pattern)? {
            return Ok(value);
        }
        let raw = match pattern {
            Pattern::Strided { base, stride: 0 } => self.load_one(buffer, &base)?,
            Pattern::Strided { base, stride: 1 } => self.load_vector(buffer, &base, self.mask)?,
            Pattern::Strided { base, stride: -1 } if self.mask.is_none() => {
                self.load_reversed(buffer, base)?
            }
            Pattern::Strided { base, stride }
                if stride.abs() <= MAX_SHUFFLED && self.mask.is_none() && self.count() > 2 =>
            {
                self.load_shuffled(buffer, base, stride)?
            }
            Pattern::Strided { base, stride } => {
                let each: Vec<Affine> = (0..i64::from(self.count()))
                    .map(|i| base.clone().plus(&Affine::constant(i * stride)))
                    .collect();
                self.load_lanes(buffer, &each)?
            }
            Pattern::Irregular(each) => match Near::of(&each).filter(|_| self.mask.is_none()) {
                Some(near) => self.load_near(buffer, &each[0], &near)?,
                None => self.load_lanes(buffer, &each)?,
            },
        };
        Ok(ops::from_stored(&self.ir, self.target, dtype, raw))
    }

    fn count(&self) -> u32 {
        self.lanes.map_or(1, |l| l.count)
    }

    /// One element for all lanes.
    fn load_one(&mut self, buffer: BufId, flat: &Affine) -> Result<Reg<'c>> {
        let kind = ops::stored(self.program.buffer(buffer).ty.dtype);
        let (at, align) = self.pointer(buffer, flat)?;
        let at = match self.mask {
            Some(mask) if !self.within(buffer, flat) => {
                let any = self.ir.any(mask);
                self.safe(buffer, any, at)?
            }
            _ => at,
        };
        let raw = self.ir.load(self.ir.ty(kind, None), at, align);
        self.describe_access(buffer, raw.as_instruction_value())?;
        Ok(raw)
    }

    /// The pointer, or the buffer's beginning if `condition` does not hold: loading from there is
    /// harmless.
    fn safe(
        &mut self,
        buffer: BufId,
        condition: Reg<'c>,
        at: PointerValue<'c>,
    ) -> Result<PointerValue<'c>> {
        let base = self.place(buffer)?.base;
        Ok(self.ir.select(condition, at.into(), base.into()).into_pointer_value())
    }

    /// Whether the ranges of variables alone keep the position inside of the buffer.
    fn within(&self, buffer: BufId, flat: &Affine) -> bool {
        let len = self.program.buffer(buffer).ty.len() as i64;
        flat.bounds(self).is_some_and(|(low, high)| low >= 0 && high < len)
    }

    pub(super) fn load_vector(
        &mut self,
        buffer: BufId,
        flat: &Affine,
        mask: Option<Reg<'c>>,
    ) -> Result<Reg<'c>> {
        let kind = ops::stored(self.program.buffer(buffer).ty.dtype);
        let ty = self.ir.ty(kind, Some(self.count()));
        let (at, align) = self.pointer(buffer, flat)?;
        let raw = match mask {
            None => self.ir.load(ty, at, align),
            Some(mask) => self.ir.masked_load(ty, at, align, mask),
        };
        self.describe_access(buffer, raw.as_instruction_value())?;
        Ok(raw)
    }

    fn load_reversed(&mut self, buffer: BufId, base: Affine) -> Result<Reg<'c>> {
        let count = self.count();
        let first = base.plus(&Affine::constant(1 - i64::from(count)));
        let forward = self.load_vector(buffer, &first, None)?;
        let mask: Vec<u32> = (0..count).rev().collect();
        Ok(self.ir.shuffle(forward, forward, &mask))
    }

    /// Lanes that are `stride` apart, from vectors that begin at the first element and end at the
    /// last.
    fn load_shuffled(&mut self, buffer: BufId, base: Affine, stride: i64) -> Result<Reg<'c>> {
        let count = i64::from(self.count());
        let size = stride.abs();
        let (low, span) = (stride.min(0) * (count - 1), size * (count - 1) + 1);
        let pieces = (span as u64).div_ceil(count as u64) as i64;
        let starts: Vec<i64> = (0..pieces).map(|p| (p * count).min(span - count)).collect();
        let mut loaded: Option<Reg<'c>> = None;
        let mut from = Vec::with_capacity(count as usize);
        for lane in 0..count {
            let at = if stride > 0 { lane * size } else { (count - 1 - lane) * size };
            from.push((at / count).min(pieces - 1));
        }
        for (piece, &start) in starts.iter().enumerate() {
            let first = base.clone().plus(&Affine::constant(low + start));
            let vector = self.load_vector(buffer, &first, None)?;
            let mask: Vec<u32> = (0..count)
                .map(|lane| {
                    let at = if stride > 0 { lane * size } else { (count - 1 - lane) * size };
                    match from[lane as usize] == piece as i64 {
                        true => (count + at - start) as u32,
                        false => lane as u32,
                    }
                })
                .collect();
            loaded = Some(self.ir.shuffle(loaded.unwrap_or(vector), vector, &mask));
        }
        Ok(loaded.expect("at least one vector"))
    }

    /// Lanes that lie near one another in any order, as `k // 4 * 4`: from the vector that begins
    /// at the first of them, and that which ends at the last.
    fn load_near(&mut self, buffer: BufId, base: &Affine, near: &Near) -> Result<Reg<'c>> {
        let kind = ops::stored(self.program.buffer(buffer).ty.dtype);
        let width = 1 << near.span().ilog2();
        let (first, second) = (near.low, near.high + 1 - width);
        let piece = |e: &mut Self, start: i64| -> Result<Reg<'c>> {
            let flat = base.clone().plus(&Affine::constant(start));
            let (at, align) = e.pointer(buffer, &flat)?;
            let raw = e.ir.load(e.ir.ty(kind, Some(width as u32)), at, align);
            e.describe_access(buffer, raw.as_instruction_value())?;
            Ok(raw)
        };
        let low = piece(self, first)?;
        let high = if second == first { low } else { piece(self, second)? };
        let of = |at: &i64| if at - first < width { at - first } else { width + at - second };
        let mask: Vec<u32> = near.places.iter().map(|at| of(at) as u32).collect();
        Ok(self.ir.shuffle(low, high, &mask))
    }

    /// Lanes of one whole vector, in any order: its place is the same for all that choose other
    /// lanes of it, as the terms of a group of channels do, which load and convert it once.
    ///
    /// ```text
    /// x[16 * v + lane // 8 * 8 + 3]   ->   lanes 3, 3, .., 11, 11, .. of x[16 * v ..]
    /// ```
    fn load_shared(&mut self, buffer: BufId, pattern: &Pattern) -> Result<Option<Reg<'c>>> {
        let Pattern::Irregular(each) = pattern else { return Ok(None) };
        let Some(near) = Near::of(each).filter(|_| self.mask.is_none()) else { return Ok(None) };
        let (count, ty) = (i64::from(self.count()), &self.program.buffer(buffer).ty);
        let row = ty.shape.last().map_or(1, |&n| n as i64);
        let begins = each[0].terms.iter().all(|(_, by)| by % count == 0);
        let skipped = each[0].constant.rem_euclid(count);
        if !begins || row % count != 0 || skipped + near.low < 0 || skipped + near.high >= count {
            return Ok(None);
        }
        let dtype = ty.dtype;
        let first = each[0].clone().plus(&Affine::constant(-skipped));
        let raw = self.load_vector(buffer, &first, None)?;
        let all = ops::from_stored(&self.ir, self.target, dtype, raw);
        let lanes: Vec<u32> = near.places.iter().map(|at| (skipped + at) as u32).collect();
        Ok(Some(self.ir.shuffle(all, all, &lanes)))
    }

    fn load_lanes(&mut self, buffer: BufId, each: &[Affine]) -> Result<Reg<'c>> {
        let kind = ops::stored(self.program.buffer(buffer).ty.dtype);
        let mask = self.mask.take();
        let mut values = Vec::with_capacity(each.len());
        for (lane, flat) in each.iter().enumerate() {
            let lane = lane as u32;
            let (mut at, mut align) = self.in_lane(lane, |e| e.pointer(buffer, flat))?;
            if let Some(mask) = mask.filter(|_| !self.within(buffer, flat)) {
                at = self.safe(buffer, self.ir.lane(mask, lane), at)?;
                align = kind.bytes();
            }
            let raw = self.ir.load(self.ir.ty(kind, None), at, align);
            self.describe_access(buffer, raw.as_instruction_value())?;
            values.push(raw);
        }
        self.mask = mask;
        Ok(self.ir.join_lanes(&values))
    }

    /// Stores a value of the buffer's element type for each active lane.
    pub(crate) fn store(&mut self, buffer: BufId, flat: &Affine, value: Reg<'c>) -> Result<()> {
        let dtype = self.program.buffer(buffer).ty.dtype;
        let raw = ops::to_stored(&self.ir, self.target, dtype, value);
        if self.keeps(buffer, raw) {
            return Ok(());
        }
        let each = match (self.pattern(flat), self.lanes) {
            (Pattern::Strided { base, stride: 0 }, _) if lanes(raw).is_none() => {
                return self.store_one(buffer, &base, raw);
            }
            (Pattern::Strided { base, stride: 1 }, Some(_)) => {
                return self.store_vector(buffer, &base, raw);
            }
            (Pattern::Strided { base, stride }, _) => (0..i64::from(self.count()))
                .map(|i| base.clone().plus(&Affine::constant(i * stride)))
                .collect(),
            (Pattern::Irregular(each), _) => each,
        };
        let mask = self.mask.take();
        for (lane, flat) in each.iter().enumerate() {
            let lane = lane as u32;
            let value = self.ir.lane(raw, lane);
            let store = |e: &mut Self| e.in_lane(lane, |e| e.store_one(buffer, flat, value));
            match mask {
                None => store(self)?,
                Some(mask) => self.when(self.ir.lane(mask, lane), store)?,
            }
        }
        self.mask = mask;
        Ok(())
    }

    fn store_one(&mut self, buffer: BufId, flat: &Affine, raw: Reg<'c>) -> Result<()> {
        let (at, align) = self.pointer(buffer, flat)?;
        if let Some(mask) = self.mask {
            let any = self.ir.any(mask);
            return self.when(any, |e| {
                let store = e.ir.store(raw, at, align);
                e.describe_access(buffer, Some(store))
            });
        }
        self.store_at(buffer, flat, raw)
    }

    /// Stores an element or vector of any width, whatever the lanes are.
    pub(super) fn store_at(&mut self, buffer: BufId, flat: &Affine, raw: Reg<'c>) -> Result<()> {
        if self.stream(buffer, flat, raw)? {
            return Ok(());
        }
        let (at, align) = self.pointer(buffer, flat)?;
        let store = self.ir.store(raw, at, align);
        self.describe_access(buffer, Some(store))
    }

    fn store_vector(&mut self, buffer: BufId, flat: &Affine, raw: Reg<'c>) -> Result<()> {
        let raw = self.ir.splat(raw, Some(self.count()));
        let Some(mask) = self.mask else { return self.store_at(buffer, flat, raw) };
        let (at, align) = self.pointer(buffer, flat)?;
        let store = self.ir.masked_store(raw, at, align, mask);
        self.describe_access(buffer, Some(store))
    }

    /// Tells LLVM which buffer is accessed, and what does not change.
    pub(super) fn describe_access(
        &mut self,
        buffer: BufId,
        access: Option<InstructionValue<'c>>,
    ) -> Result<()> {
        let place = self.place(buffer)?;
        let Some(access) = access else { return Ok(()) };
        let marks = &self.ir.marks;
        let set = |kind: u32, node: MetadataValue<'c>| {
            access.set_metadata(node, kind).expect("a metadata node");
        };
        set(marks.alias_scope, place.scope);
        set(marks.noalias, place.noalias);
        let is_load = access.get_opcode() == inkwell::values::InstructionOpcode::Load;
        if is_load && self.is_constant(buffer) {
            set(marks.invariant_load, marks.nothing);
            if !self.is_gpu() {
                set(marks.tbaa, marks.constant);
            }
        }
        Ok(())
    }

    /// Whether nothing changes the buffer while the function runs. GPUs have a cache for what is
    /// constant; whether to read more than inputs through it was not measured.
    fn is_constant(&self, buffer: BufId) -> bool {
        match self.program.buffer(buffer).scope {
            BufferScope::Input => true,
            _ => !self.is_gpu() && self.is_argument(buffer) && !self.written.contains(&buffer),
        }
    }

    /// A uniform index as an integer of 32 bits.
    pub(crate) fn narrow(&self, index: IntValue<'c>) -> Reg<'c> {
        self.ir.resize(index.into(), 32, true)
    }
}

/// The step, if the forms are an arithmetic progression.
fn progression(each: &[Affine]) -> Option<i64> {
    let [first, second, ..] = each else { return None };
    let step = second.constant.wrapping_sub(first.constant);
    let follows = |(i, form): (usize, &Affine)| {
        form.terms == first.terms
            && form.constant == first.constant.wrapping_add(step.wrapping_mul(i as i64))
    };
    each.iter().enumerate().all(follows).then_some(step)
}
