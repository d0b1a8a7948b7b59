//! Extents in a normal form, so that equal ones are alike.
//!
//! ```text
//! (s0 + -1) * 4 + 4  ->  s0 * 4
//! ```

use std::collections::BTreeMap;

use ansc_runtime::Extent;

/// A sum of products of sizes and quotients: how often each product occurs. None is 0 times.
type Terms = BTreeMap<Vec<Extent>, i64>;

/// The same number in normal form; `None` if a coefficient does not fit.
pub(super) fn normal(extent: &Extent) -> Option<Extent> {
    terms(extent).map(built)
}

/// The normal form of a sum.
pub(super) fn sum(parts: Vec<Extent>) -> Option<Extent> {
    normal(&Extent::Sum(parts))
}

/// The normal form of a multiple.
pub(super) fn times(extent: Extent, factor: i64) -> Option<Extent> {
    normal(&Extent::Product(vec![extent, Extent::Constant(factor)]))
}

/// Whether a larger size never makes it smaller.
pub(super) fn is_monotone(extent: &Extent) -> bool {
    let Some(terms) = terms(extent) else { return false };
    terms.iter().all(|(atoms, by)| {
        let grows = |atom: &Extent| match atom {
            Extent::Floor(of, _) => is_monotone(of),
            Extent::Min(parts) => parts.iter().all(is_monotone),
            _ => true,
        };
        atoms.is_empty() || *by >= 0 && atoms.len() == 1 && grows(&atoms[0]) || {
            // Products of sizes, none of which is negative.
            *by >= 0 && atoms.iter().all(|atom| matches!(atom, Extent::Size(_)))
        }
    })
}

fn terms(extent: &Extent) -> Option<Terms> {
    match extent {
        Extent::Constant(0) => Some(Terms::new()),
        Extent::Constant(value) => Some(Terms::from([(vec![], *value)])),
        Extent::Size(_) => Some(Terms::from([(vec![extent.clone()], 1)])),
        Extent::Sum(parts) => {
            let mut all = Terms::new();
            for part in parts {
                add(&mut all, terms(part)?)?;
            }
            Some(all)
        }
        Extent::Product(parts) => {
            let mut all = Terms::from([(vec![], 1)]);
            for part in parts {
                all = product(&all, &terms(part)?)?;
            }
            Some(all)
        }
        Extent::Floor(of, by) => quotient(terms(of)?, *by),
        Extent::Min(parts) => {
            let mut parts: Vec<Extent> = parts.iter().map(normal).collect::<Option<_>>()?;
            parts.sort_unstable();
            parts.dedup();
            match &parts[..] {
                [one] => terms(one),
                _ => Some(Terms::from([(vec![Extent::Min(parts)], 1)])),
            }
        }
    }
}

/// The quotient of a sum: multiples of the divisor are divided by themselves.
fn quotient(of: Terms, by: i64) -> Option<Terms> {
    let is_multiple = |atoms: &[Extent], times: i64| !atoms.is_empty() && times % by == 0;
    let (whole, rest): (Terms, Terms) =
        of.into_iter().partition(|(atoms, times)| is_multiple(atoms, *times));
    let mut all: Terms = whole.into_iter().map(|(atoms, times)| (atoms, times / by)).collect();
    add(
        &mut all,
        match built(rest) {
            Extent::Constant(value) => terms(&Extent::Constant(value.div_euclid(by)))?,
            rest => Terms::from([(vec![Extent::Floor(Box::new(rest), by)], 1)]),
        },
    )?;
    Some(all)
}

fn add(all: &mut Terms, more: Terms) -> Option<()> {
    for (atoms, by) in more {
        let now = all.get(&atoms).copied().unwrap_or(0).checked_add(by)?;
        match now {
            0 => all.remove(&atoms),
            _ => all.insert(atoms, now),
        };
    }
    Some(())
}

fn product(a: &Terms, b: &Terms) -> Option<Terms> {
    let mut all = Terms::new();
    for (left, by) in a {
        for (right, times) in b {
            let mut atoms = [&left[..], &right[..]].concat();
            atoms.sort_unstable();
            add(&mut all, Terms::from([(atoms, by.checked_mul(*times)?)]))?;
        }
    }
    Some(all)
}

fn built(terms: Terms) -> Extent {
    let mut parts: Vec<Extent> = terms
        .into_iter()
        .map(|(mut atoms, by)| match (atoms.len(), by) {
            (0, _) => Extent::Constant(by),
            (1, 1) => atoms.swap_remove(0),
            (_, 1) => Extent::Product(atoms),
            _ => {
                atoms.push(Extent::Constant(by));
                Extent::Product(atoms)
            }
        })
        .collect();
    match parts.len() {
        0 => Extent::Constant(0),
        1 => parts.swap_remove(0),
        _ => Extent::Sum(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_extents_are_alike() {
        let s = || Extent::Size(0);
        let number = Extent::Constant;
        let four = Extent::Product(vec![Extent::Sum(vec![s(), number(-1)]), number(4)]);
        assert_eq!(sum(vec![four, number(4)]), times(s(), 4));
        assert_eq!(sum(vec![s(), number(-1), number(1)]), Some(s()));
        assert_eq!(normal(&Extent::Floor(Box::new(number(7)), 2)), Some(number(3)));
        let rows = sum(vec![times(s(), 49).unwrap(), number(-1)]).unwrap();
        let images = Extent::Floor(Box::new(rows), 49);
        assert_eq!(sum(vec![images, number(1)]), Some(s()));
        let square = Extent::Product(vec![s(), Extent::Size(1)]);
        assert!(is_monotone(&square) && !is_monotone(&times(square, -1).unwrap()));
        let half = Extent::Floor(Box::new(sum(vec![s(), number(1)]).unwrap()), 2);
        assert!(is_monotone(&half));
    }
}
