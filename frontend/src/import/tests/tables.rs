//! Tables that are made at compile time.

use super::control::with;
use super::sequences::int;
use super::*;

/// The standard divides by one less than the size: 0 by 0 for one element.
#[test]
fn a_symmetric_window_of_one_element_is_not_a_number() {
    for (periodic, finite) in [(0, false), (1, true)] {
        let hann = with(node("HannWindow", &["n"], &["y"]), vec![int("periodic", periodic)]);
        let mut model = model(vec![], vec![hann], &["y"]);
        let n = TensorProto {
            data_type: DataType::Int64 as i32,
            int64_data: vec![1],
            name: "n".into(),
            ..Default::default()
        };
        model.graph.as_mut().unwrap().initializer.push(n);
        let graph = import(&model, &ImportOptions::default()).unwrap();
        let y = graph.const_of(graph.outputs[0].1).unwrap().to_f64_vec();
        assert!(y.len() == 1 && y[0].is_finite() == finite, "periodic {periodic}: {y:?}");
    }
}
