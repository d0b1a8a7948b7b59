//! Sums of four products of bytes, and what such a sum is added to.
//!
//! ```text
//! acc + dot4(a, b), 16 lanes, avx512vnni   ->   vpdpbusd
//! .., 8 lanes, avx2, bytes of a below 128  ->   vpmaddubsw, vpmaddwd with ones
//! .., 8 lanes, avx2                        ->   two vpmaddwd: of the even bytes and of the odd ones, as 16 bits
//! .., 4 lanes, ARM's i8mm                   ->   usdot
//! .., 4 lanes, ARM's dotprod                ->   sdot of a - 128, and of 128
//! .., otherwise                            ->   four multiplications of 32 bits
//! ```
//!
//! All are exact. The instruction for bytes that older processors have (`vpmaddubsw`) saturates at
//! 16 bits, which two products do not reach if the bytes without a sign have seven bits: weights of
//! few bits do.

use inkwell::intrinsics::Intrinsic;
use inkwell::types::BasicTypeEnum;

use crate::ir::{Ir, Kind, Reg, lanes};
use crate::target::{Arch, Target};

/// The factors of [`dot4`].
pub(crate) struct Bytes<'c> {
    /// Without signs.
    pub(crate) a: Reg<'c>,
    /// Whether those are below 128.
    pub(crate) are_small: bool,
    /// With signs.
    pub(crate) b: Reg<'c>,
}

/// `acc + dot4(a, b)`; each may be a scalar where another is a vector.
pub(crate) fn dot4<'c>(ir: &Ir<'c>, target: &Target, acc: Reg<'c>, bytes: Bytes<'c>) -> Reg<'c> {
    let Bytes { a, are_small, b } = bytes;
    let all = lanes(acc).or(lanes(a)).or(lanes(b));
    let [acc, a, b] = [acc, a, b].map(|v| ir.splat(v, all));
    if let Some(name) = all.and_then(|n| bytes_instruction(target, n)) {
        return call(ir, name, &[acc, a, b]);
    }
    if let Some(sum) = on_neon(ir, target, acc, &Bytes { a, are_small, b }) {
        return sum;
    }
    let pairs = all.and_then(|n| pairs_instruction(target, n)).filter(|_| are_small);
    let sum = match (pairs, all.and_then(|n| words_instruction(target, n))) {
        (Some(pairs), Some(words)) => {
            let products = call(ir, pairs, &[a, b]);
            let ones = ir.int(16, 1, lanes(products));
            call(ir, words, &[products, ones])
        }
        (_, Some(name)) => halves(ir, name, a, b),
        (_, None) => products(ir, a, b),
    };
    ir.add(acc, sum)
}

/// Four products of bytes and their sum, added to each lane.
fn bytes_instruction(target: &Target, lanes: u32) -> Option<&'static str> {
    let narrow = target.has("avxvnni") || (target.has("avx512vnni") && target.has("avx512vl"));
    match lanes {
        16 if target.has("avx512vnni") => Some("llvm.x86.avx512.vpdpbusd.512"),
        8 if narrow => Some("llvm.x86.avx512.vpdpbusd.256"),
        4 if narrow => Some("llvm.x86.avx512.vpdpbusd.128"),
        _ => None,
    }
}

/// The sum by instructions of ARM, for four lanes. Those without `i8mm` multiply bytes with signs
/// alone: `a` is less by 128 then, and what that lacks is the same for all that `b` meets.
fn on_neon<'c>(
    ir: &Ir<'c>,
    target: &Target,
    acc: Reg<'c>,
    Bytes { a, are_small, b }: &Bytes<'c>,
) -> Option<Reg<'c>> {
    if target.arch != Arch::Aarch64 || lanes(acc) != Some(4) {
        return None;
    }
    let wide = ir.ty(Kind::Int(8), Some(16));
    let dot = |name, acc: Reg<'c>, factors: [Reg<'c>; 2]| {
        let [a, b] = factors.map(|v| ir.reinterpret(v, wide));
        ir.intrinsic_on(name, &[acc.get_type(), wide], &[acc, a, b])
    };
    let (signed, both) = ("llvm.aarch64.neon.sdot", "llvm.aarch64.neon.usdot");
    match () {
        () if target.has("i8mm") => dot(both, acc, [*a, *b]),
        () if !target.has("dotprod") => None,
        () if *are_small => dot(signed, acc, [*a, *b]),
        () => {
            let least = ir.int(32, 0x8080_8080, Some(4));
            let lacking = dot(signed, ir.same(acc, 0.0), [least, *b])?;
            Some(ir.sub(dot(signed, acc, [ir.xor(*a, least), *b])?, lacking))
        }
    }
}

/// Two products of 16 bits and their sum.
pub(super) fn words_instruction(target: &Target, lanes: u32) -> Option<&'static str> {
    match lanes {
        16 if target.has("avx512bw") => Some("llvm.x86.avx512.pmaddw.d.512"),
        8 if target.has("avx2") => Some("llvm.x86.avx2.pmadd.wd"),
        4 if target.arch == Arch::X86_64 => Some("llvm.x86.sse2.pmadd.wd"),
        _ => None,
    }
}

/// Two products of bytes and their sum, in 16 bits.
fn pairs_instruction(target: &Target, lanes: u32) -> Option<&'static str> {
    match lanes {
        16 if target.has("avx512bw") => Some("llvm.x86.avx512.pmaddubs.w.512"),
        8 if target.has("avx2") => Some("llvm.x86.avx2.pmadd.ub.sw"),
        4 if target.has("ssse3") => Some("llvm.x86.ssse3.pmadd.ub.sw.128"),
        _ => None,
    }
}

/// The products of even bytes, and those of odd ones.
fn halves<'c>(ir: &Ir<'c>, name: &str, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let n = lanes(a).expect("a vector") * 2;
    let words = ir.ty(Kind::Int(16), Some(n));
    let eight = ir.int(16, 8, Some(n));
    let (a, b) = (ir.reinterpret(a, words), ir.reinterpret(b, words));
    let even = [ir.and(a, ir.int(16, 255, Some(n))), ir.ashr(ir.shl(b, eight), eight)];
    let odd = [ir.lshr(a, eight), ir.ashr(b, eight)];
    ir.add(call(ir, name, &even), call(ir, name, &odd))
}

/// One byte after the other.
fn products<'c>(ir: &Ir<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
    let bits = |n: i64| ir.int(32, n, lanes(a));
    let product = |shift: i64| {
        let unsigned = ir.and(ir.lshr(a, bits(shift)), bits(255));
        let signed = ir.ashr(ir.shl(b, bits(24 - shift)), bits(24));
        ir.mul(unsigned, signed)
    };
    let all = [0, 8, 16, 24].map(product);
    ir.add(ir.add(all[0], all[1]), ir.add(all[2], all[3]))
}

/// Calls an intrinsic for one machine. What its lanes are differs between versions of LLVM; the
/// bits do not.
pub(crate) fn call<'c>(ir: &Ir<'c>, name: &str, args: &[Reg<'c>]) -> Reg<'c> {
    let intrinsic = Intrinsic::find(name).expect("the intrinsic exists in this LLVM");
    let function =
        intrinsic.get_declaration(&ir.module, &[]).expect("the intrinsic has one declaration");
    let types = function.get_type().get_param_types();
    let args: Vec<Reg<'c>> = args
        .iter()
        .zip(types)
        .map(|(&v, ty)| ir.reinterpret(v, BasicTypeEnum::try_from(ty).expect("a vector")))
        .collect();
    ir.intrinsic_on(name, &[], &args).expect("the intrinsic returns a value")
}
