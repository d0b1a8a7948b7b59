//! Static memory plan: where in one arena each buffer lives.
//!
//! ```text
//! a: 100 bytes, steps 0..=1;  b: 50 bytes, steps 1..=2;  c: 100 bytes, steps 2..=3
//! ->  a at 0, c at 0, b at 128; peak 192 of 320 bytes
//! ```
//!
//! Greedy by size: the largest buffers are placed first, each in the smallest gap between the ones
//! that live at the same time and have a place already, or behind them. Requests that live at the
//! same time never overlap; the peak is never above the sum of the (aligned) sizes.

/// A buffer, and the first and last step (inclusive) at which it is live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The size of the buffer.
    pub bytes: usize,
    /// The step that writes it first.
    pub first: usize,
    /// The last step that reads or writes it.
    pub last: usize,
}

/// A place for each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// By position of the request.
    pub offsets: Vec<usize>,
    /// Size of the arena.
    pub peak: usize,
    /// The size of the arena if no memory were reused.
    pub sum: usize,
}

impl Request {
    fn lives_with(&self, other: &Request) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Places all requests at multiples of `align`, which is a power of two. Sums saturate: a plan
/// beyond the address space has a peak that no allocator will give.
pub fn plan(requests: &[Request], align: usize) -> Plan {
    let sizes: Vec<usize> = requests.iter().map(|r| aligned(r.bytes, align)).collect();
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(sizes[i]), requests[i].first, i));
    let mut offsets = vec![0usize; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    for i in order {
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&&j| requests[j].lives_with(&requests[i]))
            .map(|&j| (offsets[j], offsets[j].saturating_add(sizes[j])))
            .collect();
        taken.sort_unstable();
        offsets[i] = best_fit(&taken, sizes[i]);
        placed.push(i);
    }
    let ends = offsets.iter().zip(&sizes).map(|(&offset, &size)| offset.saturating_add(size));
    let peak = ends.max().unwrap_or(0);
    Plan { offsets, peak, sum: sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size)) }
}

fn aligned(bytes: usize, align: usize) -> usize {
    bytes.checked_next_multiple_of(align).unwrap_or(usize::MAX)
}

/// The start of the smallest gap of at least `size` between the sorted ranges `taken`, or their
/// end.
fn best_fit(taken: &[(usize, usize)], size: usize) -> usize {
    let mut best: Option<(usize, usize)> = None;
    let mut end = 0usize;
    for &(from, to) in taken {
        if let Some(gap) = from.checked_sub(end)
            && gap >= size
            && best.is_none_or(|(smallest, _)| gap < smallest)
        {
            best = Some((gap, end));
        }
        end = end.max(to);
    }
    best.map_or(end, |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(bytes: usize, first: usize, last: usize) -> Request {
        Request { bytes, first, last }
    }

    #[test]
    fn the_example() {
        let requests = [request(100, 0, 1), request(50, 1, 2), request(100, 2, 3)];
        let plan = plan(&requests, 64);
        assert_eq!(plan, Plan { offsets: vec![0, 128, 0], peak: 192, sum: 320 });
    }

    #[test]
    fn a_chain_needs_its_two_largest_neighbours() {
        let sizes = [640, 1280, 64, 1280, 640];
        let requests: Vec<Request> =
            sizes.iter().enumerate().map(|(i, &bytes)| request(bytes, i, i + 1)).collect();
        assert_eq!(plan(&requests, 64).peak, 1920);
    }

    #[test]
    fn nothing_and_empty_buffers() {
        assert_eq!(plan(&[], 64).peak, 0);
        assert_eq!(plan(&[request(0, 0, 9), request(1, 0, 9)], 64).peak, 64);
        let huge = request(usize::MAX, 0, 0);
        assert_eq!(plan(&[huge, huge], 64).peak, usize::MAX);
    }

    proptest! {
        #[test]
        fn live_buffers_never_overlap(
            raw in prop::collection::vec((0usize..5000, 0usize..30, 0usize..8), 0..60)
        ) {
            let requests: Vec<Request> =
                raw.into_iter().map(|(b, first, n)| request(b, first, first + n)).collect();
            let plan = plan(&requests, 64);
            prop_assert!(plan.peak <= plan.sum);
            for (i, a) in requests.iter().enumerate() {
                prop_assert!(plan.offsets[i].is_multiple_of(64) && plan.offsets[i] + a.bytes <= plan.peak);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    let apart = plan.offsets[i] + a.bytes <= plan.offsets[j]
                        || plan.offsets[j] + b.bytes <= plan.offsets[i];
                    prop_assert!(apart || !a.lives_with(b) || a.bytes == 0 || b.bytes == 0);
                }
            }
        }
    }
}
