//! Stages that vanish into their readers.
//!
//! ```text
//! s0[v0] = add(b0[v0], b1[v0]);  s1[v0, v1] = mul(s0[v0], b2[v0, v1])
//! =>
//! s1[v0, v1] = mul(add(b0[v0], b1[v0]), b2[v0, v1])
//! ```
//!
//! A stage is inlined where recomputing it costs no more than storing and loading it: never a
//! reduction or a result; into a reduction that uses elements again only if it merely moves them
//! (and does not put side by side what is a stride apart), or pads what a window of one channel
//! slides over (otherwise padding stays a buffer); expensive functions only into one reader of the
//! same size; padding never into a map that reads it a stride apart, whose vectors would choose
//! each element; never what is written out along an axis (`switch`), nor what is one of a chain of
//! cumulative sums (`doubling`), or read by it.

use ansc_graph::arith::Linear;
use ansc_graph::{BufId, Compute, Expr, Stage};

use super::usage::{has_reuse, is_expensive, is_movement, is_padding, readers, size};
use crate::doubling::Doubling;
use crate::switch::is_switch;

/// Inlined bodies stay below this many nodes: code size, and the compiler's own time.
const MAX_NODES: usize = 400;

/// A window of more terms than this reads its padding from a buffer.
const MAX_WINDOW: usize = 64;

/// Whether the padding of windows of one channel vanishes too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    Kept,
    Inlined,
}

/// The subgraph without the stages that vanish, and which stages stay.
pub(crate) fn inlined(compute: &Compute, padding: Padding) -> (Compute, Vec<bool>) {
    let mut compute = compute.clone();
    let mut kept: Vec<bool> = vec![true; compute.stages.len()];
    for (index, keep) in kept.iter_mut().enumerate() {
        let buffer = compute.stage_buffer(index);
        let readers = readers(&compute, buffer);
        if readers.is_empty() || !worthwhile(&compute, index, &readers, padding) {
            continue;
        }
        let body = compute.stages[index].body.clone();
        for reader in readers {
            let stage = &mut compute.stages[reader];
            stage.body = replace_loads(&stage.body, buffer, &body);
        }
        *keep = false;
    }
    (drop_stages(&compute, &kept), kept)
}

fn worthwhile(compute: &Compute, index: usize, readers: &[usize], padding: Padding) -> bool {
    let stage = &compute.stages[index];
    let is_step = |stage: &Stage| Doubling::of_stage(stage).is_some();
    let in_chain = is_step(stage) || readers.iter().any(|&r| is_step(&compute.stages[r]));
    let is_result = compute.outputs.contains(&index);
    if stage.reduce.is_some() || is_result || is_switch(stage) || in_chain {
        return false;
    }
    let expensive = is_expensive(&stage.body);
    if expensive && readers.len() > 1 {
        return false;
    }
    let buffer = compute.stage_buffer(index);
    readers.iter().map(|&r| &compute.stages[r]).all(|reader| {
        let pads = padding == Padding::Inlined && pads_one_channel(stage, reader, buffer);
        pads || fits(stage, reader, buffer, expensive)
    })
}

/// The reader is a window that slides over one channel: it has few terms, and its vectors are those
/// of what it reads.
fn pads_one_channel(stage: &Stage, reader: &Stage, buffer: BufId) -> bool {
    let terms = reader.reduce.as_ref().map_or(usize::MAX, |r| r.extents.iter().product());
    let loads = reader.body.loads();
    let mut own = loads.iter().filter(|(b, _)| *b == buffer);
    let vector = reader.ty.rank().checked_sub(1).map(Expr::var);
    let one = own.next().is_some_and(|(_, at)| at.last() == vector.as_ref());
    is_padding(&stage.body) && terms <= MAX_WINDOW && one && own.next().is_none()
}

