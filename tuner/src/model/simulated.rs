//! A device that there is none of: its times follow from a program's features. Models are tried on
//! it.

use std::sync::{Arc, LazyLock};

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::DType;
use ansc_sketch::Trace;
use ansc_sketch::features::{Features, LEN, features, names};
use ansc_sketch::postprocess::{Machine, postprocess};
use ansc_sketch::rules::Space;
use ansc_sketch::trace::Unfit;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{Sample, Subject};

const MACHINE: Machine = Machine { cores: 4, vector_bytes: 32 };

/// Samples of real sketches, `each` of every task, on the simulated device.
pub(super) fn samples(each: usize, seed: u64) -> Vec<Sample> {
    let mut samples = vec![];
    for (task, compute) in tasks().iter().enumerate() {
        let subject = Arc::new(Subject::of_compute(compute));
        for (trace, features) in programs(compute, each, seed + task as u64) {
            samples.push(Sample {
                task,
                platform: 0,
                subject: subject.clone(),
                trace: Arc::new(trace),
                seconds: Some(seconds(&features)),
                features: Some(Arc::new(features)),
            });
        }
    }
    samples
}

fn programs(compute: &Compute, n: usize, seed: u64) -> Vec<(Trace, Features)> {
    let e0 = ansc_sketch::lower("k", compute);
    let sketches = Space::cpu(MACHINE.cores).sketches(e0.clone());
    let random = &mut StdRng::seed_from_u64(seed);
    let mut found = vec![];
    for sketch in sketches.iter().cycle().take(10 * n) {
        if found.len() == n {
            break;
        }
        if let Ok(sample) = sketch.trace.replay(e0.clone(), Unfit::Refuse, random) {
            let (schedule, trace) = sample.into_parts();
            found.push((trace, features(&postprocess(schedule, &[], &MACHINE).program)));
        }
    }
    found
}

/// Arithmetic at the speed of vectors and threads, or memory at that of cache lines: the slower
/// one, plus what loops cost, for each row.
fn seconds(program: &Features) -> f64 {
    program.rows.iter().map(row_seconds).sum()
}

fn row_seconds(row: &[f32; LEN]) -> f64 {
    static PLACES: LazyLock<Vec<String>> = LazyLock::new(names);
    let number = |name: &str| {
        let place = PLACES.iter().position(|n| n == name).expect("the name of a number");
        f64::from(row[place]).exp2() - 1.0
    };
    let lanes = number("vec_len").clamp(1.0, 8.0);
    let threads = number("parallel_prod").clamp(1.0, MACHINE.cores as f64);
    let flops = number("float_addsub") + number("float_mul") + 8.0 * number("float_mathfunc");
    let lines: f64 = (0..5)
        .map(|slot| {
            let far = number(&format!("B{slot}.reuse_dis_bytes")) > 32_768.0;
            number(&format!("B{slot}.lines")) * if far { 8.0 } else { 1.0 }
        })
        .sum();
    let loops = number("outer_prod") / number("unroll_prod").clamp(1.0, 16.0) / lanes;
    1e-9 * (flops / lanes).max(2.0 * lines).max(loops) / threads + 1e-7
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn load(buffer: usize, vars: &[usize]) -> Expr {
    Expr::load(buffer, vars.iter().map(|&v| Expr::var(v)).collect())
}

fn tasks() -> Vec<Compute> {
    vec![matmul(128, 128, 128), matmul(64, 512, 96), matmul(256, 64, 480), conv(), rows()]
}

fn matmul(m: usize, n: usize, k: usize) -> Compute {
    let product = load(0, &[0, 2]) * load(1, &[2, 1]);
    let mm = Stage::reduction("mm", f32s(&[m, n]), Combiner::Sum, vec![k], product);
    let relu = (load(3, &[0, 1]) + load(2, &[1])).max(Expr::float(DType::F32, 0.0));
    let relu = Stage::map("relu", f32s(&[m, n]), relu);
    let inputs = vec![f32s(&[m, k]), f32s(&[k, n]), f32s(&[n])];
    Compute { inputs, stages: vec![mm, relu], outputs: vec![1] }
}

/// 3x3 over 30x30x32, channels last.
fn conv() -> Compute {
    let x = Expr::var(0) + Expr::var(3);
    let y = Expr::var(1) + Expr::var(4);
    let product = Expr::load(0, vec![x, y, Expr::var(5)]) * load(1, &[3, 4, 5, 2]);
    let out = f32s(&[28, 28, 32]);
    let conv = Stage::reduction("conv", out.clone(), Combiner::Sum, vec![3, 3, 32], product);
    let relu = load(2, &[0, 1, 2]).max(Expr::float(DType::F32, 0.0));
    let relu = Stage::map("relu", out, relu);
    let inputs = vec![f32s(&[30, 30, 32]), f32s(&[3, 3, 32, 32])];
    Compute { inputs, stages: vec![conv, relu], outputs: vec![1] }
}

/// Sums of exponentials.
fn rows() -> Compute {
    let exp = Expr::unary(UnOp::Exp, load(0, &[0, 1]));
    let exp = Stage::map("exp", f32s(&[96, 480]), exp);
    let sum = Stage::reduction("sum", f32s(&[96]), Combiner::Sum, vec![480], load(1, &[0, 1]));
    let div = Stage::map("div", f32s(&[96, 480]), load(1, &[0, 1]) / load(2, &[0]));
    Compute { inputs: vec![f32s(&[96, 480])], stages: vec![exp, sum, div], outputs: vec![2] }
}

#[cfg(test)]
mod tests {
    use super::super::{CostModel, Gbdt, Hist, Quality, Random, View};
    use super::*;

    /// Every third sample is held out.
    fn quality(model: &mut dyn CostModel, all: &[Sample]) -> Quality {
        let part = |held: bool| -> Vec<Sample> {
            all.iter()
                .enumerate()
                .filter(|(i, _)| (i % 3 == 0) == held)
                .map(|(_, s)| s.clone())
                .collect()
        };
        let (train, test) = (part(false), part(true));
        model.train(&train);
        let programs: Vec<View<'_>> = test.iter().map(Sample::view).collect();
        let quality = Quality::of(&model.predict(&programs), &test).unwrap();
        println!("{}: {quality}", model.name());
        quality
    }

    #[test]
    fn histograms_rank_programs_they_have_not_seen() {
        let quality = quality(&mut Hist::default(), &samples(240, 0));
        assert!(quality.pairwise_accuracy > 0.85, "{quality}");
        assert!(quality.average_peak_at_32 > 0.85, "{quality}");
    }

    #[test]
    fn the_crate_gbdt_ranks_programs_it_has_not_seen() {
        let quality = quality(&mut Gbdt::default(), &samples(240, 0));
        assert!(quality.pairwise_accuracy > 0.85, "{quality}");
    }

    #[test]
    fn random_scores_rank_nothing() {
        let quality = quality(&mut Random { seed: 0 }, &samples(120, 0));
        assert!((0.4..0.6).contains(&quality.pairwise_accuracy), "{quality}");
    }
}
