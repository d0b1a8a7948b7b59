use ansc_graph::{Compute, TensorType};

use crate::program::Program;
use crate::testing::*;

fn fixed_point(program: &Program) {
    let text = program.to_string();
    let parsed = Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed.to_string(), text);
}

fn computes() -> Vec<Compute> {
    vec![
        matmul_bias_relu(5, 7, 3),
        conv(3, 2, 5, 7, 2),
        softmax(3, 5),
        reduce(3, 5),
        arg_max(3, 5),
        transpose(2, 3, 5),
        concat(3, 2, 4),
    ]
}

#[test]
fn programs_parse_back_and_compute_the_same() {
    for c in computes() {
        let naive = crate::lower("k", &c);
        let finished = crate::finish(naive.clone());
        for program in [naive, finished] {
            fixed_point(&program);
            check_program(&c, &Program::parse(&program.to_string()).unwrap());
        }
    }
}

#[test]
fn odd_names_parse_back() {
    let mut program = crate::lower("a b", &transpose(2, 3, 5));
    let ty = TensorType::new(ansc_runtime::DType::F32, []);
    for name in ["where", "init", "params", "for", "in0", "x/y", "sum", "1"] {
        program.add_buffer(name, ty.clone(), crate::Scope::Local);
    }
    fixed_point(&program);
    program.params.clear();
    fixed_point(&program);
}

#[test]
fn mistakes_are_located() {
    let head = "program p\nx: f32[4] input\ny: f32[4] output\nparams x, y\n";
    let cases = [
        ("for i in 0..4 {\n", "6:1: expected `for` or `block`, found the end"),
        ("for i in 1..4 {}", "5:11: expected a range from 0, found `..`"),
        ("block b (v: spatial 4 = i) { y[v] = x[v] }", "5:25: there is no variable `i` here"),
        ("block b () { z[] = 1 }", "5:14: there is no buffer `z` here"),
        ("block b () { 1 = 1 }", "5:14: expected an element of a buffer, found `1`"),
        ("block b () { init y[0] = x[0] }", "5:31: expected a reduction after `init`, found `}`"),
        ("for i in 0..4 { for i in 0..4 { } }", "5:21: the variable `i` is declared twice"),
    ];
    for (body, expected) in cases {
        let found = Program::parse(&format!("{head}{body}")).unwrap_err().to_string();
        assert_eq!(found, expected, "{body}");
    }
    let deep = format!(
        "program p\nparams\n{}",
        (0..500).map(|i| format!("for i{i} in 0..1 {{\n")).collect::<String>()
    );
    assert!(Program::parse(&deep).unwrap_err().to_string().contains("too deeply"));
}
