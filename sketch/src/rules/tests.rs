use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::testing::*;
use crate::trace::Unfit;
use ansc_graph::Compute;

fn sketches(c: &Compute) -> Vec<Sketch> {
    Space::cpu(4).sketches(crate::lower("k", c))
}

fn names(sketches: &[Sketch]) -> Vec<String> {
    sketches.iter().map(|s| s.rules.join(", ")).collect()
}

#[test]
fn a_matrix_product_with_epilogue_has_the_sketches_of_the_paper() {
    let found = sketches(&matmul_bias_relu(64, 64, 64));
    assert_eq!(names(&found), ["skip, tile and fuse", "skip, tile and fuse", "skip, tile"]);
    let text = found[1].trace.to_string();
    assert!(text.contains("reorder(l8, l16, l9, l17, l22, l10, l18, l23, l11, l19)"), "{text}");
}

#[test]
fn a_long_narrow_reduction_is_factored() {
    let found = sketches(&matmul_bias_relu(2, 2, 512));
    assert_eq!(found.iter().filter(|s| s.rules.contains(&"rfactor".into())).count(), 2);
}

#[test]
fn samples_of_sketches_compute_the_same() {
    let cases = [
        ("matmul", matmul_bias_relu(12, 7, 10)),
        ("narrow", matmul_bias_relu(2, 1, 64)),
        ("conv", conv(4, 3, 6, 5, 2)),
    ];
    for (name, c) in cases {
        for (i, sketch) in sketches(&c).iter().enumerate() {
            let mut valid = 0;
            for seed in 0..12 {
                let random = &mut StdRng::seed_from_u64(seed);
                let program = crate::lower("k", &c);
                let Ok(sample) = sketch.trace.replay(program, Unfit::Refuse, random) else {
                    continue;
                };
                valid += 1;
                check_program(&c, &crate::finish(sample.schedule().program().clone()));
            }
            assert!(valid >= 6, "{name}, sketch {i} ({:?}): {valid} of 12 valid", sketch.rules);
        }
    }
}

struct Refuser;

impl Rule for Refuser {
    fn name(&self) -> &str {
        "nothing else"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        Ok(Outcome::ApplyAndSkipRest(vec![state.clone().next()]))
    }
}

#[test]
fn rules_of_users_come_first() {
    let space = Space::cpu(4).rule(Box::new(Refuser));
    let found = space.sketches(crate::lower("k", &matmul_bias_relu(8, 8, 8)));
    assert_eq!(names(&found), ["nothing else, nothing else"]);
}
