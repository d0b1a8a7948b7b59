//! The sketch of a subgraph whose first candidates are what nobody tuned gets.
//!
//! Stages that cheaply transform elements vanish into their readers. Then rules walk over the
//! stages in their order: the first one that knows a stage writes its nest with primitives, down
//! to vectors and threads. Every choice is a sampling instruction, whose first candidate is what
//! the rule takes for the fastest.
//!
//! ```text
//! y[v0, v1] = exp(x[v0, v1] + b[v1])
//! =>
//! b0 = get_block("y"); l1, l2 = get_loops(b0); v3 = sample_categorical([1, 2, 4])
//! l4, l5, l6 = split(l2, [0, v3, 16]); unroll(l5); vectorize(l6); peel(l4); parallel(l1)
//! ```

mod amx;
mod contraction;
pub(crate) mod gpu;
mod joins;
mod parts;
mod points;
mod rows;
mod scans;
mod slices;
mod squares;
mod transform;

pub(super) use amx::keep_last_map;

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use ansc_graph::{BufId, Compute, Stage};

use super::Sketch;
use crate::algorithm::Algorithm;
use crate::algorithm::tiles;
use crate::choices::has_choices;
use crate::inline::{self, Padding};
use crate::packed::in_turn;
use crate::program::Scope;
use crate::raise::raise;
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError, Trace};
use crate::walk;

/// The nests of a subgraph, as they are written.
#[derive(Clone)]
struct Nests {
    task: Arc<Task>,
    /// The subgraph when cheap stages have vanished and axes are collapsed. A stage has the name of
    /// its block.
    compute: Arc<Compute>,
    recorder: Recorder,
    /// Loops around every nest, over slices: the rules schedule what is inside, as if there were
    /// nothing else.
    outer: usize,
    /// The first stage that is made slice by slice, where there are slices.
    sliced: usize,
}

/// Writes the nest of the stage, and of some after it, if they are of the rule's kind; tells how
/// many stages it took. There may be several ways, of which the rule expects the first to be the
/// fastest.
type Rule = fn(&mut Nests, stage: usize, way: &Way) -> Result<Option<usize>, StepError>;

/// Which of their ways rules are to write. If none of them asks, the other ways are the same.
struct Way {
    number: usize,
    is_asked: Cell<bool>,
}

impl Way {
    fn new(number: usize) -> Way {
        Way { number, is_asked: Cell::new(false) }
    }

    fn number(&self) -> usize {
        self.is_asked.set(true);
        self.number
    }
}

const RULES: [(&str, Rule); 8] = [
    ("amx", amx::apply),
    ("panels", amx::panels::apply),
    ("transform", transform::apply),
    ("scans", scans::apply),
    ("rows", rows::apply),
    ("squares", squares::apply),
    ("joins", joins::apply),
    ("points", points::apply),
];

/// The same for axes as they are, not collapsed.
const WITH_CONTRACTIONS: [(&str, Rule); 5] = [
    ("transform", transform::apply),
    (CONTRACTION, contraction::apply),
    ("rows", rows::apply),
    ("squares", squares::apply),
    ("points", points::apply),
];
const CONTRACTION: &str = "contraction";
/// Ways that rules have at most.
const WAYS: usize = 4;

/// All sketches, in families of those that differ little, of which the first is the fastest.
pub(crate) fn families(task: &Arc<Task>, by: Option<Algorithm>) -> [Vec<(Sketch, Scheduled)>; 3] {
    let maps = sketches(task, by);
    let as_they_are = as_they_are_sketches(task, by, !maps.is_empty());
    [maps, as_they_are, sliced_sketches(task, by)]
}

/// The sketches of a subgraph, as it is or as an algorithm computes it, with the program that each
/// is by its first candidates. None where there is a stage that no rule knows.
pub(crate) fn sketches(task: &Arc<Task>, by: Option<Algorithm>) -> Vec<(Sketch, Scheduled)> {
    let nests = Nests::new(task, by);
    nests.map_or(vec![], |nests| all_ways(|way| nests.clone().written(way, &RULES), in_parts))
}

/// The same for subgraphs with contractions; of others there is none.
pub(crate) fn contraction_sketches(
    task: &Arc<Task>,
    by: Option<Algorithm>,
) -> Vec<(Sketch, Scheduled)> {
    as_they_are_sketches(task, by, true)
}

