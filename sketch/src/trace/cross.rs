//! Which block each decision is about, and a trace that takes its decisions from two.
//!
//! ```text
//! b0 = get_block("mm"); l1 = get_loops(b0); v2, v3 = sample_perfect_tile(l1)      about "mm"
//! v4 = sample_categorical([0, 16]); annotate(b0, "unroll", v4)                    about "mm"
//! ```

use std::collections::BTreeMap;

use super::Trace;
use super::argument::Operand;
use super::instruction::{LoopVar, Outputs, ValueVar};
use super::table::Instruction;

impl Trace {
    /// For each of [`choices`](Trace::choices) the name of the block that it is about, as the trace
    /// first asked for it. A choice for the whole program is about none and left out.
    pub fn subjects(&self) -> BTreeMap<usize, String> {
        let mut walk = Walk::default();
        self.steps.iter().enumerate().for_each(|(i, step)| walk.step(i, step));
        walk.subjects
    }

    /// This trace with the decisions of `other` at the steps for which `takes` says so. None if
    /// they are not traces of one sketch.
    pub fn crossed(&self, other: &Trace, takes: &dyn Fn(usize) -> bool) -> Option<Trace> {
        if !self.same_sketch(other) {
            return None;
        }
        let mut child = self.clone();
        for step in self.choices() {
            if takes(step) {
                child.steps[step].set_decision(other.steps[step].decision().cloned());
            }
        }
        Some(child)
    }

    /// Whether the two differ in decisions only.
    pub fn same_sketch(&self, other: &Trace) -> bool {
        let bare = |step: &Instruction| {
            let mut step = step.clone();
            step.set_decision(None);
            step
        };
        let equal = |(a, b): (&Instruction, &Instruction)| a == b || bare(a) == bare(b);
        self.steps.len() == other.steps.len() && self.steps.iter().zip(&other.steps).all(equal)
    }
}

/// The names of the blocks that the variables and sampling steps of a trace are about.
#[derive(Default)]
struct Walk {
    blocks: BTreeMap<u32, String>,
    loops: BTreeMap<u32, String>,
    /// Numbers that were drawn before it was known for which block.
    open: BTreeMap<u32, usize>,
    subjects: BTreeMap<usize, String>,
}

impl Walk {
    fn step(&mut self, at: usize, step: &Instruction) {
        let operands = step.operands();
        let name = match step {
            Instruction::GetBlock { name, .. } => Some(name.clone()),
            _ => operands.iter().find_map(|operand| self.name(*operand)),
        };
        operands.iter().filter_map(|o| o.value()).for_each(|var| self.settle(var, name.clone()));
        if step.is_sampling() {
            self.subjects.extend(name.clone().map(|name| (at, name)));
        }
        match step.outputs() {
            Outputs::Value(var) => drop(self.open.insert(var.0, at)),
            Outputs::Block(var) => self.blocks.extend(name.map(|name| (var.0, name))),
            Outputs::Loop(var) => self.define_loops(&[var], name),
            Outputs::Loops(vars) => self.define_loops(vars, name),
            Outputs::None | Outputs::Values(_) => {}
        }
    }

    /// The block that an argument is about.
    fn name(&self, operand: Operand<'_>) -> Option<String> {
        match operand {
            Operand::Block(var) => self.blocks.get(&var.0).cloned(),
            Operand::Loop(var) => self.loops.get(&var.0).cloned(),
            Operand::Loops(vars) => self.loops.get(&vars.first()?.0).cloned(),
            _ => None,
        }
    }

    fn define_loops(&mut self, loops: &[LoopVar], name: Option<String>) {
        for l in loops {
            self.loops.extend(name.clone().map(|name| (l.0, name)));
        }
    }

    fn settle(&mut self, var: ValueVar, name: Option<String>) {
        let step = self.open.get(&var.0).copied();
        self.subjects.extend(step.zip(name));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use crate::rules::Space;
    use crate::testing::matmul_bias_relu;
    use crate::trace::{Trace, Unfit};

    fn samples(seeds: [u64; 2]) -> Vec<[Trace; 2]> {
        let program = || crate::lower("k", &matmul_bias_relu(24, 18, 36));
        let sketches = Space::cpu(2).sketches(program());
        let sample = |trace: &Trace, seed| {
            let random = &mut StdRng::seed_from_u64(seed);
            trace.replay(program(), Unfit::Refuse, random).unwrap().into_parts().1
        };
        sketches.iter().map(|s| seeds.map(|seed| sample(&s.trace, seed))).collect()
    }

    #[test]
    fn every_decision_of_a_sketch_is_about_a_block() {
        for [trace, _] in samples([0, 1]) {
            let subjects = trace.subjects();
            let steps: Vec<usize> = subjects.keys().copied().collect();
            assert_eq!(steps, trace.choices(), "{trace}");
            assert!(subjects.values().all(|name| name.starts_with("mm") || name == "relu"));
            assert!(subjects.values().any(|name| name.starts_with("mm")), "{trace}");
        }
    }

    #[test]
    fn a_crossed_trace_has_the_decisions_of_both() {
        let samples = samples([0, 1]);
        for [a, b] in &samples {
            let steps = a.choices();
            let child = a.crossed(b, &|step| step > steps[0]).unwrap();
            for &step in &steps {
                let parent = if step > steps[0] { b } else { a };
                assert_eq!(child.steps[step], parent.steps[step]);
            }
        }
        assert_eq!(samples[0][0].crossed(&samples[1][0], &|_| true), None);
    }
}
