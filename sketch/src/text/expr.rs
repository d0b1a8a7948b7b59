//! Expressions with the names of a program.

use ansc_graph::Expr;
use ansc_graph::text::print_expr;

use super::names::Names;

pub(crate) fn expr(names: &Names, e: &Expr) -> String {
    let mut text = String::new();
    print_expr(&mut text, names, e).expect("writing to a string does not fail");
    text
}
