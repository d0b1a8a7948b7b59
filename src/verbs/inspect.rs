//! `ansc inspect`: what a model or an artifact consists of.

use std::path::Path;

use ansc_codegen::Target;
use ansc_codegen::target::Arch;
use ansc_frontend::Report;
use ansc_frontend::import::{self, Declared, Source};
use ansc_graph::{Graph, ValueId};
use ansc_runtime::gpu::GpuCode;
use ansc_runtime::manifest::{Manifest, Port, Size, Specialisation, State, TargetInfo};
use ansc_runtime::{DType, Extent, Model, target};
use ansc_tuner::title::title;
use serde::Serialize;

use super::show::{counted, human_bytes, human_ops};
use super::{import_options, print_json};
use crate::Error;
use crate::cli::Inspect;
use crate::kinds::{self, Kind};
use crate::sizes::Span;

pub(super) fn run(args: &Inspect) -> Result<(), Error> {
    match kinds::expect(&args.file, &[Kind::Artifact, Kind::Model])? {
        Kind::Artifact => artifact(args),
        _ => model(args),
    }
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
    print_unused(&m.target);
    if m.accurate {
        println!("direct sums only");
    }
    if !m.precision.is_full() {
        println!("precision {}", m.precision);
    }
    let weights = human_bytes(m.weight_bytes as u64);
    match &m.preparation {
        None => println!("weights {weights}"),
        Some(p) => println!(
            "weights {weights}, and {} more that are made of them when loading",
            human_bytes(p.bytes as u64)
        ),
    }
    m.specialisations.iter().for_each(|one| print_specialisation(m, one));
}

/// A line for each reason why the code does without features that it could use.
///
/// ```text
/// without avx512fp16: this machine has it, but `--target-cpu x86-64-v4` left it off
/// without amx-tile amx-bf16 amx-int8: not on this machine either (CPUID does not announce this)
/// ```
fn print_unused(target: &TargetInfo) {
    let arch = match target.triple.split('-').next() {
        Some("x86_64") => Arch::X86_64,
        Some("aarch64") => Arch::Aarch64,
        _ => return,
    };
    let is_unused = |f: &&str| !target.features.iter().any(|used| used == f);
    let unused: Vec<&str> = Target::known(arch).filter(is_unused).collect();
    if !target.triple.starts_with(std::env::consts::ARCH) {
        if !unused.is_empty() {
            println!("without {}: `{}` leaves them off", unused.join(" "), target.cpu);
        }
        return;
    }
    let missing = target::missing(unused.iter().copied());
    let is_here = |f: &&&str| missing.iter().all(|m| m.feature != **f);
    let here: Vec<&str> = unused.iter().filter(is_here).copied().collect();
    if !here.is_empty() {
        let (here, cpu) = (here.join(" "), &target.cpu);
        println!("without {here}: this machine has it, but `--target-cpu {cpu}` left it off");
    }
    for (why, features) in target::by_reason(&missing) {
        println!("without {}: not on this machine either ({why})", features.join(" "));
    }
}

fn print_specialisation(m: &Manifest, one: &Specialisation) {
    if !one.name.is_empty() {
        println!("for {}:", one.name);
    }
    let lows = lows(one);
    print_ports("input", &one.inputs, &lows);
    print_ports("output", &one.outputs, &lows);
    for state in &one.states {
        println!("state {}", described(one, state));
    }
    println!(
        "activations {} (without reuse {})",
        human_bytes(one.arena_bytes as u64),
        human_bytes(one.arena_bytes_without_reuse as u64)
    );
    let kernels = m.kernels_of(one);
    println!("{}:", counted(kernels.len(), "kernel"));
    for k in kernels {
        let reads = k.precision.map_or(String::new(), |p| format!(" (reads {p})"));
        println!("  {:>12}  {}{reads}", human_ops(k.flops), title(&k.nodes, &k.name));
    }
}

/// ```text
/// past: f32 [1, 8, 0..1023, 64] -> present: [1, 8, 1..1024, 64], in room for [1, 8, 1024, 64]
/// ```
fn described(one: &Specialisation, state: &State) -> String {
    let at = |port: &Port, of: fn(&Size) -> usize| {
        let sizes: Vec<i64> = one.sizes.iter().map(|size| of(size) as i64).collect();
        port.shape_at(&sizes).unwrap_or_else(|| port.shape.clone())
    };
    let range = |port| between(&at(port, |size| size.low), &at(port, |size| size.high));
    let State { input, output } = state;
    let (before, after) = (range(input), range(output));
    let room = format!("{:?}", input.shape);
    let is_full = input.shape == at(output, |size| size.high);
    let room = if is_full { String::new() } else { format!(", in room for {room}") };
    format!("{}: {} {before} -> {}: {after}{room}", input.name, input.dtype, output.name)
}

/// The manifest. Where there is nothing to choose, the one specialisation is a part of it like the
/// others.
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
                "  {}: grid {:?} block {:?}, {} bytes shared: {}",
                title(&kernel.nodes, &kernel.name),
                l.grid,
                l.block,
                l.shared_bytes,
                l.symbol
            );
        }
    }
}

