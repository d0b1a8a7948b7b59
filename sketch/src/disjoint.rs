//! Whether the iterations of a loop write different elements.
//!
//! An index that is a sum of digits determines each digit if the coefficients dominate: the one of
//! a digit is larger than all that the digits below it can add up to. The indices of a write that
//! determine together all digits of the loop's variable tell its iterations apart.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use ansc_graph::{BufId, Expr, VarId};

use crate::affine::{Digit, Extents, Source, Sum};
use crate::program::{Access, Block, For, ForKind, Program, Scope};
use crate::tree;

/// Sums that are taken apart at most.
const MOST_OPENED: usize = 32;

/// A block under `l` and a buffer of which it may write an element in two iterations of `l`, a loop
/// of `kind`. Buffers that are private to an iteration are left out, and shared ones where the
/// iterations are threads.
pub(crate) fn shared_write(program: &Program, l: &For, kind: ForKind) -> Option<(String, BufId)> {
    Writes::of(program).shared(l, kind)
}

/// The same for many loops of a program, of which the whole is looked at once.
pub(crate) struct Writes<'p> {
    program: &'p Program,
    extents: Extents,
    /// The loops that contain all accesses to each buffer, once somebody asked.
    common: OnceCell<BTreeMap<BufId, Vec<VarId>>>,
}

