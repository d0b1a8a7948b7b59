//! Index maps: where the point of one index space lies in another.
//!
//! ```text
//! (v0, v1) -> (floor_div(v1, 16), v0, floor_mod(v1, 16))
//! ```
//! They are what layouts of buffers and iterators of blocks are transformed by. As data (in traces)
//! a map is its text.

use std::fmt::{self, Display, Formatter};

use ansc_graph::text::{Cursor, ParseError, Scope, read_expr};
use ansc_graph::{BinOp, BufId, Expr, UnOp, VarId};
use ansc_runtime::DType;
use serde::{Deserialize, Serialize};

use crate::affine::{self, Digit, Extents, Source, Sum};
use crate::disjoint::determines;

/// The outputs are integer expressions over the inputs `v0`, `v1`, ...
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IndexMap {
    inputs: usize,
    outputs: Vec<Expr>,
}

/// Why there is no such index map.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MapError {
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// The left side of the text is no list of `v0`, `v1` and so on.
    #[error("the inputs of an index map are v0, v1, ..")]
    Inputs,
    /// An output reads something else than inputs, or is no integer.
    #[error("`{0}` is no integer expression over the inputs of the map")]
    Output(String),
    /// There are more inputs or outputs than programs may have loops.
    #[error("an index map has at most {0} inputs and outputs")]
    TooMany(usize),
}

/// Axes of a space. Each may become a loop, and nests are walked through level by level.
const MOST_AXES: usize = 32;

