//! A trace as words, for models that read it and no program.
//!
//! An instruction becomes its name and a list of words: its arguments in order, and, if it samples,
//! what was decided. Sampled numbers stand for what was decided wherever they are used.
//!
//! ```text
//! v4, v5 = sample_perfect_tile(l1, ..)  # [8, 4]     sample_perfect_tile 1 8 4
//! l8, l9 = split(l1, [v4, v5])                   =>  split 1 8 4
//! b9 = cache_write(b0, local)                        cache_write 0 "local"
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Trace;
use super::argument::Operand;
use super::instruction::{Decision, Note, Number, ValueVar};
use super::table::Instruction;
use crate::schedule::Annotation;

/// One instruction.
#[derive(Clone, PartialEq, Debug)]
pub struct Sentence<'a> {
    /// One of [`Instruction::NAMES`].
    pub name: &'static str,
    /// Its arguments and its decision.
    pub words: Vec<Word<'a>>,
}

/// A part of a sentence.
#[derive(Clone, PartialEq, Debug)]
pub enum Word<'a> {
    Number(i64),
    /// The name of a block, a scope, an algorithm and the like.
    Name(Cow<'a, str>),
}

impl Trace {
    /// A sentence for each step. What is undecided reads as 0.
    pub fn sentences(&self) -> Vec<Sentence<'_>> {
        let mut reader = Reader::default();
        self.steps.iter().map(|step| reader.sentence(step)).collect()
    }
}

#[derive(Default)]
struct Reader {
    decided: BTreeMap<ValueVar, i64>,
}

impl Reader {
    fn sentence<'a>(&mut self, step: &'a Instruction) -> Sentence<'a> {
        let mut words = vec![];
        step.operands().into_iter().for_each(|operand| self.operand(operand, &mut words));
        for number in self.decision(step) {
            words.push(Word::Number(number));
        }
        Sentence { name: step.name(), words }
    }

    fn operand<'a>(&self, operand: Operand<'a>, words: &mut Vec<Word<'a>>) {
        let number = |n: &Number| Word::Number(self.number(*n));
        match operand {
            Operand::Block(var) => words.push(Word::Number(var.0.into())),
            Operand::Loop(var) => words.push(Word::Number(var.0.into())),
            Operand::Loops(vars) => words.extend(vars.iter().map(|v| Word::Number(v.0.into()))),
            Operand::Number(n) => words.push(number(&n)),
            Operand::Numbers(all) => words.extend(all.iter().map(number)),
            Operand::Note(Note::Number(n)) => words.push(number(n)),
            Operand::Note(Note::Fixed(note)) => fixed(note, words),
            Operand::Name(name) => words.push(Word::Name(name.into())),
            Operand::Lengths(all) => words.extend(all.iter().map(|&n| Word::Number(n as i64))),
            Operand::Plain(plain) => {
                let text = plain.to_string();
                words.push(text.parse().map_or(Word::Name(text.into()), Word::Number));
            }
        }
    }

    fn number(&self, number: Number) -> i64 {
        match number {
            Number::Known(value) => value,
            Number::Var { var } => self.decided.get(&var).copied().unwrap_or(0),
        }
    }

    /// The numbers that an instruction decided. Its variables stand for them from here on.
    fn decision(&mut self, step: &Instruction) -> Vec<i64> {
        match (step, step.decision()) {
            (
                Instruction::SamplePerfectTile { out, .. } | Instruction::SampleTile { out, .. },
                Some(Decision::Tile(lengths)),
            ) => {
                let lengths: Vec<i64> = lengths.iter().map(|&n| n as i64).collect();
                self.decided.extend(out.iter().copied().zip(lengths.iter().copied()));
                lengths
            }
            (
                Instruction::SampleCategorical { candidates, out, .. },
                Some(Decision::Choice(at)),
            ) => {
                let value = usize::try_from(*at).ok().and_then(|at| candidates.get(at));
                self.decided.extend(value.map(|&value| (*out, value)));
                value.into_iter().copied().collect()
            }
            (_, Some(Decision::Choice(place))) => vec![*place],
            _ => vec![],
        }
    }
}

fn fixed<'a>(note: &'a Annotation, words: &mut Vec<Word<'a>>) {
    match note {
        Annotation::Int(value) => words.push(Word::Number(*value)),
        Annotation::Ints(values) => words.extend(values.iter().map(|&n| Word::Number(n))),
        Annotation::Text(text) => words.push(Word::Name(text.as_str().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Space;
    use crate::testing::matmul_bias_relu;
    use crate::trace::Unfit;

    fn read(json: &str) -> String {
        let trace: Trace = serde_json::from_str(json).unwrap();
        let word = |w: &Word<'_>| match w {
            Word::Number(n) => n.to_string(),
            Word::Name(name) => format!("{name:?}"),
        };
        let line = |s: &Sentence<'_>| {
            let words: Vec<String> = s.words.iter().map(word).collect();
            format!("{} {}", s.name, words.join(" ")).trim_end().to_owned()
        };
        trace.sentences().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn sampled_numbers_read_as_what_was_decided() {
        let json = r#"[
            {"op": "get_block", "name": "mm", "out": 0},
            {"op": "get_loops", "block": 0, "out": [1]},
            {"op": "sample_perfect_tile", "target": 1, "max_innermost": 64, "out": [2, 3],
             "decision": [8, 4]},
            {"op": "split", "target": 1, "factors": [{"var": 2}, {"var": 3}], "out": [4, 5]},
            {"op": "split", "target": 4, "factors": [0, {"var": 9}], "out": [6, 7]}
        ]"#;
        let expected = "get_block \"mm\"\nget_loops 0\nsample_perfect_tile 1 8 4\n\
                        split 1 8 4\nsplit 4 0 0";
        assert_eq!(read(json), expected);
    }

    /// Another decision makes another sentence; names are those of the table.
    #[test]
    fn traces_that_differ_in_a_decision_read_differently() {
        let program = || crate::lower("k", &matmul_bias_relu(24, 18, 37));
        let random = &mut crate::rules::fixed_random();
        let mut compared = 0;
        for sketch in Space::cpu(2).sketches(program()) {
            let replayed = sketch.trace.replay(program(), Unfit::Refuse, random).unwrap();
            let trace = replayed.into_parts().1;
            let sentences = trace.sentences();
            assert!(sentences.iter().all(|s| Instruction::NAMES.contains(&s.name)));
            for (step, text) in trace.steps.iter().zip(&sentences) {
                assert!(step.to_string().contains(text.name), "{step}");
            }
            for step in trace.choices() {
                let Some(other) = trace.mutated(step, random) else { continue };
                assert_ne!(other.sentences()[step], sentences[step]);
                compared += 1;
            }
        }
        assert!(compared > 10, "{compared}");
    }
}
