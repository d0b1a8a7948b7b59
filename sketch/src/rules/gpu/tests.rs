use std::collections::BTreeMap;

use ansc_graph::Compute;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::postprocess::postprocess_gpu;
use crate::rules::Sketch;
use crate::testing::*;
use crate::trace::Unfit;

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

/// What samples come to: valid ones compute the same, without races.
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
        let (mut valid, mut all) = (0, 0);
        let mut causes: BTreeMap<String, usize> = BTreeMap::new();
        for sketch in sketches(&c) {
            for seed in 0..16 {
                all += 1;
                let random = &mut StdRng::seed_from_u64(seed);
                let replayed = sketch.trace.replay(crate::lower("k", &c), Unfit::Refuse, random);
                let lowered = replayed
                    .map_err(|e| {
                        format!("replay: {}", e.cause).lines().next().unwrap_or_default().to_owned()
                    })
                    .and_then(|r| {
                        postprocess_gpu(r.schedule().clone(), &limits).map_err(|e| e.to_string())
                    });
                match lowered {
                    Err(cause) => *causes.entry(cause).or_default() += 1,
                    Ok(gpu) => {
                        valid += 1;
                        if let Err(problem) = compare(&c, &gpu.checked_form()) {
                            panic!("{name}, {:?}, seed {seed}: {problem}\n{gpu}", sketch.rules);
                        }
                    }
                }
            }
        }
        println!("{name}: {valid} of {all} samples are valid; the others: {causes:?}");
        assert!(4 * valid >= all, "{name}: {valid} of {all}, {causes:?}");
    }
}
