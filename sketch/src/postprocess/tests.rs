use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::program::Program;
use crate::rules::Space;
use crate::testing::*;
use crate::trace::{Decision, Instruction, Unfit};
use ansc_graph::Compute;

const MACHINE: Machine = Machine { cores: 2, vector_bytes: 16 };

#[test]
fn samples_become_programs_that_compute_the_same() {
    let cases = [matmul_bias_relu(12, 7, 10), matmul_bias_relu(2, 1, 64), conv(4, 3, 6, 5, 2)];
    for c in cases {
        let mut kinds = std::collections::BTreeSet::new();
        for sketch in Space::cpu(2).sketches(crate::lower("k", &c)) {
            for seed in 0..12 {
                let random = &mut StdRng::seed_from_u64(seed);
                let program = crate::lower("k", &c);
                let Ok(sample) = sketch.trace.replay(program, Unfit::Refuse, random) else {
                    continue;
                };
                let program = postprocess(sample.into_parts().0, &[], &MACHINE).program;
                check_program(&c, &program);
                crate::tree::visit_loops(&program.body, &mut |l| {
                    kinds.insert(format!("{:?}", l.kind));
                });
            }
        }
        let found: Vec<&str> = kinds.iter().map(String::as_str).collect();
        assert_eq!(found, ["Parallel", "Serial", "Unrolled", "Vectorized"]);
    }
}

/// However many loops are to run in parallel, the result is the same, and what was asked for is
/// done where it may be.
#[test]
fn parallel_loops_are_as_many_as_decided() {
    let c = matmul_bias_relu(12, 8, 10);
    let mut extents = std::collections::BTreeSet::new();
    for sketch in Space::cpu(2).sketches(crate::lower("k", &c)) {
        let steps = &sketch.trace.steps;
        let decides = |i: &usize| matches!(&steps[*i], Instruction::SampleCategorical { candidates, .. } if candidates.len() == 7);
        let Some(step) = sketch.trace.choices().into_iter().rfind(decides) else { continue };
        for n in 0..7 {
            let trace = sketch.trace.clone().decide(step, Decision::Choice(n));
            let random = &mut StdRng::seed_from_u64(5);
            let sample = trace.replay(crate::lower("k", &c), Unfit::Refuse, random).unwrap();
            let program = postprocess(sample.into_parts().0, &[], &MACHINE).program;
            check_program(&c, &program);
            crate::tree::visit_loops(&program.body, &mut |l| {
                if l.kind == ForKind::Parallel {
                    extents.insert(l.extent);
                }
            });
        }
    }
    assert!(extents.len() > 3, "{extents:?}");
}

/// Vectors take no more registers than was decided, and as many where a loop is long enough.
#[test]
fn vectors_take_as_many_registers_as_decided() {
    const LANES: usize = MACHINE.vector_bytes / 4;
    let text = "compute(in0: f32[64, 64]) -> y { y: f32[64, 64] = add(in0[i0, i1], 1.0_f32) }";
    let c = Compute::parse(text).unwrap();
    for registers in [1, 2, 4] {
        let mut longest = 0;
        for sketch in Space::cpu(2).sketches(crate::lower("k", &c)) {
            let steps = &sketch.trace.steps;
            let choice = |i: &usize| match &steps[*i] {
                Instruction::SampleCategorical { candidates, .. } => {
                    candidates.iter().position(|&n| n == registers as i64)
                }
                _ => None,
            };
            let is_vectors = |i: &usize| matches!(&steps[*i], Instruction::SampleCategorical { candidates, .. } if candidates == &[1, 2, 4]);
            let choices = sketch.trace.choices().into_iter().filter(is_vectors);
            let trace = choices.fold(sketch.trace.clone(), |trace, step| {
                trace.decide(step, Decision::Choice(choice(&step).unwrap() as i64))
            });
            for seed in 0..12 {
                let random = &mut StdRng::seed_from_u64(seed);
                let Ok(sample) = trace.replay(crate::lower("k", &c), Unfit::Refuse, random) else {
                    continue;
                };
                let program = postprocess(sample.into_parts().0, &[], &MACHINE).program;
                check_program(&c, &program);
                crate::tree::visit_loops(&program.body, &mut |l| {
                    if l.kind == ForKind::Vectorized {
                        longest = longest.max(l.extent);
                    }
                });
            }
        }
        assert_eq!(longest, registers * LANES);
    }
}

