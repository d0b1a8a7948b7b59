//! Four dense layers of 1024 at batch 1: every weight is used once, so memory decides.

use super::layers::{dense, dense_weights, relu};
use crate::Builder;
use crate::proto::Attribute;

pub(super) fn mlp(b: &mut Builder) {
    let mut x = b.input("x", &[1, 1024]);
    for _ in 0..3 {
        let y = dense(b, &x, 1024, 1024, 2.0);
        x = relu(b, &y);
    }
    let (w, bias) = dense_weights(b, 1024, 1024, 1.0);
    b.result("y", &[1, 1024], "Gemm", &[&x, &w, &bias], &[("transB", Attribute::Int(1))]);
}
