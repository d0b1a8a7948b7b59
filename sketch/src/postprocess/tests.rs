use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::rules::Space;
use crate::testing::*;
use crate::trace::Unfit;

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
                let program = postprocess(sample.into_parts().0, &MACHINE);
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
