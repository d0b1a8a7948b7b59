//! Several axes as one, row by row.
//!
//! ```text
//! i0, i1, i2 of [2, 3, 4]  <=>  (i0 * 3 + i1) * 4 + i2
//! ```

use crate::expr::Expr;

/// The number of a place in a box of these extents; axes of one element are left out.
pub fn flattened(indices: &[Expr], extents: &[usize]) -> Expr {
    let wide = indices.iter().zip(extents).filter(|(_, e)| **e > 1);
    let flat = wide.fold(None, |flat: Option<Expr>, (i, &extent)| {
        Some(flat.map_or(i.clone(), |f| f * Expr::index(extent) + i.clone()))
    });
    flat.unwrap_or_else(|| Expr::int(0))
}

/// An index for each extent, of which `flat` is what [`flattened`] gives.
pub fn spread(flat: &Expr, extents: &[usize]) -> Vec<Expr> {
    let mut indices = vec![];
    let mut inner: usize = extents.iter().product();
    let mut outermost = true;
    for &extent in extents {
        inner /= extent.max(1);
        let part = if inner == 1 { flat.clone() } else { flat.clone().floor_div(inner as i64) };
        indices.push(match extent {
            1 => Expr::int(0),
            _ if outermost => part,
            _ => part.floor_mod(extent as i64),
        });
        outermost &= extent == 1;
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith;

    #[test]
    fn places_are_found_again() {
        for extents in [&[2, 3, 4][..], &[1, 5, 1, 2], &[1, 1], &[7], &[]] {
            let count: usize = extents.iter().product();
            for n in 0..count {
                let at = spread(&Expr::index(n), extents);
                let flat = arith::simplify(&flattened(&at, extents), &|_| None);
                assert_eq!(flat, Expr::index(n), "{extents:?}");
            }
        }
    }
}