/// Whether neighbours in a vector of the stage are a stride apart in what it reads.
fn leaps(stage: &Stage, reads: impl Fn(BufId) -> bool) -> bool {
    let Some(vector) = stage.ty.rank().checked_sub(1).map(Expr::var) else { return false };
    let step =
        |at: &[Expr]| at.last().map_or(0, |last| Linear::from_expr(last).coefficient(&vector));
    stage.body.loads().iter().any(|(buffer, at)| reads(*buffer) && step(at).abs() > 1)
}

fn fits(stage: &Stage, reader: &Stage, buffer: BufId, expensive: bool) -> bool {
    let loads = reader.body.loads().iter().filter(|(b, _)| *b == buffer).count();
    let is_map = reader.reduce.is_none();
    if is_padding(&stage.body) && is_map && leaps(reader, |read| read == buffer) {
        return false;
    }
    if size(&reader.body) + loads * size(&stage.body) > MAX_NODES {
        return false;
    }
    let points: usize = reader.extents().iter().product();
    let same_size = points <= stage.ty.len().max(1);
    match reader.reduce {
        Some(_) if has_reuse(reader) => is_movement(&stage.body) && !leaps(stage, |_| true),
        _ => !expensive || same_size,
    }
}

fn replace_loads(e: &Expr, buffer: BufId, body: &Expr) -> Expr {
    e.rewrite(&mut |e| match e {
        Expr::Load(b, indices) if *b == buffer => {
            Some(body.substitute(&|v| Some(indices[v.index()].clone())))
        }
        _ => None,
    })
}

/// Removes stages that nothing loads any more, and renumbers the others.
pub(crate) fn drop_stages(compute: &Compute, kept: &[bool]) -> Compute {
    let inputs = compute.inputs.len();
    let new_index: Vec<usize> =
        (0..kept.len()).map(|i| kept[..i].iter().filter(|k| **k).count()).collect();
    let renumber = |b: BufId| match b.index().checked_sub(inputs) {
        None => b,
        Some(stage) => BufId::new(inputs + new_index[stage]),
    };
    let stages = compute.stages.iter().zip(kept).filter(|(_, kept)| **kept).map(|(s, _)| {
        let body = s.body.rewrite(&mut |e| match e {
            Expr::Load(b, indices) => Some(Expr::Load(renumber(*b), indices.clone())),
            _ => None,
        });
        Stage { body, ..s.clone() }
    });
    Compute {
        inputs: compute.inputs.clone(),
        stages: stages.collect(),
        outputs: compute.outputs.iter().map(|&s| new_index[s]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use ansc_graph::{Combiner, TensorType, UnOp};
    use ansc_runtime::DType;

    use super::*;

    fn ty() -> TensorType {
        TensorType::new(DType::F32, [4])
    }

    #[test]
    fn chains_become_one_stage() {
        let x = Expr::load(0, vec![Expr::var(0)]);
        let mut c = Compute { inputs: vec![ty()], stages: vec![], outputs: vec![1] };
        let s0 = c.push(Stage::map("a", ty(), Expr::unary(UnOp::Exp, x)));
        c.push(Stage::map("b", ty(), Expr::unary(UnOp::Neg, Expr::Load(s0, vec![Expr::var(0)]))));
        let inlined = inlined(&c, Padding::Kept).0;
        assert_eq!((inlined.stages.len(), &inlined.outputs[..]), (1, &[0][..]));
    }

    #[test]
    fn an_expensive_stage_with_two_readers_stays() {
        let x = Expr::load(0, vec![Expr::var(0)]);
        let scalar = TensorType::new(DType::F32, []);
        let mut c = Compute { inputs: vec![ty()], stages: vec![], outputs: vec![2] };
        let e = c.push(Stage::map("e", ty(), Expr::unary(UnOp::Exp, x)));
        let at = |b, i| Expr::Load(b, i);
        let s = c.push(Stage::reduction(
            "s",
            scalar,
            Combiner::Sum,
            vec![4],
            at(e, vec![Expr::var(0)]),
        ));
        c.push(Stage::map("y", ty(), at(e, vec![Expr::var(0)]) / at(s, vec![])));
        assert_eq!(inlined(&c, Padding::Kept).0.stages.len(), 3);
    }
}
