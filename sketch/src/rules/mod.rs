//! Ansor's sketches: traces with free decisions, derived from the naive program by rules.
//!
//! Generation walks the stages of a program from the last to the first. At each stage the rules are
//! asked in their order; each may skip, give successors, or give successors and end the questions.
//! A state that has passed the first stage is a sketch.
//!
//! ```text
//! mm; relu  =>  1: tile mm (SSRSRS) and compute relu under its first level of tiles
//!               2: .. under its second level
//!               3: tile mm alone
//! ```
//!
//! A user adds rules with [`register`] for all tasks, or with [`Space::rule`] for one space; they
//! come before the built-in ones.

mod analysis;
mod annotate;
mod cache_write;
mod fusion;
pub(crate) mod gpu;
mod inline;
pub(crate) mod nests;
mod registry;
mod rfactor;
mod skip;
mod tiling;

#[cfg(test)]
mod tests;

pub use analysis::{elementwise_consumer, is_strictly_inlinable, needs_tiling};
pub use registry::register;
pub use tiling::tile;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::gpu::GpuLimits;
use crate::program::Program;
use crate::trace::{Recorder, StepError, Trace};

/// The rules, and the facts about the target that they use.
pub struct Space {
    /// Cores that parallel loops are spread over.
    pub cores: usize,
    /// Levels of tiles, outermost first: `S` for spatial loops, `R` for those of a reduction.
    pub structure: String,
    /// Iterations of the innermost loop of a tile at most.
    pub max_innermost: usize,
    /// Iterations that may be written out; each is as likely as the others.
    pub unroll_steps: Vec<i64>,
    /// Registers that a vector may take; each is as likely as the others. If there are none, it is
    /// no decision.
    pub vector_registers: Vec<i64>,
    /// The limits of a GPU; `None` for a CPU.
    pub gpu: Option<GpuLimits>,
    /// Whether tiles may cover more than an extent where few divide it.
    pub near_tiles: bool,
    rules: Vec<Arc<dyn Rule>>,
}

/// A program on the way to a sketch.
#[derive(Clone, Debug)]
pub struct State {
    /// Decisions are arbitrary ones; a sketch forgets them.
    pub recorder: Recorder,
    /// Names of the blocks that the walk visits, in program order.
    pub stages: Vec<String>,
    /// Stages that are still to be visited; the last of these is the current one.
    pub left: usize,
    /// Blocks whose result a cache was put before.
    pub cached: Vec<String>,
    /// Blocks that were tiled.
    pub tiled: Vec<String>,
    /// The rules that were applied.
    pub rules: Vec<String>,
}

impl State {
    /// The name of the block that the walk has come to.
    pub fn stage(&self) -> &str {
        &self.stages[self.left - 1]
    }

    /// The state with the current stage done.
    pub fn next(mut self) -> State {
        self.left -= 1;
        self
    }
}

/// The result of a rule at one block.
pub enum Outcome {
    /// The rule does not apply.
    Skip,
    /// Programs to go on with; the other rules are asked too.
    Apply(Vec<State>),
    /// Programs to go on with; the other rules are not asked.
    ApplyAndSkipRest(Vec<State>),
}

/// One derivation rule. A step that fails means that the rule does not apply.
pub trait Rule: Send + Sync {
    /// The name that reports of a sketch have.
    fn name(&self) -> &str;
    /// Tries the rule at the current stage of the program.
    fn apply(&self, space: &Space, state: &State) -> Result<Outcome, StepError>;
}

/// A schedule whose decisions are open.
#[derive(Clone, PartialEq, Debug)]
pub struct Sketch {
    /// Without decisions.
    pub trace: Trace,
    /// The rules that made it, in the order of their application.
    pub rules: Vec<String>,
}

impl Space {
    /// Ansor's rules for CPUs.
    pub fn cpu(cores: usize) -> Space {
        let rules = with_registered(vec![
            Box::new(inline::AlwaysInline),
            Box::new(rfactor::AddRfactor),
            Box::new(cache_write::AddCacheWrite),
            Box::new(fusion::TilingWithFusion { levels: vec![1, 2] }),
            Box::new(tiling::MultiLevelTiling),
            Box::new(skip::SkipStage),
        ]);
        let unroll_steps = vec![0, 16, 64, 512];
        Space {
            cores,
            structure: "SSRSRS".into(),
            max_innermost: 64,
            near_tiles: true,
            unroll_steps,
            vector_registers: vec![1, 2, 4],
            gpu: None,
            rules,
        }
    }

    /// Asks `rule` before all others.
    pub fn rule(mut self, rule: Box<dyn Rule>) -> Space {
        self.rules.insert(0, rule.into());
        self
    }

    /// Leaves rules out by their names.
    pub fn without(mut self, left_out: &dyn Fn(&str) -> bool) -> Space {
        self.rules.retain(|rule| !left_out(rule.name()));
        self
    }

    /// Every sketch of the program.
    pub fn sketches(&self, program: Program) -> Vec<Sketch> {
        let recorder = Recorder::new(program);
        let stages = recorder.schedule().blocks();
        let left = stages.len();
        let mut open =
            vec![State { recorder, stages, left, cached: vec![], tiled: vec![], rules: vec![] }];
        let mut sketches: Vec<Sketch> = vec![];
        while !open.is_empty() {
            let (done, going): (Vec<State>, Vec<State>) =
                open.into_iter().partition(|state| state.left == 0);
            for mut state in done {
                annotate::annotate(self, &mut state);
                let trace = state.recorder.into_parts().1.undecided();
                if sketches.iter().all(|s| s.trace != trace) {
                    sketches.push(Sketch { trace, rules: state.rules });
                }
            }
            open = going.iter().flat_map(|state| self.successors(state)).collect();
        }
        sketches
    }

    fn successors(&self, state: &State) -> Vec<State> {
        let mut all = vec![];
        for rule in &self.rules {
            let named = |mut states: Vec<State>| {
                states.iter_mut().for_each(|s| s.rules.push(rule.name().to_owned()));
                states
            };
            match rule.apply(self, state).unwrap_or(Outcome::Skip) {
                Outcome::Skip => {}
                Outcome::Apply(states) => all.extend(named(states)),
                Outcome::ApplyAndSkipRest(states) => {
                    all.extend(named(states));
                    break;
                }
            }
        }
        all
    }

    /// For the arbitrary decisions of states: the same every time.
    pub(crate) fn random(&self) -> StdRng {
        fixed_random()
    }
}

/// Those of users, and then those of the compiler.
fn with_registered(own: Vec<Box<dyn Rule>>) -> Vec<Arc<dyn Rule>> {
    registry::registered().into_iter().chain(own.into_iter().map(Arc::from)).collect()
}

/// The same every time: for decisions that are forgotten.
pub(crate) fn fixed_random() -> StdRng {
    StdRng::seed_from_u64(0)
}
