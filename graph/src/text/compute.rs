//! Computes: what they read and give, then a line for each stage.
//!
//! ```text
//! compute(in0: f32[4, 8], in1: f32[8, 6]) -> relu {
//!   mm: f32[4, 6] = sum{r0: 8} mul(in0[i0, r0], in1[r0, i1])
//!   relu: f32[4, 6] = max(mm[i0, i1], 0.0_f32)
//! }
//! ```
//!
//! A stage goes by its name. Where that is not a word, or another stage has it, the
//! stage gets a label of its own, and the name follows it between quotes: `mm_1 "mm": f32[..]`.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

use super::cursor::{Cursor, Result};
use super::error::{Cause, ParseError};
use super::expr::{Names, Scope, print_expr, read_expr};
use super::names::unique;
use super::token::Quoted;
use crate::compute::{Combiner, Compute, Reduce, Stage};
use crate::expr::{BufId, VarId};

impl Display for Compute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        print(f, self, "")
    }
}

impl Compute {
    /// Reads what `Display` writes. What it describes may still be wrong: `verify_compute` tells.
    pub fn parse(text: &str) -> std::result::Result<Compute, ParseError> {
        let mut cursor = Cursor::new(text)?;
        let compute = read(&mut cursor)?;
        cursor.end()?;
        Ok(compute)
    }
}

impl Combiner {
    /// Every combiner once, `ArgMax` and `ArgMin` with both values of `last`.
    pub const ALL: [Combiner; 8] = [
        Combiner::Sum,
        Combiner::Prod,
        Combiner::Max,
        Combiner::Min,
        Combiner::ArgMax { last: false },
        Combiner::ArgMax { last: true },
        Combiner::ArgMin { last: false },
        Combiner::ArgMin { last: true },
    ];

    /// As in the text of computes, such as `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            Combiner::Sum => "sum",
            Combiner::Prod => "prod",
            Combiner::Max => "max",
            Combiner::Min => "min",
            Combiner::ArgMax { last: false } => "argmax",
            Combiner::ArgMax { last: true } => "argmax_last",
            Combiner::ArgMin { last: false } => "argmin",
            Combiner::ArgMin { last: true } => "argmin_last",
        }
    }
}

/// The labels of inputs and stages.
struct Labels(Vec<String>);

impl Labels {
    fn of(compute: &Compute) -> Labels {
        let inputs = (0..compute.inputs.len()).map(|i| format!("in{i}"));
        let mut labels: Vec<String> = inputs.collect();
        let mut taken: BTreeSet<String> = labels.iter().cloned().collect();
        labels.extend(compute.stages.iter().map(|s| unique(&mut taken, &s.name)));
        Labels(labels)
    }

    fn get(&self, buffer: BufId) -> String {
        self.0.get(buffer.index()).cloned().unwrap_or_else(|| format!("?{buffer}"))
    }
}

/// Names inside a stage: its axes by position. What does not exist has a name that does not parse.
struct StageNames<'a> {
    labels: &'a Labels,
    rank: usize,
    axes: usize,
}

impl Names for StageNames<'_> {
    fn var(&self, var: VarId) -> String {
        match var.index() {
            v if v < self.rank => format!("i{v}"),
            v if v < self.axes => format!("r{}", v - self.rank),
            _ => format!("?{var}"),
        }
    }

    fn buffer(&self, buffer: BufId) -> String {
        self.labels.get(buffer)
    }
}

