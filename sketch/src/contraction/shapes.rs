//! The size of a register tile.
//!
//! Every candidate is priced by the cycles that its instructions take per term of the reduction:
//! fused multiply-adds and loads at two a cycle, at least the latency of an addition; summed over
//! whole tiles and the smaller ones at the edges. With registers to spare many take the same; then
//! the fewest loads win, since panels come from the second cache. With few registers loads are many
//! anyway, and are priced with the cycles.

use ansc_graph::{BinOp, Expr, Stage};

use super::operands::Operands;
use super::slide::Slide;
use crate::machine::Machine;
use crate::usage::mentions;
use crate::vectors::widths_of;

/// Cycles until the sum of a multiply-add can be added to.
const LATENCY: usize = 4;
const MAX_ROWS: usize = 14;
const MAX_VECTORS: usize = 8;
/// Loads and shuffles of a vector with elements of several groups, each for some lanes.
const SHUFFLED: usize = 3;
/// Twice the cycles until the second cache has given a vector.
const CACHED: usize = 2;
/// So many loads cost as much as half a cycle, where few registers make them many.
const HIDDEN: usize = 4;
/// Loads of elements of rows, which the first cache holds, that cost as much as that of a vector of
/// a panel, where there are few registers.
const OF_PANEL: usize = 3;
/// Lines of the cache that a vector lies in which begins anywhere.
const LINES: usize = 2;
/// Tiles take about as long if the cycles of one are so many percent above the other's at most.
const AS_LONG: usize = 8;
/// With no more than these, tiles are so small that loads are many next to products.
const FEW_REGISTERS: usize = 16;

/// `upper` x `rows` x `panel` elements along the upper, the row and the vector axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) upper_axis: Option<usize>,
    pub(crate) row_axis: Option<usize>,
    pub(crate) upper: usize,
    pub(crate) rows: usize,
    pub(crate) panel: usize,
}

/// The shapes of which so many tiles fit the registers, the one priced lowest first: at least one.
/// A shape whose panels are as wide as those that there are goes before, if it costs about as much.
pub(crate) fn ranked(
    machine: &Machine,
    s: &Stage,
    operands: &Operands,
    (lanes, tiles): (usize, usize),
    width: Option<usize>,
) -> Vec<Shape> {
    let (upper_axis, row_axis) = row_axes(s, operands);
    let extent = |axis: Option<usize>| axis.map_or(1, |a| s.ty.shape[a]);
    let (uppers, rows) = (extent(upper_axis), extent(row_axis));
    let columns = *s.ty.shape.last().expect("a vector axis");
    let vectors =
        operands.panel_limit.unwrap_or(usize::MAX).min(columns.next_multiple_of(lanes)) / lanes;
    let (bytes, pairs) = (multiplies(s, BinOp::Dot4), multiplies(s, BinOp::Dot2));
    let few = machine.registers <= FEW_REGISTERS;
    let held = |rows: usize, vectors: usize| match () {
        // Even and odd bytes are multiplied apart.
        () if bytes && !machine.units.bytes => 2 * vectors + 3,
        // Products are added by an instruction of their own.
        () if pairs => vectors + 2,
        // Rows below have use for them.
        () if operands.slide.is_some() => rows * vectors + 1,
        () => vectors + 1,
    };
    let (source, unpacking) = (Source::of(operands), unpacking(s));
    let mut shapes: Vec<(Price, Shape)> = Vec::new();
    for vectors in (1..=vectors.clamp(1, MAX_VECTORS)).filter(|v| operands.allows(v * lanes)) {
        // Columns that fill no panel are cut into pieces, each in a register of its own, and their
        // tile has as many rows.
        let rest = rest_of(columns, vectors * lanes, lanes, operands.padded).len();
        let in_a_row = if columns < vectors * lanes { rest } else { vectors.max(rest) };
        for upper in (1..=uppers.min(4)).filter(|u| uppers.is_multiple_of(*u)) {
            let Operands { padded, crossed, .. } = *operands;
            let plane =
                Plane { columns, lanes, rows, upper, source, padded, crossed, unpacking, few };
            for row in 1..=rows.min(MAX_ROWS) {
                if upper > 1 && row < rows
                    || tiles * upper * row * in_a_row + held(row, in_a_row) > machine.registers
                {
                    continue;
                }
                let panel = vectors * lanes;
                let price = plane.price(panel, row).times(uppers / upper);
                shapes.push((price, Shape { upper_axis, row_axis, upper, rows: row, panel }));
            }
        }
    }
    let smallest = Shape { upper_axis, row_axis, upper: 1, rows: 1, panel: lanes };
    if shapes.is_empty() {
        return vec![smallest];
    }
    let loads_wait = few && operands.shared;
    let is_hidden = few && !operands.shared && !bytes && !pairs;
    shapes.sort_by_key(|(price, _)| match () {
        () if loads_wait => price.by_both(),
        // Measured: which of them loads least tells nothing about what takes least.
        () if is_hidden => (price.cycles, 0),
        () => price.by_cycles(),
    });
    // However few rows use a panel, it has to be read.
    let cycles = |(price, shape): &(Price, Shape)| {
        let passes = uppers.div_ceil(shape.upper) * rows.div_ceil(shape.rows);
        price.cycles.max(CACHED * columns.div_ceil(lanes) * passes)
    };
    let most = cycles(&shapes[0]) * (100 + AS_LONG) / 100;
    let is_there = |entry: &(Price, Shape)| Some(entry.1.panel) == width && cycles(entry) <= most;
    if let Some(at) = shapes.iter().position(is_there) {
        shapes[..=at].rotate_right(1);
    }
    shapes.into_iter().map(|(_, shape)| shape).collect()
}