/// The sketches of a subgraph whose axes are as they were. Where there are `others`, only those in
/// which that gives other nests: there is a contraction, or rows are shorter than a vector, so that
/// it matters how many axes stages share.
fn as_they_are_sketches(
    task: &Arc<Task>,
    by: Option<Algorithm>,
    others: bool,
) -> Vec<(Sketch, Scheduled)> {
    let Ok(nests) = Nests::as_they_are(task, by) else { return vec![] };
    let differs = !others || nests.has_short_rows();
    let written = |way: &Way| nests.clone().written(way, &WITH_CONTRACTIONS);
    all_ways(written, |made| {
        let is_wanted = differs || has_contraction(&made.1);
        is_wanted.then(|| in_parts(made)).flatten()
    })
}

/// The same for subgraphs whose stages feed one another slice by slice, where that pays.
pub(crate) fn sliced_sketches(task: &Arc<Task>, by: Option<Algorithm>) -> Vec<(Sketch, Scheduled)> {
    let Ok(nests) = Nests::as_they_are(task, by) else { return vec![] };
    let written = |(nests, cuts): (Nests, slices::Cuts)| {
        all_ways(|way| slices::written(nests.clone(), &cuts, way), in_parts)
    };
    slices::cut(nests).map_or(vec![], written)
}

/// The same for each possible cut, whether it pays or not.
#[cfg(test)]
pub(crate) fn every_slice(
    task: &Arc<Task>,
    by: Option<Algorithm>,
) -> Vec<Option<(Sketch, Scheduled)>> {
    let nests = Nests::as_they_are(task, by).expect("a subgraph");
    let cuts = slices::every_cut(&nests);
    cuts.iter().map(|cuts| in_parts(slices::written(nests.clone(), cuts, &Way::new(0))?)).collect()
}

/// The program to which nothing is done: what is left where no rule knows a stage, or all would be
/// more code than a kernel may have.
pub(crate) fn naive(task: &Arc<Task>, by: Option<Algorithm>) -> Option<(Sketch, Scheduled)> {
    let mut recorder = Recorder::of_task(task.clone());
    by.map_or(Ok(()), |algorithm| recorder.algorithm(algorithm)).ok()?;
    completed(recorder, vec![])
}

/// The sketch of nests whose last instruction parts choices among tensors, if there are some.
fn in_parts((mut nests, rules): (Nests, Vec<String>)) -> Option<(Sketch, Scheduled)> {
    if has_choices(nests.recorder.schedule().program()) {
        nests.recorder.partition_choices().ok()?;
    }
    complete((nests, rules))
}

/// Whether the rule of contractions wrote one of the nests.
pub(crate) fn has_contraction(rules: &[String]) -> bool {
    rules.iter().any(|rule| rule == CONTRACTION)
}

/// The same for a product in tiles. None where there is none, or the machine has no unit for it.
pub(crate) fn amx_sketches(task: &Arc<Task>) -> Vec<(Sketch, Scheduled)> {
    match tiles::factors(task) {
        Some(factors) if amx::has_unit(task, factors) => {
            let nests = Nests::in_tiles(task);
            nests.map_or(vec![], |nests| {
                all_ways(|way| nests.clone().written(way, &RULES), complete)
            })
        }
        _ => vec![],
    }
}

/// A completed sketch for each way.
fn all_ways(
    written: impl Fn(&Way) -> Option<(Nests, Vec<String>)>,
    complete: impl Fn((Nests, Vec<String>)) -> Option<(Sketch, Scheduled)>,
) -> Vec<(Sketch, Scheduled)> {
    let (mut all, mut known): (Vec<(Sketch, Scheduled)>, Vec<Trace>) = (vec![], vec![]);
    for way in (0..WAYS).map(Way::new) {
        if let Some(made) = written(&way) {
            // Ways that rules do not have are their last ones.
            let trace = made.0.recorder.trace();
            if known.contains(trace) {
                break;
            }
            known.push(trace.clone());
            all.extend(complete(made));
        }
        if !way.is_asked.get() {
            break;
        }
    }
    all
}

/// The sketch of all nests, and its program; `rules` wrote them.
fn complete((nests, rules): (Nests, Vec<String>)) -> Option<(Sketch, Scheduled)> {
    completed(nests.recorder, rules)
}

