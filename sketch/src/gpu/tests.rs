use ansc_graph::{Compute, Expr, Stage};

use super::*;
use crate::program::{Ahead, Program};
use crate::schedule::Schedule;
use crate::testing::*;
use crate::{exec, finish};

fn lowered(schedule: Schedule) -> Result<GpuProgram, GpuError> {
    lower(&finish(schedule.into_program()), &GpuLimits::default())
}

/// A matrix product with tiles in shared memory: blocks of 4 x 4 threads, 2 virtual threads along
/// columns.
fn tiled(m: usize, n: usize, k: usize) -> Schedule {
    let mut s = Schedule::new(crate::lower("mm", &matmul_bias_relu(m, n, k)));
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 1, 4, 2]).unwrap();
    let j = s.split(l[1], &[0, 2, 4, 1]).unwrap();
    let r = s.split(l[2], &[0, 4]).unwrap();
    s.reorder(&[i[0], j[0], i[1], j[1], i[2], j[2], r[0], r[1], i[3], j[3]]).unwrap();
    let b = s.fuse(&[i[0], j[0]]).unwrap();
    let v = s.fuse(&[i[1], j[1]]).unwrap();
    let t = s.fuse(&[i[2], j[2]]).unwrap();
    s.bind(b, ThreadAxis::BlockX).unwrap();
    s.bind(v, ThreadAxis::Virtual).unwrap();
    s.bind(t, ThreadAxis::ThreadX).unwrap();
    s.set_scope("mm", Scope::Local).unwrap();
    s.reverse_compute_at("relu", t).unwrap();
    for buffer in ["in0", "in1"] {
        let copy = s.cache_read("mm", buffer, Scope::Shared).unwrap();
        s.compute_at(&copy, r[0]).unwrap();
        let l = s.loops(&copy).unwrap();
        let fused = s.fuse(&l[l.len() - 2..]).unwrap();
        let parts = s.split(fused, &[0, 16]).unwrap();
        s.bind(parts[1], ThreadAxis::ThreadX).unwrap();
    }
    s
}

fn check(compute: &Compute, gpu: &GpuProgram) {
    for form in [gpu.cpu_form(), gpu.checked_form(), gpu.late_form()] {
        if let Err(problem) = compare(compute, &form) {
            panic!("{problem}\n{gpu}\n{form}");
        }
    }
}

#[test]
fn a_tiled_matrix_product_in_shared_memory() {
    for (m, n, k) in [(16, 16, 8), (13, 11, 7)] {
        let gpu = lowered(tiled(m, n, k)).unwrap_or_else(|e| panic!("{e}"));
        let [kernel] = &gpu.kernels[..] else { panic!("one kernel") };
        assert_eq!((kernel.threads(), kernel.blocks()), (16, 4));
        // Before the copies, where the tiles of the round before are still read, and after them.
        assert_eq!(kernel.barriers(), 2 * k.div_ceil(4), "{gpu}");
        assert_eq!(gpu.bytes(kernel, Scope::Shared), (8 * 4 + 4 * 8) * 4, "{gpu}");
        check(&matmul_bias_relu(m, n, k), &gpu);
    }
}