/// Whether the machine adds products of bytes or words by other instructions than it multiplies.
pub(crate) fn adds_apart(machine: &Machine, s: &Stage) -> bool {
    multiplies(s, BinOp::Dot2) || (machine.units.pairs && multiplies(s, BinOp::Dot4))
}

/// Whether terms are sums of products of this kind.
fn multiplies(s: &Stage, dot: BinOp) -> bool {
    s.body.any(&mut |e| matches!(e, Expr::Binary(op, ..) if *op == dot))
}

/// Instructions that make a vector of bytes of what is loaded, for each one that multiplies it, in
/// eighths.
fn unpacking(s: &Stage) -> usize {
    let vector = s.ty.rank() - 1;
    let walks = |e: &Expr| e.loads().into_iter().any(|(_, at)| mentions(at, vector));
    let (mut dots, mut others) = (0usize, 0usize);
    s.body.visit(&mut |e| match e {
        Expr::Binary(BinOp::Dot4, ..) => dots += 1,
        Expr::Binary(BinOp::And | BinOp::Shr | BinOp::Shl, x, _) if walks(x) => others += 1,
        _ => {}
    });
    (8 * others).checked_div(dots).unwrap_or(0)
}

/// The price of one term of the reduction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Price {
    /// Twice the cycles.
    cycles: usize,
    loads: usize,
}

impl Price {
    /// Cycles decide; between equal cycles, loads decide.
    fn by_cycles(self) -> (usize, usize) {
        (self.cycles, self.loads)
    }

    /// Loads take the slots of some instructions that multiply.
    fn by_both(self) -> (usize, usize) {
        (HIDDEN * self.cycles + self.loads, 0)
    }

    fn times(self, n: usize) -> Price {
        Price { cycles: self.cycles * n, loads: self.loads * n }
    }

    fn plus(self, other: Price) -> Price {
        Price { cycles: self.cycles + other.cycles, loads: self.loads + other.loads }
    }
}

/// Vectors for so many columns; where they may reach beyond the last one, the last vector is as
/// wide as it takes.
fn vectors_of(columns: usize, lanes: usize, padded: bool) -> Vec<usize> {
    if !padded {
        return widths_of(columns, lanes);
    }
    let rest = columns % lanes;
    let last = (rest > 0).then(|| rest.next_power_of_two());
    std::iter::repeat_n(lanes, columns / lanes).chain(last).collect()
}

/// Vectors for the columns that fill no panel. After a panel, fewer columns than a vector has lanes
/// may begin in that.
fn rest_of(columns: usize, panel: usize, lanes: usize, padded: bool) -> Vec<usize> {
    let rest = columns % panel;
    let may_begin_before = panel < columns && rest < lanes;
    vectors_of(rest, lanes, padded || may_begin_before)
}

/// The vectors that a tile multiplies with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// Rows share them, in the order in which they lie in panels.
    Panels,
    /// Rows share them.
    Shared,
    /// Rows have their own, and each is read once.
    Once,
    /// Rows have their own, which other rows read for other terms.
    Slides(Slide),
    /// Rows have their own.
    Own,
}

impl Source {
    fn of(operands: &Operands) -> Source {
        match (operands.shared, operands.panels().next().is_some(), operands.slide) {
            (true, true, _) => Source::Panels,
            (true, false, _) => Source::Shared,
            (false, ..) if operands.once => Source::Once,
            (false, _, Some(slide)) => Source::Slides(slide),
            (false, ..) => Source::Own,
        }
    }
}

