//! `ansc models`: the generated networks, and real ones from packages.

use std::path::{Path, PathBuf};

use ansc_models::real::{self, RealModel};
use ansc_models::{Generator, Kind, Scale, find};

use super::print_json;
use crate::cli::Models;
use crate::{Error, output};

pub(super) fn run(args: &Models) -> Result<(), Error> {
    if args.names.is_empty() {
        list(args);
        return Ok(());
    }
    let known = |name: &&String| match args.fetch {
        true => real::REAL.iter().any(|model| model.name == **name),
        false => find(name).is_some(),
    };
    if let Some(name) = args.names.iter().find(|name| !known(name)) {
        return Err(unknown(name, args.fetch));
    }
    std::fs::create_dir_all(&args.output_dir).map_err(|e| Error::io(&args.output_dir, e))?;
    let mut files = Vec::new();
    let scale = if args.reduced { Scale::Reduced } else { Scale::Full };
    for name in &args.names {
        let file = if args.fetch {
            fetch(name, &args.output_dir)?
        } else {
            generate(name, &args.output_dir, scale)?
        };
        if !args.json {
            println!("{}", file.display());
        }
        files.push(file);
    }
    if args.json {
        print_json(&serde_json::json!({ "files": files }));
    }
    Ok(())
}

fn unknown(name: &str, fetch: bool) -> Error {
    let what = if fetch { "model" } else { "generator" };
    Error::Usage(format!("there is no {what} `{name}`; `ansc models` lists them"))
}

fn list(args: &Models) {
    if args.json {
        let generated: Vec<_> = ansc_models::all()
            .map(|g| {
                let kind = if g.kind == Kind::Network { "network" } else { "operator" };
                serde_json::json!({ "name": g.name, "kind": kind, "description": g.description })
            })
            .collect();
        print_json(&serde_json::json!({ "generated": generated, "real": real::REAL }));
        return;
    }
    for Generator { name, description, .. } in ansc_models::all() {
        println!("{name:26} {description}");
    }
    println!("\nwith --fetch:");
    for RealModel { name, description, package, .. } in real::REAL {
        println!("{name:26} {description} ({package})");
    }
}

fn generate(name: &str, directory: &Path, scale: Scale) -> Result<PathBuf, Error> {
    let generator = find(name).ok_or_else(|| unknown(name, false))?;
    let path = directory.join(format!("{}.onnx", generator.name));
    let model = generator.build_at(scale);
    output::write(&path, |out| model.write(out).map_err(|e| Error::io(&path, e)))?;
    Ok(path)
}

fn fetch(name: &str, directory: &Path) -> Result<PathBuf, Error> {
    let model = real::REAL.iter().find(|m| m.name == name).ok_or_else(|| unknown(name, true))?;
    real::fetch(model, directory).map_err(|e| Error::file(&directory.join(name), e))
}
