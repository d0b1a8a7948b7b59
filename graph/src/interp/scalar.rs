//! Operations on single constants, by the kernels that the evaluator runs on lanes.

use ansc_runtime::DType;

use super::kernels::{accepts_binary, accepts_unary};
use super::lanes::{self, Lane, Lanes, Stored, with_stored};
use super::sink::constant;
use crate::expr::{BinOp, UnOp};
use crate::scalar::Scalar;

fn lanes_of(x: Scalar) -> Lanes {
    let mut lanes = Lanes::default();
    with_stored!(x.dtype(), S => <S as Stored>::Lane::fill(&mut lanes).push(constant::<S>(x)));
    lanes
}

fn scalar_of(dtype: DType, lanes: &Lanes) -> Scalar {
    with_stored!(dtype, S => {
        let value = <S as Stored>::Lane::of(lanes)[0];
        match value.is_nan() {
            true => Scalar::from_f64(dtype, f64::NAN),
            false if dtype.is_float() => Scalar::from_f64(dtype, value.to_f64()),
            false => Scalar::from_i64(dtype, value.to_i64()),
        }
    })
}

/// `None` where the type does not have the operation.
pub(crate) fn unary(op: UnOp, x: Scalar) -> Option<Scalar> {
    let dtype = x.dtype();
    let mut out = Lanes::default();
    accepts_unary(op, dtype).then(|| {
        lanes::unary(op, dtype, &lanes_of(x), &mut out);
        scalar_of(op.result(dtype), &out)
    })
}

/// `None` where the types differ or do not have the operation.
pub(crate) fn binary(op: BinOp, a: Scalar, b: Scalar) -> Option<Scalar> {
    let dtype = a.dtype();
    let mut out = Lanes::default();
    (dtype == b.dtype() && accepts_binary(op, dtype)).then(|| {
        lanes::binary(op, dtype, &lanes_of(a), &lanes_of(b), &mut out);
        scalar_of(op.result(dtype), &out)
    })
}

pub(crate) fn cast(to: DType, x: Scalar) -> Scalar {
    let mut out = Lanes::default();
    lanes::cast(x.dtype(), to, &lanes_of(x), &mut out);
    scalar_of(to, &out)
}
