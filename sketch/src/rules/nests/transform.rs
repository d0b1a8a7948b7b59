//! Transforms of squares, as Winograd's convolution does before and after its products: each square
//! is transformed along one axis into registers, and from there along the other.
//!
//! ```text
//! half[t, i, b, c]   = select(i == 0, x[t, 0, b, c] - x[t, 2, b, c], ..)
//! points[i, j, t, c] = select(j == 0, half[t, i, 0, c] - half[t, i, 2, c], ..)
//! =>
//! parallel t { for co { vectorized c {
//!   unrolled b, i { half[i, b] = .. }
//!   unrolled i, j { points[i, j, t, co * 16 + c] = .. half .. }
//! } } }
//! ```
//!
//! An axis by which a stage chooses is written out, so that every choice is made when compiling. A
//! map that reads the second stage at its own place is computed with it.

use super::{Nests, Way};
use crate::contraction::epilogue::Epilogue;
use crate::schedule::Rest;
use crate::switch::{Squares, Walk};
use crate::trace::{BlockVar, LoopVar, Number, Recorder, StepError};
use crate::walk::is_worthwhile;

/// Both stages, and the map that reads the second one, if it follows.
pub(super) fn apply(nests: &mut Nests, first: usize, _: &Way) -> Result<Option<usize>, StepError> {
    let Some(plan) = Plan::of(nests, first) else { return Ok(None) };
    plan.write(nests)?;
    Ok(Some(2 + usize::from(plan.reader.is_some())))
}

struct Plan {
    squares: Squares,
    reader: Option<usize>,
    lanes: usize,
    /// Vectors of columns: none of a single column.
    columns: usize,
    worthwhile: bool,
}

/// Loops within a square that stay loops, and those that are written out, in their order.
#[derive(Default)]
struct Within {
    all: Vec<LoopVar>,
    written_out: Vec<LoopVar>,
}

/// How much of an axis within a square is written out: all of it, or so many elements.
type Length = Option<Number>;

impl Plan {
    fn of(nests: &Nests, first: usize) -> Option<Plan> {
        let done: Vec<bool> = (0..nests.compute.stages.len()).map(|s| s < first).collect();
        let squares = Squares::of(&nests.compute, first, &done)?;
        let second = squares.second;
        let reader = Epilogue::of(&nests.compute, second, &done).filter(Epilogue::is_in_place);
        let reader = reader.map(|reader| reader.stage);
        // Stages in between would come before what they read.
        if second != first + 1 || reader.is_some_and(|reader| reader != second + 1) {
            return None;
        }
        let s = nests.stage(second);
        let (lanes, worthwhile) = (nests.lanes(second), is_worthwhile(s));
        let columns = *s.ty.shape.last()?;
        Some(Plan { squares, reader, lanes, columns, worthwhile })
    }

    fn write(&self, nests: &mut Nests) -> Result<(), StepError> {
        let square = lengths(nests, &self.squares.square)?;
        let neighbours = lengths(nests, &self.squares.neighbours)?;
        let second = nests.block(self.squares.second)?;
        let (outer, columns, within) = self.cut(nests, second, &neighbours)?;
        let column = columns[columns.len() - 1];
        if let Some(reader) = self.reader {
            let reader = nests.block(reader)?;
            let at = within.all.last().copied().unwrap_or(column);
            nests.recorder.reverse_compute_at(reader, at)?;
            nests.keep_local(second)?;
        }
        let first = nests.block(self.squares.first)?;
        nests.recorder.compute_at(first, column)?;
        nests.keep_local(first)?;
        let r = &mut nests.recorder;
        let own = self.order(r, first, &square)?;
        own.written_out.iter().chain(&within.written_out).try_for_each(|&l| r.unroll(l))?;
        if let [over, lanes] = columns[..] {
            r.vectorize(lanes)?;
            r.peel(over, Rest::Overlap)?;
        }
        if self.worthwhile { nests.parallel(outer) } else { Ok(()) }
    }

    /// Cuts the second stage into squares and columns into vectors: the loop over squares, those of
    /// columns, and those within a square.
    fn cut(
        &self,
        nests: &mut Nests,
        block: BlockVar,
        lengths: &[Length],
    ) -> Result<(LoopVar, Vec<LoopVar>, Within), StepError> {
        let mut axes = nests.loops(block)?;
        let r = &mut nests.recorder;
        let last = axes.split_off(axes.len() - 1);
        let columns = match self.columns {
            1 => last,
            _ => r.split(last[0], &[0.into(), self.lanes.into()])?,
        };
        let (mut outer, mut within) = (vec![], Within::default());
        for ((axis, walk), &length) in axes.into_iter().zip(&self.squares.neighbours).zip(lengths) {
            if walk.extent == 1 {
                outer.push(axis);
                continue;
            }
            let parts = r.split(axis, &[0.into(), walk.extent.into()])?;
            outer.push(parts[0]);
            within.push(r, parts[1], length)?;
        }
        r.reorder(&[&outer[..], &columns, &within.all].concat())?;
        Ok((r.fuse(&outer)?, columns, within))
    }

