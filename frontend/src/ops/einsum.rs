//! `Einsum`: a matrix product with transposes around it where it is one, else one sum.
//!
//! ```text
//! "bhqd,bkhd->bhqk"  ->  transpose b to [b, h, d, k]; matmul
//! ```
//! Three and more operands are combined from left to right.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::ops::einsum::{Labels, einsum};
use ansc_graph::{TensorType, ValueId};

use super::OpEntry;
use super::compose::One;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("Einsum", 12, import)];

/// A value and the label of each of its axes.
#[derive(Clone)]
struct Term {
    value: ValueId,
    labels: Vec<usize>,
}

fn import(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let values = ctx.all_inputs()?;
    let ranks: Vec<usize> = values.iter().map(|&v| ctx.ty(v).rank()).collect();
    let equation = ctx.string("equation", "");
    let labels = parse(&equation, &ranks).map_err(|reason| ctx.problem(reason))?;
    let types: Vec<TensorType> = values.iter().map(|&v| ctx.ty(v)).collect();
    let extents = labels.extents(&types).map_err(|e| ctx.problem(e.to_string()))?;
    let terms = values.into_iter().zip(labels.operands);
    let mut terms = terms.map(|(value, labels)| Term { value, labels });
    let first = terms.next().ok_or_else(|| ctx.problem("it has no operand"))?;
    let mut rest: Vec<Term> = terms.collect();
    let mut acc = alone(ctx, first, &rest, &labels.output, &extents)?;
    while !rest.is_empty() {
        let next = rest.remove(0);
        let mut others = rest.clone();
        others.push(acc.clone());
        let next = alone(ctx, next, &others, &labels.output, &extents)?;
        let wanted = wanted(&[&acc, &next], &rest, &labels.output);
        acc = pair(ctx, acc, next, wanted, &extents)?;
    }
    Ok(vec![arranged(ctx, acc, &labels.output, &extents)?])
}

/// Labels of the equation `term,term->output`, or with the output implied.
fn parse(equation: &str, ranks: &[usize]) -> Result<Labels, String> {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (terms, output) = match equation.split_once("->") {
        Some((terms, output)) => (terms.to_owned(), Some(output.to_owned())),
        None => (equation, None),
    };
    let terms: Vec<&str> = terms.split(',').collect();
    if terms.len() != ranks.len() {
        return Err(format!("its equation has {} terms for {} operands", terms.len(), ranks.len()));
    }
    let mut table = Table::default();
    for (term, &rank) in terms.iter().zip(ranks) {
        table.widest = table.widest.max(dots(term, rank)?);
    }
    let operands: Result<Vec<Vec<usize>>, String> =
        terms.iter().zip(ranks).map(|(term, &rank)| table.term(term, dots(term, rank)?)).collect();
    let operands = operands?;
    let output = match output {
        Some(output) => table.term(&output, table.widest)?,
        None => table.implied_output(&terms),
    };
    let used: BTreeSet<usize> = operands.iter().flatten().copied().collect();
    let unique: BTreeSet<usize> = output.iter().copied().collect();
    if unique.len() != output.len() || !unique.is_subset(&used) {
        return Err("its equation's output names an axis twice, or one that no operand has".into());
    }
    Ok(Labels { operands, output })
}

/// How many axes `...` stands for in a term of rank `rank`.
fn dots(term: &str, rank: usize) -> Result<usize, String> {
    let letters = term.replacen("...", "", 1).chars().count();
    match (term.contains("..."), rank.checked_sub(letters)) {
        (true, Some(rest)) => Ok(rest),
        (false, Some(0)) => Ok(0),
        _ => Err(format!("its term `{term}` does not fit an operand of rank {rank}")),
    }
}

/// Numbers of letters. The axes of `...` come first, numbered from the last one.
#[derive(Default)]
struct Table {
    letters: BTreeMap<char, usize>,
    widest: usize,
}

impl Table {
    fn term(&mut self, term: &str, dots: usize) -> Result<Vec<usize>, String> {
        let mut labels = Vec::new();
        let (before, after) = match term.split_once("...") {
            Some((before, after)) => (before, Some(after)),
            None => (term, None),
        };
        self.letters_of(before, &mut labels)?;
        if let Some(after) = after {
            labels.extend((0..dots).rev());
            self.letters_of(after, &mut labels)?;
        }
        Ok(labels)
    }

    fn letters_of(&mut self, text: &str, labels: &mut Vec<usize>) -> Result<(), String> {
        for letter in text.chars() {
            if !letter.is_ascii_alphabetic() {
                return Err(format!("its equation has the sign `{letter}`"));
            }
            let next = self.widest + self.letters.len();
            labels.push(*self.letters.entry(letter).or_insert(next));
        }
        Ok(())
    }