/// `indent` stands before every line but the first.
pub(super) fn print(out: &mut dyn Write, compute: &Compute, indent: &str) -> fmt::Result {
    let labels = Labels::of(compute);
    out.write_str("compute(")?;
    for (i, ty) in compute.inputs.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(out, "{comma}{}: {ty}", labels.0[i])?;
    }
    out.write_str(") ->")?;
    for (i, &stage) in compute.outputs.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(out, "{comma} {}", labels.get(BufId::new(compute.inputs.len() + stage)))?;
    }
    out.write_str(" {\n")?;
    for (i, stage) in compute.stages.iter().enumerate() {
        let label = &labels.0[compute.inputs.len() + i];
        write!(out, "{indent}  {label}")?;
        if *label != stage.name {
            write!(out, " {}", Quoted(&stage.name))?;
        }
        write!(out, ": {} = ", stage.ty)?;
        if let Some(Reduce { combiner, extents }) = &stage.reduce {
            let axes = extents.iter().enumerate().map(|(i, e)| format!("r{i}: {e}"));
            write!(out, "{}{{{}}} ", combiner.name(), axes.collect::<Vec<_>>().join(", "))?;
        }
        let (rank, axes) = (stage.ty.rank(), stage.extents().len());
        print_expr(out, &StageNames { labels: &labels, rank, axes }, &stage.body)?;
        out.write_char('\n')?;
    }
    write!(out, "{indent}}}")
}

/// The names and axes that have been declared so far.
#[derive(Default)]
struct Declared {
    labels: Vec<String>,
    rank: usize,
    axes: usize,
}

impl Scope for Declared {
    fn var(&self, name: &str) -> Option<VarId> {
        let axis = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
        let spatial = axis("i").filter(|&i| i < self.rank);
        let reduction = axis("r").and_then(|r| r.checked_add(self.rank));
        spatial.or(reduction.filter(|&r| r < self.axes)).map(VarId::new)
    }

    fn buffer(&self, name: &str) -> Option<BufId> {
        self.labels.iter().position(|label| label == name).map(BufId::new)
    }
}

impl Declared {
    fn add(&mut self, cursor: &mut Cursor, what: &'static str) -> Result<String> {
        let place = cursor.place();
        let name = cursor.word(&format!("the name of a {what}"))?;
        if self.labels.contains(&name) {
            return Err(cursor.error_at(place, Cause::Duplicate { what, name }));
        }
        self.labels.push(name.clone());
        Ok(name)
    }
}

pub(super) fn read(cursor: &mut Cursor) -> Result<Compute> {
    let mut declared = Declared::default();
    cursor.keyword("compute")?;
    cursor.mark('(')?;
    let inputs = cursor.list(')', |c| {
        declared.add(c, "input")?;
        c.mark(':')?;
        c.tensor_type()
    })?;
    cursor.arrow()?;
    // The stages that are results are known only when all of them are.
    let results = cursor.list('{', |c| Ok((c.place(), c.word("the name of a stage")?)))?;
    let mut stages = Vec::new();
    while !cursor.take_mark('}') {
        stages.push(stage(cursor, &mut declared)?);
    }
    let mut outputs = Vec::new();
    for (place, name) in results {
        match declared.labels.iter().skip(inputs.len()).position(|label| *label == name) {
            Some(index) => outputs.push(index),
            None => return Err(cursor.error_at(place, Cause::Unknown { what: "stage", name })),
        }
    }
    Ok(Compute { inputs, stages, outputs })
}

fn stage(cursor: &mut Cursor, declared: &mut Declared) -> Result<Stage> {
    let label = declared.add(cursor, "stage")?;
    let name = cursor.take_quoted().unwrap_or(label);
    cursor.mark(':')?;
    let ty = cursor.tensor_type()?;
    cursor.mark('=')?;
    let reduce = reduce(cursor)?;
    declared.rank = ty.rank();
    declared.axes = ty.rank() + reduce.as_ref().map_or(0, |r| r.extents.len());
    let body = read_expr(cursor, declared)?;
    Ok(Stage { name, ty, reduce, body })
}

/// `sum{r0: 8}` before a body.
fn reduce(cursor: &mut Cursor) -> Result<Option<Reduce>> {
    let Some(combiner) = Combiner::ALL.into_iter().find(|c| cursor.at_word_then(c.name(), '{'))
    else {
        return Ok(None);
    };
    cursor.keyword(combiner.name())?;
    cursor.mark('{')?;
    let mut position = 0;
    let extents = cursor.list('}', |c| {
        c.keyword(&format!("r{position}"))?;
        position += 1;
        c.mark(':')?;
        c.number("an extent")
    })?;
    Ok(Some(Reduce { combiner, extents }))
}
