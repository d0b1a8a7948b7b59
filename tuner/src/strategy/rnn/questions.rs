//! The decisions of a trace as a sequence of small questions with few answers each.
//!
//! A tile is asked length by length, and only where an earlier answer left a choice.
//!
//! ```text
//! tile of 8 in three => length 0: 1, 2, 4 or 8? 2.  length 1: 1, 2 or 4? 4.  (length 2 is 1)
//! ```

use ansc_sketch::trace::Decision;

/// A question that is asked. The same question comes up in every trace of a sketch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Question {
    pub(super) sketch: usize,
    /// The number of the decision, after that of the sketch itself.
    pub(super) decision: usize,
    /// The length of a tile.
    pub(super) part: usize,
}

/// A question and what may be answered to it, in order: lengths, or positions of candidates.
pub(super) struct Asked<'a> {
    pub(super) question: Question,
    /// All answers that the question might have, whatever was answered before.
    pub(super) vocabulary: &'a [i64],
    pub(super) answers: &'a [i64],
}

/// Asks until one of the options is left, and gives its position. There must be options.
pub(super) fn ask(
    question: Question,
    options: &[Decision],
    answer: &mut dyn FnMut(&Asked<'_>) -> usize,
) -> usize {
    let parts: Vec<Vec<i64>> = options.iter().map(parts).collect();
    let most = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut left: Vec<usize> = (0..options.len()).collect();
    for part in 0..most {
        let answers = distinct(left.iter().filter_map(|&option| parts[option].get(part).copied()));
        if answers.len() < 2 {
            continue;
        }
        let vocabulary = distinct(parts.iter().filter_map(|p| p.get(part).copied()));
        let question = Question { part, ..question };
        let chosen = answer(&Asked { question, vocabulary: &vocabulary, answers: &answers });
        left.retain(|&option| parts[option].get(part) == Some(&answers[chosen]));
    }
    left[0]
}

fn parts(option: &Decision) -> Vec<i64> {
    match option {
        Decision::Tile(lengths) => lengths.iter().map(|&length| length as i64).collect(),
        Decision::Choice(chosen) => vec![*chosen],
    }
}

fn distinct(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut all: Vec<i64> = values.collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_lead_to_every_option() {
        let tiles = [[1, 1, 8], [1, 2, 4], [2, 2, 2], [2, 4, 1], [8, 1, 1]];
        let options: Vec<Decision> = tiles.iter().map(|t| Decision::Tile(t.to_vec())).collect();
        let start = Question { sketch: 0, decision: 3, part: 0 };
        for (position, tile) in tiles.iter().enumerate() {
            let mut asked = vec![];
            let found = ask(start, &options, &mut |a| {
                asked.push((a.question.part, a.answers.to_vec()));
                assert!(a.answers.iter().all(|x| a.vocabulary.contains(x)));
                a.answers.iter().position(|x| *x == tile[a.question.part] as i64).unwrap()
            });
            assert_eq!(found, position);
            assert_eq!(asked[0], (0, vec![1, 2, 8]));
            // After 8 nothing is left to ask.
            assert_eq!(asked.len(), if tile[0] == 8 { 1 } else { 2 });
        }
    }

    #[test]
    fn a_choice_is_one_question() {
        let options = [Decision::Choice(-2), Decision::Choice(-1), Decision::Choice(0)];
        let mut times = 0;
        let found = ask(Question { sketch: 1, decision: 0, part: 0 }, &options, &mut |a| {
            times += 1;
            assert_eq!(a.answers, [-2, -1, 0]);
            1
        });
        assert_eq!((found, times), (1, 1));
    }
}
