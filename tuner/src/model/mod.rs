//! How good a candidate is, told before it is measured.
//!
//! A [`CostModel`] learns from measured candidates and scores others: more is better. Scores of one
//! task are comparable; they predict the candidate's share of the task's best throughput, or at
//! least its rank. [`Kind`] lists the models.
//!
//! A model that reads traces scores candidates whose programs were never made ([`Needs`]). One that
//! reads programs sees their [`ansc_sketch::Features`].
//!
//! Trees score each row of the features, and a program by the sum over its rows, as in Ansor: the
//! loss of a program with throughput `y` is `y * (sum of scores - y)^2`, so that what is fast
//! counts most.

pub mod corrected;
pub mod file;
pub mod gbdt;
pub mod hist;
mod kind;
pub mod known;
pub mod mlp;
pub mod price;
pub mod quality;
pub mod random;
mod rank;
pub mod subject;
mod table;
pub mod tlp;
pub mod trees;
pub mod view;
pub mod warm_up;

#[cfg(test)]
mod simulated;

use std::sync::{Arc, RwLock};

pub use corrected::Corrected;
pub use file::{ModelFileError, Parts, Trained};
pub use gbdt::Gbdt;
pub use hist::Hist;
pub use kind::{Kind, UnknownKind};
pub use known::Known;
pub use mlp::Mlp;
pub use price::Price;
pub use quality::Quality;
pub use random::Random;
pub use subject::Subject;
pub use table::throughputs;
pub use tlp::Tlp;
pub use view::{Needs, Sample, View};
pub use warm_up::WarmUp;

/// Tells good candidates from bad ones before they are measured, from what was measured before.
pub trait CostModel: Send + Sync {
    /// That of its [`Kind`], if it has one.
    fn name(&self) -> &'static str;
    /// The parts of a candidate that the model reads. Samples and views have at least these.
    fn needs(&self) -> Needs {
        Needs::Program
    }
    /// Forgets what it has learned and learns from all of `samples`.
    fn train(&mut self, samples: &[Sample]);
    /// Goes on from what it knows with samples of this machine. All that it is to remember is among
    /// them, but for what it knew before the first call. A model that cannot go on learns anew.
    fn refine(&mut self, samples: &[Sample]) {
        self.train(samples);
    }
    /// A score for each candidate, always finite. The same for the same samples and candidate.
    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32>;
    /// By how much a score must exceed that of the schedule that the analytic price chooses, for
    /// another one to be taken that nobody measured.
    fn clearly(&self) -> f32 {
        0.0
    }
    /// False while its scores are random.
    fn is_informed(&self) -> bool {
        true
    }
    /// All that it has learned, for a file; none of a model that has learned nothing, or that files
    /// do not hold.
    fn parts(&self) -> Option<Parts> {
        None
    }
}

/// A model that several searches ask and one loop teaches.
pub type SharedModel = Arc<RwLock<Box<dyn CostModel>>>;

/// An untrained model; `None` if there is none of that name.
pub fn create(name: &str, seed: u64) -> Option<Box<dyn CostModel>> {
    name.parse().ok().map(|kind: Kind| kind.create(seed))
}
