//! Takes boxes out of a box, and gives the rest.

/// `low..high` along each axis.
pub(super) type Box = Vec<(i64, i64)>;

/// More parts than this are not looked at.
const MOST: usize = 256;

/// The parts of `whole` that none of `others` covers; none if there are too many.
pub(super) fn left<'b>(whole: Box, others: impl Iterator<Item = &'b Box>) -> Option<Vec<Box>> {
    let mut parts = if is_empty(&whole) { vec![] } else { vec![whole] };
    for other in others {
        parts = parts.into_iter().flat_map(|part| without(part, other)).collect();
        if parts.len() > MOST {
            return None;
        }
    }
    Some(parts)
}

fn is_empty(part: &Box) -> bool {
    part.iter().any(|(low, high)| low >= high)
}

/// The common part, if there is one.
pub(super) fn meet(a: &Box, b: &Box) -> Option<Box> {
    let common: Box = a.iter().zip(b).map(|(a, b)| (a.0.max(b.0), a.1.min(b.1))).collect();
    (!is_empty(&common)).then_some(common)
}

fn without(mut part: Box, other: &Box) -> Vec<Box> {
    if meet(&part, other).is_none() {
        return vec![part];
    }
    let mut rest = vec![];
    for axis in 0..part.len() {
        let ((low, high), (from, to)) = (part[axis], other[axis]);
        for side in [(low, from.min(high)), (to.max(low), high)] {
            if side.0 < side.1 {
                let mut beside = part.clone();
                beside[axis] = side;
                rest.push(beside);
            }
        }
        part[axis] = (low.max(from), high.min(to));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element of a small square is in one part at most, and in one if it is in none of the
    /// others.
    #[test]
    fn parts_are_what_is_left() {
        let spans = [(0, 2), (1, 4), (2, 3), (3, 5), (0, 5), (4, 4)];
        let boxes: Vec<Box> =
            spans.iter().flat_map(|a| spans.iter().map(move |b| vec![*a, *b])).collect();
        let holds = |b: &Box, at: [i64; 2]| b.iter().zip(at).all(|(s, x)| s.0 <= x && x < s.1);
        for a in &boxes {
            for b in &boxes {
                let parts = left(vec![(0, 5), (0, 5)], [a, b].into_iter()).unwrap();
                for at in (0..25).map(|i| [i / 5, i % 5]) {
                    let expected = usize::from(!holds(a, at) && !holds(b, at));
                    assert_eq!(
                        parts.iter().filter(|p| holds(p, at)).count(),
                        expected,
                        "{a:?} {b:?}"
                    );
                }
            }
        }
    }
}
