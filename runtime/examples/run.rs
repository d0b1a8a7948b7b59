//! Loads an artifact, runs it on made-up inputs, prints its outputs: `run MODEL.ansc [THREADS]`.

use std::error::Error;
use std::time::Instant;

use ansc_runtime::manifest::Port;
use ansc_runtime::{DType, Model, SessionOptions, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: run MODEL.ansc [THREADS]")?;
    let threads = args.next().map_or(Ok(0), |n| n.parse())?;

    let began = Instant::now();
    let model = Model::load(path)?;
    let mut session = model.session_with(&SessionOptions { threads, ..Default::default() })?;
    println!("{}: ready in {:?}", model.manifest().model.name, began.elapsed());

    // Inputs whose value was fixed by the compiler need not be given.
    let free = || model.inputs().iter().filter(|port| port.bound.is_none());
    let tensors: Vec<Tensor> = free().map(made_up).collect();
    let inputs: Vec<_> = free().map(|port| port.name.as_str()).zip(&tensors).collect();
    let began = Instant::now();
    let outputs = session.run(&inputs)?;
    println!("ran in {:?}", began.elapsed());
    for (name, tensor) in outputs {
        println!("{name}: {tensor:?}");
    }
    Ok(())
}

/// Floats are 0.5 and 0.25 by turns, everything else is zero.
fn made_up(port: &Port) -> Tensor {
    let mut tensor = Tensor::zeros(port.dtype, &port.shape);
    if port.dtype == DType::F32 {
        let values: Vec<f32> = [0.5, 0.25].into_iter().cycle().take(tensor.len()).collect();
        tensor = Tensor::from_slice(&port.shape, &values);
    }
    tensor
}
