//! The choices of a schedule that nobody tuned: by price, without measuring.
//!
//! A rule's first candidates are what it takes for the cheapest; most are right. Where another
//! candidate changes how a program is built, and not only by how much it is written out, programs
//! are made of each and priced ([`price`](crate::price)), and one that is clearly cheaper is taken.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::price;
use crate::rules::{Sketch, gpu, nests};
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{StepError, Unfit};

/// Another program must cost less than this share of the first: prices are no more exact than that.
const CLEARLY: f64 = 0.8;
/// The same of prices that measurements correct.
const CLEARLY_CORRECTED: f64 = 0.9;

fn clearly(task: &Task) -> f64 {
    if task.machine.correction.0.is_some() { CLEARLY_CORRECTED } else { CLEARLY }
}

/// The schedule that nobody tuned, of the task as the algorithm computes it. None if that does not
/// apply, or if a GPU does not take it.
pub(crate) fn untuned(task: &Arc<Task>, by: Option<Algorithm>) -> Option<(Sketch, Scheduled)> {
    made(task, by).map(Made::into_parts)
}

fn made(task: &Arc<Task>, by: Option<Algorithm>) -> Option<Made> {
    match &task.gpu {
        Some(_) => by.is_none().then(|| on_gpu(task).ok()).flatten().map(Made::new),
        None => by_rules(task, by).or_else(|| nests::naive(task, by).map(Made::new)),
    }
}

/// A sketch with its program, which is priced once.
struct Made {
    sketch: Sketch,
    scheduled: Scheduled,
    price: OnceCell<f64>,
}

impl Made {
    fn new((sketch, scheduled): (Sketch, Scheduled)) -> Made {
        Made { sketch, scheduled, price: OnceCell::new() }
    }

    fn price(&self, task: &Task) -> f64 {
        *self.price.get_or_init(|| price::cycles(&self.scheduled.program, &task.machine))
    }

    /// Whether it is clearly cheaper than the other one.
    fn beats(&self, other: &Made, task: &Task) -> bool {
        self.price(task) < clearly(task) * other.price(task)
    }

    fn into_parts(self) -> (Sketch, Scheduled) {
        (self.sketch, self.scheduled)
    }
}

/// The schedule of a kernel that nobody tuned.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// None if it is computed as the expression says.
    pub by: Option<Algorithm>,
    /// The sketch, with its decisions.
    pub sketch: Sketch,
    /// The program.
    pub scheduled: Scheduled,
}

/// The schedule that nobody tuned, as a choice.
pub(crate) fn by(task: &Arc<Task>, by: Option<Algorithm>) -> Option<Choice> {
    untuned(task, by).map(|(sketch, scheduled)| Choice { by, sketch, scheduled })
}

/// The sketch that rules make of the task. Slices pay by the bytes that they save, so that they are
/// taken unless another sketch is clearly cheaper.
fn by_rules(task: &Arc<Task>, by: Option<Algorithm>) -> Option<Made> {
    let made = nests::families(task, by).map(|ways| first_or_cheaper(task, ways));
    let [maps, contractions, sliced] = made;
    let whole = cheapest(task, [maps, contractions].into_iter().flatten());
    match (whole, sliced) {
        (Some(whole), Some(sliced)) if whole.beats(&sliced, task) => Some(whole),
        (whole, sliced) => sliced.or(whole),
    }
}

fn cheapest(task: &Task, made: impl Iterator<Item = Made>) -> Option<Made> {
    made.min_by(|a, b| a.price(task).total_cmp(&b.price(task)))
}

/// The first way, unless another one is clearly cheaper.
fn first_or_cheaper(task: &Task, ways: Vec<(Sketch, Scheduled)>) -> Option<Made> {
    let mut ways = ways.into_iter().map(Made::new);
    let first = ways.next()?;
    let best = cheapest(task, ways).filter(|best| best.beats(&first, task));
    Some(best.unwrap_or(first))
}

/// The algorithm with the cheapest program, if that is clearly cheaper than that of the expression.
pub(crate) fn cheapest_of(task: &Arc<Task>, algorithms: &[Algorithm]) -> Option<Choice> {
    let direct = made(task, None)?;
    let others = algorithms.iter().filter_map(|&by| Some((by, made(task, Some(by))?)));
    let best = others.min_by(|(_, a), (_, b)| a.price(task).total_cmp(&b.price(task)));
    let best = best.filter(|(_, best)| best.beats(&direct, task));
    let (by, made) = best.map_or((None, direct), |(by, best)| (Some(by), best));
    Some(Choice { by, sketch: made.sketch, scheduled: made.scheduled })
}

/// The product in tiles of a unit for matrices: none if there is no such unit or product, or if its
/// price is not clearly less than that of a schedule without them.
pub(crate) fn in_tiles(task: &Arc<Task>) -> Option<(Sketch, Scheduled)> {
    let tiled = Made::new(nests::tensor_sketches(task).into_iter().next()?);
    let without = made(task, None)?;
    tiled.beats(&without, task).then(|| tiled.into_parts())
}

