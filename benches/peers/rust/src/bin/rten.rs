//! rten, with weights packed ahead.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use peers::{Arguments, Data, Input, serve};
use rten::{ModelOptions, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse()?;
    let start = Instant::now();
    let pool = Arc::new(ThreadPool::with_num_threads(arguments.threads));
    let mut options = ModelOptions::with_all_ops();
    options.prepack_weights(true);
    let model = options.load_file(&arguments.model)?;
    let values = arguments.inputs.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    let run = || {
        let inputs = model.input_ids().iter().zip(&values);
        let inputs = inputs.map(|(id, value)| (*id, ValueOrView::from(value))).collect();
        let options = RunOptions::default().with_thread_pool(Some(pool.clone()));
        model.run(inputs, model.output_ids(), Some(options)).expect("the model runs")
    };
    serve(start.elapsed(), run, |outputs| outputs.into_iter().map(elements).collect())
}

/// rten has integers of 32 bits only.
fn value(input: &Input) -> Result<Value, Box<dyn Error>> {
    Ok(match &input.data {
        Data::F32(data) => Value::from_shape(&input.shape, data.clone())?,
        Data::I64(data) => {
            let narrow = data.iter().map(|x| i32::try_from(*x)).collect::<Result<Vec<_>, _>>()?;
            Value::from_shape(&input.shape, narrow)?
        }
    })
}

fn elements(value: Value) -> Vec<f32> {
    value.into_tensor::<f32>().expect("outputs are float32").to_vec()
}
