//! Expressions: `max(add(in0[i0, 3], 1.5_f32), f32(in1[]))`.
//!
//! Operations and conversions look like calls, by the names of operators and element types. What
//! variables and buffers are called is for the text around them to say: [`Names`] writes them,
//! [`Scope`] reads them.

use std::fmt::{self, Display, Formatter, Write};

use ansc_runtime::DType;

use super::cursor::{Cursor, Result};
use super::error::{Cause, ParseError};
use super::token::Token;
use crate::expr::{BinOp, BufId, Expr, UnOp, VarId};
use crate::scalar::Scalar;

/// Nesting beyond this is refused, so that a text cannot exhaust the stack.
const MAX_DEPTH: usize = 1000;

/// The names of variables and buffers.
pub trait Names {
    /// The name of a variable.
    fn var(&self, var: VarId) -> String;
    /// The name of a buffer.
    fn buffer(&self, buffer: BufId) -> String;
}

/// The variables and buffers that names stand for.
pub trait Scope {
    /// The variable of that name, if there is one.
    fn var(&self, name: &str) -> Option<VarId>;
    /// The buffer of that name, if there is one.
    fn buffer(&self, name: &str) -> Option<BufId>;
}

/// `v0`, `b0`: the names by number.
pub(super) struct Numbered;

impl Names for Numbered {
    fn var(&self, var: VarId) -> String {
        var.to_string()
    }

    fn buffer(&self, buffer: BufId) -> String {
        buffer.to_string()
    }
}

impl Scope for Numbered {
    fn var(&self, name: &str) -> Option<VarId> {
        number_after(name, 'v').map(VarId)
    }

    fn buffer(&self, name: &str) -> Option<BufId> {
        number_after(name, 'b').map(BufId)
    }
}

/// The number of `prefix123`, written without leading zeros.
fn number_after(name: &str, prefix: char) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    digits.parse().ok().filter(|n: &u32| n.to_string() == digits)
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        print_expr(f, &Numbered, self)
    }
}

impl Expr {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> std::result::Result<Expr, ParseError> {
        let mut cursor = Cursor::new(text)?;
        let e = read_expr(&mut cursor, &Numbered)?;
        cursor.end()?;
        Ok(e)
    }
}

/// Writes an expression so that [`read_expr`] can read it.
pub fn print_expr(out: &mut dyn Write, names: &dyn Names, e: &Expr) -> fmt::Result {
    match e {
        Expr::Const(s) if s.dtype() == DType::I64 => write!(out, "{}", s.as_i64()),
        Expr::Const(s) => write!(out, "{s}"),
        Expr::Var(v) => out.write_str(&names.var(*v)),
        Expr::Load(buffer, indices) => {
            write!(out, "{}[", names.buffer(*buffer))?;
            print_list(out, names, indices.iter())?;
            out.write_char(']')
        }
        Expr::Unary(op, x) => call(out, names, op.name(), &[x]),
        Expr::Binary(op, a, b) => call(out, names, op.name(), &[a, b]),
        Expr::Select(c, a, b) => call(out, names, "select", &[c, a, b]),
        Expr::Cast(to, x) => call(out, names, to.name(), &[x]),
    }
}

fn call(out: &mut dyn Write, names: &dyn Names, name: &str, operands: &[&Expr]) -> fmt::Result {
    write!(out, "{name}(")?;
    print_list(out, names, operands.iter().copied())?;
    out.write_char(')')
}

/// Expressions with commas between them.
pub(super) fn print_list<'a>(
    out: &mut dyn Write,
    names: &dyn Names,
    list: impl Iterator<Item = &'a Expr>,
) -> fmt::Result {
    for (i, e) in list.enumerate() {
        if i > 0 {
            out.write_str(", ")?;
        }
        print_expr(out, names, e)?;
    }
    Ok(())
}

/// Reads an expression, up to the first token that is no part of it.
pub fn read_expr(cursor: &mut Cursor, scope: &dyn Scope) -> Result<Expr> {
    if cursor.depth == MAX_DEPTH {
        return Err(cursor.error(Cause::TooDeep));
    }
    cursor.depth += 1;
    let e = expr(cursor, scope);
    cursor.depth -= 1;
    e
}

fn expr(cursor: &mut Cursor, scope: &dyn Scope) -> Result<Expr> {
    let place = cursor.place();
    match cursor.next() {
        Token::Number(digits) => match number(&digits) {
            Some(value) => Ok(Expr::Const(value)),
            None => Err(cursor.error_at(place, unknown("constant", &digits))),
        },
        Token::Word(name) if cursor.take_mark('(') => {
            let operands = cursor.list(')', |c| read_expr(c, scope))?;
            operation(&name, operands).map_err(|cause| cursor.error_at(place, cause))
        }
        Token::Word(name) if cursor.take_mark('[') => {
            let indices = cursor.list(']', |c| read_expr(c, scope))?;
            match scope.buffer(&name) {
                Some(buffer) => Ok(Expr::Load(buffer, indices)),
                None => Err(cursor.error_at(place, unknown("buffer", &name))),
            }
        }
        Token::Word(name) => match (scope.var(&name), name.parse()) {
            (Some(var), _) => Ok(Expr::Var(var)),
            (None, Ok(value)) => Ok(Expr::Const(value)),
            (None, Err(_)) => Err(cursor.error_at(place, unknown("variable", &name))),
        },
        token => Err(cursor.error_at(place, super::token::expected("an expression", &token))),
    }
}

fn unknown(what: &'static str, name: &str) -> Cause {
    Cause::Unknown { what, name: name.into() }
}

fn number(digits: &str) -> Option<Scalar> {
    match digits.parse() {
        Ok(value) => Some(Scalar::index(value)),
        Err(_) => digits.parse().ok(),
    }
}

fn operation(name: &str, operands: Vec<Expr>) -> std::result::Result<Expr, Cause> {
    let found = operands.len();
    let wrong = |expected| Cause::Operands { name: name.into(), expected, found };
    if name == "select" {
        let [c, a, b]: [Expr; 3] = operands.try_into().map_err(|_| wrong(3))?;
        return Ok(Expr::select(c, a, b));
    }
    if let Some(op) = BinOp::ALL.into_iter().find(|op| op.name() == name) {
        let [a, b]: [Expr; 2] = operands.try_into().map_err(|_| wrong(2))?;
        return Ok(Expr::binary(op, a, b));
    }
    let unary = UnOp::ALL.into_iter().find(|op| op.name() == name);
    let cast = name.parse::<DType>().ok();
    if unary.is_none() && cast.is_none() {
        return Err(unknown("operation", name));
    }
    let [x]: [Expr; 1] = operands.try_into().map_err(|_| wrong(1))?;
    Ok(match (unary, cast) {
        (Some(op), _) => Expr::unary(op, x),
        (None, Some(to)) => Expr::Cast(to, Box::new(x)),
        (None, None) => x,
    })
}
