//! Traces of one sketch as numbers: what a network sees of one, and what it may do with it.
//!
//! ```text
//! tile [256, 4, 1, 1] of 1024, unroll the 3rd of 4   =>   state (0.3, -0.3, -0.5, -0.5, 0.17)
//! actions: (step, from loop, to loop, prime factor), (step, which candidate), (step, drawn again)
//! ```

use std::collections::BTreeMap;

use ansc_sketch::Trace;
use ansc_sketch::trace::{Decision, Instruction};

use crate::strategy::topology::{Move, moves, primes_of};

/// A change of a decision, told from the two neighbours that it leads from and to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Action {
    /// A prime factor goes from one length of a tile to another.
    Factor {
        step: usize,
        from: usize,
        to: usize,
        prime: usize,
    },
    Choose {
        step: usize,
        candidate: i64,
    },
    Redraw {
        step: usize,
    },
}

/// The numbers of the actions of a sketch.
pub(super) struct Encoding {
    actions: BTreeMap<Action, usize>,
}

/// A way out of a trace, and the number of its action.
pub(super) type Way = (Move, usize);

impl Encoding {
    /// For all traces that are decided as this one is, but for the decisions themselves.
    pub(super) fn of(trace: &Trace) -> Encoding {
        let all = trace.choices().into_iter().flat_map(|step| possible(trace, step));
        Encoding { actions: all.enumerate().map(|(number, action)| (action, number)).collect() }
    }

    pub(super) fn actions(&self) -> usize {
        self.actions.len()
    }

    /// The actions that are possible on a trace. A tile that covers more than it did at first may
    /// have factors that no action is known for.
    pub(super) fn ways(&self, trace: &Trace) -> Vec<Way> {
        let known = |next: Move| {
            let action = action(trace, &next)?;
            Some((next, *self.actions.get(&action)?))
        };
        moves(trace).into_iter().filter_map(known).collect()
    }
}

/// All actions at a step, whatever is decided there now.
fn possible(trace: &Trace, step: usize) -> Vec<Action> {
    match (&trace.steps[step], trace.steps[step].decision()) {
        (Instruction::SampleComputeLocation { .. }, _) => vec![Action::Redraw { step }],
        (Instruction::SampleCategorical { candidates, .. }, _) => (0..candidates.len() as i64)
            .map(|candidate| Action::Choose { step, candidate })
            .collect(),
        (_, Some(Decision::Tile(tile))) => {
            let mut all = vec![];
            for prime in primes_of(tile.iter().product()) {
                for from in 0..tile.len() {
                    let others = (0..tile.len()).filter(|&to| to != from);
                    all.extend(others.map(|to| Action::Factor { step, from, to, prime }));
                }
            }
            all
        }
        _ => vec![],
    }
}

fn action(trace: &Trace, (step, next): &Move) -> Option<Action> {
    let step = *step;
    match (trace.steps[step].decision(), next) {
        (_, None) => Some(Action::Redraw { step }),
        (_, Some(Decision::Choice(candidate))) => {
            Some(Action::Choose { step, candidate: *candidate })
        }
        (Some(Decision::Tile(now)), Some(Decision::Tile(next))) => {
            let from = now.iter().zip(next).position(|(a, b)| a > b)?;
            let to = now.iter().zip(next).position(|(a, b)| a < b)?;
            Some(Action::Factor { step, from, to, prime: now[from].checked_div(next[from])? })
        }
        _ => None,
    }
}

/// The decisions as numbers around 0: a length by its logarithm as a share of the tile's, a choice
/// by its place.
pub(super) fn state(trace: &Trace) -> Vec<f32> {
    let mut numbers = vec![];
    for step in trace.choices() {
        match (&trace.steps[step], trace.steps[step].decision()) {
            (_, Some(Decision::Tile(tile))) => {
                let all =
                    tile.iter().map(|&n| n as f32).product::<f32>().ln().max(f32::MIN_POSITIVE);
                numbers.extend(tile.iter().map(|&n| (n as f32).ln() / all - 0.5));
            }
            (Instruction::SampleCategorical { candidates, .. }, Some(Decision::Choice(at))) => {
                let last = candidates.len().saturating_sub(1).max(1);
                numbers.push(*at as f32 / last as f32 - 0.5);
            }
            // How many loops there are to choose from is not known here; few have more than ten.
            (_, Some(Decision::Choice(place))) => {
                numbers.push((*place as f32 / 10.0).min(1.0) - 0.5)
            }
            (_, None) => numbers.push(0.0),
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::{Candidate, Search};
    use crate::strategy::topology::{moved, untiled};
    use crate::testing::{matmul, task};
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn every_step_to_a_neighbour_is_an_action_of_its_own() {
        let search = Search::new(task(matmul(12, 16, 30)));
        let random = &mut StdRng::seed_from_u64(0);
        for start in untiled(&search) {
            let Some(start) = Candidate::of(&search.task, &start, random) else { continue };
            let encoding = Encoding::of(&start.trace);
            let mut trace = start.trace;
            for turn in 0..6 {
                let ways = encoding.ways(&trace);
                let mut numbers: Vec<usize> = ways.iter().map(|(_, number)| *number).collect();
                assert_eq!(numbers.len(), moves(&trace).len());
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), ways.len());
                assert!(numbers.last().is_none_or(|n| *n < encoding.actions()));
                let Some((next, _)) = ways.get(turn % ways.len().max(1)) else { break };
                let next = moved(&trace, next.clone());
                let Some(next) = Candidate::of(&search.task, &next, random) else { break };
                assert_eq!(state(&next.trace).len(), state(&trace).len());
                trace = next.trace;
            }
        }
    }

    #[test]
    fn lengths_are_seen_by_their_logarithms() {
        let step = serde_json::json!([{
            "op": "sample_perfect_tile", "target": 0, "max_innermost": 64,
            "out": [1, 2, 3], "decision": [8, 2, 1],
        }]);
        let trace: Trace = serde_json::from_value(step).unwrap();
        let expected = [0.25, -0.25, -0.5];
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        assert!(state(&trace).iter().zip(&expected).all(close), "{:?}", state(&trace));
    }
}
