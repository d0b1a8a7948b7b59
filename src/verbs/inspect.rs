//! `ansc inspect`: what a model or an artifact consists of.

use std::path::Path;

use ansc_frontend::import;
use ansc_graph::ValueId;
use ansc_runtime::gpu::GpuCode;
use ansc_runtime::manifest::{Manifest, Port, Specialisation};
use ansc_runtime::{Model, source};

use super::{human_bytes, import_options, print_json};
use crate::Error;
use crate::cli::Inspect;

pub(super) fn run(args: &Inspect) -> Result<(), Error> {
    if is_artifact(&args.file)? { artifact(args) } else { model(args) }
}

pub(super) fn is_artifact(path: &Path) -> Result<bool, Error> {
    use std::io::Read;
    let mut magic = [0; 4];
    let mut file = source::open_file(path).map_err(|e| Error::file(path, e))?;
    let n = file.read(&mut magic).map_err(|e| Error::file(path, e))?;
    Ok(magic[..n] == *b"\x7fELF")
}

fn artifact(args: &Inspect) -> Result<(), Error> {
    let manifest = Model::read_manifest(&args.file)?;
    let gpu = Model::read_gpu_code(&args.file)?;
    if args.json {
        let mut object = json_of(&manifest);
        if let Some(code) = &gpu {
            object["gpu"] = serde_json::json!(code);
        }
        print_json(&object);
        return Ok(());
    }
    print_artifact(&manifest);
    gpu.iter().for_each(|code| print_gpu(&manifest, code));
    Ok(())
}

fn print_artifact(m: &Manifest) {
    println!("compiled by {} from {} (sha256 {})", m.compiler, m.model.name, m.model.sha256);
    let features = m.target.features.join(" ");
    let with = if features.is_empty() { "" } else { " with " };
    println!("for {} {}{with}{features}", m.target.triple, m.target.cpu);
    let weights = human_bytes(m.weight_bytes as u64);
    match &m.preparation {
        None => println!("weights {weights}"),
        Some(p) => println!(
            "weights {weights}, of some of which {} are made when loading",
            human_bytes(p.bytes as u64)
        ),
    }
    m.specialisations.iter().for_each(|one| print_specialisation(m, one));
}

fn print_specialisation(m: &Manifest, one: &Specialisation) {
    if !one.name.is_empty() {
        println!("for {}:", one.name);
    }
    one.inputs.iter().for_each(|p| print_port("input", p));
    one.outputs.iter().for_each(|p| print_port("output", p));
    println!(
        "activations {} (without reuse {})",
        human_bytes(one.arena_bytes as u64),
        human_bytes(one.arena_bytes_without_reuse as u64)
    );
    let kernels = m.kernels_of(one);
    println!("{} kernels:", kernels.len());
    for k in kernels {
        println!("  {:40} {:9.3} MFLOP  {}", k.name, k.flops as f64 / 1e6, k.nodes.join(" + "));
    }
}

/// The manifest. Where there is nothing to choose, the one specialisation is a part of it like the others.
fn json_of(manifest: &Manifest) -> serde_json::Value {
    let mut object = serde_json::json!(manifest);
    if let [only] = &manifest.specialisations[..]
        && let (Some(fields), serde_json::Value::Object(more)) =
            (object.as_object_mut(), serde_json::json!(only))
    {
        fields.remove("specialisations");
        fields.extend(more.into_iter().filter(|(key, _)| key != "name"));
    }
    object
}

fn print_gpu(m: &Manifest, code: &GpuCode) {
    for text in &code.texts {
        println!("PTX for sm_{}: {}", text.sm, human_bytes(text.ptx.len() as u64));
    }
    for (kernel, launches) in m.kernels.iter().zip(&code.kernels) {
        for l in launches {
            println!(
                "  {:40} grid {:?} block {:?}, {} bytes shared: {}",
                kernel.name, l.grid, l.block, l.shared_bytes, l.symbol
            );
        }
    }
}

fn print_port(what: &str, port: &Port) {
    let bound = if port.bound.is_some() { " (value fixed when compiling)" } else { "" };
    println!("{what} {}: {} {:?}{bound}", port.name, port.dtype, port.shape);
}

fn model(args: &Inspect) -> Result<(), Error> {
    let options = import_options(&args.specialise)?;
    let graph = import::load(&args.file, &options)?;
    let report = import::check(&args.file, &options);
    let port = |name: &str, value| {
        serde_json::json!({
            "name": name, "dtype": graph.ty(value).dtype, "shape": graph.ty(value).shape,
        })
    };
    let inputs: Vec<_> = graph
        .inputs()
        .iter()
        .map(|&node| port(&graph.node(node).name, ValueId { node, out: 0 }))
        .collect();
    let outputs: Vec<_> = graph.outputs.iter().map(|(name, value)| port(name, *value)).collect();
    if args.json {
        print_json(
            &serde_json::json!({ "inputs": inputs, "outputs": outputs, "operators": report.operators }),
        );
        return Ok(());
    }
    inputs.iter().for_each(|p| println!("input {p}"));
    outputs.iter().for_each(|p| println!("output {p}"));
    report.operators.iter().for_each(|o| println!("{:6} {}", o.count, o.qualified()));
    Ok(())
}
