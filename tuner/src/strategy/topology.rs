//! Decisions as graphs, in which a search takes steps: the neighbours of a decision, and random
//! walks.
//!
//! | decision | neighbours |
//! |---|---|
//! | tile | one prime factor moved from one length to another |
//! | choice among numbers in order | the previous and the next |
//! | any other choice | all others |
//! | place of a block | none that are known before a replay: it is drawn again |

use ansc_sketch::Trace;
use ansc_sketch::trace::{Decision, Instruction, Recorder};
use rand::{Rng, RngExt};

use crate::candidate::Search;

/// For each sketch the trace that tiles nothing: all iterations of a tile outermost, the first
/// option of anything else. Where the options are not known the sketch itself, whose decisions are
/// drawn.
pub fn untiled(search: &Search) -> Vec<Trace> {
    let start = |sketch: &Trace| {
        let recorder = Recorder::of_task(search.task.clone());
        let decided = sketch.choose_on(recorder, &mut |options| outermost(options)).ok()?;
        Some(decided.into_parts().1)
    };
    search.sketches.iter().map(|s| start(&s.trace).unwrap_or_else(|| s.trace.clone())).collect()
}

/// The position of the tile that is `[extent, 1, .., 1]`; of anything else the first option.
fn outermost(options: &[Decision]) -> usize {
    let whole = |d: &Decision| matches!(d, Decision::Tile(t) if t[1..].iter().all(|&n| n == 1));
    options.iter().position(whole).unwrap_or(0)
}

/// A step of a trace and what it decides next; `None` has it drawn again.
pub type Move = (usize, Option<Decision>);

/// Everything that leads to a neighbour of a trace: one decision goes to a neighbour of its own.
pub fn moves(trace: &Trace) -> Vec<Move> {
    let of = |step: usize| {
        let instruction = &trace.steps[step];
        let drawn = matches!(instruction, Instruction::SampleComputeLocation { .. });
        let next = neighbours(instruction).into_iter().map(Some);
        drawn.then_some(None).into_iter().chain(next).map(move |decision| (step, decision))
    };
    trace.choices().into_iter().flat_map(of).collect()
}

/// The trace with one decision changed, or open again.
pub fn moved(trace: &Trace, (step, decision): Move) -> Trace {
    match decision {
        Some(decision) => trace.clone().decide(step, decision),
        None => trace.clone().undecide(step),
    }
}

/// The neighbours of the decision of a sampling instruction; none of one that is not decided.
pub fn neighbours(step: &Instruction) -> Vec<Decision> {
    match (step, step.decision()) {
        (
            Instruction::SamplePerfectTile { max_innermost, .. }
            | Instruction::SampleTile { max_innermost, .. },
            Some(Decision::Tile(tile)),
        ) => neighbouring_tiles(tile, *max_innermost).into_iter().map(Decision::Tile).collect(),
        (Instruction::SampleCategorical { candidates, .. }, Some(Decision::Choice(at))) => {
            let others = (0..candidates.len() as i64).filter(|i| i != at);
            let ordered = candidates.is_sorted();
            others.filter(|i| !ordered || i.abs_diff(*at) == 1).map(Decision::Choice).collect()
        }
        _ => vec![],
    }
}

fn neighbouring_tiles(tile: &[usize], max_innermost: usize) -> Vec<Vec<usize>> {
    let last = tile.len() - 1;
    let mut all = vec![];
    for from in 0..tile.len() {
        for prime in primes_of(tile[from]) {
            for to in (0..tile.len()).filter(|&to| to != from) {
                if to == last && tile[to] * prime > max_innermost {
                    continue;
                }
                let mut moved = tile.to_vec();
                moved[from] /= prime;
                moved[to] *= prime;
                all.push(moved);
            }
        }
    }
    all
}

/// The different prime factors of a number.
pub(super) fn primes_of(mut n: usize) -> Vec<usize> {
    let mut primes = vec![];
    let mut prime = 2;
    while prime * prime <= n {
        if n.is_multiple_of(prime) {
            primes.push(prime);
            while n.is_multiple_of(prime) {
                n /= prime;
            }
        }
        prime += 1;
    }
    primes.extend((n > 1).then_some(n));
    primes
}

