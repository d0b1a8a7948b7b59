//! The loops of a sketch, whatever lengths they have: blocks that may be computed anywhere stay
//! where they are.

use std::fmt::Write;

use ansc_graph::VarId;
use ansc_sketch::rules::Sketch;
use ansc_sketch::trace::{Decision, Instruction, Unfit};
use ansc_sketch::{Program, Schedule, Stmt};
use rand::SeedableRng;
use rand::rngs::StdRng;

pub(crate) fn of(sketch: &Sketch, program: Program) -> String {
    let mut trace = sketch.trace.clone();
    for step in trace.choices() {
        if matches!(trace.steps[step], Instruction::SampleComputeLocation { .. }) {
            trace = trace.decide(step, Decision::Choice(Decision::ROOT));
        }
    }
    let random = &mut StdRng::seed_from_u64(0);
    let replayed = trace.replay(program, Unfit::Refuse, random).expect("a sketch replays");
    let mut text = String::new();
    let schedule = replayed.schedule();
    schedule.program().body.iter().for_each(|s| write(&mut text, schedule, s, 1));
    text
}

/// Loops that contain nothing but the next one are on one line.
fn write(text: &mut String, schedule: &Schedule, stmt: &Stmt, depth: usize) {
    let indent = "  ".repeat(depth);
    let (mut names, mut at) = (vec![], stmt);
    while let Stmt::For(l) = at {
        names.push(name(schedule, l.var));
        let [only] = l.body.as_slice() else {
            writeln!(text, "{indent}for {}", names.join(", ")).unwrap();
            l.body.iter().for_each(|s| write(text, schedule, s, depth + 1));
            return;
        };
        at = only;
    }
    let Stmt::Block(block) = at else { return };
    if !names.is_empty() {
        writeln!(text, "{indent}for {}", names.join(", ")).unwrap();
    }
    let inner = "  ".repeat(depth + usize::from(!names.is_empty()));
    let reduced = schedule.reduction_loops(&block.name).expect("a block of the program");
    let reduced = reduced.into_iter().map(|l| schedule.for_loop(l).expect("a loop of the program"));
    let reduced: Vec<String> = reduced.map(|l| name(schedule, l.var)).collect();
    let over = if reduced.is_empty() { "" } else { " reduces " };
    writeln!(text, "{inner}{}{over}{}", block.name, reduced.join(", ")).unwrap();
}

fn name(schedule: &Schedule, var: VarId) -> String {
    schedule.program().vars[var.index()].clone()
}
