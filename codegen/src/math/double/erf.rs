//! The error function, by rational approximations of four pieces.

use inkwell::FloatPredicate::OLT;

use super::exp::exp;
use crate::ir::{Ir, Reg};
use crate::math::polynomial::polynomial;

/// Numerator and denominator.
type Rational = (&'static [f64], &'static [f64]);

/// `erf(x) / x - 1` in `x^2`, below 0.84375.
const SMALL: Rational = (
    &[
        0.128_379_167_095_512_56,
        -0.325_042_107_247_001_5,
        -0.028_481_749_575_598_51,
        -0.005_770_270_296_489_442,
        -2.376_301_665_665_016_3e-5,
    ],
    &[
        1.0,
        0.397_917_223_959_155_35,
        0.065_022_249_988_767_3,
        0.005_081_306_281_875_766,
        0.000_132_494_738_004_321_64,
        -3.960_228_278_775_368e-6,
    ],
);
/// `erf(x) - ONE` in `|x| - 1`, below 1.25.
const MIDDLE: Rational = (
    &[
        -0.002_362_118_560_752_659_4,
        0.414_856_118_683_748_33,
        -0.372_207_876_035_701_3,
        0.318_346_619_901_161_75,
        -0.110_894_694_282_396_68,
        0.035_478_304_325_618_236,
        -0.002_166_375_594_868_791,
    ],
    &[
        1.0,
        0.106_420_880_400_844_23,
        0.540_397_917_702_171,
        0.071_828_654_414_196_27,
        0.126_171_219_808_761_64,
        0.013_637_083_912_029_05,
        0.011_984_499_846_799_107,
    ],
);
const ONE: f64 = 0.845_062_911_510_467_5;
/// `ln(|x| erfc(|x|)) + x^2 + 0.5625` in `1 / x^2`, below 1 / 0.35 and above.
const TAIL: [Rational; 2] = [
    (
        &[
            -0.009_864_944_034_847_148,
            -0.693_858_572_707_181_8,
            -10.558_626_225_323_291,
            -62.375_332_450_326_006,
            -162.396_669_462_573_47,
            -184.605_092_906_711_04,
            -81.287_435_506_306_6,
            -9.814_329_344_169_145,
        ],
        &[
            1.0,
            19.651_271_667_439_257,
            137.657_754_143_519_04,
            434.565_877_475_229_23,
            645.387_271_733_267_9,
            429.008_140_027_567_83,
            108.635_005_541_779_44,
            6.570_249_770_319_282,
            -0.060_424_415_214_858_1,
        ],
    ),
    (
        &[
            -0.009_864_942_924_700_1,
            -0.799_283_237_680_523,
            -17.757_954_917_754_752,
            -160.636_384_855_821_92,
            -637.566_443_368_389_6,
            -1_025.095_131_611_077_2,
            -483.519_191_608_651_4,
        ],
        &[
            1.0,
            30.338_060_743_482_46,
            325.792_512_996_573_9,
            1_536.729_586_084_437,
            3_199.858_219_508_595_5,
            2_553.050_406_433_164_4,
            474.528_541_206_955_37,
            -22.440_952_446_585_82,
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
