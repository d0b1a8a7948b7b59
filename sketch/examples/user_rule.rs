//! A rule that the compiler does not have, from outside of it: depthwise convolutions are always
//! tiled 4 x 16.
//!
//! Every element of a depthwise convolution reads its own channel only, so that there is nothing to
//! reuse beyond a small window; a search over all tiles finds out the same each time. The rule
//! recognises such a stage, tiles its last two axes and says that no other rule is needed.
//!
//! ```text
//! cargo run --release -p ansc-sketch --example user_rule
//! ```

use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::Scheduled;
use ansc_sketch::postprocess::{Machine, postprocess};
use ansc_sketch::program::{Body, IterKind};
use ansc_sketch::rules::{Outcome, Rule, Space, State};
use ansc_sketch::trace::{StepError, Unfit};
use ansc_sketch::{Schedule, exec, lower};
use rand::SeedableRng;
use rand::rngs::StdRng;

const MACHINE: Machine = Machine { cores: 4, vector_bytes: 32 };
const ROWS: usize = 4;
const COLUMNS: usize = 16;

// ANCHOR: rule
struct TileDepthwise;

impl Rule for TileDepthwise {
    fn name(&self) -> &str {
        "depthwise 4x16"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        if !is_depthwise(state.recorder.schedule(), state.stage()) {
            return Ok(Outcome::Skip);
        }
        let mut next = state.clone();
        let recorder = &mut next.recorder;
        let block = recorder.get_block(state.stage())?;
        let loops = recorder.get_loops(block)?;
        let [channel, height, width, window @ ..] = &loops[..] else { return Ok(Outcome::Skip) };
        let height = recorder.split(*height, &[0.into(), ROWS.into()])?;
        let width = recorder.split(*width, &[0.into(), COLUMNS.into()])?;
        let tile = [*channel, height[0], width[0]].into_iter().chain(window.iter().copied());
        recorder.reorder(&tile.chain([height[1], width[1]]).collect::<Vec<_>>())?;
        next.tiled.push(state.stage().to_owned());
        Ok(Outcome::ApplyAndSkipRest(vec![next.next()]))
    }
}

/// A sum over a window of three spatial axes, of which the first indexes every operand.
fn is_depthwise(schedule: &Schedule, stage: &str) -> bool {
    let Ok(block) = schedule.block(stage) else { return false };
    let of = |kind| block.iters.iter().filter(move |i| i.kind == kind);
    let Some(channel) = of(IterKind::Spatial).next() else { return false };
    let loads = block.body.value().loads();
    matches!(block.body, Body::Reduce { .. })
        && of(IterKind::Spatial).count() == 3
        && of(IterKind::Reduce).count() == 2
        && loads.len() == 2
        && loads.iter().all(|(_, at)| at.first() == Some(&Expr::Var(channel.var)))
}
// ANCHOR_END: rule

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let compute = depthwise(8, 18, 34);
    let sketches = Space::cpu(MACHINE.cores)
        .rule(Box::new(TileDepthwise))
        .sketches(lower("depthwise", &compute));
    for (i, sketch) in sketches.iter().enumerate() {
        println!("sketch {i}: {}\n{}", sketch.rules.join(", "), sketch.trace);
    }
    let random = &mut StdRng::seed_from_u64(0);
    let program = lower("depthwise", &compute);
    let sample = sketches[0].trace.replay(program, Unfit::Refuse, random)?;
    let scheduled = postprocess(sample.into_parts().0, &[false, true], &MACHINE);
    println!("{}", scheduled.program);
    check(&compute, &scheduled)?;
    println!("computes what the expression says");
    Ok(())
}

/// Runs the program and compares.
fn check(compute: &Compute, scheduled: &Scheduled) -> Result<(), Box<dyn std::error::Error>> {
    let inputs: Vec<Tensor> = compute.inputs.iter().map(whole_numbers).collect();
    let expected = interp::eval(compute, &inputs.iter().collect::<Vec<_>>())?;
    let mut given = inputs.clone();
    for packing in &scheduled.packings {
        let packed = interp::eval(&packing.compute, &[&inputs[packing.param]])?;
        given[packing.param] = packed.into_iter().next().ok_or("a packing gives one tensor")?;
    }
    let found = exec::run(&scheduled.program, &given.iter().collect::<Vec<_>>())?;
    if found == expected { Ok(()) } else { Err("the program computes something else".into()) }
}

/// Sums of these are exact in any order.
fn whole_numbers(ty: &TensorType) -> Tensor {
    let values: Vec<f32> = (0..ty.len()).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    Tensor::from_slice(&ty.shape, &values)
}

/// 3x3 windows over `channels` planes of `height` x `width`, with nothing around them.
fn depthwise(channels: usize, height: usize, width: usize) -> Compute {
    let f32s = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let v = Expr::var;
    let x = Expr::load(0, vec![v(0), v(1) + v(3), v(2) + v(4)]);
    let w = Expr::load(1, vec![v(0), v(3), v(4)]);
    let out = f32s(&[channels, height - 2, width - 2]);
    let stage = Stage::reduction("depthwise", out, Combiner::Sum, vec![3, 3], x * w);
    Compute::single(vec![f32s(&[channels, height, width]), f32s(&[channels, 3, 3])], stage)
}
