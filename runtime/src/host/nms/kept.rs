//! The boxes that stay, where a further one finds those that it may overlap.
//!
//! The image is cut into strips across the axis along which boxes are short. A strip has the boxes
//! that reach into it, and two that overlap are both in some strip.
//!
//! ```text
//! | a   | a b | b   |   c |        d within the second strip is compared with a and b
//! ```

use super::Corners;

/// Boxes that are compared at a time.
const LANES: usize = 16;
const MAX_STRIPS: usize = 1 << 10;

/// Boxes of a strip, as columns: the coordinates of the low corners, of the high ones, and areas.
#[derive(Default)]
struct Strip {
    low: [Vec<f32>; 2],
    high: [Vec<f32>; 2],
    area: Vec<f32>,
}

pub(super) struct Kept {
    strips: Vec<Strip>,
    /// Across which strips are, where they begin, and how many there are in a unit.
    axis: usize,
    begin: f32,
    scale: f32,
    /// A box is dropped if it overlaps another one by more than this.
    limit: f32,
    pub(super) count: usize,
}

impl Kept {
    /// No boxes yet, of those that are given.
    pub(super) fn new(boxes: &[Corners], limit: f32) -> Kept {
        let one = Kept {
            strips: vec![Strip::default()],
            axis: 0,
            begin: 0.0,
            scale: 0.0,
            limit,
            count: 0,
        };
        // Boxes apart are strangers only if it takes an overlap to drop one.
        let is_finite = |b: &Corners| b.low.iter().chain(&b.high).all(|edge| edge.is_finite());
        if limit.is_nan() || limit < 0.0 || !boxes.iter().all(is_finite) {
            return one;
        }
        let along = |axis: usize| {
            let begin = boxes.iter().fold(f32::INFINITY, |all, b| all.min(b.low[axis]));
            let end = boxes.iter().fold(f32::NEG_INFINITY, |all, b| all.max(b.high[axis]));
            let lengths: f32 = boxes.iter().map(|b| b.high[axis] - b.low[axis]).sum();
            // As many as a box of the mean length has beside each other.
            (begin, end - begin, (end - begin) * boxes.len() as f32 / lengths)
        };
        let all = [along(0), along(1)];
        let axis = usize::from(all[1].2 > all[0].2);
        let (begin, length, wanted) = all[axis];
        let count = (wanted as usize).min(MAX_STRIPS).min(boxes.len());
        let scale = count as f32 / length;
        if count < 2 || !scale.is_finite() {
            return one;
        }
        let strips = (0..count).map(|_| Strip::default()).collect();
        Kept { strips, axis, begin, scale, ..one }
    }

    /// The strips that a box reaches into.
    fn reach(&self, of: &Corners) -> std::ops::RangeInclusive<usize> {
        let last = self.strips.len() - 1;
        // A number below 0, or none, is in the first strip.
        let strip = |edge: f32| (((edge - self.begin) * self.scale) as usize).min(last);
        strip(of.low[self.axis])..=strip(of.high[self.axis])
    }

    /// Keeps a box, unless it overlaps one too much.
    pub(super) fn add(&mut self, new: &Corners) -> bool {
        let reach = self.reach(new);
        if self.strips[reach.clone()].iter().any(|strip| drops(strip, new, self.limit)) {
            return false;
        }
        self.strips[reach].iter_mut().for_each(|strip| strip.push(new));
        self.count += 1;
        true
    }
}

impl Strip {
    fn push(&mut self, new: &Corners) {
        for axis in 0..2 {
            self.low[axis].push(new.low[axis]);
            self.high[axis].push(new.high[axis]);
        }
        self.area.push(new.area());
    }
}

/// Whether a box of the strip overlaps a new one too much.
fn drops(strip: &Strip, new: &Corners, limit: f32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { drops_by_avx2(strip, new, limit) };
    }
    drops_here(strip, new, limit)
}

/// [`drops_here`] with vectors of 8 numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn drops_by_avx2(strip: &Strip, new: &Corners, limit: f32) -> bool {
    drops_here(strip, new, limit)
}