impl<'p> Writes<'p> {
    pub(crate) fn of(program: &'p Program) -> Writes<'p> {
        Writes { program, extents: Extents::of(program), common: OnceCell::new() }
    }

    /// As [`shared_write`].
    pub(crate) fn shared(&self, l: &For, kind: ForKind) -> Option<(String, BufId)> {
        let mut found = None;
        l.body.iter().for_each(|s| {
            s.visit_blocks(&mut |block| {
                let shared = |access: &&Access| {
                    !self.is_private(access.buffer, l.var, kind)
                        && !tells_apart(block, access, l.var, &self.extents)
                };
                if found.is_none()
                    && let Some(access) = block.body.writes().into_iter().find(shared)
                {
                    found = Some((block.name.clone(), access.buffer));
                }
            });
        });
        found
    }

    fn is_private(&self, buffer: BufId, l: VarId, kind: ForKind) -> bool {
        let is_inside = || {
            let common = self.common.get_or_init(|| tree::common_loops(self.program));
            common[&buffer].contains(&l)
        };
        match self.program.buffer(buffer).scope {
            Scope::Local | Scope::Fragment => is_inside(),
            // Which thread of a block writes what is settled when the program is lowered.
            Scope::Shared => kind.is_inside_block() || is_inside(),
            _ => false,
        }
    }
}

/// Whether the element that `access` names differs between any two iterations of the loop `var`.
fn tells_apart(block: &Block, access: &Access, var: VarId, extents: &Extents) -> bool {
    let indices: Vec<Expr> = access.indices.iter().map(|index| bound(block, index)).collect();
    determines(&indices, var, extents) || iterators_tell(block, access, var, extents)
}

/// The same by the values of iterators: a guard keeps them in their extents, beyond which loops
/// may run.
///
/// ```text
/// y[vp * 64 + v] with v: 64 = i * 6 + j, i in 0..11, j in 0..6     =>     vp, and so its loop
/// ```
fn iterators_tell(block: &Block, access: &Access, var: VarId, extents: &Extents) -> bool {
    let mut within = extents.clone();
    block.iters.iter().for_each(|iter| within.set(iter.var, iter.extent));
    let known = block.iters.iter().filter(|iter| determines(&access.indices, iter.var, &within));
    let bindings: Vec<Expr> = known.map(|iter| iter.binding.clone()).collect();
    !bindings.is_empty() && determines(&bindings, var, extents)
}

/// Whether the value of `var` follows from the values of all `indices`, which are over loops.
pub(crate) fn determines(indices: &[Expr], var: VarId, extents: &Extents) -> bool {
    let Some(extent) = extents.get(var) else { return false };
    let mut digits: Vec<Digit> = indices.iter().flat_map(|i| determined(i, extents)).collect();
    let mut opened: Vec<Expr> = vec![];
    loop {
        // A sum of which all digits are known is known itself; if some are, its remainder is.
        while let Some(sum) = known_sum(&digits, &opened, extents)
            .or_else(|| known_remainder(&digits, &opened))
            .filter(|_| opened.len() < MOST_OPENED)
        {
            digits.extend(determined(&sum, extents));
            opened.push(sum);
        }
        let known = known_below(&digits, &Source::Var(var));
        if i64::try_from(extent).is_ok_and(|extent| known >= extent) {
            return true;
        }
        let mut others = of_quotients(&digits, extents);
        if others.is_empty() {
            others = known_quotients(&digits, extents);
        }
        if others.is_empty() {
            return false;
        }
        digits.extend(others);
    }
}

/// The upper digits of sums that are known, as those of a quotient whose lower ones are.
///
/// ```text
/// (8 * a + b) // 6 and (4 * a + b // 2) % 3 are known   =>   (4 * a + b // 2) // 3 is known
/// ```
fn of_quotients(digits: &[Digit], extents: &Extents) -> Vec<Digit> {
    let mut found = vec![];
    for upper in digits {
        let Source::Opaque(e) = &upper.source else { continue };
        for lower in digits.iter().filter(|lower| lower.divisor == 1) {
            let Some(modulus) = lower.modulus.filter(|m| upper.divisor % m == 0) else { continue };
            let by = upper.divisor / modulus;
            let other = Digit { source: lower.source.clone(), divisor: modulus, ..upper.clone() };
            let is_new = lower.source != upper.source && by > 1 && !digits.contains(&other);
            let quotient = || Sum::of(&(**e).clone().floor_div(by), extents).to_expr();
            if is_new && !found.contains(&other) && quotient() == lower.source.to_expr() {
                found.push(other);
            }
        }
    }
    found
}

/// The upper digits of sums whose lower ones are known, and whose quotients are known otherwise.
///
/// ```text
/// (2 * b + c) % 196 and b // 98 are known, c < 2   =>   (2 * b + c) // 196 = b // 98 is known
/// ```
fn known_quotients(digits: &[Digit], extents: &Extents) -> Vec<Digit> {
    let mut found = vec![];
    for digit in digits {
        let Source::Opaque(e) = &digit.source else { continue };
        let known = known_below(digits, &digit.source);
        let upper = Digit { source: digit.source.clone(), divisor: known, modulus: None };
        let is_new = known > 1 && known < i64::MAX && !found.contains(&upper);
        if is_new && quotient(e, known, extents).terms.keys().all(|d| digits.contains(d)) {
            found.push(upper);
        }
    }
    found
}

/// `e // by` as one division, as in `(52 * a + b // 28) // 64 = (1456 * a + b) // 1792`.
fn quotient(e: &Expr, by: i64, extents: &Extents) -> Sum {
    let sum = Sum::of(e, extents);
    let is_divided = |digit: &Digit| digit.divisor > 1 && digit.modulus.is_none();
    let inner = sum.terms.iter().find(|(digit, c)| *c == 1 && is_divided(digit));
    let joined = inner.and_then(|(digit, _)| Some((digit, digit.divisor.checked_mul(by)?)));
    let Some((digit, all)) = joined else { return Sum::of(&e.clone().floor_div(by), extents) };
    let others = sum.clone().minus(&Sum::digit(digit.clone(), 1));
    let whole = others.times(digit.divisor).to_expr() + digit.source.to_expr();
    Sum::of(&whole.floor_div(all), extents)
}

/// A source of digits that is an expression, that `digits` determine, and that is not yet opened.
fn known_sum(digits: &[Digit], opened: &[Expr], extents: &Extents) -> Option<Expr> {
    digits.iter().find_map(|digit| {
        let Source::Opaque(e) = &digit.source else { return None };
        let known = known_below(digits, &digit.source);
        let all = Digit::whole(digit.source.clone()).interval(extents);
        let enough = known == i64::MAX || all.is_some_and(|(low, high)| low >= 0 && high < known);
        (enough && !opened.contains(e)).then(|| (**e).clone())
    })
}

/// The remainder of an expression that is a source of digits, of which the lowest are known: it may
/// be a simpler sum.
///
/// ```text
/// (2 * t + v) % 3 and (2 * t + v) // 3 % 2 are known   =>   (2 * t + v) % 6 = 2 * (t % 3) + v is known
/// ```
fn known_remainder(digits: &[Digit], opened: &[Expr]) -> Option<Expr> {
    digits.iter().find_map(|digit| {
        let Source::Opaque(e) = &digit.source else { return None };
        let known = known_below(digits, &digit.source);
        let remainder = (**e).clone().floor_mod(known);
        (known > 1 && known < i64::MAX && !opened.contains(&remainder)).then_some(remainder)
    })
}

/// The digits of `source` tell its value modulo this.
fn known_below(digits: &[Digit], source: &Source) -> i64 {
    let mut fields: Vec<(i64, i64)> = digits
        .iter()
        .filter(|d| d.source == *source)
        .filter_map(|d| {
            let end = d.modulus.map_or(Some(i64::MAX), |m| m.checked_mul(d.divisor))?;
            Some((d.divisor, end))
        })
        .collect();
    fields.sort_unstable();
    fields.into_iter().fold(1, |known, (begin, end)| {
        // Only what starts where the known part ends, in units of it, adds to it.
        if begin <= known && known % begin == 0 { known.max(end) } else { known }
    })
}

/// An expression over block iterators as one over loops.
pub(crate) fn bound(block: &Block, e: &Expr) -> Expr {
    e.substitute(&|v| block.iters.iter().find(|i| i.var == v).map(|i| i.binding.clone()))
}

/// The digits whose values follow from the value of `index`.
fn determined(index: &Expr, extents: &Extents) -> Vec<Digit> {
    let sum = Sum::of(index, extents);
    let mut terms: Vec<(Digit, i64)> = sum.terms.into_iter().collect();
    terms.sort_by_key(|(_, c)| c.unsigned_abs());
    let mut digits = vec![];
    let mut below: u64 = 0;
    for (digit, coefficient) in terms {
        let Some((low, high)) = digit.interval(extents) else { return vec![] };
        let weight = coefficient.unsigned_abs();
        if weight > below {
            digits.push(digit);
        } else {
            // It and the digits below it cannot be told apart; those above still can.
            digits.clear();
        }
        let Some(reach) = weight.checked_mul(high.abs_diff(low)) else { return vec![] };
        let Some(total) = below.checked_add(reach) else { return vec![] };
        below = total;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of a copy that threads share, of an axis of 3 and one of 2: no thread writes what
    /// another one does.
    #[test]
    fn remainders_of_known_digits_are_known() {
        let [o, t, v] = [0, 1, 2].map(VarId::new);
        let mut extents = Extents::default();
        [(o, 2), (t, 12), (v, 2)].into_iter().for_each(|(var, n)| extents.set(var, n));
        let [o_var, t_var, v_var] = [o, t, v].map(Expr::Var);
        let f = o_var * Expr::int(24) + t_var * Expr::int(2) + v_var;
        let digits =
            [f.clone().floor_div(6), f.clone().floor_div(3).floor_mod(2), f.clone().floor_mod(3)];
        for var in [o, t, v] {
            assert!(determines(&digits, var, &extents), "{var:?}");
        }
        // Without the lowest digit they are not told apart.
        assert!(!determines(&digits[..2], t, &extents));
    }

    /// Chunks of three axes that are walked as one: the lower digits are of other sums than the
    /// highest.
    #[test]
    fn digits_of_a_quotient_are_those_of_the_sum() {
        let [a, b, c] = [0, 1, 2].map(VarId::new);
        let mut extents = Extents::default();
        [(a, 28), (b, 1134), (c, 16)].into_iter().for_each(|(var, n)| extents.set(var, n));
        let [a_var, b_var, c_var] = [a, b, c].map(Expr::Var);
        let f = a_var * Expr::int(18144) + b_var * Expr::int(16) + c_var;
        let middle = f.clone().floor_div(63).floor_mod(63);
        let digits = [f.clone().floor_div(3969), middle, f.floor_mod(63)];
        for var in [a, b, c] {
            assert!(determines(&digits, var, &extents), "{var:?}");
            let without = [digits[0].clone(), digits[2].clone()];
            assert!(!determines(&without, var, &extents), "{var:?}");
        }
    }

    /// Chunks of vectors of three axes that are walked as one, whatever their lengths.
    #[test]
    fn quotients_that_are_known_otherwise_are_known() {
        let [a, b, c] = [0, 1, 2].map(VarId::new);
        for (extents, chunks) in [([80, 28, 28], 40), ([39, 64, 28], 48), ([2, 62, 28], 31)] {
            let [_, height, width] = extents.map(|n: i64| n);
            let vectors = (extents.iter().product::<i64>() / 8 / chunks) as usize;
            let mut extents = Extents::default();
            let loops = [(a, chunks as usize), (b, vectors), (c, 8)];
            loops.into_iter().for_each(|(var, n)| extents.set(var, n));
            let [a_var, b_var, c_var] = [a, b, c].map(Expr::Var);
            let f = a_var * Expr::index(8 * vectors) + b_var * Expr::int(8) + c_var;
            let middle = f.clone().floor_div(width).floor_mod(height);
            let digits = [f.clone().floor_div(width * height), middle, f.floor_mod(width)];
            for var in [a, b, c] {
                assert!(determines(&digits, var, &extents), "{var:?}");
            }
            assert!(!determines(&digits[..2], c, &extents));
            assert!(!determines(&digits[1..], b, &extents));
        }
    }
}
