//! Attributes of reductions.

use super::control::with;
use super::sequences::int;
use super::*;

/// ONNX's own shape inference keeps the axes where `keepdims` is 1, and for no other number.
#[test]
fn axes_are_kept_where_the_attribute_is_one() {
    for (keep, rank) in [(1, 2), (0, 0), (2, 0), (-1, 0), (i64::from(i32::MAX), 0)] {
        let reduce = with(node("ReduceMax", &["x"], &["y"]), vec![int("keepdims", keep)]);
        let graph = import(
            &model(vec![info("x", &["2", "3"])], vec![reduce], &["y"]),
            &ImportOptions::default(),
        )
        .unwrap();
        assert_eq!(graph.value(graph.outputs[0].1).ty.rank(), rank, "keepdims {keep}");
    }
}