impl IndexMap {
    /// A map of `inputs` variables, the first of which is `v0`.
    pub fn new(inputs: usize, outputs: Vec<Expr>) -> Result<IndexMap, MapError> {
        if inputs.max(outputs.len()) > MOST_AXES {
            return Err(MapError::TooMany(MOST_AXES));
        }
        match outputs.iter().find(|e| !is_index(e, inputs)) {
            Some(e) => Err(MapError::Output(e.to_string())),
            None => Ok(IndexMap { inputs, outputs }),
        }
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<IndexMap, MapError> {
        let mut cursor = Cursor::new(text)?;
        let inputs = expressions(&mut cursor)?;
        cursor.arrow()?;
        let outputs = expressions(&mut cursor)?;
        cursor.end()?;
        let in_order = inputs.iter().enumerate().all(|(i, e)| *e == Expr::var(i));
        if !in_order {
            return Err(MapError::Inputs);
        }
        IndexMap::new(inputs.len(), outputs)
    }

    /// The number of axes of the space that is mapped.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// One expression for each axis of the space that is mapped to.
    pub fn outputs(&self) -> &[Expr] {
        &self.outputs
    }

    /// The point that `at` is mapped to; `at` has an expression for each input.
    pub fn apply(&self, at: &[Expr]) -> Vec<Expr> {
        self.outputs.iter().map(|e| e.substitute(&|v| at.get(v.index()).cloned())).collect()
    }

    /// The least box that holds the image of a space. `None` if it does not begin at 0 or is too
    /// large.
    pub fn shape(&self, extents: &[usize]) -> Option<Vec<usize>> {
        let space = space(extents);
        let length = |e: &Expr| {
            let (low, high) = Sum::of(e, &space).interval(&space)?;
            usize::try_from(high).ok().filter(|_| low >= 0)?.checked_add(1)
        };
        let shape: Vec<usize> = self.outputs.iter().map(length).collect::<Option<_>>()?;
        shape.iter().try_fold(1usize, |n, &length| n.checked_mul(length))?;
        Some(shape)
    }

    /// Whether no two points of a space are known to be mapped to one.
    pub fn is_injective(&self, extents: &[usize]) -> bool {
        let space = space(extents);
        (0..self.inputs)
            .all(|v| extents[v] <= 1 || determines(&self.outputs, VarId::new(v), &space))
    }

    /// The way back from the image of a space that the map fills without gaps.
    pub fn inverse(&self, extents: &[usize]) -> Option<IndexMap> {
        let shape = self.shape(extents)?;
        let points = |lengths: &[usize]| lengths.iter().map(|&n| n as u128).product::<u128>();
        let fills = points(&shape) == points(extents);
        self.way_back(extents).filter(|_| fills)
    }

    /// The way back from the box that holds the image of a space, which may have gaps: from places
    /// to which no point is mapped it leads beyond an end of the space (see
    /// [`beyond`](IndexMap::beyond)).
    pub(crate) fn way_back(&self, extents: &[usize]) -> Option<IndexMap> {
        let shape = self.shape(extents)?;
        if !self.is_injective(extents) {
            return None;
        }
        let space = space(extents);
        let mut digits: Vec<(Digit, Expr)> = vec![];
        for (axis, e) in self.outputs.iter().enumerate() {
            digits.extend(parts(Sum::of(e, &space), axis, &space)?);
        }
        let back = |(v, &extent): (usize, &usize)| recompose(&digits, VarId::new(v), extent);
        let outputs = extents.iter().enumerate().map(back).collect::<Option<_>>()?;
        let inverse = IndexMap { inputs: self.outputs.len(), outputs };
        Some(inverse.simplified(&shape))
    }

    /// Where outputs stay below `ends`, for inputs in a space; what always holds is left out.
    pub(crate) fn beyond(&self, extents: &[usize], ends: &[usize]) -> Vec<Expr> {
        let space = space(extents);
        let bounds = self.outputs.iter().zip(ends).map(|(e, &end)| e.clone().lt(Expr::index(end)));
        bounds.filter(|bound| affine::decided(bound, &space) != Some(true)).collect()
    }

    fn simplified(&self, extents: &[usize]) -> IndexMap {
        let space = space(extents);
        let outputs = self.outputs.iter().map(|e| affine::simplify(e, &space)).collect();
        IndexMap { inputs: self.inputs, outputs }
    }
}

/// Each digit of `sum`, which is output `axis`, as an expression over that.
fn parts(sum: Sum, axis: usize, space: &Extents) -> Option<Vec<(Digit, Expr)>> {
    let mut terms: Vec<(Digit, i64)> = sum.terms.into_iter().collect();
    terms.sort_by_key(|&(_, coefficient)| coefficient);
    let mut parts = vec![];
    let mut stride = 1;
    for (digit, coefficient) in terms {
        let (low, high) = digit.interval(space)?;
        if coefficient != stride || low != 0 {
            return None;
        }
        let count = high + 1;
        parts.push((digit, Expr::var(axis).floor_div(stride).floor_mod(count)));
        stride = stride.checked_mul(count)?;
    }
    (sum.constant == 0).then_some(parts)
}

/// The variable from its digits.
fn recompose(digits: &[(Digit, Expr)], var: VarId, extent: usize) -> Option<Expr> {
    let extent = i64::try_from(extent).ok()?;
    let mut own: Vec<&(Digit, Expr)> =
        digits.iter().filter(|(d, _)| d.source == Source::Var(var)).collect();
    own.sort_by_key(|(d, _)| d.divisor);
    let (mut value, mut known) = (Expr::int(0), 1);
    for (digit, e) in own {
        if digit.divisor != known {
            return None;
        }
        value = value + e.clone() * Expr::int(digit.divisor);
        known = digit.modulus.map_or(Some(extent), |m| m.checked_mul(known))?;
    }
    (known >= extent).then_some(value)
}

fn space(extents: &[usize]) -> Extents {
    let mut space = Extents::default();
    extents.iter().enumerate().for_each(|(v, &extent)| space.set(VarId::new(v), extent));
    space
}

fn is_index(e: &Expr, inputs: usize) -> bool {
    match e {
        Expr::Const(s) => s.dtype() == DType::I64,
        Expr::Var(v) => v.index() < inputs,
        Expr::Unary(UnOp::Neg, x) => is_index(x, inputs),
        Expr::Binary(op, a, b) => {
            use BinOp::*;
            matches!(op, Add | Sub | Mul | FloorDiv | FloorMod | Min | Max)
                && is_index(a, inputs)
                && is_index(b, inputs)
        }
        _ => false,
    }
}

fn expressions(cursor: &mut Cursor) -> Result<Vec<Expr>, ParseError> {
    cursor.mark('(')?;
    cursor.list(')', |c| read_expr(c, &Inputs))
}

/// `v0`, `v1`, ...
struct Inputs;

impl Scope for Inputs {
    fn var(&self, name: &str) -> Option<VarId> {
        let digits = name.strip_prefix('v')?;
        digits.parse().ok().filter(|n: &u32| n.to_string() == digits).map(VarId)
    }

