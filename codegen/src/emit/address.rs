//! Addresses of elements.
//!
//! The flattened index of an access is an affine form. Its terms are added in the order of the
//! loops they depend on, outermost first, each partial sum in the head of its loop and shared by
//! all accesses with the same prefix; the constant becomes a displacement. What a loop's variable
//! is multiplied by for an address the loop counts up beside it, once for each factor; LLVM's own
//! pass for this takes longer than any other, and is off.
//!
//! ```text
//! for i { for j { .. a[i * 300 + j * 3 + 2] .. } }
//! =>
//! i' = 0, 1200 ..: p = a + i'; j' = 0, 12 ..: q = p + j'; load q[8 bytes further]
//! ```

use ansc_graph::{BufId, Expr, VarId};
use ansc_sketch::Scope;
use inkwell::values::{IntValue, PointerValue};

use crate::affine::{Affine, Term, affine};
use crate::emit::function::{Emitter, Frame, Place, Result};
use crate::ir::Reg;

impl<'c> Emitter<'c, '_> {
    /// The row-major position of the element, in elements. Each thread of a GPU has its own lane of
    /// a fragment, and no others.
    pub(crate) fn flatten(&self, buffer: BufId, indices: &[Expr]) -> Affine {
        let shape = &self.program.buffer(buffer).ty.shape;
        let mut flat = Affine::default();
        let lanes = self.lanes_of(buffer);
        for (axis, (index, &extent)) in indices.iter().zip(shape).enumerate() {
            if Some(axis) == lanes {
                continue;
            }
            flat = flat.times(extent as i64).plus(&affine(index, self));
        }
        let mut flat = flat.recombined(self);
        if flat.terms.keys().any(|term| term.division().is_some() && self.differs(term)) {
            // Each lane would divide for itself.
            flat = flat.with_digits_together(self);
        }
        match (self.expanded.get(&buffer), self.lane_var) {
            (Some(&copies), Some(lane)) => {
                flat.times(i64::from(copies)).plus(&affine(&Expr::Var(lane), self))
            }
            _ => flat,
        }
    }

    /// The axis over lanes of a fragment that is spread over the threads of a GPU.
    pub(super) fn lanes_of(&self, buffer: BufId) -> Option<usize> {
        let buffer = self.program.buffer(buffer);
        let is_spread = self.is_gpu() && buffer.scope == Scope::Fragment;
        buffer.ty.rank().checked_sub(2).filter(|_| is_spread)
    }

    /// The address of the element at `flat`, and its alignment.
    pub(crate) fn pointer(
        &mut self,
        buffer: BufId,
        flat: &Affine,
    ) -> Result<(PointerValue<'c>, u32)> {
        let place = self.place(buffer)?;
        let size = self.program.buffer(buffer).ty.dtype.size() as i64;
        let bytes = flat.clone().times(size);
        let base = self.prefix_pointer(buffer, place, &bytes.variable_part())?;
        let align = bytes.alignment(place.align);
        let at = self.ir.offset(base, self.ir.index(bytes.constant));
        Ok((at, u32::try_from(align).expect("at most 64")))
    }

    fn prefix_pointer(
        &mut self,
        buffer: BufId,
        place: Place<'c>,
        bytes: &Affine,
    ) -> Result<PointerValue<'c>> {
        let Some(depth) = self.depth(bytes) else {
            return Ok(place.base);
        };
        let key = (buffer, bytes.clone());
        if let Some(&known) = depth.and_then(|d| self.frames[d].pointers.get(&key)) {
            return Ok(known);
        }
        let (outer, here) = self.split(bytes, depth);
        let base = self.prefix_pointer(buffer, place, &outer)?;
        let delta = |e: &mut Self| -> Result<PointerValue<'c>> {
            let delta = e.terms(&here)?;
            Ok(e.ir.offset(base, delta))
        };
        let Some(frame) = depth else { return delta(self) };
        let pointer = self.in_head(frame, delta)?;
        self.frames[frame].pointers.insert(key, pointer);
        Ok(pointer)
    }

    /// The value of an affine form that is the same in all lanes.
    pub(crate) fn uniform_index(&mut self, form: &Affine) -> Result<IntValue<'c>> {
        let sum = self.prefix_sum(&form.variable_part())?;
        if form.constant == 0 {
            return Ok(sum);
        }
        let constant = self.ir.index(form.constant);
        Ok(self.ir.add(sum.into(), constant.into()).into_int_value())
    }

    fn prefix_sum(&mut self, form: &Affine) -> Result<IntValue<'c>> {
        let Some(depth) = self.depth(form) else { return Ok(self.ir.index(0)) };
        if let Some(&known) = depth.and_then(|d| self.frames[d].sums.get(form)) {
            return Ok(known);
        }
        let (outer, here) = self.split(form, depth);
        let base = self.prefix_sum(&outer)?;
        let sum = |e: &mut Self| -> Result<IntValue<'c>> {
            let delta = e.terms(&here)?;
            Ok(e.ir.add(base.into(), delta.into()).into_int_value())
        };
        let Some(frame) = depth else { return sum(self) };
        let value = self.in_head(frame, sum)?;
        self.frames[frame].sums.insert(form.clone(), value);
        Ok(value)
    }

    /// The innermost frame that the form depends on: `None` if it has no terms, `Some(None)` if it
    /// must be computed where it is used, since it loads.
    #[expect(clippy::option_option, reason = "no terms, terms here, terms in a loop's head")]
    fn depth(&self, form: &Affine) -> Option<Option<usize>> {
        form.terms.keys().map(|t| self.term_depth(t)).reduce(|a, b| Some(a?.max(b?)))
    }

    fn term_depth(&self, term: &Term) -> Option<usize> {
        match term {
            Term::Var(v) => self.var_depth(*v),
            Term::Opaque(e) if e.loads().is_empty() => {
                e.vars().into_iter().map(|v| self.var_depth(v)).try_fold(0, |m, d| Some(m.max(d?)))
            }
            Term::Opaque(..) => None,
        }
    }

    pub(crate) fn var_depth(&self, var: VarId) -> Option<usize> {
        self.frames.iter().position(|f| f.var.is_some_and(|(v, _)| v == var))
    }

    /// The terms further out than `depth`, and those at it.
    fn split(&self, form: &Affine, depth: Option<usize>) -> (Affine, Affine) {
        let (mut outer, mut here) = (Affine::default(), Affine::default());
        for (term, c) in form.terms.iter() {
            let side = if self.term_depth(term) == depth { &mut here } else { &mut outer };
            side.terms.add_copy(term, c);
        }
        (outer, here)
    }

    /// The sum of terms, computed where the builder is.
    fn terms(&mut self, form: &Affine) -> Result<IntValue<'c>> {
        let mut sum: Option<Reg<'c>> = None;
        for (term, c) in form.terms.iter() {
            let scaled = match term {
                Term::Var(v) => self.multiple(*v, c)?,
                Term::Opaque(e) => {
                    let value = self.opaque(e)?;
                    self.ir.mul(value, self.ir.index(c).into())
                }
            };
            sum = Some(match sum {
                None => scaled,
                Some(s) => self.ir.add(s, scaled),
            });
        }
        Ok(sum.map_or(self.ir.index(0), Reg::into_int_value))
    }

    /// A variable times a constant: what the addresses of the processor cannot multiply by, the
    /// loop adds up.
    fn multiple(&mut self, var: VarId, factor: i64) -> Result<Reg<'c>> {
        let value = self.variable(var)?;
        let frame = self.var_depth(var).expect("the variable has a value");
        let Frame { head, multiples, .. } = &mut self.frames[frame];
        match multiples {
            Some(multiples) if !matches!(factor, 1 | 2 | 4 | 8) => {
                let phi = multiples.entry(factor).or_insert_with(|| self.ir.phi_at_start(*head));
                Ok(phi.as_basic_value())
            }
            _ => Ok(self.ir.mul(value, self.ir.index(factor).into())),
        }
    }

    pub(crate) fn variable(&self, var: VarId) -> Result<Reg<'c>> {
        let frame = self.var_depth(var).ok_or_else(|| {
            format!("variable {} is used outside of its loop", self.program.vars[var.index()])
        })?;
        let (_, value) = self.frames[frame].var.expect("found by its variable");
        Ok(value.into())
    }
}
