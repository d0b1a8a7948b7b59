//! Random scores until there is enough to learn from.

use super::{CostModel, Needs, Parts, Random, Sample, View};

/// `model`, once it has been trained on more than `least` samples that ran.
pub struct WarmUp<M> {
    model: M,
    random: Random,
    least: usize,
    is_warm: bool,
}

impl<M: CostModel> WarmUp<M> {
    /// A model that stands in for `model` until more than `least` samples ran.
    pub fn new(model: M, least: usize, seed: u64) -> WarmUp<M> {
        WarmUp { model, random: Random { seed }, least, is_warm: false }
    }
}

impl<M: CostModel> CostModel for WarmUp<M> {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn needs(&self) -> Needs {
        self.model.needs()
    }

    fn parts(&self) -> Option<Parts> {
        self.model.parts()
    }

    fn train(&mut self, samples: &[Sample]) {
        let ran = samples.iter().filter(|s| s.seconds.is_some()).count();
        self.is_warm = ran > self.least;
        if self.is_warm {
            self.model.train(samples);
        }
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        if self.is_warm { self.model.predict(candidates) } else { self.random.predict(candidates) }
    }

    fn is_informed(&self) -> bool {
        self.is_warm && self.model.is_informed()
    }
}

impl CostModel for Box<dyn CostModel> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn train(&mut self, samples: &[Sample]) {
        (**self).train(samples);
    }

    fn refine(&mut self, samples: &[Sample]) {
        (**self).refine(samples);
    }

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        (**self).predict(candidates)
    }

    fn needs(&self) -> Needs {
        (**self).needs()
    }

    fn parts(&self) -> Option<Parts> {
        (**self).parts()
    }

    fn is_informed(&self) -> bool {
        (**self).is_informed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ansc_sketch::Features;
    use ansc_sketch::features::LEN;

    use super::super::create;
    use super::*;

    #[test]
    fn scores_are_random_until_enough_has_run() {
        let features = Arc::new(Features { rows: vec![[1.0; LEN]], ..Features::default() });
        let sample = |seconds| Sample::of_program(0, features.clone(), seconds);
        let inner = create("hist", 0).unwrap();
        let mut model = WarmUp::new(inner, 2, 7);
        assert_eq!(model.name(), "hist");
        let random = Random { seed: 7 }.predict(&[View::of_program(&features)]);
        model.train(&[sample(Some(1.0)), sample(Some(1.0)), sample(None)]);
        assert_eq!(model.predict(&[View::of_program(&features)]), random);
        model.train(&[sample(Some(1.0)), sample(Some(1.0)), sample(Some(1.0))]);
        assert_ne!(model.predict(&[View::of_program(&features)]), random);
    }
}
