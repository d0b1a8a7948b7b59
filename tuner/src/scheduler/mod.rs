//! Which task gets the next round of measurements.
//!
//! ```text
//! next() -> task --measure a round--> told(task, best so far, trials) -> next() -> ...
//! ```
//!
//! Every task gets one round; from then on the one whose next round is expected to lower the
//! objective most (`gradient`, as in Ansor §6). Pure: no clock, no thread, no measurement; the same
//! calls and the same seed give the same decisions.
//!
//! A task dies when it has no valid program after its first round, when it has no candidates left,
//! or when it did not improve for long; [`Scheduler::next`] is none when all are dead or a limit is
//! reached, and [`Scheduler::stop`] says which.

mod gradient;
mod groups;
mod objective;

#[cfg(test)]
mod tests;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use groups::Groups;
pub use objective::Objective;

/// The position of a task among those that the scheduler was made with.
pub type TaskId = usize;

/// A task with the numbers that decide how much it matters.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// How often each network executes it.
    pub uses: Vec<Use>,
    /// Operations of one execution.
    pub flops: u64,
    /// Tasks of one structure and nearly as many operations reach similar throughputs.
    pub structure: Option<String>,
}

/// How often one of several networks executes a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Use {
    /// The place of the network among all.
    pub network: usize,
    /// Executions in one run of it.
    pub weight: f64,
}

impl TaskSpec {
    /// In a run of each network.
    pub fn weight(&self) -> f64 {
        self.uses.iter().map(|each| each.weight).sum()
    }
}

/// How the next task is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// The task whose next round is expected to gain the most, by what it and similar ones
    /// reached.
    #[default]
    Gradient,
    /// The same without similar ones.
    GradientAlone,
    /// Every task in its turn.
    RoundRobin,
}

impl Policy {
    /// Every policy with its name.
    pub const NAMED: [(&str, Policy); 3] = [
        ("gradient", Policy::Gradient),
        ("gradient-alone", Policy::GradientAlone),
        ("round-robin", Policy::RoundRobin),
    ];
}

/// How rounds are shared out.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the next task is chosen.
    pub policy: Policy,
    /// The sum that tuning makes small.
    pub objective: Objective,
    /// Measurements, all tasks together.
    pub trials: usize,
    /// How much the past counts against the hope for the future.
    pub alpha: f64,
    /// By how much a task may fall behind similar ones.
    pub beta: f64,
    /// Rounds that the past is.
    pub window: usize,
    /// Trials without an improvement of a task after which it is given up.
    pub task_patience: Option<usize>,
    /// Trials without an improvement of the objective after which all is given up.
    pub patience: Option<usize>,
    /// Stop when the next round is expected to bring less than this share of the latency.
    pub least_gain: Option<f64>,
    /// Decides between tasks that promise the same.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            policy: Policy::default(),
            objective: Objective::Latency,
            trials: usize::MAX,
            alpha: 0.2,
            beta: 2.0,
            window: 3,
            task_patience: None,
            patience: None,
            least_gain: None,
            seed: 0,
        }
    }
}

/// Why there is no next task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// All trials are spent.
    Trials,
    /// Every task is dead.
    NothingLeft,
    /// The objective did not improve for long.
    NoImprovement,
    /// One more round is expected to bring too little.
    LittleToGain,
    /// No task can improve the objective: every network meets its requirement.
    Satisfied,
}

/// The rounds and trials of one task so far.
#[derive(Clone, Debug)]
struct Progress {
    spec: TaskSpec,
    /// The best time after each round.
    history: Vec<Option<f64>>,
    trials: usize,
    /// Since it improved last.
    stale: usize,
    dead: bool,
}

/// Chooses the task that is measured next.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    tasks: Vec<Progress>,
    groups: Groups,
    random: StdRng,
    /// Trials since the objective improved last.
    stale: usize,
    best_objective: f64,
}

/// Measurements of one round where `trials` are for all of `tasks`; none if they do not suffice for
/// one each.
pub fn trials_per_round(trials: usize, tasks: usize, most: usize) -> Option<usize> {
    Some(trials.checked_div(tasks)?.min(most)).filter(|&n| n > 0)
}

impl Scheduler {
    /// A scheduler of tasks that nothing was measured of.
    pub fn new(tasks: Vec<TaskSpec>, options: Options) -> Scheduler {
        let groups = match options.policy {
            Policy::Gradient => Groups::new(&tasks),
            Policy::GradientAlone | Policy::RoundRobin => Groups::none(&tasks),
        };
        let fresh = |spec| Progress { spec, history: vec![], trials: 0, stale: 0, dead: false };
        Scheduler {
            groups,
            tasks: tasks.into_iter().map(fresh).collect(),
            random: StdRng::seed_from_u64(options.seed),
            options,
            stale: 0,
            best_objective: f64::INFINITY,
        }
    }

