//! Iteration spaces: chunks of consecutive points, and where an affine index takes each lane.

/// `constant + sum of coefficient * variable`, wrapping. Terms are sorted by variable; no
/// coefficient is zero.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Affine {
    pub(super) terms: Vec<(usize, i64)>,
    pub(super) constant: i64,
}

impl Affine {
    pub(super) fn constant(value: i64) -> Affine {
        Affine { terms: Vec::new(), constant: value }
    }

    pub(super) fn var(var: usize) -> Affine {
        Affine { terms: vec![(var, 1)], constant: 0 }
    }

    pub(super) fn coefficient(&self, var: usize) -> i64 {
        self.terms.iter().find(|(v, _)| *v == var).map_or(0, |(_, c)| *c)
    }

    pub(super) fn scaled(&self, by: i64) -> Affine {
        let mut result = self.clone();
        result.constant = result.constant.wrapping_mul(by);
        result.terms.iter_mut().for_each(|(_, c)| *c = c.wrapping_mul(by));
        result.terms.retain(|(_, c)| *c != 0);
        result
    }

    pub(super) fn plus(&self, other: &Affine) -> Affine {
        let mut terms = std::collections::BTreeMap::new();
        for (var, coefficient) in self.terms.iter().chain(&other.terms) {
            let sum: &mut i64 = terms.entry(*var).or_default();
            *sum = sum.wrapping_add(*coefficient);
        }
        terms.retain(|_, c| *c != 0);
        Affine {
            terms: terms.into_iter().collect(),
            constant: self.constant.wrapping_add(other.constant),
        }
    }

    /// Least and greatest value where variable `v` runs over `0..extents[v]`; `None` where they
    /// do not fit `i64`, or where an extent is zero.
    pub(super) fn range(&self, extents: &[usize]) -> Option<(i64, i64)> {
        let (mut low, mut high) = (i128::from(self.constant), i128::from(self.constant));
        for &(var, coefficient) in &self.terms {
            let last = extents[var].checked_sub(1)? as i128;
            let term = i128::from(coefficient).checked_mul(last)?;
            *if term < 0 { &mut low } else { &mut high } += term;
        }
        Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?))
    }

    /// The value at the variables' values `point`.
    pub(super) fn at(&self, point: &[i64]) -> i64 {
        self.terms
            .iter()
            .fold(self.constant, |sum, &(v, c)| sum.wrapping_add(c.wrapping_mul(point[v])))
    }
}

/// Points of a box in row-major order. Axes of extent 1 are left out.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// Variable and extent of each axis, outermost first.
    pub(super) axes: Vec<(usize, usize)>,
}

impl Domain {
    /// The axes `vars` of a space with these extents.
    pub(super) fn new(vars: std::ops::Range<usize>, extents: &[usize]) -> Domain {
        Domain { axes: vars.map(|v| (v, extents[v])).filter(|(_, e)| *e != 1).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.axes.iter().map(|(_, e)| e).product()
    }

    /// The number of lanes of a chunk: whole rows, planes and so on, as many as `limit` allows.
    pub(super) fn chunk_len(&self, limit: usize) -> usize {
        let mut whole = 1;
        for &(_, extent) in self.axes.iter().rev() {
            // An axis without elements makes an empty space, which has no chunks.
            let extent = extent.max(1);
            if whole * extent > limit {
                break;
            }
            whole *= extent;
        }
        limit / whole * whole
    }

    /// Sets the coordinates of the point at `position`.
    pub(super) fn locate(&self, mut position: usize, point: &mut [i64]) {
        for &(var, extent) in self.axes.iter().rev() {
            point[var] = (position % extent) as i64;
            position /= extent;
        }
    }

    /// Moves to the next point; the last one is followed by the first.
    pub(super) fn advance(&self, point: &mut [i64]) {
        for &(var, extent) in self.axes.iter().rev() {
            point[var] += 1;
            if point[var] < extent as i64 {
                return;
            }
            point[var] = 0;
        }
    }
}

/// Consecutive points of a domain, cut into rows along the innermost axis.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) start: usize,
    pub(super) len: usize,
    /// The length of each row.
    rows: Vec<usize>,
    /// Coordinates of the first lane of each row, `width` per row.
    coordinates: Vec<i64>,
    width: usize,
    inner: Option<usize>,
}

