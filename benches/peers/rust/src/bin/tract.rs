//! tract, with all of its optimisations.

use std::time::Instant;

use peers::{Arguments, Data, Input, serve};
use tract_onnx::prelude::tract_ndarray::ArrayD;
use tract_onnx::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse()?;
    let start = Instant::now();
    if arguments.threads > 1 {
        multithread::set_default_executor(multithread::Executor::multithread(arguments.threads));
    }
    let mut model = tract_onnx::onnx().model_for_path(&arguments.model)?;
    for (i, input) in arguments.inputs.iter().enumerate() {
        model.set_input_fact(i, fact(input))?;
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let values = arguments.inputs.iter().map(value).collect::<Result<TVec<_>, _>>()?;
    let run = || plan.run(values.clone()).expect("the model runs");
    serve(start.elapsed(), run, |outputs| outputs.iter().map(elements).collect())
}

fn fact(input: &Input) -> InferenceFact {
    let dtype = match input.data {
        Data::F32(_) => f32::datum_type(),
        Data::I64(_) => i64::datum_type(),
    };
    InferenceFact::dt_shape(dtype, input.shape.clone())
}

fn value(input: &Input) -> Result<TValue, Box<dyn std::error::Error>> {
    let tensor: Tensor = match &input.data {
        Data::F32(data) => ArrayD::from_shape_vec(input.shape.clone(), data.clone())?.into(),
        Data::I64(data) => ArrayD::from_shape_vec(input.shape.clone(), data.clone())?.into(),
    };
    Ok(tensor.into_tvalue())
}

fn elements(output: &TValue) -> Vec<f32> {
    let view = output.to_plain_array_view::<f32>().expect("outputs are float32");
    view.iter().copied().collect()
}
