//! `TfIdfVectorizer` of integers.

use ansc_graph::ops::ngram;
use ansc_graph::{Expr, ValueId};
use ansc_runtime::{DType, Tensor};

use super::OpEntry;
use super::args::extents;
use crate::problem::Problem;
use crate::walk::NodeCtx;

pub(crate) const OPS: &[OpEntry] = &[OpEntry::onnx("TfIdfVectorizer", 9, tfidf)];

/// The n-grams by the element of the result that counts them.
struct Pool {
    ngrams: Vec<Vec<i64>>,
    weights: Option<Vec<f64>>,
}

fn tfidf(ctx: &mut NodeCtx<'_>) -> Result<Vec<ValueId>, Problem> {
    let x = ctx.input(0)?;
    let ty = ctx.ty(x);
    ctx.check(matches!(ty.rank(), 1 | 2) && ty.dtype.is_int(), || {
        format!("its input must be integers of rank 1 or 2, not {ty}")
    })?;
    let pool = Pool::new(ctx)?;
    let columns = ty.shape[ty.rank() - 1];
    let rows = if ty.rank() == 1 { 1 } else { ty.shape[0] };
    let x = ctx.reshape(x, &[rows, columns])?;
    let x = ctx.cast(x, DType::I64)?;
    let (table, lengths) = pool.tables(ctx)?;
    let skips = ctx.size(ctx.int("max_skip_count", 0), "number of skips")?.saturating_add(1);
    let op = ngram::ngrams(&ctx.ty(x), &ctx.ty(table), &ctx.ty(lengths), skips.min(columns.max(1)));
    let count = ctx.emit1(op, &[x, table, lengths])?;
    let y = pool.weighted(ctx, count)?;
    let shape = [&ty.shape[..ty.rank() - 1], &[pool.ngrams.len()]].concat();
    Ok(vec![ctx.reshape(y, &shape)?])
}

impl Pool {
    fn new(ctx: &NodeCtx<'_>) -> Result<Pool, Problem> {
        let list =
            |name: &str| ctx.ints(name).ok_or_else(|| ctx.problem(format!("it has no `{name}`")));
        let tokens = ctx.ints("pool_int64s").ok_or_else(|| {
            let remedy = "export the model with integers in place of strings";
            ctx.problem("it has no `pool_int64s`; strings are not supported").remedy(remedy)
        })?;
        let starts = extents(ctx, &list("ngram_counts")?, "n-gram counts")?;
        let places = extents(ctx, &list("ngram_indexes")?, "n-gram indexes")?;
        let all = split(&tokens, &starts).filter(|all| all.len() == places.len());
        let all =
            all.ok_or_else(|| ctx.problem("its pool, counts and indexes do not fit together"))?;
        let size = places.iter().max().map_or(0, |&most| most.saturating_add(1));
        // Every place is that of an n-gram, so more places than n-grams are gaps.
        ctx.check(size <= places.len().saturating_mul(64), || {
            "its indexes leave large gaps".into()
        })?;
        let weights = ctx.floats("weights");
        ctx.check(weights.as_ref().is_none_or(|w| w.len() == places.len()), || {
            "its weights do not fit its pool".into()
        })?;
        let lengths = ctx.int("min_gram_length", 1)..=ctx.int("max_gram_length", 1);
        let mut ngrams = vec![Vec::new(); size];
        let mut placed = vec![0.0; size];
        for (index, (tokens, place)) in all.into_iter().zip(places).enumerate() {
            ctx.check(ngrams[place].is_empty(), || format!("index {place} is listed twice"))?;
            if lengths.contains(&(tokens.len() as i64)) {
                ngrams[place] = tokens;
            }
            placed[place] = weights.as_ref().map_or(1.0, |w| f64::from(w[index]));
        }
        Ok(Pool { ngrams, weights: weights.map(|_| placed) })
    }

    /// The n-grams side by side, and their lengths; those that do not count have length 0.
    fn tables(&self, ctx: &mut NodeCtx<'_>) -> Result<(ValueId, ValueId), Problem> {
        let longest = self.ngrams.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut table = Vec::with_capacity(self.ngrams.len() * longest);
        for ngram in &self.ngrams {
            table.extend_from_slice(ngram);
            table.resize(table.len() + longest - ngram.len(), 0);
        }
        let lengths: Vec<i64> = self.ngrams.iter().map(|g| g.len() as i64).collect();
        let count = self.ngrams.len();
        let table = ctx.add_const(Tensor::from_slice(&[count, longest], &table))?;
        Ok((table, ctx.add_const(Tensor::from_slice(&[count], &lengths))?))
    }

    fn weighted(&self, ctx: &mut NodeCtx<'_>, count: ValueId) -> Result<ValueId, Problem> {
        let mode = ctx.string("mode", "TF");
        let ones = vec![1.0; self.ngrams.len()];
        let weights = self.weights.as_ref().unwrap_or(&ones);
        let weights = ctx.numbers(&[weights.len()], weights, DType::F32)?;
        let zero = || Expr::float(DType::F32, 0.0);
        match mode.as_str() {
            "TF" => Ok(count),
            "IDF" => ctx.map(&[count, weights], DType::F32, |v| {
                Expr::select(zero().lt(v[0].clone()), v[1].clone(), zero())
            }),
            "TFIDF" => ctx.map(&[count, weights], DType::F32, |v| v[0].clone() * v[1].clone()),
            other => Err(ctx.problem(format!("mode `{other}` is not known"))),
        }
    }
}

/// The pool's tokens as n-grams: `starts[i]` is where those of length `i + 1` begin.
fn split(tokens: &[i64], starts: &[usize]) -> Option<Vec<Vec<i64>>> {
    let mut all = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(tokens.len());
        let part = tokens.get(start..end)?;
        if part.len() % (i + 1) != 0 {
            return None;
        }
        all.extend(part.chunks(i + 1).map(<[i64]>::to_vec));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_split_by_length() {
        let all = split(&[2, 3, 5, 4, 5, 6], &[0, 2]).unwrap();
        assert_eq!(all, [vec![2], vec![3], vec![5, 4], vec![5, 6]]);
        assert_eq!(split(&[2, 3, 5], &[0, 2]), None);
        assert_eq!(split(&[2, 3, 5], &[0, 4]), None);
    }
}