    /// The axes of `...`, then the letters that occur once, in alphabetical order.
    fn implied_output(&self, terms: &[&str]) -> Vec<usize> {
        let once =
            |letter: char| terms.iter().map(|t| t.matches(letter).count()).sum::<usize>() == 1;
        let letters = self.letters.iter().filter(|(letter, _)| once(**letter));
        (0..self.widest).rev().chain(letters.map(|(_, &label)| label)).collect()
    }
}

/// Labels of `terms` that the output or the `rest` needs.
fn wanted(terms: &[&Term], rest: &[Term], output: &[usize]) -> Vec<usize> {
    let needed = |l: &usize| output.contains(l) || rest.iter().any(|term| term.labels.contains(l));
    let mut wanted = Vec::new();
    for &label in terms.iter().flat_map(|t| &t.labels).filter(|l| needed(l)) {
        if !wanted.contains(&label) {
            wanted.push(label);
        }
    }
    wanted
}

/// A term of its own: diagonals taken, axes that nobody else names summed up, and broadcast axes
/// of extent 1 removed.
fn alone(
    ctx: &mut NodeCtx<'_>,
    term: Term,
    others: &[Term],
    output: &[usize],
    extents: &[usize],
) -> Result<Term, Problem> {
    let shape = ctx.shape(term.value);
    let kept = |i: &usize| shape[*i] != 1 || extents[term.labels[*i]] == 1;
    let kept: Vec<usize> = (0..shape.len()).filter(kept).collect();
    let value = ctx.reshape(term.value, &kept.iter().map(|&i| shape[i]).collect::<Vec<_>>())?;
    let term = Term { value, labels: kept.iter().map(|&i| term.labels[i]).collect() };
    let wanted = wanted(&[&term], others, output);
    if wanted == term.labels {
        return Ok(term);
    }
    sum(ctx, &[term], wanted)
}

/// One sum over everything but `wanted`.
fn sum(ctx: &mut NodeCtx<'_>, terms: &[Term], wanted: Vec<usize>) -> Result<Term, Problem> {
    let labels = Labels {
        operands: terms.iter().map(|t| t.labels.clone()).collect(),
        output: wanted.clone(),
    };
    let values: Vec<ValueId> = terms.iter().map(|t| t.value).collect();
    let types: Vec<TensorType> = values.iter().map(|&v| ctx.ty(v)).collect();
    let value = ctx.emit1(einsum(&labels, &types), &values)?;
    Ok(Term { value, labels: wanted })
}

/// The product of two terms, which keeps the labels `wanted`.
fn pair(
    ctx: &mut NodeCtx<'_>,
    a: Term,
    b: Term,
    wanted: Vec<usize>,
    extents: &[usize],
) -> Result<Term, Problem> {
    let has = |t: &Term, l: usize| t.labels.contains(&l);
    let select = |t: &Term, in_other: bool, in_result: bool, other: &Term| -> Vec<usize> {
        let holds = |l: usize| has(other, l) == in_other && wanted.contains(&l) == in_result;
        t.labels.iter().copied().filter(|&l| holds(l)).collect()
    };
    let batch = select(&a, true, true, &b);
    let inner = select(&a, true, false, &b);
    let (rows, columns) = (select(&a, false, true, &b), select(&b, false, true, &a));
    if inner.is_empty() || (rows.is_empty() && columns.is_empty()) {
        return sum(ctx, &[a, b], wanted);
    }
    let left = matrix(ctx, a, [&batch, &rows, &inner], extents)?;
    let right = matrix(ctx, b, [&batch, &inner, &columns], extents)?;
    let product = ctx.matmul(left, right)?;
    let labels = [batch, rows, columns].concat();
    let shape: Vec<usize> = labels.iter().map(|&l| extents[l]).collect();
    let value = ctx.reshape(product, &shape)?;
    Ok(Term { value, labels })
}

/// `term` as `[batch.., rows, columns]`, each of the last two from several axes.
fn matrix(
    ctx: &mut NodeCtx<'_>,
    term: Term,
    [batch, rows, columns]: [&Vec<usize>; 3],
    extents: &[usize],
) -> One {
    let order = [&batch[..], rows, columns].concat();
    let value = arranged(ctx, term, &order, extents)?;
    let product = |labels: &[usize]| labels.iter().map(|&l| extents[l]).product::<usize>();
    let mut shape: Vec<usize> = batch.iter().map(|&l| extents[l]).collect();
    shape.extend([product(rows), product(columns)]);
    ctx.reshape(value, &shape)
}

/// `term` with its axes in `order`, in which axes of extent 1 may be new.
fn arranged(ctx: &mut NodeCtx<'_>, term: Term, order: &[usize], extents: &[usize]) -> One {
    let position = |label: &usize| term.labels.iter().position(|l| l == label);
    let perm: Vec<usize> = order.iter().filter_map(position).collect();
    let value = ctx.transpose(term.value, &perm)?;
    ctx.reshape(value, &order.iter().map(|&l| extents[l]).collect::<Vec<_>>())
}
