//! A model that was trained before, as a search uses it: it is asked from the first round on, and
//! what the search measures refines it.

use super::{CostModel, Needs, Parts, Sample, View};

/// `train` refines the model, so that what it knew is not forgotten.
pub struct Known<M>(pub M);

impl<M: CostModel> CostModel for Known<M> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn needs(&self) -> Needs {
        self.0.needs()
    }

    fn train(&mut self, samples: &[Sample]) {
        self.0.refine(samples);
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        self.0.predict(candidates)
    }

    fn is_informed(&self) -> bool {
        self.0.is_informed()
    }

    fn parts(&self) -> Option<Parts> {
        self.0.parts()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hist, Quality, simulated};
    use super::*;

    #[test]
    fn a_search_does_not_make_it_forget() {
        let samples = simulated::samples(120, 0);
        let (known, few): (Vec<Sample>, Vec<Sample>) =
            samples.iter().cloned().partition(|s| s.task < 4);
        let views: Vec<View<'_>> = known.iter().map(Sample::view).collect();
        let order =
            |m: &dyn CostModel| Quality::of(&m.predict(&views), &known).unwrap().pairwise_accuracy;
        let mut model = Hist::default();
        model.train(&known);
        let mut searched = Known(model.clone());
        searched.train(&few[..8]);
        assert!(order(&searched) > 0.8, "{}", order(&searched));
        model.train(&few[..8]);
        assert!(order(&model) < order(&searched));
    }
}