/// Walks from the decision of one step: after each jump to a random neighbour goes on with
/// probability `q`. Where the neighbours are not known, the step is left undecided instead of
/// jumping.
pub fn walk(trace: &Trace, step: usize, q: f64, random: &mut dyn Rng) -> Trace {
    let mut trace = trace.clone();
    while random.random_bool(q) {
        let next = neighbours(&trace.steps[step]);
        if next.is_empty() {
            return trace.undecide(step);
        }
        let chosen = next[random.random_range(0..next.len())].clone();
        trace = trace.decide(step, chosen);
    }
    trace
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rayon::prelude::*;

    use super::*;

    fn tile_step(tile: &[usize]) -> Instruction {
        serde_json::from_value(serde_json::json!({
            "op": "sample_perfect_tile", "target": 0, "max_innermost": 64,
            "out": (1..=tile.len()).collect::<Vec<_>>(), "decision": tile,
        }))
        .unwrap()
    }

    fn choice(candidates: &[i64], at: i64) -> Instruction {
        let weights = vec![1.0 / candidates.len() as f64; candidates.len()];
        serde_json::from_value(serde_json::json!({
            "op": "sample_categorical", "candidates": candidates, "weights": weights,
            "out": 0, "decision": at,
        }))
        .unwrap()
    }

    #[test]
    fn neighbours_by_kind() {
        let tiles = |t: &[usize]| neighbours(&tile_step(t));
        assert_eq!(tiles(&[2, 3]), [Decision::Tile(vec![1, 6]), Decision::Tile(vec![6, 1])]);
        assert_eq!(tiles(&[64, 64]), [Decision::Tile(vec![128, 32])]);
        assert_eq!(
            neighbours(&choice(&[0, 16, 64], 1)),
            [Decision::Choice(0), Decision::Choice(2)]
        );
        assert_eq!(neighbours(&choice(&[0, 16, 64], 2)), [Decision::Choice(1)]);
        assert_eq!(neighbours(&choice(&[4, 1, 2], 0)), [Decision::Choice(1), Decision::Choice(2)]);
    }

    /// Where a walk from `start` ends: `p = (1 - q) (I - q P)^-1 e`, by elimination.
    fn closed_form(states: &[Vec<usize>], start: usize, q: f64) -> Vec<f64> {
        let n = states.len();
        let mut rows: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let mut row = vec![0.0; n + 1];
                row[i] = 1.0;
                row[n] = if i == start { 1.0 - q } else { 0.0 };
                row
            })
            .collect();
        for (j, state) in states.iter().enumerate() {
            let next = neighbouring_tiles(state, 64);
            for neighbour in &next {
                let i = states.iter().position(|s| s == neighbour).unwrap();
                rows[i][j] -= q / next.len() as f64;
            }
        }
        for pivot in 0..n {
            for row in (0..n).filter(|&r| r != pivot) {
                let factor = rows[row][pivot] / rows[pivot][pivot];
                let scaled: Vec<f64> = rows[pivot].iter().map(|x| x * factor).collect();
                rows[row].iter_mut().zip(scaled).for_each(|(x, s)| *x -= s);
            }
        }
        (0..n).map(|i| rows[i][n] / rows[i][i]).collect()
    }

    /// All tiles that a walk from `start` can reach.
    fn reachable(start: &[usize]) -> Vec<Vec<usize>> {
        let mut states = vec![start.to_vec()];
        let mut at = 0;
        while at < states.len() {
            for next in neighbouring_tiles(&states[at].clone(), 64) {
                if !states.contains(&next) {
                    states.push(next);
                }
            }
            at += 1;
        }
        states
    }

    #[test]
    fn walks_end_where_the_closed_form_says() {
        const WALKS: usize = 1_000_000;
        const PART: usize = 10_000;
        for (start, q) in [(vec![4, 2, 1], 0.02), (vec![4, 2, 1], 0.5), (vec![6, 6], 0.95)] {
            let states = reachable(&start);
            let expected = closed_form(&states, 0, q);
            let trace = Trace { steps: vec![tile_step(&start)] };
            let counts = |part: usize| -> BTreeMap<Vec<usize>, usize> {
                let random = &mut StdRng::seed_from_u64(part as u64);
                let mut counts = BTreeMap::new();
                for _ in 0..PART {
                    let end = walk(&trace, 0, q, random);
                    let Some(Decision::Tile(tile)) = end.steps[0].decision() else {
                        unreachable!()
                    };
                    *counts.entry(tile.clone()).or_default() += 1;
                }
                counts
            };
            let parts: Vec<_> = (0..WALKS / PART).into_par_iter().map(counts).collect();
            let count = |state| parts.iter().filter_map(|c| c.get(state)).sum::<usize>();
            for (state, p) in states.iter().zip(expected) {
                let found = count(state) as f64 / WALKS as f64;
                let deviation = (p * (1.0 - p) / WALKS as f64).sqrt();
                assert!(
                    (found - p).abs() < 5.0 * deviation + 1e-6,
                    "{state:?}, {q}: {found}, not {p}"
                );
            }
        }
    }

    #[test]
    fn two_states_as_in_the_paper() {
        let p = closed_form(&reachable(&[2, 1]), 0, 0.5);
        assert!((p[0] - 2.0 / 3.0).abs() < 1e-12 && (p[1] - 1.0 / 3.0).abs() < 1e-12);
    }
}
