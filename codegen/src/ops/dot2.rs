//! Sums of two products of 16 bits, and what such a sum is added to.
//!
//! ```text
//! acc + dot2(a, b), 8 lanes, avx2   ->   vpmaddwd, vpaddd
//! .., otherwise                     ->   two multiplications of 32 bits
//! ```

use super::dot4::{call, words_instruction};
use crate::ir::{Ir, Reg, lanes};
use crate::target::Target;

/// `acc + dot2(a, b)`; each may be a scalar where another is a vector.
pub(crate) fn dot2<'c>(
    ir: &Ir<'c>,
    target: &Target,
    acc: Reg<'c>,
    [a, b]: [Reg<'c>; 2],
) -> Reg<'c> {
    let all = lanes(acc).or(lanes(a)).or(lanes(b));
    let [acc, a, b] = [acc, a, b].map(|v| ir.splat(v, all));
    let sum = match all.and_then(|n| words_instruction(target, n)) {
        Some(name) => ir.reinterpret(call(ir, name, &[a, b]), acc.get_type()),
        None => products(ir, a, b),
    };
    ir.add(acc, sum)
}

/// One half after the other.
fn products<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let sixteen = ir.int(32, 16, lanes(a));
    let low = |v| ir.ashr(ir.shl(v, sixteen), sixteen);
    let high = |v| ir.ashr(v, sixteen);
    ir.add(ir.mul(low(a), low(b)), ir.mul(high(a), high(b)))
}
