//! The formula. All of it is made up; see the module above for what it is to resemble.

use ansc_graph::{BinOp, Expr, UnOp};
use ansc_sketch::price::nest::{Nest, Reach, Stride, is_written_out, nests};
use ansc_sketch::{ForKind, Program, Stmt};

use super::{Cache, Simulated};

/// Arithmetic instructions, and loads, in a cycle.
const PER_CYCLE: f64 = 2.0;
/// Cycles until the next term can be added to a sum.
const LATENCY: f64 = 4.0;
/// Cycles of one turn of a loop.
const TURN: f64 = 1.5;
/// Instructions of a body that is read faster than it is executed.
const SHORT_BODY: f64 = 1024.0;
/// Arithmetic instructions of a function such as `exp`.
const FUNCTION: f64 = 12.0;

pub(super) struct Kernel {
    pub(super) cycles: f64,
    /// Instructions that are written out in a row.
    pub(super) longest_body: f64,
}

pub(super) fn kernel(machine: &Simulated, program: &Program, stmt: &Stmt) -> Kernel {
    let nests = nests(program, stmt);
    let cycles: f64 = nests.iter().map(|nest| block(machine, nest)).sum();
    let longest_body = nests.iter().map(|nest| body(machine, nest)).fold(0.0, f64::max);
    let cycles = match stmt {
        Stmt::For(l) if l.kind == ForKind::Parallel && machine.cores > 1 => {
            let rounds = l.extent.div_ceil(machine.cores) as f64 / l.extent as f64;
            cycles * rounds + machine.dispatch
        }
        _ => cycles,
    };
    Kernel { cycles, longest_body }
}

fn block(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let vectors = vectors(machine, nest);
    let arithmetic = vectors * operations(nest) / PER_CYCLE;
    let waiting = if nest.is_reduction() { vectors * LATENCY / sums(machine, nest) } else { 0.0 };
    let registers = register_traffic(machine, nest) / PER_CYCLE;
    let long = (body(machine, nest) / SHORT_BODY).max(1.0).log2();
    let core = arithmetic.max(waiting).max(registers) * (1.0 + 0.25 * long);
    core + turns(nest) + machine.caches.iter().map(|c| cache_traffic(c, nest)).sum::<f64>()
}

/// Vectors that hold all instances of the block.
fn vectors(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let all = nest.turns(nest.loops.len());
    match nest.loops.iter().rfind(|l| l.kind == ForKind::Vectorized) {
        Some(l) => all / l.extent as f64 * (l.extent as f64 / lanes(machine, nest)).ceil(),
        None => all,
    }
}

fn lanes(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let written = nest.accesses.iter().filter(|a| a.is_written);
    let size = written.map(|a| nest.element_bytes(a)).fold(1.0, f64::max);
    (machine.vector_bytes as f64 / size).max(1.0)
}

fn operations(nest: &Nest<'_>) -> f64 {
    let mut count = f64::from(nest.is_reduction());
    nest.block.body.value().visit(&mut |e| {
        count += match e {
            Expr::Unary(UnOp::Neg | UnOp::Abs | UnOp::Not, _) | Expr::Select(..) => 1.0,
            Expr::Unary(..) => FUNCTION,
            Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Max | BinOp::Min, ..)
            | Expr::Binary(BinOp::Dot4 | BinOp::Dot2 | BinOp::DotBf16, ..) => 0.5,
            Expr::Binary(..) => 2.0,
            _ => 0.0,
        }
    });
    // A multiplication and an addition are one instruction.
    (count / 1.5).max(0.5)
}

/// The loops from here on are written out one instruction after the other.
fn written_out_from(nest: &Nest<'_>) -> usize {
    nest.loops.iter().rposition(|l| !is_written_out(l)).map_or(0, |last| last + 1)
}