impl Chunk {
    /// Points `start..start + len` of `domain`; a point has `width` variables.
    pub(super) fn set(&mut self, domain: &Domain, start: usize, len: usize, width: usize) {
        (self.start, self.len, self.width) = (start, len, width);
        self.rows.clear();
        self.coordinates.clear();
        let (inner, extent) = domain.axes.last().map_or((None, 1), |&(v, e)| (Some(v), e));
        self.inner = inner;
        let mut point = vec![0; width];
        domain.locate(start, &mut point);
        let mut lane = 0;
        while lane < len {
            let here = inner.map_or(0, |v| point[v] as usize);
            let row = (extent - here).min(len - lane);
            self.rows.push(row);
            self.coordinates.extend_from_slice(&point);
            lane += row;
            if let Some(v) = inner {
                point[v] = extent as i64 - 1;
            }
            domain.advance(&mut point);
        }
    }

    /// Length, value at the first lane, and step of an affine value, row by row.
    fn rows_of<'a>(&'a self, affine: &'a Affine) -> impl Iterator<Item = (usize, i64, i64)> + 'a {
        let step = self.inner.map_or(0, |v| affine.coefficient(v));
        self.rows
            .iter()
            .zip(self.coordinates.chunks(self.width.max(1)))
            .map(move |(&len, at)| (len, affine.at(at), step))
    }

    /// The coordinates of one lane.
    pub(super) fn point(&self, domain: &Domain, lane: usize, point: &mut [i64]) {
        domain.locate(self.start + lane, point);
    }

    /// Appends the value of each lane.
    pub(super) fn values(&self, affine: &Affine, out: &mut Vec<i64>) {
        for (len, first, step) in self.rows_of(affine) {
            out.extend((0..len as i64).map(|i| first.wrapping_add(i.wrapping_mul(step))));
        }
    }

    /// Where an offset takes the lanes.
    pub(super) fn pattern(&self, offset: &Affine) -> Pattern {
        let mut runs: Vec<Run> = Vec::new();
        for (len, first, step) in self.rows_of(offset) {
            let next = Run { len, first, step };
            match runs.last_mut() {
                Some(last) if last.continues(&next) => last.append(&next),
                _ => runs.push(next),
            }
        }
        if runs.len() * 6 <= self.len || runs.len() == 1 {
            return Pattern::Runs(runs);
        }
        let mut offsets = Vec::with_capacity(self.len);
        self.values(offset, &mut offsets);
        Pattern::Gather(offsets)
    }
}

/// Offsets of the lanes of a chunk, without what is the same for all lanes.
#[derive(Debug)]
pub(super) enum Pattern {
    Runs(Vec<Run>),
    Gather(Vec<i64>),
}

/// The next `len` lanes, at offsets `first`, `first + step`, ...
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) len: usize,
    pub(super) first: i64,
    pub(super) step: i64,
}

impl Run {
    /// The step from this run to `next` where that makes one run of both.
    fn joint_step(&self, next: &Run) -> Option<i64> {
        let step = if self.len == 1 { next.first.wrapping_sub(self.first) } else { self.step };
        let fits = next.len == 1 || next.step == step;
        (fits && self.first.wrapping_add(step.wrapping_mul(self.len as i64)) == next.first)
            .then_some(step)
    }

    fn continues(&self, next: &Run) -> bool {
        self.joint_step(next).is_some()
    }

    fn append(&mut self, next: &Run) {
        if let Some(step) = self.joint_step(next) {
            self.step = step;
            self.len += next.len;
        }
    }
}