    /// The loops of the first stage within a square. Innermost is the axis by which it chooses:
    /// what its elements have in common stays in registers until then.
    fn order(
        &self,
        r: &mut Recorder,
        block: BlockVar,
        lengths: &[Length],
    ) -> Result<Within, StepError> {
        let all = r.get_loops(block)?;
        // The last axis is that of columns.
        let own = &all[all.len() - self.squares.axes() - 1..];
        let is_within = |axis: &usize| self.squares.is_within(*axis);
        let (of_square, others): (Vec<usize>, Vec<usize>) = (0..own.len()).partition(is_within);
        let mut walks: Vec<(LoopVar, Length)> =
            of_square.iter().map(|&axis| own[axis]).zip(lengths.iter().copied()).collect();
        walks[self.squares.own..].rotate_left(1);
        let mut within = Within::default();
        walks.into_iter().try_for_each(|(l, length)| within.push(r, l, length))?;
        let others: Vec<LoopVar> = others.into_iter().map(|axis| own[axis]).collect();
        r.reorder(&[&others[..], &within.all].concat())?;
        Ok(within)
    }
}

impl Within {
    fn push(&mut self, r: &mut Recorder, l: LoopVar, length: Length) -> Result<(), StepError> {
        let parts = match length {
            None => vec![l],
            Some(length) => r.split(l, &[0.into(), length])?,
        };
        self.written_out.extend(parts.last());
        self.all.extend(parts);
        Ok(())
    }
}

/// For each axis: all of it where the stage chooses, otherwise all of it or none, as is chosen.
fn lengths(nests: &mut Nests, walks: &[Walk]) -> Result<Vec<Length>, StepError> {
    let one = |walk: &Walk| {
        if walk.is_choice || walk.extent == 1 {
            return Ok(None);
        }
        let (all, none) = (walk.extent as i64, 1);
        let candidates = if walk.written_out { [all, none] } else { [none, all] };
        nests.choose(&candidates).map(Some)
    };
    walks.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::program::Scope;
    use crate::rules::nests::sketches;
    use crate::task::Task;
    use crate::testing::{compare_scheduled, task};

    /// Before products: each row of points is one of the square, transformed.
    const BEFORE: &str = "compute(in0: f32[5, 3, 3, 37]) -> points {
      half: f32[5, 3, 3, 37] = select(eq(i1, 0), sub(in0[i0, 0, i2, i3], in0[i0, 2, i2, i3]), select(eq(i1, 1), add(in0[i0, 1, i2, i3], in0[i0, 2, i2, i3]), in0[i0, 1, i2, i3]))
      points: f32[3, 3, 5, 37] = select(eq(i1, 0), sub(half[i2, i0, 0, i3], half[i2, i0, 2, i3]), select(eq(i1, 1), add(half[i2, i0, 1, i3], half[i2, i0, 2, i3]), half[i2, i0, 1, i3]))
    }";

    /// After them: rows and columns of an image are two to a square.
    const AFTER: &str = "compute(in0: f32[3, 3, 6, 40], in1: f32[40]) -> y {
      back: f32[6, 2, 3, 40] = select(eq(i1, 0), add(in0[0, i2, i0, i3], in0[1, i2, i0, i3]), sub(in0[1, i2, i0, i3], in0[2, i2, i0, i3]))
      c: f32[3, 5, 40] = select(eq(floor_mod(i1, 2), 0), add(back[add(mul(floor_div(i0, 2), 3), floor_div(i1, 2)), floor_mod(i0, 2), 0, i2], back[add(mul(floor_div(i0, 2), 3), floor_div(i1, 2)), floor_mod(i0, 2), 1, i2]), sub(back[add(mul(floor_div(i0, 2), 3), floor_div(i1, 2)), floor_mod(i0, 2), 1, i2], back[add(mul(floor_div(i0, 2), 3), floor_div(i1, 2)), floor_mod(i0, 2), 2, i2]))
      y: f32[3, 5, 40] = max(add(c[i0, i1, i2], in1[i2]), 0.0_f32)
    }";

    fn rules(task: &Arc<Task>) -> Vec<String> {
        sketches(task, None).into_iter().next().map_or(vec![], |(sketch, _)| sketch.rules)
    }

    #[test]
    fn squares_are_transformed_in_registers() {
        // Vectors, a rest of one, fewer than a vector.
        for columns in [16, 37, 40, 3] {
            for text in [BEFORE, AFTER] {
                let of = |from: &str| (format!(", {from}]"), format!(", {columns}]"));
                let text = [of("37"), of("40")]
                    .iter()
                    .fold(text.to_owned(), |t, (from, to)| t.replace(from, to));
                let task = task(&text.replace("f32[40]", &format!("f32[{columns}]")));
                let (sketch, made) = sketches(&task, None).swap_remove(0);
                assert_eq!(sketch.rules, ["transform"]);
                // Elements between the stages are in registers.
                let between = made.program.buffers.iter().filter(|b| b.scope == Scope::Local);
                assert_ne!(between.count(), 0, "{}", made.program);
                compare_scheduled(&task.compute, &made).unwrap();
            }
        }
    }

    #[test]
    fn other_pairs_are_none() {
        // The first stage is a result; columns are chosen by; columns are read in another order; a
        // choice is no row of them; the map reads the second stage at another place.
        for (text, from, to) in [
            (BEFORE, "-> points", "-> points, half"),
            (BEFORE, "eq(i1, 0), sub(half", "eq(floor_mod(i3, 2), 0), sub(half"),
            (BEFORE, "half[i2, i0, 0, i3]", "half[i2, i0, 0, sub(36, i3)]"),
            (BEFORE, "eq(i1, 0), sub(half", "lt(i1, 1), sub(half"),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            assert!(!rules(&task(&changed)).contains(&"transform".to_owned()), "{to}");
        }
        let apart = task(&AFTER.replace("c[i0, i1, i2]", "c[i0, sub(4, i1), i2]"));
        assert_eq!(rules(&apart), ["transform", "points"]);
    }
}
