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
    let cases: [(&str, DataType, &[&str], &str); 2] = [
        ("LpNormalization", DataType::Uint64, &["x"], "sqrt is not defined for u64"),
        ("Gemm", DataType::Int8, &["x", "x", "x"], "operands of add are i32 and i8"),
    ];
    for (op, element, inputs, what) in cases {
        let x = of_type(info("x", &["2", "2"]), element);
        let model = model(vec![x], vec![node(op, inputs, &["y"])], &["y"]);
        let problems = import(&model, &ImportOptions::default()).unwrap_err();
        assert!(problems[0].starts_with("node `y`") && problems[0].contains(what), "{problems:#?}");
    }
}