fn completed(mut recorder: Recorder, rules: Vec<String>) -> Option<(Sketch, Scheduled)> {
    recorder.complete().ok()?;
    let packings = recorder.packings()?.clone();
    let packings = in_turn(recorder.prepared().to_vec(), packings);
    let (schedule, trace) = recorder.into_parts();
    let scheduled = Scheduled { program: schedule.into_program(), packings };
    Some((Sketch { trace, rules }, scheduled))
}

impl Nests {
    /// Each stage by the first of the rules that knows it, with the names of these.
    fn written(self, way: &Way, rules: &[(&str, Rule)]) -> Option<(Nests, Vec<String>)> {
        self.written_from(0, way, rules)
    }

    fn written_from(
        self,
        first: usize,
        way: &Way,
        rules: &[(&str, Rule)],
    ) -> Option<(Nests, Vec<String>)> {
        let (mut nests, mut stage, mut names) = (self, first, vec![]);
        while stage < nests.compute.stages.len() {
            if nests.stage(stage).ty.is_empty() {
                stage += 1;
                continue;
            }
            let applied = rules.iter().find_map(|(name, rule)| {
                let mut changed = nests.clone();
                let stages = rule(&mut changed, stage, way).ok()??;
                Some((*name, stages, changed))
            });
            let (name, stages, changed) = applied?;
            names.push(name.to_owned());
            (nests, stage) = (changed, stage + stages);
        }
        Some((nests, names))
    }

    /// Cheap stages have vanished, and that is all.
    fn as_they_are(task: &Arc<Task>, by: Option<Algorithm>) -> Result<Nests, StepError> {
        Nests::of(inlined(task, by)?)
    }

    /// The same, where a map of its own stores what the last stage gives.
    fn stored(mut self) -> Result<Nests, StepError> {
        let last = self.block(self.compute.stages.len() - 1)?;
        self.recorder.cache_write(last, Scope::Local)?;
        Nests::of(self.recorder)
    }

    /// The same with axes collapsed.
    fn new(task: &Arc<Task>, by: Option<Algorithm>) -> Result<Nests, StepError> {
        let mut recorder = inlined(task, by)?;
        if !task.wishes.apart {
            recorder.collapse()?;
        }
        Nests::of(recorder)
    }

    /// The nests of the subgraph's product in tiles. The factors of the product stay in memory.
    fn in_tiles(task: &Arc<Task>) -> Result<Nests, StepError> {
        let mut recorder = Recorder::of_task(task.clone());
        recorder.algorithm(Algorithm::Tiles)?;
        let compute = &recorder.task.as_ref().ok_or(StepError::NoTask)?.compute;
        let mut kept = inline::inlined(compute, Padding::Inlined).1;
        amx::keep_factors(compute, &mut kept);
        inline_all(&mut recorder, &kept)?;
        Nests::of(recorder)
    }

    fn of(recorder: Recorder) -> Result<Nests, StepError> {
        let task = recorder.task.clone().ok_or(StepError::NoTask)?;
        let compute = raise(recorder.schedule().program()).ok_or(StepError::Unfit)?;
        Ok(Nests { task, compute: Arc::new(compute), recorder, outer: 0, sliced: 0 })
    }

    fn stage(&self, stage: usize) -> &Stage {
        &self.compute.stages[stage]
    }

    /// Whether a stage makes it: where there are slices, in each of them.
    fn is_made(&self, buffer: BufId) -> bool {
        self.compute.stage_of(buffer).is_some_and(|stage| stage >= self.sliced)
    }

    fn block(&mut self, stage: usize) -> Result<BlockVar, StepError> {
        self.recorder.get_block(&self.compute.stages[stage].name)
    }

    /// The loops around a block, but for those around the whole nest.
    fn loops(&mut self, block: BlockVar) -> Result<Vec<LoopVar>, StepError> {
        Ok(self.recorder.get_loops(block)?.split_off(self.outer))
    }

    /// Runs the loop, the outermost one of its nest, in parallel. In a slice nothing does.
    fn parallel(&mut self, l: LoopVar) -> Result<(), StepError> {
        if self.outer == 0 { self.recorder.parallel(l) } else { Ok(()) }
    }

    /// A block that takes over what another one writes, which writes to local memory instead.
    fn cache_write(&mut self, block: BlockVar) -> Result<BlockVar, StepError> {
        let copy = self.recorder.cache_write(block, Scope::Local)?;
        self.in_slices(copy)?;
        Ok(copy)
    }

