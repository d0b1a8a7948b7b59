//! Any sequence of primitives that succeed computes the same function, and one that fails changes
//! nothing. The sequences are random; what each primitive made is run by the suspicious
//! interpreter.

use ansc_graph::op::{Channels, ConvAttrs};
use ansc_graph::ops::*;
use ansc_graph::{BinOp, Compute, Expr, Graph, TensorType, UnOp, fuse, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::schedule::{Cause, Rest};
use ansc_sketch::{
    IndexMap, LoopRef, Program, Schedule, ScheduleError, Scope, exec, finish, lower,
};
use proptest::prelude::*;

/// Numbers that decide one step: which primitive, and what it is given.
type Move = [u8; 5];

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn product_with_epilogue() -> Compute {
    let (a, b, bias) = (f32s(&[5, 3]), f32s(&[3, 7]), f32s(&[7]));
    let mut g = Graph::new("mm");
    let inputs =
        [("a", &a), ("b", &b), ("bias", &bias)].map(|(n, ty)| g.add_input(n, ty.clone(), None));
    let op = matmul::matmul(&a, &b).unwrap();
    let y = g.add_compute("mm", op.kind, (*op.expr).clone(), &inputs[..2])[0];
    let op = map::binary(BinOp::Add, &f32s(&[5, 7]), &bias).unwrap();
    let y = g.add_compute("add", op.kind, (*op.expr).clone(), &[y, inputs[2]])[0];
    let op = activation::relu(&f32s(&[5, 7])).unwrap();
    let y = g.add_compute("relu", op.kind, (*op.expr).clone(), &[y])[0];
    g.outputs.push(("y".into(), y));
    fuse::fuse(&g).remove(0).compute
}

fn computes() -> Vec<Compute> {
    let attrs = |stride| ConvAttrs {
        channels: Channels::First,
        input: Channels::First,
        kernel: vec![3, 2],
        strides: vec![stride, 1],
        dilations: vec![1, 1],
        pads_begin: vec![1, 1],
        pads_end: vec![1, 0],
        groups: 1,
    };
    let conv = |stride| conv::conv(attrs(stride), &f32s(&[1, 2, 5, 4]), &f32s(&[3, 2, 3, 2]));
    let arg = arg_extreme::ArgExtreme { axis: 1, largest: true, keep: false, last: false };
    let scale = f32s(&[6]);
    let running =
        cumulative::Cumulative { axis: 1, op: BinOp::Add, exclusive: false, reverse: true };
    let ops = [
        conv(1),
        conv(2),
        softmax::softmax(&[1], &f32s(&[3, 6])),
        normalize::layer_norm(1, 1e-5, DType::F32, &f32s(&[3, 6]), &scale, Some(&scale)),
        arg_extreme::arg_extreme(arg, &f32s(&[3, 7])),
        reduce::reduce(reduce::Reduction::Mean, &[0, 2], true, &f32s(&[3, 4, 5])),
        concat::concat(&[f32s(&[3, 2]), f32s(&[3, 5])], 1),
        cumulative::cumulative(running, &f32s(&[4, 6])),
        shape::transpose(&f32s(&[2, 3, 5]), &[2, 0, 1]),
        map::unary(UnOp::Neg, &f32s(&[])),
    ];
    let mut all: Vec<Compute> = ops.into_iter().map(|op| (*op.unwrap().expr).clone()).collect();
    all.push(product_with_epilogue());
    all
}

/// Small whole numbers: sums are exact in any order.
fn operands(compute: &Compute) -> Vec<Tensor> {
    let tensor = |(i, ty): (usize, &TensorType)| {
        let values: Vec<f32> = (0..ty.len()).map(|e| ((e * 7 + i * 3) % 11) as f32 - 5.0).collect();
        Tensor::from_slice(&ty.shape, &values)
    };
    compute.inputs.iter().enumerate().map(tensor).collect()
}

fn check(compute: &Compute, program: &Program) -> Result<(), String> {
    let inputs = operands(compute);
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(compute, &inputs).map_err(|e| e.to_string())?;
    let found = exec::run(program, &inputs).map_err(|e| e.to_string())?;
    for (e, f) in expected.iter().zip(&found) {
        let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-5 * a.abs().max(1.0);
        let same_type = (e.dtype(), e.shape()) == (f.dtype(), f.shape());
        if !same_type || !e.to_f64_vec().into_iter().zip(f.to_f64_vec()).all(close) {
            return Err(format!("{f:?} instead of {e:?}"));
        }
    }
    let text = program.to_string();
    match Program::parse(&text) {
        Ok(parsed) if parsed.to_string() == text => Ok(()),
        Ok(_) => Err("parsing gives another text".into()),
        Err(e) => Err(e.to_string()),
    }
}

fn pick<T: Clone>(from: &[T], by: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(by) % from.len()].clone())
}

