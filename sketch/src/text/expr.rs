//! Expressions with the names of a program.

use ansc_graph::Expr;

use super::names::Names;

pub(crate) fn expr(names: &Names, e: &Expr) -> String {
    let list = |items: &[Expr]| items.iter().map(|i| expr(names, i)).collect::<Vec<_>>().join(", ");
    match e {
        Expr::Const(s) => s.to_string(),
        Expr::Var(v) => names.var(*v),
        Expr::Load(buffer, indices) => format!("{}[{}]", names.buffer(*buffer), list(indices)),
        Expr::Unary(op, x) => format!("{}({})", op.name(), expr(names, x)),
        Expr::Binary(op, a, b) => format!("{}({}, {})", op.name(), expr(names, a), expr(names, b)),
        Expr::Select(c, a, b) => {
            format!("select({}, {}, {})", expr(names, c), expr(names, a), expr(names, b))
        }
        Expr::Cast(to, x) => format!("{to}({})", expr(names, x)),
    }
}
