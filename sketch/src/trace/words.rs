//! A trace for people: what was done, with the decisions in place of variables.
//!
//! ```text
//! b0 = get_block("mm"); l1, .. = get_loops(b0); v4, .. = sample_perfect_tile(l1, ..)  # [8, 4, 2, 16]
//! l8, .. = split(l1, [v4, ..])
//! =>
//! split loop 0 of mm into 8 x 4 x 2 x 16
//! ```

mod nests;

use std::collections::BTreeMap;

use super::Trace;
use super::instruction::{BlockVar, Decision, LoopVar, Note, Number};
use super::table::Instruction;
use crate::notes::{PARALLEL, UNROLL, VECTORS};

impl Trace {
    /// A line for each step that does something.
    pub fn in_words(&self) -> Vec<String> {
        let mut words = Words::default();
        self.steps.iter().filter_map(|step| words.step(step)).collect()
    }
}

/// The meaning of the variables so far, and the notes on loops.
#[derive(Default)]
struct Words {
    blocks: BTreeMap<u32, String>,
    loops: BTreeMap<u32, String>,
    values: BTreeMap<u32, i64>,
    /// Loops with a note, by its key.
    noted: BTreeMap<String, Vec<String>>,
}

impl Words {
    fn step(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            GetBlock { name, out } => {
                self.blocks.insert(out.0, name.clone());
                None
            }
            GetLoops { block, out } => {
                let block = self.block(*block);
                for (i, l) in out.iter().enumerate() {
                    self.loops.insert(l.0, format!("{i} of {block}"));
                }
                None
            }
            SamplePerfectTile { out, decision, .. } | SampleTile { out, decision, .. } => {
                if let Some(Decision::Tile(tile)) = decision {
                    let known = out.iter().zip(tile).map(|(v, &n)| (v.0, n as i64));
                    self.values.extend(known);
                }
                None
            }
            SampleCategorical { candidates, out, decision, .. } => {
                if let Some(Decision::Choice(i)) = decision {
                    let value = usize::try_from(*i).ok().and_then(|i| candidates.get(i));
                    self.values.extend(value.map(|&value| (out.0, value)));
                }
                None
            }
            SampleComputeLocation { out, decision, .. } => {
                let place = match decision {
                    Some(Decision::Choice(Decision::ROOT)) => "root".into(),
                    Some(Decision::Choice(Decision::INLINE)) => "inline".into(),
                    Some(Decision::Choice(k)) => format!("{k} of those of its reader"),
                    _ => "?".into(),
                };
                self.loops.insert(out.0, place);
                None
            }
            on_loops => self.on_loops(on_loops),
        }
    }

    fn on_loops(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            Split { target, factors, out } => {
                let whole = self.name(*target);
                let lengths = factors.iter().map(|&f| self.number(f)).collect::<Vec<_>>();
                for (i, l) in out.iter().enumerate() {
                    self.loops.insert(l.0, part(&whole, i));
                }
                Some(format!("split loop {whole} into {}", lengths.join(" x ")))
            }
            SplitBy { target, inner, out } => {
                let whole = self.name(*target);
                let lengths = inner.iter().map(|&f| self.number(f)).collect::<Vec<_>>();
                for (i, l) in out.iter().enumerate() {
                    self.loops.insert(l.0, part(&whole, i));
                }
                Some(format!("split loop {whole} into parts of {}", lengths.join(" x ")))
            }
            FuseSiblings { target, next } => {
                let (first, next) = (self.name(*target), self.name(*next));
                Some(format!("let loop {first} do what loop {next} does"))
            }
            Fuse { loops, out } => {
                let names = self.names(loops);
                self.loops.insert(out.0, names.join(" + "));
                (names.len() > 1).then(|| format!("fuse loops {}", names.join(", ")))
            }
            Reorder { loops } => Some(format!("order loops {}", self.names(loops).join(", "))),
            Parallel { target } => Some(format!("run loop {} in parallel", self.name(*target))),
            Vectorize { target } => Some(format!("make vectors of loop {}", self.name(*target))),
            Bind { target, axis } => Some(format!("run loop {} on {axis}", self.name(*target))),
            Unroll { target } => Some(format!("write out loop {}", self.name(*target))),
            ComputeAt { block, target } => {
                let block = self.block(*block);
                match self.name(*target).as_str() {
                    "root" => None,
                    "inline" => Some(format!("inline {block}")),
                    place => Some(format!("compute {block} inside of loop {place}")),
                }
            }
            ReverseComputeAt { block, target } => Some(format!(
                "compute {} as soon as loop {} gives what it reads",
                self.block(*block),
                self.name(*target)
            )),
            on_block => self.on_block(on_block),
        }
    }

    fn on_block(&mut self, step: &Instruction) -> Option<String> {
        use Instruction::*;
        match step {
            ComputeInline { block } | ReverseComputeInline { block } => {
                Some(format!("inline {}", self.block(*block)))
            }
            InlineInto { block, reader } => {
                Some(format!("inline {} into {}", self.block(*block), self.block(*reader)))
            }
            CacheWrite { block, scope, out } => {
                let name = self.block(*block);
                self.blocks.insert(out.0, format!("the copy of {name}"));
                Some(format!("collect {name} in a {scope} buffer first"))
            }
            CacheRead { block, buffer, scope, out } => {
                self.blocks.insert(out.0, format!("the copy of {buffer}"));
                Some(format!("copy {buffer} to a {scope} buffer for {}", self.block(*block)))
            }
            Rfactor { block, target, out, .. } => {
                let name = self.block(*block);
                self.blocks.insert(out.0, format!("{name}_rf"));
                Some(format!("reduce {name} in two steps, first along loop {}", self.name(*target)))
            }
            Annotate { block, key, value: Note::Number(n) } => {
                self.note(&self.block(*block), key, *n)
            }
            Algorithm { algorithm } => Some(format!("compute it by {algorithm}")),
            SetScope { buffer, scope } => Some(format!("keep {buffer} in a {scope} buffer")),
            on_nests => self.on_nests(on_nests),
        }
    }

    fn note(&self, block: &str, key: &str, value: Number) -> Option<String> {
        match (key, self.number(value).as_str()) {
            (UNROLL, "0") => None,
            (UNROLL, n) => Some(format!("write out up to {n} iterations around {block}")),
            (PARALLEL, "0") => {
                Some(format!("run enough outer loops of {block} in parallel, and no more"))
            }
            (PARALLEL, n) => Some(format!("run the {n} outermost loops of {block} in parallel")),
            (VECTORS, n) => Some(format!("make vectors of up to {n} registers at {block}")),
            (key, n) => Some(format!("note {key} {n} at {block}")),
        }
    }

    fn block(&self, var: BlockVar) -> String {
        self.blocks.get(&var.0).cloned().unwrap_or_else(|| var.to_string())
    }

    fn name(&self, var: LoopVar) -> String {
        self.loops.get(&var.0).cloned().unwrap_or_else(|| var.to_string())
    }

    fn names(&self, vars: &[LoopVar]) -> Vec<String> {
        vars.iter().map(|&v| self.name(v)).collect()
    }

    fn number(&self, number: Number) -> String {
        match number {
            Number::Known(n) => n.to_string(),
            Number::Var { var } => {
                self.values.get(&var.0).map_or_else(|| var.to_string(), i64::to_string)
            }
        }
    }
}

