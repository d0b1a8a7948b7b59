//! The error function, by rational approximations of four pieces.

use inkwell::FloatPredicate::OLT;

use super::exp::exp;
use crate::emit::ir::{Ir, Reg};
use crate::math::polynomial::polynomial;

/// Numerator and denominator.
type Rational = (&'static [f64], &'static [f64]);

/// `erf(x) / x - 1` in `x^2`, below 0.84375.
const SMALL: Rational = (
    &[
        1.283_791_670_955_125_585_61e-1,
        -3.250_421_072_470_014_993_7e-1,
        -2.848_174_957_559_851_047_66e-2,
        -5.770_270_296_489_441_591_57e-3,
        -2.376_301_665_665_016_260_84e-5,
    ],
    &[
        1.0,
        3.979_172_239_591_553_528_19e-1,
        6.502_224_998_876_729_444_85e-2,
        5.081_306_281_875_765_627_76e-3,
        1.324_947_380_043_216_445_26e-4,
        -3.960_228_278_775_368_123_2e-6,
    ],
);
/// `erf(x) - ONE` in `|x| - 1`, below 1.25.
const MIDDLE: Rational = (
    &[
        -2.362_118_560_752_659_440_77e-3,
        4.148_561_186_837_483_316_66e-1,
        -3.722_078_760_357_013_238_47e-1,
        3.183_466_199_011_617_536_74e-1,
        -1.108_946_942_823_966_774_76e-1,
        3.547_830_432_561_823_593_71e-2,
        -2.166_375_594_868_790_843e-3,
    ],
    &[
        1.0,
        1.064_208_804_008_442_282_86e-1,
        5.403_979_177_021_710_489_37e-1,
        7.182_865_441_419_626_628_68e-2,
        1.261_712_198_087_616_421_12e-1,
        1.363_708_391_202_905_073_62e-2,
        1.198_449_984_679_910_741_7e-2,
    ],
);
const ONE: f64 = 8.450_629_115_104_675_292_97e-1;
/// `ln(|x| erfc(|x|)) + x^2 + 0.5625` in `1 / x^2`, below 1 / 0.35 and above.
const TAIL: [Rational; 2] = [
    (
        &[
            -9.864_944_034_847_148_227_05e-3,
            -6.938_585_727_071_817_643_72e-1,
            -1.055_862_622_532_329_098_14e1,
            -6.237_533_245_032_600_603_96e1,
            -1.623_966_694_625_734_703_55e2,
            -1.846_050_929_067_110_359_94e2,
            -8.128_743_550_630_659_342_46e1,
            -9.814_329_344_169_145_485_92,
        ],
        &[
            1.0,
            1.965_127_166_743_925_712_92e1,
            1.376_577_541_435_190_426e2,
            4.345_658_774_752_292_288_21e2,
            6.453_872_717_332_678_803_36e2,
            4.290_081_400_275_678_333_86e2,
            1.086_350_055_417_794_351_34e2,
            6.570_249_770_319_281_701_35,
            -6.042_441_521_485_809_874_38e-2,
        ],
    ),
    (
        &[
            -9.864_942_924_700_099_285_97e-3,
            -7.992_832_376_805_230_065_74e-1,
            -1.775_795_491_775_475_198_89e1,
            -1.606_363_848_558_219_160_62e2,
            -6.375_664_433_683_896_277_22e2,
            -1.025_095_131_611_077_249_54e3,
            -4.835_191_916_086_513_970_19e2,
        ],
        &[
            1.0,
            3.033_806_074_348_245_829_24e1,
            3.257_925_129_965_739_188_26e2,
            1.536_729_586_084_436_959_94e3,
            3.199_858_219_508_595_539_08e3,
            2.553_050_406_433_164_425_83e3,
            4.745_285_412_069_553_672_15e2,
            -2.244_095_244_658_581_833_62e1,
        ],
    ),
];
/// From here on the result is one.
const LARGEST: f64 = 6.0;

pub(super) fn erf<'c>(ir: &Ir<'c>, x: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(x, v);
    let size = ir.intrinsic("llvm.fabs", &[x]);
    let signed = |v| ir.intrinsic("llvm.copysign", &[v, x]);
    let below = |limit| ir.fcmp(OLT, size, c(limit));
    let small = ir.fma(x, rational(ir, ir.mul(x, x), SMALL), x);
    let middle = signed(ir.add(rational(ir, ir.sub(size, c(1.0)), MIDDLE), c(ONE)));
    let tail = signed(tail(ir, size));
    // NaN is below nothing and takes the last branch.
    let large =
        ir.select(ir.fcmp(inkwell::FloatPredicate::OGE, size, c(LARGEST)), signed(c(1.0)), tail);
    ir.select(below(0.84375), small, ir.select(below(1.25), middle, large))
}

fn tail<'c>(ir: &Ir<'c>, size: Reg<'c>) -> Reg<'c> {
    let c = |v| ir.same(size, v);
    let square = ir.mul(size, size);
    let s = ir.fdiv(c(1.0), square);
    let near = ir.fcmp(OLT, size, c(1.0 / 0.35));
    let [first, second] = TAIL.map(|r| rational(ir, s, r));
    let power = ir.add(ir.select(near, first, second), c(-0.5625));
    ir.sub(c(1.0), ir.fdiv(exp(ir, ir.sub(power, square)), size))
}

fn rational<'c>(ir: &Ir<'c>, x: Reg<'c>, (above, below): Rational) -> Reg<'c> {
    ir.fdiv(polynomial(ir, x, above), polynomial(ir, x, below))
}
