//! The analytic price as a model: what others are compared with.

use super::{CostModel, Kind, Sample, View};

/// A program is as good as it is cheap, by `ansc_sketch::price`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Price;

impl CostModel for Price {
    fn name(&self) -> &'static str {
        Kind::PRICE.name()
    }

    fn train(&mut self, _: &[Sample]) {}

    fn predict(&self, candidates: &[View<'_>]) -> Vec<f32> {
        candidates.iter().map(|candidate| -candidate.price()).collect()
    }

    /// It has chosen already.
    fn clearly(&self) -> f32 {
        f32::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use ansc_sketch::Features;
    use ansc_sketch::machine::Parts;

    use super::*;

    #[test]
    fn what_costs_less_is_better() {
        let of = |issue| Parts { issue, ..Parts::default() };
        let programs = [8.0, 2.0, 4.0].map(|cycles| Features { rows: vec![], parts: of(cycles) });
        let scores = Price.predict(&programs.each_ref().map(View::of_program));
        assert!(scores[1] > scores[2] && scores[2] > scores[0], "{scores:?}");
    }
}
