use std::collections::BTreeMap;

use ansc_graph::Compute;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::gpu::GpuError;
use crate::postprocess::postprocess_gpu;
use crate::program::{ForKind, ThreadAxis};
use crate::rules::Sketch;
use crate::schedule::Schedule;
use crate::testing::*;
use crate::trace::Unfit;
use crate::tree;

fn sketches(c: &Compute) -> Vec<Sketch> {
    Space::gpu(GpuLimits::default()).sketches(crate::lower("k", c))
}

fn names(sketches: &[Sketch]) -> Vec<String> {
    sketches.iter().map(|s| s.rules.join(", ")).collect()
}

#[test]
fn a_matrix_product_is_tiled_over_blocks_virtual_threads_and_threads() {
    let found = sketches(&matmul_bias_relu(64, 64, 64));
    assert_eq!(names(&found), ["skip, tile and fuse"]);
    let text = found[0].trace.to_string();
    for part in ["block_x", "virtual", "thread_x", "shared", "cooperative"] {
        assert!(text.to_lowercase().contains(part), "no {part} in {text}");
    }
    // Alone it is copied out of registers.
    let found = sketches(&conv(8, 4, 6, 6, 1));
    assert!(
        names(&found).iter().any(|n| n.contains("tile and fuse") && n.contains("inline")),
        "{:?}",
        names(&found)
    );
}

#[test]
fn a_long_reduction_is_shared_by_threads() {
    let found = sketches(&softmax(8, 128));
    assert!(
        names(&found).iter().any(|n| n.contains("cross-thread reduction")),
        "{:?}",
        names(&found)
    );
    let found = sketches(&matmul_bias_relu(2, 2, 512));
    assert!(
        names(&found).iter().any(|n| n.contains("cross-thread reduction")),
        "{:?}",
        names(&found)
    );
}

/// Those of a stage with few results may have fewer.
#[test]
fn blocks_of_threads_have_a_warp_at_least() {
    let limits = GpuLimits::default();
    for (c, may_be_few) in
        [(matmul_bias_relu(64, 64, 16), false), (matmul_bias_relu(8, 8, 16), true)]
    {
        let sketch = &sketches(&c)[0];
        let (mut few, mut enough) = (0, 0);
        for seed in 0..64 {
            let random = &mut StdRng::seed_from_u64(seed);
            let r = sketch.trace.replay(crate::lower("k", &c), Unfit::Refuse, random).unwrap();
            let threads = threads_of(r.schedule());
            match postprocess_gpu(r.schedule().clone(), &limits) {
                Ok(gpu) => assert!(gpu.kernels.iter().all(|k| k.threads() == threads)),
                Err(GpuError::FewThreads { found, fewest, .. }) => {
                    assert!(!may_be_few && found == threads && threads < fewest);
                    assert_eq!(fewest, limits.warp);
                }
                Err(_) => continue,
            }
            *(if threads < limits.warp { &mut few } else { &mut enough }) += 1;
        }
        assert!(few > 0 && (may_be_few || enough > 0), "{few} and {enough}");
    }
}

fn threads_of(schedule: &Schedule) -> usize {
    let mut threads = 1;
    tree::visit_loops(&schedule.program().body, &mut |l| {
        if l.kind == ForKind::Bound(ThreadAxis::ThreadX) {
            threads = threads.max(l.extent);
        }
    });
    threads
}

/// Valid samples compute the same as the expression, without races.
#[test]
fn samples_of_sketches_compute_the_same() {
    let cases = [
        ("matmul", matmul_bias_relu(32, 24, 16)),
        ("narrow matmul", matmul_bias_relu(2, 2, 256)),
        ("conv", conv(8, 4, 8, 8, 1)),
        ("conv of stride 2", conv(8, 3, 8, 8, 2)),
        ("softmax", softmax(6, 80)),
        ("sum", reduce(6, 40)),
        ("transpose", transpose(4, 6, 10)),
        ("concat", concat(3, 5, 8)),
    ];
    let limits = GpuLimits::default();
    for (name, c) in cases {
        let (mut valid, mut all, mut few) = (0, 0, 0);
        let mut causes: BTreeMap<String, usize> = BTreeMap::new();
        for sketch in sketches(&c) {
            let enough = valid + 12;
            for seed in 0..600 {
                if valid == enough {
                    break;
                }
                all += 1;
                let random = &mut StdRng::seed_from_u64(seed);
                let replayed = sketch.trace.replay(crate::lower("k", &c), Unfit::Refuse, random);
                let schedule = match replayed {
                    Ok(r) => r.schedule().clone(),
                    Err(e) => {
                        *causes.entry(format!("replay: {}", e.cause)).or_default() += 1;
                        continue;
                    }
                };
                match postprocess_gpu(schedule, &limits) {
                    Err(GpuError::FewThreads { .. }) => few += 1,
                    Err(cause) => *causes.entry(cause.to_string()).or_default() += 1,
                    Ok(gpu) => {
                        valid += 1;
                        if let Err(problem) = compare(&c, &gpu.checked_form()) {
                            panic!("{name}, {:?}, seed {seed}: {problem}\n{gpu}", sketch.rules);
                        }
                    }
                }
            }
        }
        println!("{name}: {valid} of {all} samples are valid, {few} have few threads; {causes:?}");
        assert!(valid > 8 && 4 * valid >= all - few, "{name}: {valid} of {all}, {causes:?}");
    }
}
