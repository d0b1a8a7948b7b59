//! Traces as numbers: TLP's preprocessing.
//!
//! A sentence becomes a row: one-hot its kind, then its words. Numbers stand for themselves, names
//! for their rank by frequency. Rows are padded with zeros or cropped to the statistics of the
//! data, and so are lists of rows: one row of zeros stands for all that are missing.
//!
//! ```text
//! kinds [split, fuse, ..]      split 1 8 4   =>   1 0 ..  1 8 4 0 ..
//! ```
//!
//! The kinds are those of the one table of instructions, so that a new instruction is in the
//! vocabulary of the next training. As in TLP's code, numbers are not scaled with [`Numbers::Raw`];
//! [`Numbers::Log`] is kinder to a small network.
//!
//! A trace does not say what it schedules: TLP sees shapes only in what is split. Most of our
//! traces have no splits, so that rows for the stages of the subgraph come first, unless `stages`
//! is off.

use std::collections::{BTreeMap, HashMap};

use ansc_sketch::trace::{Instruction, Sentence, Word};
use serde::{Deserialize, Serialize};

use super::super::View;
use crate::nn::List;

/// The kind of rows that describe a stage of the subgraph.
const STAGE: &str = "stage";
/// Names that have a number of their own; rarer ones share 0.
const MOST_NAMES: usize = 1000;
/// No list of rows is longer, and no row has more words, whatever the data say.
const MOST_ROWS: usize = 96;
const MOST_WORDS: usize = 48;

/// How numbers are written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// As they are.
    Raw,
    /// `log2(1 + n)`, with the sign of `n`.
    Log,
}

/// The kinds, names and sizes that rows are made of. The model's file keeps them, so that a model
/// reads traces as it was taught.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Vocabulary {
    /// In the order of their places in a row.
    kinds: Vec<String>,
    /// The most frequent first, whose number is 1.
    names: Vec<String>,
    /// Rows of a list.
    rows: usize,
    /// Words of a row.
    words: usize,
    numbers: Numbers,
    stages: bool,
}

/// How a vocabulary is made of data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// The share of lists, and of rows, that are not cropped.
    pub whole: f64,
    /// How numbers are written down.
    pub numbers: Numbers,
    /// Whether rows for the stages of the subgraph come first.
    pub stages: bool,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading { whole: 0.98, numbers: Numbers::Log, stages: true }
    }
}

impl Vocabulary {
    /// The vocabulary of some traces.
    pub(super) fn of(views: &[View<'_>], reading: &Reading) -> Vocabulary {
        let kinds = Instruction::NAMES.iter().copied().chain(reading.stages.then_some(STAGE));
        let mut vocabulary = Vocabulary {
            kinds: kinds.map(str::to_owned).collect(),
            names: vec![],
            rows: 0,
            words: 0,
            numbers: reading.numbers,
            stages: reading.stages,
        };
        let (mut lengths, mut widths) = (vec![], vec![]);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for view in views {
            let sentences = vocabulary.sentences(view);
            lengths.push(sentences.len());
            widths.extend(sentences.iter().map(|s| s.words.len()));
            for word in sentences.iter().flat_map(|s| &s.words) {
                if let Word::Name(name) = word {
                    *counts.entry(name.to_string()).or_default() += 1;
                }
            }
        }
        let mut names: Vec<(String, usize)> = counts.into_iter().collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        vocabulary.names = names.into_iter().take(MOST_NAMES).map(|(name, _)| name).collect();
        vocabulary.rows = quantile(lengths, reading.whole).clamp(1, MOST_ROWS);
        vocabulary.words = quantile(widths, reading.whole).clamp(1, MOST_WORDS);
        vocabulary
    }

    /// Rows of a list, with those that its last row stands for.
    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row.
    pub(super) fn columns(&self) -> usize {
        self.kinds.len() + self.words
    }

    /// Whether its sizes are such as [`Vocabulary::of`] gives.
    pub(super) fn is_sound(&self) -> bool {
        (1..=MOST_ROWS).contains(&self.rows)
            && (1..=MOST_WORDS).contains(&self.words)
            && self.kinds.len() <= 1000
    }

    /// For writing many candidates down.
    pub(super) fn writer(&self) -> Writer<'_> {
        Writer { vocabulary: self, kinds: index(&self.kinds), names: index(&self.names) }
    }

