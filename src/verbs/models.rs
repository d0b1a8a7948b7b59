//! `ansc models`: the generated networks, and real ones from packages.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ansc_models::real::{self, RealModel};
use ansc_models::{Generator, Kind, Scale, find};

use super::print_json;
use crate::Error;
use crate::cli::Models;

pub(super) fn run(args: &Models) -> Result<(), Error> {
    if args.names.is_empty() {
        list(args);
        return Ok(());
    }
    std::fs::create_dir_all(&args.output_dir).map_err(|e| Error::file(&args.output_dir, e))?;
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
    let unknown =
        || Error::Usage(format!("there is no generator `{name}`; `ansc models` lists them"));
    let generator = find(name).ok_or_else(unknown)?;
    let path = directory.join(format!("{}.onnx", generator.name));
    let file = std::fs::File::create(&path).map_err(|e| Error::file(&path, e))?;
    let model = generator.build_at(scale);
    model.write(&mut BufWriter::new(file)).map_err(|e| Error::file(&path, e))?;
    Ok(path)
}

fn fetch(name: &str, directory: &Path) -> Result<PathBuf, Error> {
    let unknown = || Error::Usage(format!("there is no model `{name}`; `ansc models` lists them"));
    let model = real::REAL.iter().find(|m| m.name == name).ok_or_else(unknown)?;
    real::fetch(model, directory).map_err(|e| Error::file(&directory.join(name), e))
}