/// The loops in an order that `by` decides; some are left out.
fn shuffled(loops: &[LoopRef], by: [u8; 2]) -> Vec<LoopRef> {
    let mut rest = loops.to_vec();
    let mut order = Vec::new();
    let mut state = usize::from(by[0]) + 256 * usize::from(by[1]);
    while !rest.is_empty() {
        let l = rest.remove(state % rest.len());
        state /= 3;
        if state % 5 != 4 {
            order.push(l);
        }
    }
    order
}

/// A map of `rank` axes: two of them swapped, one split, or two neighbours fused.
fn index_map(rank: usize, by: [u8; 2]) -> Option<IndexMap> {
    let (which, length) = (usize::from(by[0]) / 3, i64::from(by[1] % 5) + 1);
    let axis = which.checked_rem(rank)?;
    let mut at: Vec<Expr> = (0..rank).map(Expr::var).collect();
    match by[0] % 3 {
        0 => at.swap(axis, 0),
        1 => {
            let whole = at.remove(axis);
            at.insert(axis, whole.clone().floor_div(length));
            at.push(whole.floor_mod(length));
        }
        _ if axis + 1 < rank => {
            let inner = at.remove(axis + 1);
            at[axis] = at[axis].clone() * Expr::int(length + 2) + inner;
        }
        _ => return None,
    }
    IndexMap::new(rank, at).ok()
}

/// Whether a primitive succeeded; a failure shows where.
fn done<T>(result: Result<T, ScheduleError>) -> bool {
    if let Err(error) = &result {
        let names_nothing = matches!(
            error.cause,
            Cause::NoSuchLoop | Cause::NoSuchBlock(_) | Cause::NoSuchBuffer(_) | Cause::NoLoops
        );
        assert!(names_nothing || error.to_string().contains("<---"), "{error}");
    }
    result.is_ok()
}

