//! How loops and values become code, decided once for code generation and for the budget that
//! predicts it.
//!
//! Code generation asks here which loops it writes out, how wide the vectors of a loop are and
//! which loads are one; [`budget`](crate::budget) asks the same, so that it counts what is made.

use ansc_graph::{BinOp, BufId, Expr};
use ansc_runtime::DType;

use crate::program::{Body, For, ForKind, Program, Stmt};
use crate::vectors::widths_of;

/// Unrolled loops become ordinary ones where they would copy their body more often than this.
const MAX_COPIES: usize = 4096;
/// With more whole vectors than this there is a loop over them.
const MAX_PIECES: usize = 16;
/// Registers that one vector may span, where a loop runs inside of the vectorised one: each is a
/// chain of operations of its own, which hides latency.
const MAX_SPAN: usize = 8;

/// Whether an unrolled loop of this extent is written out, where so many copies are written already.
pub fn is_written_out(copies: usize, extent: usize) -> bool {
    copies.saturating_mul(extent) <= MAX_COPIES
}

/// Whether a loop stays one inside of a vectorised one.
pub fn has_loop(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(_) => false,
        Stmt::For(l) => {
            (l.extent > 1 && l.kind != ForKind::Unrolled) || l.body.iter().any(has_loop)
        }
    }
}

/// Buffers that an expression loads as values, not as parts of indices.
pub fn value_loads(e: &Expr) -> Vec<BufId> {
    match e {
        Expr::Load(buffer, _) => vec![*buffer],
        _ => e.children().into_iter().flat_map(value_loads).collect(),
    }
}

/// Bytes that a thread of a GPU loads, stores or copies at once, at most.
pub const THREAD_BYTES: usize = 16;

/// The vectors that a machine has for the lanes of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vectors {
    /// Registers of so many bytes.
    Registers(usize),
    /// A thread of a GPU, which copies several elements at once and computes them one by one.
    Thread,
}

impl Vectors {
    fn bytes(self) -> usize {
        match self {
            Vectors::Registers(bytes) => bytes,
            Vectors::Thread => THREAD_BYTES,
        }
    }
}

/// The vectors that a vectorised loop is cut into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Lanes of a whole vector.
    pub width: usize,
    /// Whole vectors.
    pub whole: usize,
    /// Whether there is a loop over the whole vectors.
    pub turns: bool,
    /// Lanes of the vectors that cover the rest, in their order: powers of two.
    pub rest: Vec<usize>,
}

impl Pieces {
    pub fn of(program: &Program, l: &For, vectors: Vectors) -> Pieces {
        let width = width(program, l, vectors);
        let whole = l.extent / width;
        let rest = widths_of(l.extent % width, width);
        Pieces { width, whole, turns: whole > MAX_PIECES, rest }
    }
}

/// Lanes of a piece: one register of the widest element type involved, or several.
fn width(program: &Program, l: &For, vectors: Vectors) -> usize {
    let mut size = 1;
    for stmt in &l.body {
        stmt.visit_blocks(&mut |block| size = size.max(widest(program, &block.body, vectors)));
    }
    let register = (vectors.bytes() / size).max(2);
    if !l.body.iter().any(has_loop) {
        return register;
    }
    let spanned = l.extent.div_ceil(register).clamp(1, MAX_SPAN);
    register << spanned.ilog2()
}

/// Bytes of the widest element that a block computes with. Half floats are computed as `f32`, but
/// a GPU's thread copies them as they are.
fn widest(program: &Program, body: &Body, vectors: Vectors) -> usize {
    if vectors == Vectors::Thread
        && let Some(copied) = copied(program, body)
    {
        return copied;
    }
    let dtype = |b: BufId| program.buffer(b).ty.dtype;
    let written = body.writes().into_iter().map(|a| dtype(a.buffer));
    let loaded = value_loads(body.value()).into_iter().map(dtype);
    let computed = std::iter::once(body.value().dtype(&dtype));
    let all = written.chain(loaded).chain(computed);
    all.map(|dtype| dtype.accumulator().size()).max().unwrap_or(1)
}

/// Bytes of an element of a block that only copies, or chooses between a copy and zeros.
fn copied(program: &Program, body: &Body) -> Option<usize> {
    let Body::Assign { dst, value } = body else { return None };
    let value = match value {
        Expr::Select(condition, inside, outside) => {
            let plain = condition.loads().is_empty() && outside.as_const().is_some();
            plain.then_some(&**inside)?
        }
        other => other,
    };
    let Expr::Load(source, _) = value else { return None };
    let [from, to] = [*source, dst.buffer].map(|b| program.buffer(b).ty.dtype);
    (from == to).then_some(to.size())
}

/// Knows of the elements that expressions load at one point of a program.
pub trait Places {
    /// Where an element lies in its buffer. Equal places are known to be one.
    type Place: PartialEq;

    fn dtype(&self, e: &Expr) -> DType;

    /// Whether the condition is known to hold, or known not to.
    fn decide(&self, condition: &Expr) -> Option<bool>;

