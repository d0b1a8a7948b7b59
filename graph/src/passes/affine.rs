//! Which part of an elementwise expression is `x * scale + offset`, with scale and offset from
//! constants. Used on floats, in open form (loads without indices).

use ansc_runtime::DType;

use crate::expr::{BinOp, BufId, Expr, UnOp};

/// `x * scale + offset`; a missing scale is one, a missing offset is zero.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Affine {
    pub(crate) scale: Option<Expr>,
    pub(crate) offset: Option<Expr>,
}

/// The form to look for: its variable, the type of that, and which loads are of constants.
pub(crate) struct Form<F> {
    pub(crate) x: BufId,
    pub(crate) dtype: DType,
    pub(crate) is_const: F,
}

impl<F: Fn(BufId) -> bool> Form<F> {
    /// The whole of `e` as an affine form, if it is one.
    pub(crate) fn affine(&self, e: &Expr) -> Option<Affine> {
        match e {
            Expr::Load(buffer, _) if *buffer == self.x => Some(Affine::default()),
            Expr::Unary(UnOp::Neg, y) => Some(self.affine(y)?.negated(self.dtype)),
            Expr::Binary(op, a, b) if self.is_constant(b) => {
                self.affine(a)?.then(*op, b, self.dtype)
            }
            Expr::Binary(op, a, b) if self.is_constant(a) => {
                self.affine(b)?.after(*op, a, self.dtype)
            }
            _ => None,
        }
    }

    pub(crate) fn is_constant(&self, e: &Expr) -> bool {
        e.loads().iter().all(|(buffer, _)| (self.is_const)(*buffer))
    }

    /// Replaces each largest affine part of `e` by what `f` makes of the part and its form.
    pub(crate) fn replace(&self, e: &Expr, f: &mut impl FnMut(&Expr, Affine) -> Expr) -> Expr {
        match self.affine(e) {
            Some(form) => f(e, form),
            None => e.map_children(|child| self.replace(child, f)),
        }
    }
}

impl Affine {
    fn negated(self, dtype: DType) -> Affine {
        let minus = |e| Expr::unary(UnOp::Neg, e);
        let scale = self.scale.map_or(Expr::float(dtype, -1.0), minus);
        Affine { scale: Some(scale), offset: self.offset.map(minus) }
    }

    /// `op(self, c)`.
    fn then(self, op: BinOp, c: &Expr, dtype: DType) -> Option<Affine> {
        let Affine { scale, offset } = self;
        let by = |e: Option<Expr>| e.map(|e| Expr::binary(op, e, c.clone()));
        match op {
            BinOp::Add => Some(Affine { scale, offset: Some(sum(offset, c.clone())) }),
            BinOp::Sub => {
                let offset = by(offset).unwrap_or_else(|| Expr::unary(UnOp::Neg, c.clone()));
                Some(Affine { scale, offset: Some(offset) })
            }
            BinOp::Mul => Some(Affine {
                scale: Some(by(scale).unwrap_or_else(|| c.clone())),
                offset: by(offset),
            }),
            BinOp::Div => {
                let scale = scale.unwrap_or_else(|| Expr::float(dtype, 1.0));
                Some(Affine { scale: by(Some(scale)), offset: by(offset) })
            }
            _ => None,
        }
    }

    /// `op(c, self)`.
    fn after(self, op: BinOp, c: &Expr, dtype: DType) -> Option<Affine> {
        match op {
            BinOp::Add | BinOp::Mul => self.then(op, c, dtype),
            BinOp::Sub => self.negated(dtype).then(BinOp::Add, c, dtype),
            _ => None,
        }
    }
}

fn sum(a: Option<Expr>, b: Expr) -> Expr {
    match a {
        Some(a) => a + b,
        None => b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(slot: usize) -> Expr {
        Expr::load(slot, vec![])
    }

    /// b0 is the variable, b1 and b2 are constants, b3 is not.
    fn form() -> Form<impl Fn(BufId) -> bool> {
        Form { x: BufId(0), dtype: DType::F32, is_const: |b: BufId| [1, 2].contains(&b.0) }
    }

    #[test]
    fn forms() {
        let [x, a, b, y] = [0, 1, 2, 3].map(load);
        let affine = |e: Expr| form().affine(&e);
        let got = affine((x.clone() - a.clone()) / b.clone()).unwrap();
        assert_eq!(got.scale, Some(Expr::float(DType::F32, 1.0) / b.clone()));
        assert_eq!(got.offset, Some(Expr::unary(UnOp::Neg, a.clone()) / b.clone()));
        let got = affine(b.clone() - x.clone() * a.clone()).unwrap();
        assert_eq!(got.scale, Some(Expr::unary(UnOp::Neg, a.clone())));
        assert_eq!(got.offset, Some(b.clone()));
        assert_eq!(affine(x.clone() * x.clone()), None);
        assert_eq!(affine(x.clone() + y.clone()), None);
        assert_eq!(affine(a.clone() / x.clone()), None);
    }

    #[test]
    fn only_the_affine_part_is_replaced() {
        let [x, a, b, y] = [0, 1, 2, 3].map(load);
        let e = (x.clone() * a + b.clone() + y.clone()).max(b.clone());
        let new = form().replace(&e, &mut |_, form| load(0) + form.offset.unwrap());
        assert_eq!(new, (x + b.clone() + y).max(b));
    }
}