/// The rows and columns that tiles cover, `upper` of their rows at once.
struct Plane {
    columns: usize,
    lanes: usize,
    rows: usize,
    upper: usize,
    source: Source,
    /// Whether vectors may reach beyond the last column.
    padded: bool,
    /// Columns of groups that vectors cross: an element of the other factor for each.
    crossed: Option<usize>,
    /// See [`unpacking`].
    unpacking: usize,
    /// Whether there are few registers.
    few: bool,
}

/// The vectors of a tile along the columns.
struct Across {
    vectors: usize,
    /// Vectors of each width take elements of the rows of their own.
    widths: usize,
    /// See [`Plane::gathered`].
    gathered: usize,
}

impl Plane {
    fn price(&self, panel: usize, row: usize) -> Price {
        let Plane { columns, lanes, padded, .. } = *self;
        let gathered = self.gathered(panel);
        let left = rest_of(columns, panel, lanes, padded);
        // Measured: with many registers, the sums of such a tile go to memory and back if elements
        // of rows are shared, too.
        let is_mixed = !self.few && left.first() != left.last();
        let whole = Across { vectors: panel / lanes, widths: 1, gathered };
        let rest = Across { vectors: left.len(), widths: 1 + usize::from(is_mixed), gathered };
        let price = self.down(row, &whole).times(columns / panel);
        if rest.vectors == 0 { price } else { price.plus(self.down(row, &rest)) }
    }

    /// Loads that a vector of elements takes of which each is of one group, if there are groups.
    fn gathered(&self, panel: usize) -> usize {
        match self.crossed {
            None => 0,
            Some(group) if self.lanes.is_multiple_of(group) => 1,
            // Where every panel begins with a group, code knows which lanes are of which.
            Some(group) if panel.is_multiple_of(group) || panel >= self.columns => SHUFFLED,
            Some(_) => self.lanes,
        }
    }

    /// The price of tiles of `row` rows one below the other, with a smaller tile for the rest.
    fn down(&self, row: usize, across: &Across) -> Price {
        let tile = |rows: usize| self.tile(rows, across);
        let whole = tile(row).times(self.rows / row);
        if self.rows.is_multiple_of(row) { whole } else { whole.plus(tile(self.rows % row)) }
    }

    /// The price of so many rows for each of the upper ones.
    fn tile(&self, below: usize, across: &Across) -> Price {
        let Across { vectors, widths, gathered } = *across;
        let rows = self.upper * below;
        // A vector operand that rows do not share is loaded for each of them.
        let loads = match (gathered, self.source) {
            // Such vectors begin anywhere, so that many lie in two lines.
            (0, Source::Slides(slide)) => {
                let own = LINES * self.upper * slide.rows(below) * vectors;
                own.div_ceil(slide.terms) + self.upper
            }
            (0, Source::Panels | Source::Shared) if self.few => rows * widths + OF_PANEL * vectors,
            (0, Source::Panels | Source::Shared) => rows * widths + vectors,
            (0, Source::Once) => rows * vectors + rows,
            (each, _) => rows * vectors * each.max(1) + vectors,
        };
        let products = rows * vectors;
        let cycles = match self.unpacking {
            0 if self.source == Source::Once => loads.max(CACHED * products),
            0 => products.max(loads),
            // Instructions that unpack take the issue slots in which loads would cost nothing.
            unpacking => {
                let all = products + (vectors * unpacking).div_ceil(8);
                all.max(2 * (all + loads) / 3)
            }
        };
        Price { cycles: cycles.max(2 * LATENCY), loads }
    }
}

