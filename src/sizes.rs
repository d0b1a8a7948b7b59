//! Which sizes an artifact is for.
//!
//! In: for each open dimension its sizes, some of them as ranges. Out: a [`Wanted`] for each
//! specialisation: ranges are cut into parts, each twice as long as the one before, so that the
//! memory and the schedules for the largest sizes of a part fit the smallest ones too.
//!
//! ```text
//! sequence = 1..30      ->  sequence=1  =2..4  =5..8  =9..16  =17..30
//! ```

use std::collections::BTreeSet;
use std::fmt;

use ansc_frontend::import::ImportOptions;
use ansc_graph::sizes::Range;
use ansc_runtime::Extent;
use ansc_runtime::manifest::Size;

/// Sizes of a dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    One(usize),
    /// All of them, from the first number to the second one.
    Range(usize, usize),
}

/// As on the command line.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::One(size) => write!(f, "{size}"),
            Span::Range(low, high) => write!(f, "{low}..{high}"),
        }
    }
}

/// Names of dimensions, and the sizes of each.
pub type Choices = Vec<(String, Vec<Span>)>;

/// The largest size of the first part of a range.
const FIRST: usize = 4;

/// How many times as large the largest size of a part is as that of the part before; more where
/// there are several ranges, whose parts multiply.
const GROWTH: [usize; 2] = [2, 4];

/// A specialisation that is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Tells it from the others; empty if it is the only one.
    pub name: String,
    /// With one size for each dimension that has no range here.
    import: ImportOptions,
    pub ranges: Vec<Range>,
}

/// The options of an import at the largest size of every choice.
pub fn largest(import: &ImportOptions, choices: &Choices) -> ImportOptions {
    let mut import = import.clone();
    let most = |spans: &[Span]| spans.iter().map(|span| span.ends().1).max();
    let dims = choices.iter().filter_map(|(dim, spans)| Some((dim.clone(), most(spans)?)));
    import.dims.extend(dims);
    import
}

/// The sizes that runs of a specialisation choose, if it is for ranges, or that data decides.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    pub all: Vec<Size>,
    /// For each input of the model, the extent of each axis.
    pub inputs: Vec<Vec<Extent>>,
    /// For each output, likewise.
    pub outputs: Vec<Vec<Extent>>,
    /// For each input, whether it is read where the caller has it.
    pub dense: Vec<bool>,
    /// The smallest of each size that the graph computes. They are its last outputs, behind those
    /// of the model.
    pub counts: Vec<i64>,
}

/// All combinations of sizes and of parts of ranges; the last choice varies fastest. Ranges of
/// dimensions that are `lengths` of states stay whole.
pub fn wanted(
    import: &ImportOptions,
    choices: &Choices,
    lengths: &BTreeSet<String>,
) -> Vec<Wanted> {
    let first = Wanted { name: String::new(), import: import.clone(), ranges: vec![] };
    let mut all = vec![first];
    let is_range = |span: &Span| matches!(span, Span::Range(..));
    let is_cut =
        |(dim, spans): &&(String, Vec<Span>)| spans.iter().any(is_range) && !lengths.contains(dim);
    let ranges = choices.iter().filter(is_cut).count();
    let growth = GROWTH[usize::from(ranges > 1)];
    for (dim, spans) in choices {
        let parts: Vec<Span> = match lengths.contains(dim) {
            true => spans.clone(),
            false => spans.iter().flat_map(|span| span.parts(growth)).collect(),
        };
        let each = all.iter().flat_map(|one| parts.iter().map(|part| one.with(dim, *part)));
        all = each.collect();
    }
    all
}

impl Span {
    /// The smallest and the largest size.
    fn ends(self) -> (usize, usize) {
        match self {
            Span::One(size) => (size, size),
            Span::Range(low, high) => (low, high),
        }
    }

    /// A range as parts; those whose shapes are of a kind of their own are sizes by themselves.
    fn parts(self, growth: usize) -> Vec<Span> {
        let Span::Range(low, high) = self else { return vec![self] };
        let mut parts = vec![];
        let (mut begin, mut end) = (low, FIRST);
        while begin <= high {
            let last = match begin {
                0 | 1 => begin,
                _ => {
                    while end < begin {
                        end *= growth;
                    }
                    end.min(high)
                }
            };
            parts.push(if begin == last { Span::One(last) } else { Span::Range(begin, last) });
            begin = last + 1;
        }
        parts
    }
}