    fn buffer(&self, _: &str) -> Option<BufId> {
        None
    }
}

impl Display for IndexMap {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |all: &[Expr]| all.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ");
        let inputs: Vec<Expr> = (0..self.inputs).map(Expr::var).collect();
        write!(f, "({}) -> ({})", list(&inputs), list(&self.outputs))
    }
}

impl TryFrom<String> for IndexMap {
    type Error = MapError;

    fn try_from(text: String) -> Result<IndexMap, MapError> {
        IndexMap::parse(&text)
    }
}

impl From<IndexMap> for String {
    fn from(map: IndexMap) -> String {
        map.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(extents: &[usize]) -> Vec<Vec<Expr>> {
        extents.iter().fold(vec![vec![]], |points, &n| {
            let longer = |p: &Vec<Expr>| {
                (0..n).map(|i| [p.clone(), vec![Expr::index(i)]].concat()).collect::<Vec<_>>()
            };
            points.iter().flat_map(longer).collect()
        })
    }

    fn at(map: &IndexMap, point: &[Expr]) -> Vec<Expr> {
        map.apply(point).iter().map(|e| affine::simplify(e, &Extents::default())).collect()
    }

    #[test]
    fn what_is_said_of_maps_holds_at_every_point() {
        let cases: [(&str, &[usize], bool, bool); 10] = [
            ("(v0, v1) -> (v1, v0)", &[3, 4], true, true),
            ("(v0) -> (floor_div(v0, 4), floor_mod(v0, 4))", &[12], true, true),
            ("(v0) -> (floor_div(v0, 4), floor_mod(v0, 4))", &[10], true, false),
            ("(v0, v1) -> (add(mul(v0, 6), v1))", &[5, 6], true, true),
            ("(v0, v1) -> (add(mul(v0, 8), v1))", &[5, 6], true, false),
            ("(v0, v1) -> (add(v0, v1))", &[5, 6], false, false),
            ("(v0, v1) -> (floor_div(v1, 2), v0, floor_mod(v1, 2))", &[3, 8], true, true),
            ("(v0, v1) -> (v0)", &[3, 1], true, true),
            ("(v0) -> (floor_mod(v0, 3))", &[6], false, false),
            (
                "(v0, v1) -> (add(mul(floor_div(v0, 2), 5), v1), floor_mod(v0, 2))",
                &[6, 5],
                true,
                true,
            ),
        ];
        for (text, extents, injective, bijective) in cases {
            let map = IndexMap::parse(text).unwrap();
            assert_eq!(map.to_string(), text);
            let shape = map.shape(extents).unwrap();
            let images: Vec<Vec<Expr>> = points(extents).iter().map(|p| at(&map, p)).collect();
            let distinct = (1..images.len()).all(|i| !images[..i].contains(&images[i]));
            assert_eq!((map.is_injective(extents), distinct), (injective, injective), "{text}");
            assert!(images.iter().all(|image| points(&shape).contains(image)), "{text}");
            let inverse = map.inverse(extents);
            assert_eq!(inverse.is_some(), bijective, "{text}");
            for (point, image) in points(extents).iter().zip(&images) {
                assert!(inverse.iter().all(|back| at(back, image) == *point), "{text}");
            }
            let Some(back) = map.way_back(extents) else { continue };
            let inside = back.beyond(&shape, extents);
            for place in points(&shape) {
                let holds = |e: &Expr| {
                    let here = e.substitute(&|v| place.get(v.index()).cloned());
                    affine::decided(&here, &Extents::default()).unwrap()
                };
                let found = inside.iter().all(holds).then(|| at(&back, &place));
                let expected = images.iter().position(|image| *image == place);
                assert_eq!(found, expected.map(|p| points(extents)[p].clone()), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in ["(v1) -> (v1)", "(v0) -> (v1)", "(v0) -> (1.5_f32)", "(v0) ->", "v0 -> v0"] {
            assert!(IndexMap::parse(text).is_err(), "{text}");
        }
        let map = IndexMap::parse("(v0) -> (sub(v0, 1))").unwrap();
        assert_eq!(map.shape(&[4]), None);
    }
}
