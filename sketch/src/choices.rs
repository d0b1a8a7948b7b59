//! Loops are cut where a choice changes, so that no iteration chooses.
//!
//! ```text
//! for i in 0..32 { vectorized l { y[i * 16 + l] = select(i * 16 + l < 128, a[..], select(i * 16 + l < 160, b[..], c[..])) } }
//! =>
//! for i in 0..8 { .. a[..] }  for i in 0..2 { .. b[..] }  for i in 0..22 { .. c[..] }
//! ```
//!
//! A stage that joins several tensors is such a chain of choices. All of their values would be
//! loaded, under masks, for each vector.

use ansc_graph::Expr;

use crate::budget;
use crate::machine::Machine;
use crate::program::{Block, Body, For, ForKind, Program, Stmt};
use crate::schedule::{LoopRef, Schedule};
use crate::tree;

/// Parts of one loop: more would be much code for short loops.
const MOST_PARTS: usize = 64;

/// The same program with its innermost loops in parts, unless it becomes too much code by that.
pub(crate) fn apart(program: Program, machine: &Machine) -> Program {
    let loops = choosing(&program);
    if loops.is_empty() {
        return program;
    }
    let mut schedule = Schedule::new(program.clone());
    for l in loops {
        let mut last = l;
        for _ in 0..MOST_PARTS {
            match schedule.partition_guards(last).as_deref() {
                Ok([_, .., rest]) => last = *rest,
                _ => break,
            }
        }
    }
    let parted = schedule.into_program();
    match budget::check(&crate::finish(parted.clone()), machine) {
        Ok(()) => parted,
        Err(_) => program,
    }
}

/// Whether there is a loop to cut.
pub(crate) fn has_choices(program: &Program) -> bool {
    !choosing(program).is_empty()
}

/// Serial loops around a map that chooses, with nothing but vectors and what is written out inside;
/// loops of one iteration will be gone.
fn choosing(program: &Program) -> Vec<LoopRef> {
    let mut found = vec![];
    tree::visit_loops(&program.body, &mut |l| {
        let is_loop = l.kind == ForKind::Serial && l.extent > 1;
        if is_loop && l.body.iter().all(is_straight) && l.body.iter().any(chooses) {
            found.push(LoopRef(l.var));
        }
    });
    found
}

fn is_straight(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Block(block) => matches!(block.body, Body::Assign { .. }),
        Stmt::For(l) => (l.extent == 1 || is_written_out(l)) && l.body.iter().all(is_straight),
    }
}

fn is_written_out(l: &For) -> bool {
    matches!(l.kind, ForKind::Vectorized | ForKind::Unrolled)
}

fn chooses(stmt: &Stmt) -> bool {
    let mut found = false;
    stmt.visit_blocks(&mut |block: &Block| {
        found |= block.body.value().any(&mut |e| matches!(e, Expr::Select(..)));
    });
    found
}

#[cfg(test)]
mod tests {
    use crate::testing::{compare_scheduled, task};

    const JOINED: &str = "compute(in0: f32[5, 64], in1: f32[5, 32], in2: f32[5, 48]) -> y {
      c: f32[5, 144] = select(lt(i1, 64), in0[i0, i1], select(lt(i1, 96), in1[i0, sub(i1, 64)], in2[i0, sub(i1, 96)]))
      y: f32[5, 144] = max(c[i0, i1], 0.0_f32)
    }";

    #[test]
    fn tensors_that_are_joined_are_read_without_a_choice() {
        let task = task(JOINED);
        let made = task.scheduled();
        let text = made.program.to_string();
        assert!(!text.contains("select"), "{text}");
        compare_scheduled(&task.compute, &made).unwrap();
    }

    #[test]
    fn borders_within_a_vector_are_parted_too() {
        let task = task(&JOINED.replace("64", "61").replace("144", "141").replace("96", "93"));
        let made = task.scheduled();
        assert!(!made.program.to_string().contains("select"), "{}", made.program);
        compare_scheduled(&task.compute, &made).unwrap();
    }
}
