//! Which vectors do what is no whole number of them.

/// Places and widths of vectors over `start .. start + rest`. What is left is one vector that
/// begins a little earlier, if no more than a quarter of it is there already: 27 of 16 lanes is
/// 0..16, 16..24, and 23..27 instead of 24..26 and 26..27.
pub(crate) fn cover(start: usize, rest: usize, lanes: usize) -> Vec<(usize, usize)> {
    let (mut at, end) = (start, start + rest);
    let mut all = Vec::new();
    while at < end {
        let rest = end - at;
        let wide = rest.next_power_of_two();
        let width = match () {
            () if rest >= lanes => lanes,
            () if 4 * (wide - rest) <= wide && wide <= end => wide,
            () => 1 << rest.ilog2(),
        };
        all.push((at.min(end - width), width));
        at += width;
    }
    all
}

/// `extent` as whole vectors and then powers of two below them: 13 of 8 lanes is 8, 4, 1.
pub(crate) fn widths_of(extent: usize, lanes: usize) -> Vec<usize> {
    let mut widths = vec![lanes; extent / lanes];
    let rest = extent % lanes;
    widths.extend((0..usize::BITS).rev().map(|bit| 1 << bit).filter(|piece| rest & piece != 0));
    widths
}

/// Vectors that are added to the first ones, by their place and width, until one element holds the
/// sum of all: those after the first vector of `lanes`, then its upper half, and so on.
pub(crate) fn fold_steps(partials: usize, lanes: usize) -> Vec<(usize, usize)> {
    let mut steps: Vec<_> = (1..partials).map(|partial| (partial * lanes, lanes)).collect();
    let mut width = lanes;
    while width > 1 {
        let half = width.div_ceil(2);
        steps.push((half, width - half));
        width = half;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_cover_the_extent() {
        assert_eq!(widths_of(13, 8), [8, 4, 1]);
        assert_eq!(widths_of(16, 8), [8, 8]);
        assert!(widths_of(0, 8).is_empty());
    }

    #[test]
    fn vectors_cover_an_axis_and_end_with_it() {
        assert_eq!(cover(0, 27, 16), [(0, 16), (16, 8), (23, 4)]);
        assert_eq!(cover(96, 13, 16), [(93, 16)]);
        assert_eq!(cover(0, 13, 16), [(0, 8), (8, 4), (12, 1)], "no room for a vector of 16");
        for (extent, lanes) in (1..70).flat_map(|extent| [1, 4, 8, 16].map(|lanes| (extent, lanes)))
        {
            let start = extent / lanes * lanes;
            let vectors = cover(start, extent - start, lanes);
            let covered =
                |i: usize| vectors.iter().any(|(at, width)| (*at..at + width).contains(&i));
            assert!((start..extent).all(covered), "{extent} {lanes}: {vectors:?}");
            assert!(vectors.iter().all(|(at, w)| at + w <= extent && w.is_power_of_two()));
        }
    }

    #[test]
    fn folds_add_each_element_once() {
        for (partials, lanes) in (1..5).flat_map(|p| (1..20).map(move |lanes| (p, lanes))) {
            let mut elements = vec![1; partials * lanes];
            for (from, width) in fold_steps(partials, lanes) {
                assert!(width <= from, "no vector reads what it writes");
                (0..width).for_each(|lane| elements[lane] += elements[from + lane]);
            }
            assert_eq!(elements[0], partials * lanes, "{partials} {lanes}");
        }
    }
}
