//! The choices of a schedule that nobody tuned: by price, without measuring.
//!
//! A rule's first candidates are what it takes for the cheapest; most are right. Where another
//! candidate changes how a program is built, and not only by how much it is written out, programs
//! are made of each and priced ([`price`](crate::price)), and one that is clearly cheaper is taken.
//!
//! ```text
//! field     = the program that the analytic price chooses, and those that lost to it
//! the choice  is the former, or the one of least corrected price, where that is clearly less
//! ```
//! So what measurements taught moves a choice only where it says something that counts.

mod estimate;
mod untuned;

use std::cell::OnceCell;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::contraction::is_tileable;
use crate::machine::Parts;
use crate::price;
use crate::rules::{Sketch, gpu, nests};
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::trace::{StepError, Unfit};

/// Another program must cost less than this share of the first: prices are no more exact than that.
const CLEARLY: f64 = 0.8;
/// The same of prices that measurements correct, of a program that lost by the analytic one.
pub const CLEARLY_CORRECTED: f64 = 0.85;

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

/// The schedule that nobody tuned, of the task as the algorithm computes it. None if that does not
/// apply, or if a GPU does not take it.
pub(crate) fn untuned(task: &Arc<Task>, by: Option<Algorithm>) -> Option<(Sketch, Scheduled)> {
    let choice = field(task, by)?.decide(task);
    Some((choice.sketch, choice.scheduled))
}

/// A choice with the analytic price of its program, which is made once.
struct Made {
    choice: Choice,
    parts: OnceCell<Parts>,
}

impl Made {
    fn new(by: Option<Algorithm>, (sketch, scheduled): (Sketch, Scheduled)) -> Made {
        Made { choice: Choice { by, sketch, scheduled }, parts: OnceCell::new() }
    }

    fn parts(&self, task: &Task) -> Parts {
        let program = &self.choice.scheduled.program;
        *self.parts.get_or_init(|| Parts::of(program, &task.machine))
    }

    /// The analytic one.
    fn price(&self, task: &Task) -> f64 {
        self.parts(task).cycles()
    }

    fn corrected(&self, task: &Task) -> f64 {
        price::corrected(&self.choice.scheduled.program, &task.machine, self.parts(task))
    }

    /// Whether it is clearly cheaper than the other one.
    fn beats(&self, other: &Made, task: &Task) -> bool {
        self.price(task) < CLEARLY * other.price(task)
    }
}

/// The programs that there are to choose from.
pub(crate) struct Field {
    first: Made,
    others: Vec<Made>,
}

impl Field {
    fn of(first: Made) -> Field {
        Field { first, others: vec![] }
    }

    /// Joins two fields. The first of `other` is the choice only if it is clearly cheaper.
    fn or_clearly(self, other: Field, task: &Task) -> Field {
        let wins = other.first.beats(&self.first, task);
        if wins { other.and(self) } else { self.and(other) }
    }

    /// Joins two fields. The choice is the cheaper one of their first.
    fn or_cheaper(self, other: Field, task: &Task) -> Field {
        let wins = other.first.price(task) < self.first.price(task);
        if wins { other.and(self) } else { self.and(other) }
    }

    /// Joins two fields. The first of this one is the choice.
    pub(crate) fn and(mut self, lost: Field) -> Field {
        self.others.push(lost.first);
        self.others.extend(lost.others);
        self
    }

    /// The choice.
    pub(crate) fn decide(self, task: &Task) -> Choice {
        let is_corrected = task.machine.correction.0.is_some() && is_of_one_product(task);
        if self.others.is_empty() || !is_corrected {
            return self.first.choice;
        }
        let first = self.first.corrected(task);
        let priced = self.others.into_iter().map(|made| (made.corrected(task), made));
        let best = priced.min_by(|(a, _), (b, _)| a.total_cmp(b));
        match best.filter(|(price, _)| *price < CLEARLY_CORRECTED * first) {
            Some((_, best)) => best.choice,
            None => self.first.choice,
        }
    }

    /// All of them; the analytic price chooses the first.
    pub(crate) fn choices(self) -> impl Iterator<Item = Choice> {
        [self.first].into_iter().chain(self.others).map(|made| made.choice)
    }
}

