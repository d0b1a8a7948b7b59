//! Compares what primitives do and what sketches look like with texts in files.
//!
//! `primitives/*.txt` hold a program, lines `=> CALL`, and the program after these calls,
//! `(unchanged)`, or the error of the last one. `sketches/*.txt` hold an expression, a line `=>
//! sketches`, and the rules and loops of each sketch. `algorithms/*.txt` hold an expression, a line
//! `=> ALGORITHM`, how constants are prepared for it, and the expression that it gives.
//! `untuned_gpu/*.txt` hold an expression, a line `=> untuned`, and the program of a GPU that
//! nobody tuned. `ANSC_BLESS=1 cargo test` rewrites what is below the arrows. Whatever is written
//! there, programs before and after must compute the same.

mod calls;
mod skeleton;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ansc_graph::{Compute, TensorType};
use ansc_runtime::Tensor;
use ansc_sketch::Machine;
use ansc_sketch::algorithm::Algorithm;
use ansc_sketch::gpu::GpuLimits;
use ansc_sketch::rules::Space;
use ansc_sketch::trace::Unfit;
use ansc_sketch::{Program, Schedule, Scope, Task, exec, finish, lower};
use rand::SeedableRng;
use rand::rngs::StdRng;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The text above the arrows, the arrows' lines, and the text below.
fn parts(text: &str) -> (&str, Vec<&str>, &str) {
    let (before, rest) = text.split_once("\n=> ").expect("a line `=> CALL`");
    let (mut arrows, mut rest) = (vec![], rest);
    loop {
        let (arrow, below) = rest.split_once('\n').unwrap_or((rest, ""));
        arrows.push(arrow.trim());
        match below.strip_prefix("=> ") {
            Some(next) => rest = next,
            None => return (before, arrows, below.trim()),
        }
    }
}

/// Compares each file with what `made` gives for it, or rewrites it.
fn check(folder: &str, made: impl Fn(&str, &[&str]) -> String) {
    let mut stale = Vec::new();
    for path in files(folder) {
        let text = std::fs::read_to_string(&path).unwrap();
        let (source, arrows, expected) = parts(&text);
        let found = made(source, &arrows);
        if std::env::var_os("ANSC_BLESS").is_some() {
            let arrows = arrows.join("\n=> ");
            std::fs::write(&path, format!("{source}\n=> {arrows}\n\n{}\n", found.trim())).unwrap();
        } else if found.trim() != expected {
            stale.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(stale.is_empty(), "run with ANSC_BLESS=1 if this is right\n{}", stale.join("\n"));
}

/// Small whole numbers, of which no two neighbours are equal.
fn inputs(program: &Program) -> Vec<Tensor> {
    let inputs = program.params.iter().map(|&p| program.buffer(p));
    let inputs = inputs.filter(|buffer| buffer.scope == Scope::Input).enumerate();
    let tensor = |(i, ty): (usize, &TensorType)| {
        let values = (0..ty.len()).map(|e| ((e * 7 + i * 3) % 11) as f32 - 5.0);
        Tensor::from_slice(&ty.shape, &values.collect::<Vec<f32>>())
    };
    inputs.map(|(i, buffer)| tensor((i, &buffer.ty))).collect()
}

/// Elements of each result: collapsed axes move none.
fn results(program: &Program) -> Vec<Vec<f64>> {
    let inputs = inputs(program);
    let results = exec::run(program, &inputs.iter().collect::<Vec<_>>());
    let results = results.unwrap_or_else(|e| panic!("{e}\n{program}"));
    results.iter().map(Tensor::to_f64_vec).collect()
}

#[test]
fn primitives_do_what_their_files_show() {
    check("primitives", |source, calls| {
        let before = Program::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let mut schedule = Schedule::new(before.clone());
        for call in calls {
            if let Err(error) = calls::apply(&mut schedule, call) {
                return error.to_string();
            }
        }
        let after = schedule.into_program();
        for program in [&after, &finish(after.clone())] {
            assert_eq!(results(&before), results(program), "{program}");
        }
        if after == before { "(unchanged)".into() } else { after.to_string() }
    });
}

#[test]
fn every_primitive_has_a_file() {
    let names: Vec<String> = files("primitives")
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    for primitive in calls::NAMES {
        assert!(names.contains(&(*primitive).to_owned()), "no file is about {primitive}");
    }
}

#[test]
fn sketches_look_as_in_the_papers() {
    check("sketches", |source, _| {
        let compute = Compute::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let program = lower("k", &compute);
        let mut text = String::new();
        for (i, sketch) in Space::cpu(8).sketches(program.clone()).iter().enumerate() {
            let rules = sketch.rules.join(", ");
            text += &format!("{}: {rules}\n{}\n", i + 1, skeleton::of(sketch, program.clone()));
        }
        text
    });
}

#[test]
fn what_nobody_tuned_gets_on_a_gpu() {
    check("untuned_gpu", |source, _| {
        let compute = Compute::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let task = Arc::new(Task::on_gpu("k", &compute, &GpuLimits::default()));
        let random = &mut StdRng::seed_from_u64(0);
        let sample = task.sample(&task.untuned(), Unfit::Refuse, random);
        let program = sample.unwrap_or_else(|e| panic!("{e}")).scheduled.program;
        format!("{}\n\n{program}", task.sketches()[0].rules.join(", "))
    });
}

/// The algorithm of this name rewrites the subgraph, all inputs but the first of which are
/// constants.
fn rewritten(source: &str, name: &str) -> String {
    let compute = Compute::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| i > 0).collect();
    let mut machine = Machine::new(32, 16);
    machine.units.bf16 = true;
    let algorithm = Algorithm::ALL.into_iter().find(|a| a.name() == name).expect("a name");
    let task = Task::on_cpu("k", &compute, &constant, &machine);
    let Some(made) = algorithm.rewrite(&task) else { return "(does not apply)".into() };
    let prepared =
        made.prepared.iter().map(|p| format!("constant {}: {}\n", p.param, p.compute)).collect();
    [prepared, made.task.compute.to_string()].concat()
}

#[test]
fn algorithms_make_what_their_files_show() {
    check("algorithms", |source, names| rewritten(source, names[0]));
}
