//! The rule that the book shows as an exercise is short, and its schedules compute the same.

#[path = "../examples/user_rule.rs"]
mod user_rule;

#[test]
fn a_sketch_of_the_rule_computes_the_same() {
    user_rule::main().unwrap();
}

#[test]
fn the_rule_is_short() {
    let text = include_str!("../examples/user_rule.rs");
    let rule = text.split("// ANCHOR: rule\n").nth(1).unwrap();
    let rule = rule.split("// ANCHOR_END: rule\n").next().unwrap();
    assert!((10..60).contains(&rule.lines().count()), "{rule}");
}