/// Instructions in the innermost loop that is not written out.
fn body(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let written_out = &nest.loops[written_out_from(nest)..];
    let copies: f64 = written_out.iter().map(|l| l.extent as f64).product();
    let in_vectors = written_out.iter().any(|l| l.kind == ForKind::Vectorized);
    let lanes = if in_vectors { lanes(machine, nest) } else { 1.0 };
    (copies / lanes).max(1.0) * (operations(nest) + nest.accesses.len() as f64)
}

/// Vectors of sums that do not wait for each other, as many as help.
fn sums(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let Some(written) = nest.accesses.iter().find(|a| a.is_written) else { return 1.0 };
    let moving = nest.loops[written_out_from(nest)..]
        .iter()
        .filter(|l| nest.stride(written, l.var) != Stride::Same);
    let elements: f64 = moving.map(|l| l.extent as f64).product();
    (elements / lanes(machine, nest)).clamp(1.0, LATENCY * PER_CYCLE)
}

/// Loads and stores of registers. An access that a written-out loop does not move stays in its
/// register.
fn register_traffic(machine: &Simulated, nest: &Nest<'_>) -> f64 {
    let inner = written_out_from(nest);
    let needed: f64 = nest.accesses.iter().map(|a| in_registers(machine, nest, a, inner)).sum();
    let spills = (needed / machine.registers as f64).max(1.0);
    let of = |access: &Reach<'_>| {
        let mut outside = nest.turns(inner);
        // Nor does it leave it while the loops just outside do not move it.
        for l in nest.loops[..inner].iter().rev() {
            if nest.stride(access, l.var) != Stride::Same {
                break;
            }
            outside /= l.extent as f64;
        }
        let kept = if spills > 1.0 { nest.turns(inner) } else { outside };
        kept * moved(machine, nest, access, inner)
    };
    nest.accesses.iter().map(of).sum::<f64>() * spills
}

/// Registers of an access in the loops that are written out.
fn in_registers(machine: &Simulated, nest: &Nest<'_>, access: &Reach<'_>, inner: usize) -> f64 {
    // Data that are only read pass through one register.
    if access.is_written { moved(machine, nest, access, inner) } else { 1.0 }
}

/// Instructions that load or store what an access touches in the loops that are written out.
fn moved(machine: &Simulated, nest: &Nest<'_>, access: &Reach<'_>, inner: usize) -> f64 {
    let lanes = lanes(machine, nest);
    let each = nest.loops[inner..].iter().map(|l| match (nest.stride(access, l.var), l.kind) {
        (Stride::Same, _) => 1.0,
        (Stride::Next, ForKind::Vectorized) => (l.extent as f64 / lanes).ceil(),
        _ => l.extent as f64,
    });
    each.product()
}

fn turns(nest: &Nest<'_>) -> f64 {
    let counted = nest.loops.iter().enumerate().filter(|(_, l)| !is_written_out(l));
    counted.map(|(depth, _)| nest.turns(depth + 1) * TURN).sum()
}

/// Cycles to fetch what does not stay in a cache: of the outermost loops whose data fit, all that
/// they touch comes in each time they run, less what loops just outside do not move.
fn cache_traffic(cache: &Cache, nest: &Nest<'_>) -> f64 {
    let footprint = |depth: usize| nest.accesses.iter().map(|a| nest.bytes(a, depth)).sum::<f64>();
    let fits = (0..=nest.loops.len()).find(|&depth| footprint(depth) <= cache.bytes);
    let depth = fits.unwrap_or(nest.loops.len());
    let of = |access: &Reach<'_>| {
        let mut times = nest.turns(depth);
        for l in nest.loops[..depth].iter().rev() {
            if nest.stride(access, l.var) != Stride::Same {
                break;
            }
            times /= l.extent as f64;
        }
        nest.bytes(access, depth) * times
    };
    // If all data fit in the cache, most of them were there before.
    let cold = if depth == 0 { 0.25 } else { 1.0 };
    nest.accesses.iter().map(of).sum::<f64>() * cold / cache.bytes_per_cycle
}