/// Loops and not closures, for these would not be compiled for the features of the caller.
#[inline(always)]
fn drops_here(strip: &Strip, new: &Corners, limit: f32) -> bool {
    let boxes = strip.area.len();
    let whole = boxes / LANES * LANES;
    let own = new.area();
    let mut first = 0;
    while first < whole {
        let mut passed = false;
        for i in first..first + LANES {
            passed |= passes(strip, i, new, own, limit);
        }
        if passed {
            return true;
        }
        first += LANES;
    }
    for i in whole..boxes {
        if passes(strip, i, new, own, limit) {
            return true;
        }
    }
    false
}

/// Whether a box of the strip and a new one share more of their union than the limit, or a part
/// that is no number. Boxes without area share nothing.
#[inline(always)]
fn passes(strip: &Strip, i: usize, new: &Corners, own: f32, limit: f32) -> bool {
    let mut common = 1.0;
    for axis in 0..2 {
        let high = less(strip.high[axis][i], new.high[axis]);
        let side = high - more(strip.low[axis][i], new.low[axis]);
        common *= more(side, 0.0);
    }
    let area = strip.area[i];
    let is_empty = own <= 0.0 || area <= 0.0;
    let share = if is_empty { 0.0 } else { common / (own + area - common) };
    share > limit || share.is_nan()
}

/// As single instructions, which numbers that are none do not concern.
#[inline(always)]
fn less(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline(always)]
fn more(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intersection over union, as the definition has it.
    fn share(a: &Corners, b: &Corners) -> f32 {
        let side =
            |axis: usize| (a.high[axis].min(b.high[axis]) - a.low[axis].max(b.low[axis])).max(0.0);
        let common = side(0) * side(1);
        let no_area = a.area() <= 0.0 || b.area() <= 0.0;
        if no_area { 0.0 } else { common / (a.area() + b.area() - common) }
    }

    /// Boxes up to `size` wide in an image `width` wide and `height` high, in the same order in
    /// each run.
    fn some(count: usize, [width, height]: [f32; 2], size: f32) -> Vec<Corners> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let one = |_| {
            let (x, y) = (next() * width, next() * height);
            let (w, h) = (next() * size, next() * size);
            Corners::new([x, y, x + w, y + h], false)
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn the_same_boxes_stay_as_by_definition() {
        for (image, size) in [([1000.0, 30.0], 20.0), ([5.0, 800.0], 9.0), ([50.0, 50.0], 60.0)] {
            for limit in [0.0, 0.3, 1.0, -0.5] {
                let boxes = some(700, image, size);
                let mut kept = Kept::new(&boxes, limit);
                let mut by_definition: Vec<&Corners> = vec![];
                for new in &boxes {
                    let stays = by_definition.iter().all(|other| share(new, other) <= limit);
                    assert_eq!(kept.add(new), stays, "{image:?} {limit}");
                    by_definition.extend(stays.then_some(new));
                }
                assert_eq!(kept.count, by_definition.len());
            }
        }
    }

    #[test]
    fn long_images_have_strips() {
        let strips = |image, size| Kept::new(&some(900, image, size), 0.5).strips.len();
        assert!(strips([9000.0, 20.0], 20.0) > 500);
        assert!(strips([10.0, 10.0], 100.0) <= 2);
        let one = [Corners::new([0.0, 0.0, f32::NAN, 1.0], false)];
        assert_eq!(Kept::new(&one, 0.5).strips.len(), 1);
        assert_eq!(Kept::new(&[], 0.5).strips.len(), 1);
    }

    #[test]
    fn boxes_that_are_empty_or_far_stay() {
        let boxes = [
            Corners::new([0.0, 0.0, 1.0, 1.0], false),
            Corners::new([0.0, 0.0, 0.0, 5.0], false),
            Corners::new([1e38, 0.0, 3e38, 1.0], false),
            Corners::new([-3e38, 0.0, 1.0, 1.0], false),
        ];
        let mut kept = Kept::new(&boxes, 0.5);
        assert!(boxes.iter().all(|new| kept.add(new)));
        assert!(!kept.add(&boxes[0]));
    }
}