/// Whether it is a kernel of the kind that prices are corrected for: measurements were of kernels
/// with one product at most.
fn is_of_one_product(task: &Task) -> bool {
    task.compute.stages.iter().filter(|s| is_tileable(s)).count() <= 1
}

/// The programs of the task as the algorithm computes it.
pub(crate) fn field(task: &Arc<Task>, by: Option<Algorithm>) -> Option<Field> {
    let alone = |made| Field::of(Made::new(by, made));
    match &task.gpu {
        Some(_) => by.is_none().then(|| on_gpu(task).ok()).flatten().map(alone),
        None => by_rules(task, by).or_else(|| nests::naive(task, by).map(alone)),
    }
}

/// Rules write several programs of the task. Slices pay by the bytes that they save, so that they
/// are taken unless another sketch is clearly cheaper.
fn by_rules(task: &Arc<Task>, by: Option<Algorithm>) -> Option<Field> {
    let families = nests::families(task, by);
    let [maps, contractions, sliced] = families.map(|ways| first_or_cheaper(task, by, ways));
    let whole = either(maps, contractions, |maps, other| maps.or_cheaper(other, task));
    either(sliced, whole, |sliced, whole| sliced.or_clearly(whole, task))
}

pub(crate) fn either(
    a: Option<Field>,
    b: Option<Field>,
    both: impl FnOnce(Field, Field) -> Field,
) -> Option<Field> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

/// Joins fields. The choice is the cheapest one of their first.
pub(crate) fn cheapest(task: &Task, fields: impl Iterator<Item = Field>) -> Option<Field> {
    fields.reduce(|a, b| a.or_cheaper(b, task))
}

/// The first way, unless another one is clearly cheaper.
fn first_or_cheaper(
    task: &Task,
    by: Option<Algorithm>,
    ways: Vec<(Sketch, Scheduled)>,
) -> Option<Field> {
    let mut ways = ways.into_iter().map(|made| Field::of(Made::new(by, made)));
    let first = ways.next();
    either(first, cheapest(task, ways), |first, best| first.or_clearly(best, task))
}

/// The algorithm with the cheapest program, if that is clearly cheaper than that of the expression.
pub(crate) fn cheapest_of(task: &Arc<Task>, algorithms: &[Algorithm]) -> Option<Field> {
    let direct = field(task, None)?;
    let others = algorithms.iter().filter_map(|&by| field(task, Some(by)));
    either(Some(direct), cheapest(task, others), |direct, best| direct.or_clearly(best, task))
}

/// The product in tiles of a unit for matrices: none if there is no such unit or product, or if its
/// price is not clearly less than that of a schedule without them.
pub(crate) fn in_tiles(task: &Arc<Task>) -> Option<Field> {
    let tiled = nests::amx_sketches(task).into_iter().next()?;
    let tiled = Made::new(Some(Algorithm::Tiles), tiled);
    let without = field(task, None)?;
    tiled.beats(&without.first, task).then(|| Field::of(tiled).and(without))
}

/// The product that the tensor cores of a GPU multiply: none if there is no such product or device,
/// or if its price is not clearly less than that of a schedule without them.
pub(crate) fn by_tensor_cores(task: &Arc<Task>) -> Option<(Sketch, Scheduled)> {
    let limits = task.gpu.as_ref()?;
    let sketch = gpu::mma::sketches(task).into_iter().next()?;
    let sample = task.sample(&sketch.trace, Unfit::Refuse, &mut crate::rules::fixed_random());
    let scheduled = sample.ok()?.scheduled;
    let (_, without) = nests::gpu::sketch(task).ok()?;
    let price = |made: &Scheduled| price::gpu::cycles(&made.program, limits);
    (price(&scheduled) < CLEARLY * price(&without)).then_some((sketch, scheduled))
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
    use crate::program::Program;
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
        fn correction(&self, program: &Program, _: Parts) -> f64 {
            if features(program).rows == self.0.rows { -9.0 } else { 0.0 }
        }
    }

    /// Whichever schedule measurements favour, it is the one that nobody tuned.
    #[test]
    fn corrected_prices_decide() {
        for text in [WINDOWS, SOFTMAX] {
            let plain = task(text);
            let all = plain.considered();
            assert!(all.len() > 1, "{text}");
            assert_eq!(all[0], plain.choice().unwrap());
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