    fn sentences<'a>(&self, view: &View<'a>) -> Vec<Sentence<'a>> {
        let stage = |numbers: &Vec<i64>| Sentence {
            name: STAGE,
            words: numbers.iter().map(|&n| Word::Number(n)).collect(),
        };
        let stages = view.subject.stages.iter().filter(|_| self.stages).map(stage);
        stages.chain(view.trace.sentences()).collect()
    }
}

/// A candidate as a list of rows.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Written {
    /// One row after the other.
    pub(super) numbers: Vec<f32>,
    pub(super) list: List,
}

/// Writes candidates down in the words of a vocabulary.
pub(super) struct Writer<'a> {
    vocabulary: &'a Vocabulary,
    kinds: HashMap<&'a str, usize>,
    names: HashMap<&'a str, usize>,
}

/// The place of each word.
fn index(all: &[String]) -> HashMap<&str, usize> {
    all.iter().enumerate().map(|(place, word)| (word.as_str(), place)).collect()
}

impl Writer<'_> {
    /// The rows of a candidate; none if a step is of a kind that was not there when the vocabulary
    /// was made.
    pub(super) fn encode(&self, view: &View<'_>) -> Option<Written> {
        let sentences = self.vocabulary.sentences(view);
        if sentences.iter().any(|s| !self.kinds.contains_key(s.name)) {
            return None;
        }
        let (columns, missing) =
            (self.vocabulary.columns(), self.vocabulary.rows.saturating_sub(sentences.len()));
        let written = self.vocabulary.rows - missing;
        let rows = written + missing.min(1);
        let mut numbers = vec![0.0; rows * columns];
        for (row, sentence) in numbers.chunks_mut(columns).zip(&sentences) {
            self.write(sentence, row);
        }
        Some(Written { numbers, list: List { rows, copies: missing.max(1) } })
    }

    fn write(&self, sentence: &Sentence<'_>, row: &mut [f32]) {
        let (kinds, words) = row.split_at_mut(self.vocabulary.kinds.len());
        self.kinds.get(sentence.name).into_iter().for_each(|&place| kinds[place] = 1.0);
        for (out, word) in words.iter_mut().zip(&sentence.words) {
            let number = match word {
                Word::Number(n) => *n as f64,
                Word::Name(name) => self.names.get(&**name).map_or(0.0, |&p| (p + 1) as f64),
            };
            *out = match self.vocabulary.numbers {
                Numbers::Raw => number as f32,
                Numbers::Log => ((1.0 + number.abs()).log2() * number.signum()) as f32,
            };
        }
    }
}

