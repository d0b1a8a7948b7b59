//! Parts of models, by the names of tensors.

use super::*;

fn cut(inputs: &[&str], outputs: &[&str]) -> ImportOptions {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    ImportOptions { inputs: names(inputs), outputs: names(outputs), ..ImportOptions::default() }
}

/// y = -e^|x| + z, and beside it what nothing can import.
fn chain() -> ModelProto {
    let nodes = vec![
        node("Abs", &["x"], &["absolute"]),
        node("Exp", &["absolute"], &["power"]),
        node("Identity", &["power"], &["same"]),
        node("Neg", &["same"], &["negative"]),
        node("Add", &["negative", "z"], &["y"]),
        node("NoSuchOp", &["y"], &["w"]),
    ];
    model(vec![info("x", &["2"]), info("z", &["2"])], nodes, &["y", "w"])
}

fn inputs(graph: &Graph) -> Vec<&str> {
    graph.inputs().iter().map(|&input| graph.node(input).name.as_str()).collect()
}

#[test]
fn a_part_computes_what_the_whole_does() {
    let model = chain();
    let x = Tensor::from_slice(&[2], &[-1f32, 0.5]);
    let z = Tensor::from_slice(&[2], &[3f32, 4.0]);
    let whole = import(&model, &cut(&[], &["y"])).unwrap();
    assert_eq!(inputs(&whole), ["x", "z"]);
    let expected = run(&whole, &[x.clone(), z.clone()]);
    for name in ["absolute", "power", "same", "negative"] {
        let first = import(&model, &cut(&[], &[name])).unwrap();
        assert_eq!((inputs(&first), first.outputs[0].0.as_str()), (vec!["x"], name));
        let second = import(&model, &cut(&[name, "z"], &["y"])).unwrap();
        let order = inputs(&second);
        let middle = run(&first, std::slice::from_ref(&x)).remove(0);
        let given = order.iter().map(|n| if *n == "z" { z.clone() } else { middle.clone() });
        let given: Vec<Tensor> = given.collect();
        assert_eq!(order.len(), 2, "{order:?}");
        assert_eq!(run(&second, &given), expected, "{name}");
        // Nothing of the first half is left.
        assert!(second.len() < whole.len() || name == "absolute", "{name}");
    }
}

#[test]
fn names_that_cannot_be_cut_at_are_told() {
    let problem = |inputs: &[&str], outputs: &[&str]| {
        let mut problems = import(&chain(), &cut(inputs, outputs)).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0)
    };
    let near = problem(&["powr"], &["y"]);
    assert!(near.contains("no tensor `powr`") && near.contains("are `power`"), "{near}");
    assert!(problem(&[], &["something else"]).contains("viewer"));
    let more = problem(&["negative"], &["y"]);
    assert!(more.contains("depend on the input `z` as well"), "{more}");
    let with_shape = |shape: &[usize]| {
        let shapes = [("absolute".to_string(), shape.to_vec())].into();
        import(&chain(), &ImportOptions { shapes, ..cut(&["absolute", "z"], &["y"]) })
    };
    assert!(with_shape(&[2]).is_ok());
    let other = with_shape(&[3]).unwrap_err().remove(0);
    assert!(other.contains("`absolute` has the shape [2] in this model, not [3]"), "{other}");
    let idle = problem(&["absolute", "z"], &["power"]);
    assert!(idle.contains("no output depends on the input `z`"), "{idle}");
}

#[test]
fn constants_and_the_insides_of_bodies_are_no_inputs() {
    let branch = |name: &str| {
        let nodes = vec![node("Neg", &["x"], &[name])];
        let output = ValueInfoProto { name: name.into(), ..Default::default() };
        GraphProto { node: nodes, output: vec![output], ..GraphProto::default() }
    };
    let body = |name: &str, inner: &str| AttributeProto {
        name: name.into(),
        r#type: AttributeType::Graph as i32,
        g: Some(branch(inner)),
        ..AttributeProto::default()
    };
    let mut choice = node("If", &["on"], &["y"]);
    choice.attribute = vec![body("then_branch", "left"), body("else_branch", "right")];
    let mut model = model(vec![info("x", &["2"])], vec![choice], &["y"]);
    model.graph.as_mut().unwrap().initializer.push(floats("w", &[1], &[1.0]));
    let problems = import(&model, &cut(&["w"], &["left"])).unwrap_err();
    assert!(problems[0].contains("`left` lies inside of the body of `y`"), "{problems:?}");
    assert!(problems[1].contains("`w` cannot be an input: it is a constant"), "{problems:?}");
}