    /// A new nest becomes one of slices.
    fn in_slices(&mut self, block: BlockVar) -> Result<(), StepError> {
        match self.outer {
            0 => Ok(()),
            _ => slices::mark(&mut self.recorder, block),
        }
    }

    /// The block that initialises what another one updates.
    fn init_of(&mut self, block: BlockVar) -> Result<BlockVar, StepError> {
        let name = self.recorder.name_of(block)?;
        self.recorder.get_block(&format!("{name}_init"))
    }

    /// Whether there are several stages, and their rows are shorter than a vector.
    fn has_short_rows(&self) -> bool {
        let is_short = |(stage, s): (usize, &Stage)| {
            s.ty.rank() > 2 && s.ty.shape.last().is_some_and(|&n| n < self.lanes(stage))
        };
        self.compute.stages.len() > 1 && self.compute.stages.iter().enumerate().all(is_short)
    }

    /// Lanes of the stage's vectors.
    fn lanes(&self, stage: usize) -> usize {
        walk::lanes(&self.compute, &self.task.machine, self.stage(stage))
    }

    /// A loop for each group of axes that every operand walks as one.
    fn merged(
        &mut self,
        loops: &[LoopVar],
        groups: &[Range<usize>],
    ) -> Result<Vec<LoopVar>, StepError> {
        let one = |group: &Range<usize>| match &loops[group.clone()] {
            [one] => Ok(*one),
            several => self.recorder.fuse(several),
        };
        groups.iter().map(one).collect()
    }

    /// Workspaces that the block writes live in registers or on the stack.
    fn keep_local(&mut self, block: BlockVar) -> Result<(), StepError> {
        for buffer in self.recorder.workspaces(block)? {
            self.recorder.set_scope(&buffer, Scope::Local)?;
        }
        Ok(())
    }

    /// The first of the candidates, where nobody searches.
    fn choose(&mut self, candidates: &[i64]) -> Result<Number, StepError> {
        Ok(self.recorder.sample_first(candidates)?.into())
    }
}

/// The subgraph, as it is or as an algorithm computes it, without its cheap stages.
fn inlined(task: &Arc<Task>, by: Option<Algorithm>) -> Result<Recorder, StepError> {
    let mut recorder = Recorder::of_task(task.clone());
    by.map_or(Ok(()), |algorithm| recorder.algorithm(algorithm))?;
    let compute = &recorder.task.as_ref().ok_or(StepError::NoTask)?.compute;
    let kept = inline::inlined(compute, Padding::Inlined).1;
    inline_all(&mut recorder, &kept)?;
    Ok(recorder)
}