/// `2.0 of mm` is the outermost part of `2 of mm`.
fn part(whole: &str, i: usize) -> String {
    match whole.split_once(" of ") {
        Some((number, block)) => format!("{number}.{i} of {block}"),
        None => format!("{whole}.{i}"),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::rules::Space;
    use crate::testing::{SOFTMAX, matmul_bias_relu, task};
    use crate::trace::Unfit;

    /// The words, in which no variable is left without a meaning.
    fn words(trace: &Trace) -> Vec<String> {
        let words = trace.in_words();
        let is_var = |w: &str| {
            w.len() > 1
                && w.starts_with(['l', 'v', 'b'])
                && w[1..].chars().all(|c| c.is_ascii_digit())
        };
        let is_bad = |l: &&String| l.split([' ', ',', '(']).any(is_var) || l.contains('"');
        assert_eq!(words.iter().find(is_bad), None, "{words:#?}");
        words
    }

    #[test]
    fn a_tiled_product_in_words() {
        let program = || crate::lower("k", &matmul_bias_relu(24, 18, 36));
        for sketch in Space::cpu(2).sketches(program()) {
            let random = &mut StdRng::seed_from_u64(0);
            let trace =
                sketch.trace.replay(program(), Unfit::Refuse, random).unwrap().into_parts().1;
            let words = words(&trace);
            assert!(words.iter().any(|l| l.starts_with("split loop 0 of mm into")), "{words:#?}");
        }
    }

    #[test]
    fn nests_in_words() {
        let product = "compute(in0: f32[50, 64], in1: f32[64, 72]) -> y {
          y: f32[50, 72] = sum{r0: 64} mul(in0[i0, r0], in1[r0, i1])
        }";
        for (text, expected) in [
            (SOFTMAX, "pass over terms of "),
            (product, "begin y before loop 2.0 of y"),
            (product, "lay in1 out in panels of "),
            (
                "compute(in0: f32[64, 100], in1: f32[100]) -> y {
                  y: f32[64, 100] = add(in0[i0, i1], in1[i1])
                }",
                "cut off what is left of loop 1.0 of y",
            ),
            (
                "compute(in0: f32[60, 100]) -> y { y: f32[100, 60] = neg(in0[i1, i0]) }",
                "into lengths of 8, and the last 4 iterations",
            ),
        ] {
            let task = task(text);
            let random = &mut StdRng::seed_from_u64(0);
            let sample = task.sample(&task.untuned(), Unfit::Refuse, random).unwrap();
            let words = words(&sample.trace);
            assert!(words.iter().any(|l| l.contains(expected)), "{expected}: {words:#?}");
        }
    }
}