impl Wanted {
    fn with(&self, dim: &str, span: Span) -> Wanted {
        let space = if self.name.is_empty() { "" } else { " " };
        let mut one = self.clone();
        one.name = format!("{}{space}{dim}={span}", self.name);
        match span {
            Span::One(size) => {
                one.import.dims.insert(dim.to_owned(), size);
            }
            Span::Range(low, high) => {
                one.ranges.push(Range { name: dim.to_owned(), low, high });
            }
        }
        one
    }

    /// The same with a range that ends later by so many sizes.
    pub fn stretched(&self, range: usize, by: usize) -> Wanted {
        let mut one = self.clone();
        let Range { name, low, high } = &mut one.ranges[range];
        let text = |high: usize| format!("{name}={}", Span::Range(*low, high));
        one.name = one.name.replace(&text(*high), &text(*high + by));
        *high += by;
        one
    }

    /// The same in two parts: for the size 0 of a range, where a model may be another one, and for
    /// the others. `None`, if no range begins with 0.
    pub fn apart_from_zero(&self) -> Option<[Wanted; 2]> {
        let at = self.ranges.iter().position(|range| range.low == 0)?;
        let mut rest = self.clone();
        let Range { name, low, high } = self.ranges[at].clone();
        let text = |span: Span| format!("{name}={span}");
        let whole = text(Span::Range(low, high));
        let part = |span: Span| self.name.replace(&whole, &text(span));
        let mut zero = self.clone();
        zero.ranges.remove(at);
        zero.import.dims.insert(name.clone(), 0);
        zero.name = part(Span::One(0));
        rest.ranges[at].low = 1;
        rest.name = part(Span::Range(1, high));
        Some([zero, rest])
    }

    /// The options of an import at the largest sizes.
    pub fn largest(&self) -> ImportOptions {
        self.at(&self.ranges.iter().map(|range| range.high).collect::<Vec<_>>())
    }

    /// The options of an import at these sizes, one for each range.
    pub(crate) fn at(&self, sizes: &[usize]) -> ImportOptions {
        let mut import = self.import.clone();
        let sizes = self.ranges.iter().zip(sizes);
        import.dims.extend(sizes.map(|(range, size)| (range.name.clone(), *size)));
        import
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths_of_states() -> BTreeSet<String> {
        BTreeSet::from(["past".to_owned()])
    }

    fn names(choices: &[(&str, &[Span])]) -> Vec<String> {
        let choices = choices.iter().map(|(dim, spans)| ((*dim).to_owned(), spans.to_vec()));
        let all = wanted(&ImportOptions::default(), &choices.collect(), &lengths_of_states());
        all.into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn ranges_are_cut_into_parts() {
        assert_eq!(names(&[]), [""]);
        let parts = ["s=1", "s=2..4", "s=5..8", "s=9..16", "s=17..30"];
        assert_eq!(names(&[("s", &[Span::Range(1, 30)])]), parts);
        assert_eq!(names(&[("s", &[Span::Range(0, 3)])]), ["s=0", "s=1", "s=2..3"]);
        assert_eq!(names(&[("s", &[Span::Range(200, 256)])]), ["s=200..256"]);
        assert_eq!(names(&[("s", &[Span::Range(17, 17)])]), ["s=17"]);
        let all = wanted(
            &ImportOptions::default(),
            &vec![("past".to_owned(), vec![Span::Range(0, 9)])],
            &lengths_of_states(),
        );
        let parts = all[0].apart_from_zero().unwrap();
        assert_eq!(parts.each_ref().map(|one| &one.name[..]), ["past=0", "past=1..9"]);
        assert!(parts.iter().all(|one| one.apart_from_zero().is_none()));
        assert_eq!(all[0].stretched(0, 3).name, "past=0..12");
        let both = [("b", &[Span::One(1), Span::One(4)][..]), ("s", &[Span::Range(9, 20)])];
        let parts = ["b=1 s=9..16", "b=1 s=17..20", "b=4 s=9..16", "b=4 s=17..20"];
        assert_eq!(names(&both), parts);
        let kept = [("s", &[Span::Range(5, 20)][..]), ("past", &[Span::Range(0, 99)])];
        let parts = ["s=5..8 past=0..99", "s=9..16 past=0..99", "s=17..20 past=0..99"];
        assert_eq!(names(&kept), parts);
        let both = [("b", &[Span::Range(2, 5)][..]), ("s", &[Span::Range(5, 20)])];
        let parts = ["b=2..4 s=5..16", "b=2..4 s=17..20", "b=5 s=5..16", "b=5 s=17..20"];
        assert_eq!(names(&both), parts);
    }
}