/// The innermost spatial axes besides the vector axis along which packed operands do not vary: the
/// row axis, and the one outside of it.
fn row_axes(s: &Stage, operands: &Operands) -> (Option<usize>, Option<usize>) {
    let vector_axis = s.ty.rank() - 1;
    let usable = |axis: &usize| s.ty.shape[*axis] > 1 && !operands.fixed_axes.contains(axis);
    let mut axes = (0..vector_axis).rev().filter(usable);
    let row = axes.next();
    (axes.next(), row)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: Plane = Plane {
        columns: 64,
        lanes: 16,
        rows: 84,
        upper: 1,
        source: Source::Panels,
        padded: true,
        crossed: None,
        unpacking: 0,
        few: false,
    };

    fn price(row: usize, vectors: usize) -> Price {
        let plane = Plane { lanes: 8, rows: 60, padded: false, few: true, ..PLANE };
        plane.price(8 * vectors, row)
    }

    #[test]
    fn six_rows_of_two_vectors_beat_one_row() {
        assert!(
            price(6, 2).cycles < price(1, 2).cycles && price(6, 2).cycles < price(12, 1).cycles
        );
    }

    /// Measured for 384 rows of digits: seven rows of two vectors take less than fourteen of one.
    #[test]
    fn what_is_unpacked_is_used_by_many_rows() {
        let plane = Plane { unpacking: 12, ..PLANE };
        let price = |row: usize, vectors: usize| plane.price(16 * vectors, row);
        assert!(price(7, 2) < price(14, 1) && price(7, 2) < price(3, 4));
        let bytes = PLANE;
        assert_eq!(bytes.price(64, 3).cycles, bytes.price(32, 6).cycles);
    }

    /// Measured for 24 columns: 14 rows of one vector, and then of half a vector, take two thirds
    /// of the time of 14 rows of both.
    #[test]
    fn vectors_of_two_widths_are_apart_with_many_registers() {
        let plane = |few: bool| Plane { columns: 24, few, ..PLANE };
        assert!(plane(false).price(16, 14) <= plane(false).price(32, 14));
        assert!(plane(true).price(16, 14) > plane(true).price(32, 14));
    }

    /// Other panels begin within a group, each at another place.
    #[test]
    fn panels_of_whole_groups_are_not_gathered() {
        let plane = Plane { columns: 224, rows: 28, padded: false, crossed: Some(7), ..PLANE };
        let cycles = |vectors: usize| plane.price(16 * vectors, 3).cycles;
        assert!((1..=8).filter(|v| *v != 7).all(|v| cycles(7) < cycles(v)));
    }

    /// Where a panel comes before, five columns are eight lanes; without one, four and one more.
    #[test]
    fn few_columns_begin_in_the_panel_before() {
        assert_eq!([rest_of(37, 16, 16, false), rest_of(37, 32, 16, false)], [[8], [8]]);
        assert_eq!(rest_of(5, 16, 16, false), [4, 1]);
        assert_eq!(rest_of(53, 32, 16, false), [16, 4, 1]);
    }

    #[test]
    fn rows_that_slide_over_one_another_load_less() {
        let text = "compute(in0: f32[8, 80, 80], in1: f32[8, 9, 9]) -> y {
            y: f32[8, 20, 64] = sum{r0: 9, r1: 9}
                mul(in0[i0, add(i1, r0), add(i2, r1)], in1[i0, r0, r1])
        }";
        let compute = ansc_graph::Compute::parse(text).unwrap();
        let slide = Slide::of(&compute.stages[0], 1, 2).unwrap();
        let loads = |source: Source, row: usize| {
            let plane = Plane { rows: 20, source, padded: false, ..PLANE };
            plane.price(16, row).loads
        };
        let [own, slides] = [Source::Own, Source::Slides(slide)].map(|source| loads(source, 10));
        assert!(
            2 * slides < own && loads(Source::Slides(slide), 10) < loads(Source::Slides(slide), 2)
        );
    }

    #[test]
    fn padded_columns_are_whole_vectors() {
        assert_eq!(vectors_of(27, 16, true), [16, 16]);
        assert_eq!(vectors_of(21, 16, true), [16, 8]);
        assert_eq!(vectors_of(27, 16, false), [16, 8, 2, 1]);
        assert_eq!(vectors_of(32, 16, true), [16, 16]);
    }

    /// Values of attention for one token of eight heads: a row of 64 is read from end to end.
    #[test]
    fn vectors_that_are_read_once_are_read_in_order() {
        let plane = Plane { rows: 8, source: Source::Once, padded: false, ..PLANE };
        assert!((1..4).all(|v| (1..=8).all(|row| plane.price(64, 1) < plane.price(16 * v, row))));
    }

    #[test]
    fn of_what_takes_as_long_more_rows_load_less() {
        let price = |row: usize| PLANE.price(32, row);
        assert_eq!(price(4).cycles, price(12).cycles);
        assert!(price(12).by_cycles() < price(4).by_cycles());
    }

    /// Measured with AVX2: 6 rows of two vectors, or 4 of three, take 0.93 of the time of 4 of two;
    /// 2 of five take more.
    #[test]
    fn few_registers_are_used_up_by_tiles_that_load_little() {
        let plane = Plane { columns: 240, lanes: 8, padded: false, few: true, ..PLANE };
        let price = |row: usize, vectors: usize| plane.price(8 * vectors, row).by_both();
        assert!(
            price(6, 2) < price(4, 2) && price(4, 3) < price(4, 2) && price(4, 2) < price(2, 5)
        );
    }
}
