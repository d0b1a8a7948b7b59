//! How many traces a second are replayed and made into programs, on one core: `replay_rate [SECONDS]`.

use std::time::{Duration, Instant};

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;
use ansc_sketch::lower;
use ansc_sketch::postprocess::{Machine, postprocess};
use ansc_sketch::rules::Space;
use ansc_sketch::trace::Unfit;
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
    let (mut tried, mut valid) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < limit {
        let sketch = &sketches[tried % sketches.len()];
        tried += 1;
        if let Ok(sample) = sketch.trace.replay(lower("k", compute), Unfit::Refuse, random) {
            std::hint::black_box(postprocess(sample.into_parts().0, &MACHINE));
            valid += 1;
        }
    }
    let each = start.elapsed().as_secs_f64() / f64::from(u32::try_from(tried).expect("few"));
    println!(
        "{name}: {} sketches, {valid} of {tried} samples valid, {:.0} a second",
        sketches.len(),
        1.0 / each
    );
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