/// Makes one step. `None` if there is nothing to apply the primitive to; otherwise its name and
/// whether it succeeded.
fn step(s: &mut Schedule, m: Move) -> Option<(&'static str, bool)> {
    let block = pick(&s.blocks(), m[1])?;
    let loops = s.loops(&block).expect("a block of the schedule");
    let any_loop = {
        let other = pick(&s.blocks(), m[3])?;
        pick(&s.loops(&other).expect("a block of the schedule"), m[4])
    };
    let buffers: Vec<String> = s.program().buffers.iter().map(|b| b.name.clone()).collect();
    let scope = if m[4].is_multiple_of(2) { Scope::Local } else { Scope::Global };
    let id = s.buffer(&pick(&buffers, m[2])?).expect("a buffer of the schedule");
    let rank = s.program().buffer(id).ty.rank();
    Some(match m[0] % 39 {
        0..=2 => {
            let (inner, middle) = (usize::from(m[3] % 5) + 1, usize::from(m[4] % 3) + 1);
            let factors = if m[4] < 128 { vec![0, inner] } else { vec![0, middle, inner] };
            ("split", done(s.split(pick(&loops, m[2])?, &factors)))
        }
        3 => {
            let from = usize::from(m[2]) % loops.len().max(1);
            let to = (from + 1 + usize::from(m[3] % 3)).min(loops.len());
            ("fuse", done(s.fuse(loops.get(from..to)?)))
        }
        4 | 5 => ("reorder", done(s.reorder(&shuffled(&loops, [m[2], m[3]])))),
        6 => ("parallel", done(s.parallel(pick(&loops, m[2] % 2)?))),
        7 if m[3].is_multiple_of(3) => ("vectorize", done(s.vectorize(pick(&loops, m[2])?))),
        7 => ("vectorize", done(s.vectorize(*loops.last()?))),
        8 => ("unroll", done(s.unroll(pick(&loops, m[2])?))),
        9 => ("compute_at", done(s.compute_at(&block, any_loop?))),
        10 => ("reverse_compute_at", done(s.reverse_compute_at(&block, any_loop?))),
        11 if m[2].is_multiple_of(2) => ("compute_inline", done(s.compute_inline(&block))),
        11 => ("reverse_compute_inline", done(s.reverse_compute_inline(&block))),
        12 => ("cache_read", done(s.cache_read(&block, &pick(&buffers, m[2])?, scope))),
        13 => ("cache_write", done(s.cache_write(&block, scope))),
        14 => ("set_scope", done(s.set_scope(&pick(&buffers, m[2])?, scope))),
        15 => ("decompose", done(s.decompose_reduction(&block, pick(&loops, m[2])?))),
        16 if m[4].is_multiple_of(3) => {
            let [length, last] = [m[3], m[4] / 3].map(|n| usize::from(n % 6) + 1);
            ("loop_cover", done(s.loop_cover(pick(&loops, m[2])?, length, last)))
        }
        16 | 17 => {
            let points: &[usize] = &[usize::from(m[3] % 6) + 1, usize::from(m[4] % 9) + 3];
            let points = &points[..if m[4] < 64 { 2 } else { 1 }];
            ("loop_partition", done(s.loop_partition(pick(&loops, m[2])?, points)))
        }
        18 => {
            let (axis, factor) = (usize::from(m[3] % 3), usize::from(m[4] % 8) + 1);
            let buffer = pick(&buffers, m[2])?;
            ("storage_align", done(s.storage_align(&buffer, axis, factor, usize::from(m[1] % 8))))
        }
        19 => ("re_index_read", done(s.re_index_read(&block, &pick(&buffers, m[2])?, scope))),
        20 => ("re_index_write", done(s.re_index_write(&block, scope))),
        21 | 22 => {
            let map = index_map(rank, [m[3], m[4]])?;
            ("transform_layout", done(s.transform_layout(&pick(&buffers, m[2])?, &map)))
        }
        23 => {
            let iters = s.block(&block).expect("a block of the schedule").iters.len();
            let map = index_map(iters, [m[3], m[4]])?;
            ("transform_block_layout", done(s.transform_block_layout(&block, &map)))
        }
        24 => ("decompose_padding", done(s.decompose_padding(&block, pick(&loops, m[2])?))),
        25 => ("blockize", done(s.blockize(pick(&loops, m[2])?))),
        26 | 27 => {
            let rest = [Rest::Pieces, Rest::Overlap, Rest::Again][m[4] as usize % 3];
            ("peel", done(s.peel(pick(&loops, m[2])?, rest)))
        }
        28 => ("unroll_jam", done(s.unroll_jam(pick(&loops, m[2])?))),
        29 => {
            // Partial results are what `rfactor` leaves.
            let mut changed = s.clone();
            let _ = changed.rfactor(&block, pick(&loops, m[2])?, usize::from(m[3] % 3));
            let folds = done(changed.fold_tree(&block));
            if folds {
                *s = changed;
            }
            ("fold_tree", folds)
        }
        30 => ("partition_guards", done(s.partition_guards(pick(&loops, m[2])?))),
        31 | 32 => ("fuse_siblings", done(s.fuse_siblings(pick(&loops, m[2])?, any_loop?))),
        33 => ("rfactor", done(s.rfactor(&block, pick(&loops, m[2])?, usize::from(m[3] % 3)))),
        34 => {
            let map = index_map(rank, [m[3], m[4]])?;
            ("pack", done(s.pack(&block, &pick(&buffers, m[2])?, &map)))
        }
        36 => {
            // Where a sum begins is what `decompose_reduction` leaves.
            let mut changed = s.clone();
            let init = changed.decompose_reduction(&block, pick(&loops, m[2])?);
            let lifts = done(changed.lift_addend(&init.unwrap_or(block)));
            if lifts {
                *s = changed;
            }
            ("lift_addend", lifts)
        }
        37 => ("inline_into", done(s.inline_into(&block, &pick(&s.blocks(), m[2])?))),
        35 => {
            let along = pick(&loops, m[2])?;
            let place = if m[3].is_multiple_of(2) { along } else { pick(&loops, m[3] / 2)? };
            ("scan", done(s.scan(&block, along, place)))
        }
        _ if m[4].is_multiple_of(4) => ("add_unit_loop", done(s.add_unit_loop(&block))),
        _ => ("pad", done(s.pad(&block, usize::from(m[2] % 4), usize::from(m[3] % 4) + 1))),
    })
}

fn follow(compute: &Compute, moves: &[Move]) -> Result<(), String> {
    let mut s = Schedule::new(lower("k", compute));
    let mut trace = Vec::new();
    for &m in moves {
        let before = s.clone();
        let Some((name, done)) = step(&mut s, m) else { continue };
        if !done {
            if s != before {
                return Err(format!("{name} failed and left a change"));
            }
            continue;
        }
        trace.push(name);
        let finished = finish(s.program().clone());
        for program in [s.program(), &finished] {
            check(compute, program).map_err(|problem| {
                format!(
                    "{trace:?}: {problem}\nbefore {name}:\n{}\nafter:\n{program}",
                    before.program()
                )
            })?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(600), failure_persistence: None, max_shrink_iters: 4000, ..Default::default() })]

    #[test]
    fn sequences_of_primitives_keep_the_function(which in 0usize..11, moves in prop::collection::vec(any::<Move>(), 0..24)) {
        let computes = computes();
        let compute = &computes[which % computes.len()];
        if let Err(problem) = follow(compute, &moves) {
            return Err(TestCaseError::fail(problem));
        }
    }
}

#[test]
fn every_primitive_succeeds_somewhere() {
    let mut succeeded = std::collections::BTreeSet::new();
    let mut state = 1u64;
    for compute in computes() {
        for _ in 0..80 {
            let mut s = Schedule::new(lower("k", &compute));
            for _ in 0..12 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let bytes = (state >> 16).to_le_bytes();
                let m = [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]];
                succeeded.extend(step(&mut s, m).filter(|(_, done)| *done).map(|(name, _)| name));
            }
        }
    }
    assert_eq!(succeeded.len(), 35, "{succeeded:?}");
}