/// Samples of every sketch, with their constants packed.
fn samples(c: &Compute, constant: &[bool], seeds: u64) -> Vec<Scheduled> {
    let mut all = vec![];
    for sketch in Space::cpu(2).sketches(crate::lower("k", c)) {
        for seed in 0..seeds {
            let random = &mut StdRng::seed_from_u64(seed);
            let program = crate::lower("k", c);
            if let Ok(sample) = sketch.trace.replay(program, Unfit::Refuse, random) {
                let scheduled = postprocess(sample.into_parts().0, constant, &MACHINE);
                if let Err(problem) = compare_scheduled(c, &scheduled) {
                    panic!("{problem}\n{}\n{:?}", scheduled.program, scheduled.packings);
                }
                all.push(scheduled);
            }
        }
    }
    all
}

#[test]
fn constants_are_packed_as_tiles_read_them() {
    let constant = [false, true, true];
    for c in [matmul_bias_relu(12, 16, 10), matmul_bias_relu(5, 13, 7), conv(4, 3, 6, 5, 2)] {
        let all = samples(&c, &constant, 16);
        let packed = all.iter().filter(|s| !s.packings.is_empty()).count();
        assert!(packed > all.len() / 3, "{packed} of {}", all.len());
        let only_weights = |s: &Scheduled| s.packings.iter().all(|p| p.param == 1);
        assert!(all.iter().all(only_weights), "the bias lies in order");
    }
    let none = samples(&matmul_bias_relu(12, 16, 10), &[false; 3], 4);
    assert!(none.iter().all(|s| s.packings.is_empty()));
}

#[test]
fn a_packed_constant_is_read_front_to_back() {
    let c = matmul_bias_relu(4, 32, 8);
    let mut s = Schedule::new(crate::lower("k", &c));
    let l = s.loops("mm").unwrap();
    let j = s.split(l[1], &[2, 16]).unwrap();
    s.reorder(&[j[0], l[0], l[2], j[1]]).unwrap();
    let done = postprocess(s, &[false, true, true], &MACHINE);
    compare_scheduled(&c, &done).unwrap();
    assert_eq!(done.packings[0].compute.output_types()[0].shape, [2, 8, 16]);
    let text = done.program.to_string();
    assert!(text.contains("in1: f32[2, 8, 16] input"), "{text}");
}

/// Whether a block of this name, or a copy of it, is guarded, for each of them.
fn guarded(program: &Program, name: &str) -> Vec<bool> {
    let copies = program.blocks().into_iter().filter(|b| b.name.starts_with(name));
    copies.map(|b| b.predicate.is_some()).collect()
}

/// The part of all iterations of blocks in which a guard is evaluated.
fn guarded_share(program: &Program) -> f64 {
    let (mut all, mut guarded) = (0, 0);
    crate::tree::visit_nests(&program.body, &mut |loops, block| {
        let iterations: usize = loops.iter().map(|l| l.extent).product();
        all += iterations;
        guarded += if block.predicate.is_some() { iterations } else { 0 };
    });
    guarded as f64 / all as f64
}

#[test]
fn tiles_that_overrun_are_parted() {
    let c = matmul_bias_relu(23, 61, 11);
    let mut s = Schedule::new(crate::lower("k", &c));
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 4]).unwrap();
    let j = s.split(l[1], &[0, 2, 8]).unwrap();
    let k = s.split(l[2], &[0, 4]).unwrap();
    s.reorder(&[i[0], j[0], j[1], k[0], i[1], k[1], j[2]]).unwrap();
    s.reverse_compute_at("relu", j[0]).unwrap();
    let done = postprocess(s, &[], &MACHINE).program;
    check_program(&c, &done);
    assert!(guarded(&done, "mm").contains(&false), "{done}");
    assert!(guarded_share(&done) < 0.1, "{} of\n{done}", guarded_share(&done));
    let parallel = |s: &&Stmt| matches!(s, Stmt::For(l) if l.kind == ForKind::Parallel);
    assert!(done.body.iter().filter(parallel).count() >= 2, "{done}");
}

#[test]
fn samples_of_prime_extents_are_peeled() {
    for (m, n, k) in [(7, 13, 11), (1, 97, 5), (19, 3, 29), (17, 17, 2)] {
        let c = matmul_bias_relu(m, n, k);
        let all = samples(&c, &[false, true, false], 12);
        let free = all.iter().filter(|s| guarded(&s.program, "mm").contains(&false)).count();
        assert_eq!(free, all.len(), "{m} {n} {k}");
    }
    samples(&conv(5, 3, 7, 11, 2), &[false, true, false], 12);
}