/// Lets all stages but those that are kept vanish into their readers.
pub(super) fn inline_all(recorder: &mut Recorder, kept: &[bool]) -> Result<(), StepError> {
    let blocks = recorder.schedule().blocks();
    for (block, _) in blocks.iter().zip(kept).filter(|(_, kept)| !**kept) {
        let block = recorder.get_block(block)?;
        recorder.compute_inline(block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ansc_graph::ops::cumulative::{Cumulative, cumulative};
    use ansc_graph::{BinOp, TensorType};
    use ansc_runtime::DType;
    use rand::RngExt as _;

    use super::*;
    use crate::machine::Machine;
    use crate::testing::{SOFTMAX, candidates, compare_scheduled, task};
    use crate::trace::{Decision, Unfit};

    const POINTS: [&str; 6] = [
        "compute(in0: f32[64, 96], in1: f32[96]) -> y {
          t: f32[64, 96] = add(in0[i0, i1], in1[i1])
          y: f32[64, 96] = max(t[i0, i1], 0.0_f32)
        }",
        "compute(in0: f32[64, 100], in1: f32[100]) -> y {
          y: f32[64, 100] = add(in0[i0, i1], in1[i1])
        }",
        "compute(in0: f32[4, 8, 16, 32]) -> y { y: f32[4, 8, 16, 32] = exp(in0[i0, i1, i2, i3]) }",
        "compute(in0: f32[3, 5, 7, 11]) -> y { y: f32[3, 5, 7, 11] = exp(in0[i0, i1, i2, i3]) }",
        "compute(in0: f32[100003]) -> y { y: f32[100003] = neg(in0[i0]) }",
        "compute(in0: f32[]) -> y { y: f32[] = neg(in0[]) }",
    ];

    const SQUARES: [&str; 4] = [
        "compute(in0: f32[64, 96]) -> y { y: f32[96, 64] = neg(in0[i1, i0]) }",
        "compute(in0: f32[2, 37, 21]) -> y { y: f32[2, 21, 37] = in0[i0, i2, i1] }",
        "compute(in0: f32[2, 32, 41]) -> y { y: f32[2, 41, 32] = in0[i0, i2, i1] }",
        "compute(in0: f32[2, 41, 9]) -> y { y: f32[2, 9, 41] = in0[i0, i2, i1] }",
    ];

    const ROWS: [&str; 7] = [
        SOFTMAX,
        "compute(in0: f32[64, 100]) -> y { y: f32[64] = sum{r0: 100} in0[i0, r0] }",
        "compute(in0: f32[2, 64, 100]) -> y { y: f32[2, 100] = sum{r0: 64} in0[i0, r0, i1] }",
        "compute(in0: f32[2, 64, 100]) -> y { y: i64[2, 100] = argmax{r0: 64} in0[i0, r0, i1] }",
        "compute(in0: f32[1000]) -> y { y: f32[] = sum{r0: 1000} in0[r0] }",
        "compute(in0: f32[70, 17, 50]) -> y { y: f32[70, 17] = max{r0: 50} in0[i0, i1, r0] }",
        "compute(in0: f32[20, 3, 5]) -> y { y: f32[20, 3] = max{r0: 5} in0[i0, i1, r0] }",
    ];

    const JOINS: [&str; 7] = [
        "compute(in0: f32[5, 64], in1: f32[5, 32], in2: f32[5, 48]) -> y {
          c: f32[5, 144] = select(lt(i1, 64), in0[i0, i1], select(lt(i1, 96), in1[i0, sub(i1, 64)], in2[i0, add(i1, -96)]))
          y: f32[5, 144] = max(c[i0, i1], 0.0_f32)
        }",
        "compute(in0: f32[5, 61], in1: f32[5, 7]) -> y {
          y: f32[5, 68] = select(lt(i1, 61), in0[i0, i1], in1[i0, sub(i1, 61)])
        }",
        "compute(in0: f32[2, 3, 7, 5], in1: f32[2, 4, 7, 5]) -> y {
          y: f32[2, 7, 7, 5] = select(lt(i1, 3), in0[i0, i1, i2, i3], in1[i0, sub(i1, 3), i2, i3])
        }",
        "compute(in0: f32[40, 70]) -> y {
          y: f32[40, 90] = select(and(le(9, i1), lt(i1, 79)), in0[i0, sub(i1, 9)], 0.0_f32)
        }",
        "compute(in0: f32[3, 40, 70]) -> y {
          y: f32[3, 43, 90] = select(and(and(le(2, i1), lt(i1, 42)), and(le(9, i2), lt(i2, 79))), in0[i0, sub(i1, 2), sub(i2, 9)], 0.0_f32)
        }",
        "compute(in0: f32[7, 40]) -> y {
          y: f32[9, 45] = in0[select(lt(i0, 1), sub(1, i0), select(lt(i0, 8), sub(i0, 1), sub(14, i0))), select(lt(i1, 5), sub(5, i1), sub(i1, 5))]
        }",
        PADDED_ACROSS,
    ];
    /// Columns of what is read are rows of what is written, between borders of zeros.
    const PADDED_ACROSS: &str = "compute(in0: f32[40, 21, 19]) -> y {
      y: f32[25, 21, 40] = select(and(and(le(2, i0), lt(i0, 23)), and(le(1, i1), lt(i1, 20))), in0[i2, sub(i0, 2), sub(i1, 1)], 0.0_f32)
    }";

    #[test]
    fn tensors_that_are_joined_are_read_without_a_choice() {
        for text in JOINS {
            let task = task(text);
            let (sketch, made) = sketches(&task, None).swap_remove(0);
            assert_eq!(sketch.rules, ["joins"]);
            assert!(!made.program.to_string().contains("select"), "{}", made.program);
        }
    }

    /// Rows of the first stage are no whole vectors, and its chunks no whole planes.
    #[test]
    fn pictures_of_any_size_are_scheduled() {
        let random = &mut crate::rules::fixed_random();
        for _ in 0..100 {
            let [c, h, w] = [0; 3].map(|_| random.random_range(1..100));
            let text = format!(
                "compute(in0: f32[{c}, {h}, {w}]) -> y {{
                  m: u8[{c}, {h}, {w}] = u8(round(in0[i0, i1, i2]))
                  y: u8[{h}, {p}, {c}] = select(lt(i1, {w}), m[i2, i0, i1], 128_u8)
                }}",
                p = w + 1
            );
            assert!(!sketches(&task(&text), None).is_empty(), "{text}");
        }
    }

    #[test]
    fn joins_across_rows_go_in_squares() {
        let (_, made) = sketches(&task(PADDED_ACROSS), None).swap_remove(0);
        let text = made.program.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let is_square =
            |pair: &&[&str]| pair[0].contains("vectorized") && pair[1].contains("unrolled");
        assert!(lines.windows(2).any(|pair| is_square(&pair)), "{text}");
    }

    /// Lanes are neighbours in memory: along the terms, or along the results.
    #[test]
    fn reductions_read_whole_vectors() {
        for (text, partial) in [
            ("f32[70, 17] = max{r0: 50} in0[i0, i1, r0]", true),
            ("f32[70, 50] = max{r0: 17} in0[i0, r0, i1]", false),
            ("f32[70] = max{r0: 17, r1: 50} in0[i0, r0, r1]", true),
            ("f32[17, 50] = max{r0: 70} in0[r0, i0, i1]", false),
        ] {
            let task = task(&format!("compute(in0: f32[70, 17, 50]) -> y {{ y: {text} }}"));
            let (_, made) = sketches(&task, None).swap_remove(0);
            let name = |b: &crate::program::Buffer| b.name.ends_with("_rf");
            assert_eq!(made.program.buffers.iter().any(name), partial, "{}", made.program);
        }
    }

    #[test]
    fn cumulative_sums_are_one_pass() {
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            for (shape, axis) in [
                (&[3, 5, 2][..], 1),
                (&[4, 9], 1),
                (&[16, 7], 1),
                (&[9, 83], 0),
                (&[9, 5], 0),
                (&[2, 7, 3, 19], 1),
                (&[4, 68, 8, 2], 1),
                (&[19], 0),
            ] {
                for (op, machine) in [
                    (BinOp::Add, Machine::new(16, 16)),
                    (BinOp::Mul, Machine::new(16, 16)),
                    (BinOp::Add, Machine::new(64, 32)),
                ] {
                    is_one_pass(Cumulative { axis, op, exclusive, reverse }, shape, machine);
                }
            }
        }
    }

    fn is_one_pass(attrs: Cumulative, shape: &[usize], machine: Machine) {
        let op = cumulative(attrs, &TensorType::new(DType::F32, shape)).unwrap();
        let task = Arc::new(Task { machine, ..Task::clone(&task(&op.expr.to_string())) });
        scans::apply(&mut Nests::new(&task, None).unwrap(), 0, &Way::new(0))
            .unwrap_or_else(|e| panic!("{e}: {attrs:?} of {shape:?}"));
        let (sketch, made) = sketches(&task, None).swap_remove(0);
        assert_eq!(sketch.rules, ["scans"], "{attrs:?} of {shape:?}");
        compare_scheduled(&task.compute, &made).unwrap_or_else(|e| panic!("{e}\n{}", made.program));
        let text = made.program.to_string();
        assert!(text.contains("running"), "{text}");
    }

    #[test]
    fn every_choice_computes_the_same() {
        let random = &mut crate::rules::fixed_random();
        for text in POINTS.iter().chain(&ROWS).chain(&SQUARES).chain(&JOINS) {
            let task = task(text);
            let all = sketches(&task, None);
            assert_ne!(all.len(), 0, "{text}");
            for (Sketch { trace, .. }, first) in all {
                let again = task.sample(&trace, Unfit::Refuse, random).unwrap();
                assert_eq!(again.scheduled, first);
                for step in trace.choices() {
                    for choice in 0..candidates(&trace, step) as i64 {
                        let trace = trace.clone().decide(step, Decision::Choice(choice));
                        let sample = task.sample(&trace, Unfit::Refuse, random);
                        let sample = sample.unwrap_or_else(|e| panic!("{e}\n{trace}"));
                        compare_scheduled(&task.compute, &sample.scheduled)
                            .unwrap_or_else(|e| panic!("{e}\n{}", sample.trace));
                    }
                }
            }
        }
    }
}