    /// Takes up measurements of an earlier run, in their order; they do not count as trials.
    pub fn resume(&mut self, task: TaskId, measured: &[Option<f64>], per_round: usize) {
        let rounds = (measured.len() + per_round / 2) / per_round.max(1);
        for round in 1..=rounds {
            // The last round may be shorter, or half a round longer.
            let end = if round == rounds { measured.len() } else { round * per_round };
            let timed = measured[..end].iter().flatten().copied();
            self.tasks[task].history.push(timed.reduce(f64::min));
        }
        self.best_objective = self.objective();
    }

    /// The task to measure next.
    #[allow(clippy::should_implement_trait, reason = "what comes next depends on what is told")]
    pub fn next(&mut self) -> Option<TaskId> {
        if self.stop().is_some() {
            return None;
        }
        if let Some(fresh) = self.alive().find(|&i| self.tasks[i].rounds() == 0) {
            return Some(fresh);
        }
        match self.options.policy {
            Policy::RoundRobin => self.alive().min_by_key(|&i| self.tasks[i].rounds()),
            Policy::Gradient | Policy::GradientAlone => self.steepest(),
        }
    }

    /// A round of `task` is over: `trials` measurements, none if no candidate was left. `best` is
    /// the least time that is known of the task.
    pub fn told(&mut self, task: TaskId, best: Option<f64>, trials: usize) {
        let patience = self.options.task_patience;
        let progress = &mut self.tasks[task];
        let before = progress.best();
        let best = [before, best].into_iter().flatten().reduce(f64::min);
        progress.history.push(best);
        progress.trials += trials;
        progress.stale = if best == before { progress.stale + trials } else { 0 };
        progress.dead |= best.is_none()
            || trials == 0
            || patience.is_some_and(|patience| progress.stale > patience);
        self.groups.leave_if_slower(task, &self.tasks, self.options.beta);
        self.watch_objective(trials);
    }

    /// Why there is no next task, if there is none.
    pub fn stop(&self) -> Option<StopReason> {
        let options = &self.options;
        let all_valid = self.tasks.iter().all(|t| t.best().is_some());
        if self.trials() >= options.trials {
            Some(StopReason::Trials)
        } else if self.alive().next().is_none() {
            Some(StopReason::NothingLeft)
        } else if all_valid && options.patience.is_some_and(|patience| self.stale > patience) {
            Some(StopReason::NoImprovement)
        } else if options.least_gain.is_some_and(|least| self.expected_gain() < least) {
            Some(StopReason::LittleToGain)
        } else if self.is_satisfied() {
            Some(StopReason::Satisfied)
        } else {
            None
        }
    }

    /// Trials of all tasks in this run.
    pub fn trials(&self) -> usize {
        self.tasks.iter().map(|t| t.trials).sum()
    }

    /// Rounds of a task so far.
    pub fn rounds(&self, task: TaskId) -> usize {
        self.tasks[task].rounds()
    }

    fn alive(&self) -> impl Iterator<Item = TaskId> {
        (0..self.tasks.len()).filter(|&i| !self.tasks[i].dead)
    }

    /// The task of the least gradient; any if all promise the same.
    fn steepest(&mut self) -> Option<TaskId> {
        let gradients: Vec<(TaskId, f64)> = self.alive().map(|i| (i, self.gradient(i))).collect();
        let (least, slope) = gradients.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let equal = gradients.iter().all(|(_, other)| *other == slope);
        Some(if equal { gradients[self.random.random_range(0..gradients.len())].0 } else { least })
    }

    fn watch_objective(&mut self, trials: usize) {
        let all_valid = self.tasks.iter().all(|t| t.best().is_some());
        let now = self.objective();
        if all_valid && now < self.best_objective {
            self.best_objective = now;
            self.stale = 0;
        } else {
            self.stale += trials;
        }
    }

    /// Whether every task was measured and none can improve the objective.
    fn is_satisfied(&self) -> bool {
        self.alive().all(|i| self.tasks[i].rounds() > 0 && self.chain(i) == 0.0)
    }
}

impl Progress {
    fn rounds(&self) -> usize {
        self.history.len()
    }

    fn best(&self) -> Option<f64> {
        self.history.last().copied().flatten()
    }

    /// Operations in a second.
    fn throughput(&self) -> Option<f64> {
        Some(self.spec.flops as f64 / self.best()?)
    }
}
