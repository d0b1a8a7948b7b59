//! `ansc run`: an artifact on `.npy` files.

use ansc_runtime::{Model, SessionOptions, npy};

use super::{file_name_of, print_json, read_tensors};
use crate::Error;
use crate::cli::Run;
use crate::kinds::{self, Kind};

pub(super) fn run(args: &Run) -> Result<(), Error> {
    kinds::expect(&args.artifact, &[Kind::Artifact])?;
    let model = Model::load(&args.artifact)?;
    let inputs = read_tensors(&args.inputs)?;
    let mut session = model.session_with(&SessionOptions {
        threads: args.threads,
        keep_denormals: args.keep_denormals,
        ..SessionOptions::default()
    })?;
    let named: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let outputs = session.run(&named)?;
    std::fs::create_dir_all(&args.output_dir).map_err(|e| Error::file(&args.output_dir, e))?;
    let mut written = Vec::new();
    for (name, tensor) in &outputs {
        let path = args.output_dir.join(format!("{}.npy", file_name_of(name)));
        npy::write(&path, tensor)?;
        written.push(serde_json::json!({
            "name": name, "dtype": tensor.dtype(), "shape": tensor.shape(), "file": path,
        }));
        if !args.json {
            println!("{}: {} {:?}", path.display(), tensor.dtype(), tensor.shape());
        }
    }
    if args.json {
        print_json(&serde_json::json!({ "outputs": written }));
    }
    Ok(())
}