    fn place(&self, buffer: BufId, indices: &[Expr]) -> Self::Place;

    /// The place so many elements further on.
    fn beyond(&self, place: &Self::Place, elements: i64) -> Self::Place;
}

/// Elements that lie side by side, and are put together to an integer of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined<P> {
    pub buffer: BufId,
    /// The place of the lowest one.
    pub first: P,
    /// The number of them.
    pub elements: i64,
}

/// Four bytes or two words that become one integer. It is one load where they are as far apart in
/// neighbouring lanes as there are elements, or the same in all lanes.
///
/// ```text
/// i32(a[k * 4]) | i32(a[k * 4 + 1]) << 8 | i32(a[k * 4 + 2]) << 16 | i32(a[k * 4 + 3]) << 24
/// ```
pub fn one_integer<P: Places>(places: &P, e: &Expr) -> Option<Joined<P::Place>> {
    side_by_side::<P, 4>(places, e, DType::U8)
        .or_else(|| side_by_side::<P, 2>(places, e, DType::U16))
}

/// Two bytes that become the words of one integer.
pub fn two_words<P: Places>(places: &P, e: &Expr) -> Option<Joined<P::Place>> {
    side_by_side::<P, 2>(places, e, DType::U8)
}

/// `N` elements of this type, which share 32 bits.
fn side_by_side<P: Places, const N: usize>(
    places: &P,
    e: &Expr,
    dtype: DType,
) -> Option<Joined<P::Place>> {
    let apart = 32 / N;
    let mut parts: [Option<(BufId, P::Place)>; N] = std::array::from_fn(|_| None);
    let mut open = vec![e];
    while let Some(e) = open.pop() {
        match e {
            Expr::Binary(BinOp::Or, a, b) => open.extend([&**a, &**b]),
            Expr::Binary(BinOp::Shl, x, amount) => {
                let amount = usize::try_from(amount.as_const()?.as_i64()).ok()?;
                let is_place = amount.is_multiple_of(apart);
                let place = parts.get_mut(amount / apart).filter(|_| is_place)?;
                *place = Some(part(places, x, dtype)?);
            }
            e => parts[0] = Some(part(places, e, dtype)?),
        }
    }
    let mut parts = parts.into_iter();
    let (buffer, first) = parts.next()??;
    let follows = |(i, part): (i64, Option<(BufId, P::Place)>)| {
        part.is_some_and(|(b, place)| b == buffer && place == places.beyond(&first, i))
    };
    let all_follow = (1..).zip(parts).all(follows);
    all_follow.then_some(Joined { buffer, first, elements: N as i64 })
}

/// The place that an element of this type is loaded from, and widened without a sign.
fn part<P: Places>(places: &P, e: &Expr, dtype: DType) -> Option<(BufId, P::Place)> {
    let Expr::Cast(DType::I32, x) = e else { return None };
    if places.dtype(x) != dtype {
        return None;
    }
    let mut x = &**x;
    loop {
        x = match x {
            Expr::Load(buffer, at) => return Some((*buffer, places.place(*buffer, at))),
            Expr::Cast(DType::U8, inner) if places.dtype(inner) == DType::I8 => inner,
            Expr::Select(c, a, b) => match places.decide(c)? {
                true => a,
                false => b,
            },
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(x: &str, y: &str, extent: usize, value: &str, vectors: Vectors) -> Pieces {
        let text = format!(
            "program k\nx: {x}[{extent}] input\ny: {y}[{extent}] output\nparams x, y\n\
             for l in 0..{extent} vectorized {{\n  block a (v: spatial {extent} = l) {{\n    \
             y[v] = {value}\n  }}\n}}\n"
        );
        let program = Program::parse(&text).unwrap();
        let Stmt::For(l) = &program.body[0] else { panic!("{program}") };
        Pieces::of(&program, l, vectors)
    }

    #[test]
    fn a_loop_is_whole_vectors_and_powers_of_two() {
        let pieces = |extent| pieces("f32", "f32", extent, "exp(x[v])", Vectors::Registers(32));
        let all = Pieces { width: 8, whole: 2, turns: false, rest: vec![4, 1] };
        assert_eq!(pieces(21), all);
        assert!(!pieces(16 * 8).turns && pieces(17 * 8).turns);
    }

    #[test]
    fn halves_take_as_much_as_floats_but_where_a_gpu_copies_them() {
        let width = |value, vectors| pieces("f16", "f16", 64, value, vectors).width;
        assert_eq!(width("x[v]", Vectors::Registers(16)), 4);
        assert_eq!(width("x[v]", Vectors::Thread), 8);
        assert_eq!(width("select(lt(v, 3), x[v], 0.0_f16)", Vectors::Thread), 8);
        assert_eq!(width("exp(x[v])", Vectors::Thread), 4);
    }

    #[test]
    fn what_is_written_out_is_bounded() {
        assert!(is_written_out(64, 64) && !is_written_out(64, 65));
        assert!(!is_written_out(usize::MAX, 2));
    }
}