/// The same with copies that are begun so many rounds early.
fn pipelined(m: usize, n: usize, k: usize, ahead: usize) -> GpuProgram {
    let mut s = tiled(m, n, k);
    let rounds = s.loops("mm").unwrap()[3];
    s.pipeline(rounds, Ahead::new(ahead).unwrap()).unwrap();
    lowered(s).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn copies_of_the_next_round_overlap_with_this_one() {
    let rounds = |k: usize| k.div_ceil(4);
    for (m, n, k, ahead) in [(16, 16, 8, 1), (13, 11, 23, 1), (16, 16, 16, 2), (13, 11, 23, 3)] {
        let gpu = pipelined(m, n, k, ahead);
        let [kernel] = &gpu.kernels[..] else { panic!("one kernel") };
        assert_eq!(kernel.barriers(), rounds(k), "{gpu}");
        let places = 1 + ahead;
        assert_eq!(gpu.bytes(kernel, Scope::Shared), places * (8 * 4 + 4 * 8) * 4, "{gpu}");
        let fetches = |steps: &[Step]| steps.iter().filter(|s| matches!(s, Step::Fetch(_))).count();
        assert_eq!(fetches(&kernel.body), 2 * ahead, "{gpu}");
        check(&matmul_bias_relu(m, n, k), &gpu);
    }
    // One round has no next one, and two rounds have no more.
    for k in [4, 8] {
        let gpu = pipelined(16, 16, k, 3);
        let bytes = gpu.bytes(&gpu.kernels[0], Scope::Shared);
        assert_eq!(bytes, rounds(k) * (8 * 4 + 4 * 8) * 4, "{gpu}");
        check(&matmul_bias_relu(16, 16, k), &gpu);
    }
}

#[test]
fn copies_that_nothing_waits_for_are_found_where_they_are_late() {
    let mut gpu = pipelined(16, 16, 16, 2);
    let steps = gpu.kernels[0].body.iter_mut();
    let mut loops = steps.filter_map(|s| if let Step::Loop(l) = s { Some(l) } else { None });
    let arrive = loops.next().expect("the rounds").body.iter_mut();
    arrive.for_each(|s| {
        if let Step::Arrive(left) = s {
            *left += 1;
        }
    });
    let compute = matmul_bias_relu(16, 16, 16);
    assert!(compare(&compute, &gpu.late_form()).is_err(), "{gpu}");
}

#[test]
fn a_pipelined_loop_without_its_barrier_is_a_race() {
    let mut gpu = pipelined(16, 16, 16, 1);
    let steps = gpu.kernels[0].body.iter_mut();
    let mut loops = steps.filter_map(|s| if let Step::Loop(l) = s { Some(l) } else { None });
    loops.next().expect("the rounds").body.retain(|s| *s != Step::Barrier);
    let inputs = inputs(&matmul_bias_relu(16, 16, 16));
    let error = exec::run(&gpu.checked_form(), &inputs.iter().collect::<Vec<_>>()).unwrap_err();
    let found =
        matches!(error, exec::ExecError::Race { .. } | exec::ExecError::Uninitialised { .. });
    assert!(found, "{error}");
}

/// Runs the program with the barrier before the tiles of a round are filled, or the one after it,
/// taken out.
fn without_barrier(which: usize) -> exec::ExecError {
    let mut gpu = lowered(tiled(16, 16, 8)).unwrap();
    let steps = gpu.kernels[0].body.iter_mut();
    let mut loops = steps.filter_map(|s| if let Step::Loop(l) = s { Some(l) } else { None });
    let body = &mut loops.next().expect("the rounds").body;
    let barriers: Vec<usize> = (0..body.len()).filter(|&i| body[i] == Step::Barrier).collect();
    assert_eq!(barriers.len(), 2);
    body.remove(barriers[which]);
    let inputs = inputs(&matmul_bias_relu(16, 16, 8));
    exec::run(&gpu.checked_form(), &inputs.iter().collect::<Vec<_>>()).unwrap_err()
}

#[test]
fn a_missing_barrier_is_a_race() {
    let [before, after] = [0, 1].map(without_barrier);
    assert!(matches!(before, exec::ExecError::Race { .. }), "{before}");
    // One thread after the other, the first one reads what nothing wrote yet.
    let found =
        matches!(after, exec::ExecError::Race { .. } | exec::ExecError::Uninitialised { .. });
    assert!(found, "{after}");
}

/// `y[i] = t[7 - i]`, `t[i] = |x[i]|`, by eight threads through shared memory.
fn reversed() -> (Compute, Schedule) {
    let t = Stage::map("t", f32s(&[8]), Expr::unary(ansc_graph::UnOp::Abs, load(0, &[v(0)])));
    let y = Stage::map("y", f32s(&[8]), load(1, &[Expr::int(7) - v(0)]));
    let c = Compute { inputs: vec![f32s(&[8])], stages: vec![t, y], outputs: vec![1] };
    let mut s = Schedule::new(crate::lower("k", &c));
    for block in ["t", "y"] {
        let l = s.loops(block).unwrap()[0];
        s.bind(l, ThreadAxis::ThreadX).unwrap();
    }
    (c, s)
}

/// Both nests under one loop of one iteration, so that they are one kernel.
fn one_kernel(mut program: Program) -> Program {
    let var = program.add_var("b");
    let body = std::mem::take(&mut program.body);
    let kind = ForKind::Bound(ThreadAxis::BlockX);
    program.body = vec![Stmt::For(crate::program::Shared::new(crate::program::For {
        var,
        extent: 1,
        kind,
        body,
    }))];
    program
}

#[test]
fn threads_exchange_values_across_a_barrier_and_race_without() {
    let (c, schedule) = reversed();
    let mut program = one_kernel(schedule.into_program());
    program.buffers[1].scope = Scope::Shared;
    let mut gpu = lower(&finish(program), &GpuLimits::default()).unwrap();
    assert_eq!(gpu.kernels[0].barriers(), 1, "{gpu}");
    check(&c, &gpu);
    gpu.kernels[0].body.retain(|s| *s != Step::Barrier);
    let x = &inputs(&c)[0];
    assert!(exec::run(&gpu.checked_form(), &[x]).is_err());
}

#[test]
fn statements_of_the_root_are_kernels_that_exchange_global_memory() {
    let (c, mut schedule) = reversed();
    schedule.set_scope("t", Scope::Shared).unwrap();
    let gpu = lowered(schedule).unwrap();
    assert_eq!(gpu.kernels.len(), 2);
    assert_eq!(gpu.program.buffers[1].scope, Scope::Global);
    check(&c, &gpu);
}

#[test]
fn what_threads_cannot_do_is_refused() {
    let too_many = |threads| {
        let mut s = Schedule::new(crate::lower("mm", &matmul_bias_relu(64, 64, 4)));
        let l = s.loops("mm").unwrap();
        let fused = s.fuse(&l[..2]).unwrap();
        let parts = s.split(fused, &[0, threads]).unwrap();
        s.bind(parts[1], ThreadAxis::ThreadX).unwrap();
        lowered(s)
    };
    assert!(too_many(1024).is_ok());
    assert!(matches!(too_many(2048), Err(GpuError::Limit { found: 2048, .. })));

    // A tile of a whole operand is more than shared memory holds.
    let mut s = Schedule::new(crate::lower("mm", &matmul_bias_relu(128, 128, 128)));
    let l = s.loops("mm").unwrap();
    s.bind(l[0], ThreadAxis::BlockX).unwrap();
    let copy = s.cache_read("mm", "in1", Scope::Shared).unwrap();
    s.compute_at(&copy, l[0]).unwrap();
    assert!(matches!(lowered(s), Err(GpuError::Limit { what: "shared memory", .. })));

    // Every thread writes all of a shared buffer.
    let (_, schedule) = reversed();
    let mut program = schedule.into_program();
    let Stmt::For(mut reader) = program.body.remove(1) else { panic!("a loop") };
    let Stmt::For(writer) = program.body.remove(0) else { panic!("a loop") };
    let inner = crate::program::For { kind: ForKind::Serial, ..writer.into_inner() };
    reader.body.insert(0, Stmt::For(crate::program::Shared::new(inner)));
    program.body.push(Stmt::For(reader));
    program.buffers[1].scope = Scope::Shared;
    let refused = lower(&finish(program), &GpuLimits::default());
    assert!(matches!(refused, Err(GpuError::SharedWrites { .. })), "{refused:?}");
}
