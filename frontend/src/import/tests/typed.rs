//! Operators on element types that they do not have.

use super::*;

fn of_type(mut input: ValueInfoProto, element: DataType) -> ValueInfoProto {
    let ty = input.r#type.as_mut().and_then(|t| t.value.as_mut()).unwrap();
    let type_proto::Value::TensorType(tensor) = ty;
    tensor.elem_type = element as i32;
    input
}

#[test]
fn what_is_not_defined_on_an_element_type_is_refused_by_name() {
    for (op, element, what) in [
        ("LpNormalization", DataType::Uint64, "sqrt is not defined for u64"),
        ("Sigmoid", DataType::Int32, "is not defined for i32"),
    ] {
        let x = of_type(info("x", &["2", "3"]), element);
        let model = model(vec![x], vec![node(op, &["x"], &["y"])], &["y"]);
        let problems = import(&model, &ImportOptions::default()).unwrap_err();
        assert!(problems[0].starts_with("node `y`") && problems[0].contains(what), "{problems:#?}");
    }
}