/// The product that the tensor cores of a GPU multiply: none if there is no such product or device,
/// or if its price is not clearly less than that of a schedule without them.
pub(crate) fn by_tensor_cores(task: &Arc<Task>) -> Option<(Sketch, Scheduled)> {
    let sketch = gpu::tensor::sketch(task)?;
    let sample = task.sample(&sketch.trace, Unfit::Refuse, &mut crate::rules::fixed_random());
    let scheduled = sample.ok()?.scheduled;
    let (_, without) = nests::gpu::sketch(task).ok()?;
    let is_cheaper =
        price::gpu::cycles(&scheduled.program) < CLEARLY * price::gpu::cycles(&without.program);
    is_cheaper.then_some((sketch, scheduled))
}

/// The schedule of a GPU that nobody tuned: by tensor cores where they are worth it, otherwise what
/// rules write down to threads.
pub(crate) fn on_gpu(task: &Arc<Task>) -> Result<(Sketch, Scheduled), StepError> {
    by_tensor_cores(task).map_or_else(|| nests::gpu::sketch(task), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Features, features};
    use crate::machine::{Correction, Corrects, Machine};
    use crate::testing::{SOFTMAX, candidates, compare_scheduled, task};
    use crate::trace::{Decision, Instruction};

    /// Points of windows, one by one, or rows of them.
    const WINDOWS: &str = "compute(in0: f32[2, 8, 20, 30]) -> y {
      s: f32[2, 8, 9, 14] = sum{r0: 3, r1: 3} in0[i0, i1, add(mul(i2, 2), r0), add(mul(i3, 2), r1)]
      y: f32[2, 8, 9, 14] = mul(s[i0, i1, i2, i3], 0.125_f32)
    }";

    /// Stages that rules schedule for a price that is no higher: a map, squares, a join.
    const RULED: [&str; 3] = [
        "compute(in0: f32[64, 100], in1: f32[100]) -> y {
          y: f32[64, 100] = add(in0[i0, i1], in1[i1])
        }",
        "compute(in0: f32[64, 96]) -> y { y: f32[96, 64] = neg(in0[i1, i0]) }",
        "compute(in0: f32[5, 61], in1: f32[5, 7]) -> y {
          y: f32[5, 68] = select(lt(i1, 61), in0[i0, i1], in1[i0, sub(i1, 61)])
        }",
    ];

    const COLUMNS: &str =
        "compute(in0: f32[2, 64, 100]) -> y { y: f32[2, 100] = sum{r0: 64} in0[i0, r0, i1] }";

    /// Knows a program that is much faster than its price says.
    struct Favours(Features);

    impl Corrects for Favours {
        fn correction(&self, features: &Features) -> f64 {
            if features.rows == self.0.rows { -9.0 } else { 0.0 }
        }
    }

    /// Whichever schedule measurements favour, it is the one that nobody tuned.
    #[test]
    fn corrected_prices_decide() {
        for text in [WINDOWS, SOFTMAX] {
            let plain = task(text);
            let rivals = plain.rivals();
            let own = rivals.iter().filter(|rival| rival.by.is_none());
            let all: Vec<&Choice> = own.collect();
            assert!(all.len() > 1, "{text}");
            for rival in &all {
                let learned = Favours(features(&rival.scheduled.program));
                let correction = Correction(Some(Arc::new(learned)));
                let machine = Machine { correction, ..plain.machine.clone() };
                let favoured = Arc::new(Task { machine, ..Task::clone(&plain) });
                let chosen = features(&favoured.scheduled().program);
                assert_eq!(chosen, features(&rival.scheduled.program), "{text}");
            }
        }
    }

    /// A task that nobody tuned gets the first sketch, with the first candidate of every choice.
    #[test]
    fn rules_schedule_what_they_know() {
        for text in RULED {
            let task = task(text);
            let trace = task.untuned();
            let completes = |i: &Instruction| matches!(i, Instruction::Complete { .. });
            assert!(trace.steps.iter().any(completes), "{trace}");
            assert_eq!(task.sketches()[0].trace, trace.clone().undecided());
            let is_first =
                |step: &usize| trace.steps[*step].decision() == Some(&Decision::Choice(0));
            assert!(trace.choices().iter().all(is_first), "{trace}");
        }
    }

    /// A pool of windows shares fewer axes than it could, a softmax all of them.
    #[test]
    fn rows_are_longer_where_points_would_be_alone() {
        let first = |text: &str| task(text).sketches().swap_remove(0).trace;
        let ways = |text: &str| nests::sketches(&task(text), None);
        assert_ne!(first(WINDOWS), ways(WINDOWS)[0].0.trace.clone().undecided());
        assert_eq!(first(SOFTMAX), ways(SOFTMAX)[0].0.trace.clone().undecided());
    }

    /// Every decision of the trace that nobody tuned can be another, and the program computes the
    /// same.
    #[test]
    fn every_choice_computes_the_same() {
        let random = &mut crate::rules::fixed_random();
        for text in RULED.iter().chain([&WINDOWS, &SOFTMAX, &COLUMNS]) {
            let task = task(text);
            let trace = task.untuned();
            let chosen = task.sample(&trace, Unfit::Refuse, random).unwrap();
            assert_eq!(chosen.scheduled, task.scheduled());
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
