//! `ansc run`: an artifact on `.npy` files, or on made-up values.

use std::path::Path;

use ansc_runtime::{Model, SessionOptions, Tensor, npy};
use serde_json::{Value, json};

use super::{given, print_json};
use crate::cli::Run;
use crate::files::file_names;
use crate::inputs::Seed;
use crate::kinds::{self, Kind};
use crate::states::outside;
use crate::{Error, chosen, npz, output};

pub(super) fn run(args: &Run) -> Result<(), Error> {
    kinds::expect(&args.artifact, &[Kind::Artifact])?;
    if let Some(path) = &args.output {
        output::check(path, &[&args.artifact])?;
    }
    let model = Model::load(&args.artifact)?;
    let one = chosen::specialisation(&model, &args.size.wanted()?)?;
    let inputs = given::or_made_up(&args.inputs, &model, &one, Seed(args.seed))?;
    let mut session = model.session_with(&SessionOptions {
        threads: args.threads,
        keep_denormals: args.keep_denormals,
        ..SessionOptions::default()
    })?;
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let outputs = outside::run(&mut session, &named)?;
    let written = match &args.output {
        Some(path) => archive(path, &outputs)?,
        None => files(&args.output_dir, &outputs)?,
    };
    if args.json {
        print_json(&json!({ "outputs": written }));
        return Ok(());
    }
    if args.inputs.is_empty() {
        println!("inputs were made up; `--input` gives them");
    }
    for ((name, tensor), file) in outputs.iter().zip(&written) {
        let (file, dtype, shape) = (&file["file"], tensor.dtype(), tensor.shape());
        let file = file.as_str().unwrap_or_default();
        match &args.output {
            Some(_) => println!("{file}: {name}: {dtype} {shape:?}"),
            None => println!("{file}: {dtype} {shape:?}"),
        }
    }
    Ok(())
}

fn files(folder: &Path, outputs: &[(String, Tensor)]) -> Result<Vec<Value>, Error> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    let names = file_names(outputs.iter().map(|(name, _)| name.as_str()));
    let each = outputs.iter().zip(names).map(|((name, tensor), file)| {
        let path = folder.join(format!("{file}.npy"));
        npy::write(&path, tensor)?;
        Ok(described(name, tensor, &path))
    });
    each.collect()
}

fn archive(path: &Path, outputs: &[(String, Tensor)]) -> Result<Vec<Value>, Error> {
    npz::write(path, outputs)?;
    Ok(outputs.iter().map(|(name, tensor)| described(name, tensor, path)).collect())
}

fn described(name: &str, tensor: &Tensor, path: &Path) -> Value {
    json!({ "name": name, "dtype": tensor.dtype(), "shape": tensor.shape(), "file": path })
}