/// The least value that this share of all are not above; 0 if there are none.
fn quantile(mut all: Vec<usize>, share: f64) -> usize {
    all.sort_unstable();
    let place = (all.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize;
    all.get(place.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ansc_sketch::Trace;

    use super::super::super::{Subject, simulated};
    use super::*;

    fn sentence(name: &'static str, words: &[i64]) -> Sentence<'static> {
        Sentence { name, words: words.iter().map(|&n| Word::Number(n)).collect() }
    }

    /// The steps of Ansor on CPUs, in the order of TLP's table.
    const ANSOR: [&str; 11] = ["CI", "RE", "AN", "RF", "CHW", "SP", "CR", "CA", "FU", "FSP", "PR"];

    #[test]
    fn the_papers_own_vocabulary_has_its_size() {
        let kinds = ANSOR.map(str::to_owned).to_vec();
        let names = vec!["local".to_owned(), "shared".into()];
        let vocabulary =
            Vocabulary { kinds, names, rows: 25, words: 11, numbers: Numbers::Raw, stages: false };
        assert_eq!((vocabulary.rows(), vocabulary.columns()), (25, 22));
        let row = |sentence: &Sentence<'_>| {
            let mut row = vec![0.0; 22];
            vocabulary.writer().write(sentence, &mut row);
            row
        };
        // A split of axis 0 of stage 2, whose extent is 512, and the lengths of its parts.
        let split = row(&sentence("SP", &[2, 0, 512, 4, 8, 16, 1]));
        let mut expected = vec![0.0; 22];
        expected[5] = 1.0;
        expected[11..18].copy_from_slice(&[2.0, 0.0, 512.0, 4.0, 8.0, 16.0, 1.0]);
        assert_eq!(split, expected);
        // A reordering of more axes than fit is cropped.
        let long: Vec<i64> = (0..14).collect();
        let reorder = row(&sentence("RE", &long));
        assert_eq!(reorder[1], 1.0);
        assert_eq!(reorder[11..], [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.]);
        let mut cache = sentence("CHW", &[3]);
        cache.words.push(Word::Name("shared".into()));
        assert_eq!(row(&cache)[11..14], [3.0, 2.0, 0.0]);
        cache.words[1] = Word::Name("warp".into());
        assert_eq!(row(&cache)[11..14], [3.0, 0.0, 0.0]);
    }

    #[test]
    fn sizes_follow_the_data() {
        let samples = simulated::samples(20, 0);
        let views: Vec<View<'_>> = samples.iter().map(|s| s.view()).collect();
        let whole = Reading { whole: 1.0, ..Reading::default() };
        let all = Vocabulary::of(&views, &whole);
        let lengths = views.iter().map(|v| v.subject.stages.len() + v.trace.steps.len());
        assert_eq!(all.rows(), lengths.clone().max().unwrap());
        let half = Vocabulary::of(&views, &Reading { whole: 0.5, ..whole.clone() });
        let fit = lengths.filter(|&n| n <= half.rows()).count();
        assert!(half.rows() < all.rows() && 2 * fit >= views.len());
        let without = Vocabulary::of(&views, &Reading { stages: false, ..whole });
        assert_eq!(without.kinds.len() + 1, all.kinds.len());
        for view in &views {
            for vocabulary in [&all, &half, &without] {
                let Written { numbers, list } = vocabulary.writer().encode(view).unwrap();
                assert_eq!(numbers.len(), list.rows * vocabulary.columns());
                assert_eq!(list.rows + list.copies - 1, vocabulary.rows());
            }
        }
        // The most frequent name is that of a block of all five tasks' sketches.
        let count = |name: &str| {
            let words = views.iter().flat_map(|v| v.trace.sentences()).flat_map(|s| s.words);
            words.filter(|w| *w == Word::Name(name.to_owned().into())).count()
        };
        let counts: Vec<usize> = all.names.iter().map(|name| count(name)).collect();
        assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] > 0, "{counts:?}");
    }

    #[test]
    fn numbers_keep_their_signs() {
        let vocabulary = Vocabulary {
            kinds: vec!["a".into()],
            names: vec![],
            rows: 1,
            words: 4,
            numbers: Numbers::Log,
            stages: false,
        };
        let mut row = vec![0.0; 5];
        vocabulary.writer().write(&sentence("a", &[0, 7, -1, i64::MIN]), &mut row);
        assert_eq!(row[..4], [1.0, 0.0, 3.0, -1.0]);
        assert!((row[4] + 63.0).abs() < 1e-3, "{}", row[4]);
    }

    #[test]
    fn a_kind_from_after_the_training_has_no_rows() {
        let samples = simulated::samples(3, 0);
        let views: Vec<View<'_>> = samples.iter().map(|s| s.view()).collect();
        let mut vocabulary = Vocabulary::of(&views, &Reading::default());
        assert!(vocabulary.writer().encode(&views[0]).is_some());
        vocabulary.kinds.retain(|kind| kind != "get_block");
        assert!(vocabulary.writer().encode(&views[0]).is_none());
        let (subject, trace) = (Subject::default(), Trace::default());
        let empty = View { subject: &subject, trace: &trace, features: None };
        assert!(vocabulary.writer().encode(&empty).unwrap().numbers.iter().all(|v| *v == 0.0));
    }
}
