//! How many traces a second one core replays, makes into programs and describes to a cost model,
//! and where the time goes: `replay_rate [SECONDS]`. What it takes to verify a program is told
//! besides.

use std::time::{Duration, Instant};

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;
use ansc_sketch::features::features;
use ansc_sketch::lower;
use ansc_sketch::postprocess::{Machine, postprocess};
use ansc_sketch::rules::Space;
use ansc_sketch::trace::Unfit;
use ansc_sketch::verify::verify;
use rand::SeedableRng;
use rand::rngs::StdRng;

const MACHINE: Machine = Machine { cores: 2, vector_bytes: 32 };

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    for (name, compute) in [("matmul + relu", matmul(1024)), ("conv2d + bias + relu", conv())] {
        rate(name, &compute, Duration::from_secs_f64(seconds));
    }
}

fn rate(name: &str, compute: &Compute, limit: Duration) {
    let random = &mut StdRng::seed_from_u64(0);
    let sketches = Space::cpu(MACHINE.cores).sketches(lower("k", compute));
    let e0 = lower("k", compute);
    let mut tried = 0;
    let mut spent: [Vec<Duration>; 4] = Default::default();
    let start = Instant::now();
    while start.elapsed() < limit {
        let sketch = &sketches[tried % sketches.len()];
        tried += 1;
        let begin = Instant::now();
        let Ok(sample) = sketch.trace.replay(e0.clone(), Unfit::Refuse, random) else { continue };
        let replayed = Instant::now();
        let program = postprocess(sample.into_parts().0, &[], &MACHINE).program;
        let processed = Instant::now();
        std::hint::black_box(features(&program));
        let described = Instant::now();
        verify(&program).expect("samples are valid");
        let verified = described.elapsed();
        let steps = [replayed - begin, processed - replayed, described - processed, verified];
        spent.iter_mut().zip(steps).for_each(|(all, step)| all.push(step));
    }
    let valid = spent[0].len();
    let [replay, post, features, verify] = spent.map(median_us);
    println!(
        "{name}: {} sketches, {valid} of {tried} samples valid, {:.0} a second \
         (replay {replay:.0} us, postprocess {post:.0} us, features {features:.0} us; verify {verify:.0} us)",
        sketches.len(),
        1e6 / (replay + post + features),
    );
}

/// Not the mean: other processes interrupt some steps for long.
fn median_us(mut spent: Vec<Duration>) -> f64 {
    spent.sort_unstable();
    spent.get(spent.len() / 2).map_or(0.0, |d| 1e6 * d.as_secs_f64())
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn v(i: usize) -> Expr {
    Expr::var(i)
}

fn relu_of(buffer: usize, rank: usize, bias: usize, channel: usize) -> Expr {
    let here = Expr::load(buffer, (0..rank).map(v).collect());
    (here + Expr::load(bias, vec![v(channel)])).max(Expr::float(DType::F32, 0.0))
}

fn matmul(n: usize) -> Compute {
    let product = Expr::load(0, vec![v(0), v(2)]) * Expr::load(1, vec![v(2), v(1)]);
    let mm = Stage::reduction("mm", f32s(&[n, n]), Combiner::Sum, vec![n], product);
    let relu = Stage::map("relu", f32s(&[n, n]), relu_of(3, 2, 2, 1));
    let inputs = vec![f32s(&[n, n]), f32s(&[n, n]), f32s(&[n])];
    Compute { inputs, stages: vec![mm, relu], outputs: vec![1] }
}

/// A 3x3 convolution over 58x58x64 padded elements, channels last.
fn conv() -> Compute {
    let x = Expr::load(0, vec![v(0) + v(3), v(1) + v(4), v(5)]);
    let product = x * Expr::load(1, vec![v(3), v(4), v(5), v(2)]);
    let out = f32s(&[56, 56, 64]);
    let conv = Stage::reduction("conv", out.clone(), Combiner::Sum, vec![3, 3, 64], product);
    let relu = Stage::map("relu", out, relu_of(3, 3, 2, 2));
    let inputs = vec![f32s(&[58, 58, 64]), f32s(&[3, 3, 64, 64]), f32s(&[64])];
    Compute { inputs, stages: vec![conv, relu], outputs: vec![1] }
}