/// The smallest sizes: those that a run chooses, and those that its data decides, which may be 0.
fn lows(one: &Specialisation) -> Vec<i64> {
    let ports = one.inputs.iter().chain(&one.outputs);
    let sizes = Extent::used(ports.flat_map(|port| &port.extents));
    let count = sizes.last().map_or(0, |index| index + 1);
    let chosen = one.sizes.iter().map(|size| size.low as i64);
    chosen.chain(std::iter::repeat(0)).take(count.max(one.sizes.len())).collect()
}

fn print_ports(what: &str, ports: &[Port], lows: &[i64]) {
    for port in ports {
        let bound = if port.bound.is_some() { " (value fixed when compiling)" } else { "" };
        let low = port.shape_at(lows).unwrap_or_else(|| port.shape.clone());
        let shape = between(&low, &port.shape);
        println!("{what} {}: {} {shape}{bound}", port.name, port.dtype);
    }
}

/// The shapes from one to another, as in `[1, 17..32, 768]`.
fn between(low: &[usize], high: &[usize]) -> String {
    let axis = |(low, high): (&usize, &usize)| match low == high {
        true => high.to_string(),
        false => Span::Range(*low, *high).to_string(),
    };
    let axes: Vec<String> = low.iter().zip(high).map(axis).collect();
    format!("[{}]", axes.join(", "))
}

/// Shows a model. If the given sizes and values leave nothing open, its inputs and outputs are
/// shown with these, otherwise as the model declares them.
fn model(args: &Inspect) -> Result<(), Error> {
    let declared = import::declared(&args.file)?;
    let options = import_options(&args.file, &args.specialise)?;
    let report = import::check(&args.file, &options);
    let known = report.problems.is_empty();
    let largest = || Source::open(&args.file, options.quantization.as_deref())?.largest(&options);
    let graph = known.then(largest).transpose()?;
    if args.json {
        print_json(&model_json(&declared, graph.as_ref(), &report));
        return Ok(());
    }
    print_declared(&args.file, &declared);
    match &graph {
        Some(graph) => {
            ports_of(graph, true).iter().for_each(|port| println!("input {port}"));
            ports_of(graph, false).iter().for_each(|port| println!("output {port}"));
        }
        None => {
            declared.inputs.iter().for_each(|port| println!("input {port}"));
            declared.outputs.iter().for_each(|port| println!("output {port}"));
        }
    }
    println!("operators:");
    let mut operators: Vec<_> = report.operators.iter().collect();
    operators.sort_by_key(|o| std::cmp::Reverse(o.count));
    operators.iter().for_each(|o| println!("{:6} {}", o.count, o.qualified()));
    if graph.is_none() {
        println!("it cannot be compiled as it is:");
        report.problems.iter().for_each(|p| println!("  {p}"));
    }
    Ok(())
}

fn print_declared(file: &Path, declared: &Declared) {
    let producer = match declared.producer.as_str() {
        "" => String::new(),
        producer => format!(" by {producer}"),
    };
    let opsets = declared.opsets.iter().map(|(domain, version)| match domain.as_str() {
        "" => format!("opset {version}"),
        domain => format!("{domain} {version}"),
    });
    println!(
        "{}: ONNX model{producer}, {}; {}, {} of weights",
        file.display(),
        opsets.collect::<Vec<_>>().join(", "),
        counted(declared.nodes, "node"),
        human_bytes(declared.weight_bytes as u64)
    );
}

/// An input or output of a model whose shapes are all known.
#[derive(Serialize)]
struct KnownPort {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
}

impl std::fmt::Display for KnownPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {:?}", self.name, self.dtype, self.shape)
    }
}

fn ports_of(graph: &Graph, inputs: bool) -> Vec<KnownPort> {
    let port = |(name, value): (&String, ValueId)| {
        let ty = graph.ty(value);
        KnownPort { name: name.clone(), dtype: ty.dtype, shape: ty.shape.clone() }
    };
    if !inputs {
        return graph.outputs.iter().map(|(name, value)| port((name, *value))).collect();
    }
    let nodes = graph.inputs().iter();
    nodes.map(|&node| port((&graph.node(node).name, ValueId { node, out: 0 }))).collect()
}

/// Shapes hold names where something is open.
fn model_json(declared: &Declared, graph: Option<&Graph>, report: &Report) -> serde_json::Value {
    let (inputs, outputs) = match graph {
        Some(graph) => {
            (serde_json::json!(ports_of(graph, true)), serde_json::json!(ports_of(graph, false)))
        }
        None => (serde_json::json!(declared.inputs), serde_json::json!(declared.outputs)),
    };
    serde_json::json!({
        "inputs": inputs, "outputs": outputs, "operators": report.operators,
        "opsets": declared.opsets, "producer": declared.producer, "nodes": declared.nodes,
        "weight_bytes": declared.weight_bytes, "problems": report.problems,
    })
}
