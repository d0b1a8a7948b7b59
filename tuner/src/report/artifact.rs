//! The page of an artifact: its kernels, what each takes and what limits it, and how they hang
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ansc_runtime::manifest::{
    BufferId, BufferInfo, KernelInfo, Manifest, Plan, Specialisation, Step, Storage, Tuning,
};
use ansc_sketch::algorithm::Algorithm;
use serde::Serialize;

use super::graph;
use super::html::{self, details, digits, escape, gflops, or_dash, percent, time};
use super::roofline::{self, Dot};
use crate::records::{Limits, machine_name};
use crate::roofline::{Copying, Roofline, roofline as under_roof};
use crate::title::title;

/// An artifact as it ran on a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Artifact {
    /// The name of the model's file.
    pub model: String,
    /// The version of the compiler.
    pub compiler: String,
    /// The machine that it was compiled for.
    pub target: String,
    /// Which of the compiled sizes ran; empty if there is nothing to choose.
    pub specialisation: String,
    /// Threads that it ran on.
    pub threads: usize,
    /// The limits of the machine. None where kernels run on another one, a GPU.
    pub limits: Option<Limits>,
    /// Operations in a second of its unit for matrices, with `bf16`; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiles_per_second: Option<f64>,
    /// The speed of copies within each cache, where it was measured.
    pub copies: Vec<Copying>,
    /// Seconds of all kernels together, in one run of the model.
    pub seconds: f64,
    /// Those of the size that ran, in the order of execution.
    pub kernels: Vec<Kernel>,
    /// From kernels to kernels that read what they write, by place.
    pub edges: Vec<(usize, usize)>,
}

/// A kernel with its time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kernel {
    /// Its name in the manifest.
    pub name: String,
    /// Nodes of the model that were fused into it.
    pub nodes: Vec<String>,
    /// Operations of the nodes, and of the program that computes the same.
    pub flops: u64,
    /// Operations of the program.
    pub work: u64,
    /// Bytes that it must move at least.
    pub bytes: u64,
    /// Seconds in one run of the model.
    pub seconds: f64,
    /// Its share of the seconds of all kernels.
    pub share: f64,
    /// Its place under the roofline, if the limits of the machine are known.
    pub roofline: Option<Roofline>,
    /// As in the manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// How it came to its schedule, if a search found it.
    pub tuning: Option<Tuning>,
}

impl Kernel {
    /// By its nodes first.
    pub fn title(&self) -> String {
        title(&self.nodes, &self.name)
    }

    /// How it is computed, in words, if it is a sum of products.
    pub fn algorithm_in_words(&self) -> Option<&str> {
        self.algorithm.as_deref().map(algorithm_in_words)
    }

    fn is_by(&self, algorithm: Algorithm) -> bool {
        self.algorithm.as_deref().and_then(named) == Some(algorithm)
    }

    fn new(info: &KernelInfo, seconds: f64, total: f64) -> Kernel {
        Kernel {
            name: info.name.clone(),
            nodes: info.nodes.clone(),
            flops: info.flops,
            work: info.work.unwrap_or(info.flops),
            bytes: info.bytes,
            seconds,
            share: if total > 0.0 { seconds / total } else { 0.0 },
            roofline: None,
            algorithm: info.algorithm.clone(),
            tuning: info.tuning.clone(),
        }
    }
}

impl Artifact {
    /// How a specialisation of it ran. `seconds` are those of each kernel in one run of the model,
    /// by place in the manifest; `limits` and `copies` are what the machine can do that runs the
    /// kernels.
    pub fn new(
        manifest: &Manifest,
        one: &Specialisation,
        seconds: &[f64],
        threads: usize,
        limits: Option<Limits>,
        copies: Vec<Copying>,
    ) -> Artifact {
        let places = places(one);
        let total: f64 = places.iter().filter_map(|&i| seconds.get(i)).sum();
        let kernel = |&i: &usize| {
            let mut kernel = Kernel::new(manifest.kernels.get(i)?, *seconds.get(i)?, total);
            kernel.roofline = limits.and_then(|limits| {
                under_roof(&limits, &copies, kernel.work, kernel.bytes, kernel.seconds)
            });
            Some(kernel)
        };
        Artifact {
            model: manifest.model.name.clone(),
            compiler: manifest.compiler.clone(),
            target: format!("{} {}", manifest.target.triple, manifest.target.cpu),
            specialisation: one.name.clone(),
            threads,
            limits,
            tiles_per_second: None,
            seconds: total,
            kernels: places.iter().filter_map(kernel).collect(),
            edges: edges(manifest, one, &places),
            copies,
        }
    }
}

impl Artifact {
    /// Kernels that use the unit for matrices are under its roof, which is this high.
    #[must_use]
    pub fn with_tiles(mut self, flops_per_second: Option<f64>) -> Artifact {
        self.tiles_per_second = flops_per_second;
        let limits =
            flops_per_second.zip(self.limits).map(|(f, l)| Limits { flops_per_second: f, ..l });
        let tiled = |k: &&mut Kernel| k.is_by(Algorithm::Tiles);
        for (kernel, limits) in self.kernels.iter_mut().filter(tiled).zip(limits.iter().cycle()) {
            let Kernel { work, bytes, seconds, .. } = *kernel;
            kernel.roofline = under_roof(limits, &self.copies, work, bytes, seconds);
        }
        self
    }
}

/// The algorithm that a manifest names. Those of older compilers have it in words.
fn named(text: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|a| [a.name(), a.in_words()].contains(&text))
}

/// Words for how a manifest says that a kernel is computed.
pub fn algorithm_in_words(text: &str) -> &str {
    match named(text) {
        Some(algorithm) => algorithm.in_words(),
        None => text,
    }
}

/// The kernels that a specialisation runs, by place in the manifest.
fn places(one: &Specialisation) -> Vec<usize> {
    let mut places = BTreeSet::new();
    one.plan.visit(&mut |step| {
        if let Step::Kernel { kernel, .. } = step {
            places.insert(*kernel as usize);
        }
    });
    places.into_iter().collect()
}

/// Who reads what whom wrote, by place among `places`.
fn edges(manifest: &Manifest, one: &Specialisation, places: &[usize]) -> Vec<(usize, usize)> {
    let (kernels, buffers) = (&manifest.kernels, &one.buffers);
    let mut flow = Flow { kernels, buffers, writers: BTreeMap::new(), edges: vec![] };
    flow.plan(&one.plan);
    let place = |kernel: usize| places.binary_search(&kernel).ok();
    let found = flow.edges.iter().filter_map(|&(from, to)| Some((place(from)?, place(to)?)));
    // An edge is not drawn if an iteration of a loop reads what an earlier iteration wrote.
    let edges: BTreeSet<(usize, usize)> = found.filter(|(from, to)| from < to).collect();
    edges.into_iter().collect()
}

struct Flow<'a> {
    kernels: &'a [KernelInfo],
    buffers: &'a [BufferInfo],
    /// The kernel that wrote there last: views of a buffer have its place.
    writers: BTreeMap<(u8, usize), usize>,
    edges: Vec<(usize, usize)>,
}

impl Flow<'_> {
    fn plan(&mut self, plan: &Plan) {
        for step in &plan.steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Kernel { kernel, args } => {
                let index = *kernel as usize;
                let reads = self.kernels.get(index).map_or(0, |k| k.reads);
                let (read, written) = args.split_at(reads.min(args.len()));
                for &buffer in read {
                    self.edges.extend(self.writer(buffer).map(|writer| (writer, index)));
                }
                written.iter().for_each(|&b| self.write(b, index));
            }
            Step::Copy { from, to } => self.pass_on(&[*from], &[*to]),
            Step::Host { inputs, outputs, .. } => self.pass_on(inputs, outputs),
            Step::If { then_plan, else_plan, .. } => {
                self.plan(then_plan);
                self.plan(else_plan);
            }
            Step::Loop(l) => {
                self.pass_on(&l.initial, &l.carried_in);
                self.plan(&l.body);
                for (from, to) in l.carried_out.iter().zip(&l.results) {
                    self.pass_on(&[*from], &[*to]);
                }
                for scan in &l.scan_outputs {
                    self.pass_on(&[scan.slice], &[scan.whole]);
                }
            }
        }
    }

    /// Buffers that are made by no kernel get the writer of the buffers that they are made from.
    fn pass_on(&mut self, from: &[BufferId], to: &[BufferId]) {
        if let Some(writer) = from.iter().find_map(|&b| self.writer(b)) {
            to.iter().for_each(|&b| self.write(b, writer));
        }
    }

    fn place(&self, buffer: BufferId) -> Option<(u8, usize)> {
        match self.buffers.get(buffer.0 as usize)?.storage {
            Storage::Arena { offset } => Some((0, offset)),
            Storage::Output(i) => Some((1, i as usize)),
            Storage::Input(_)
            | Storage::Size(_)
            | Storage::State(_)
            | Storage::NextState(_)
            | Storage::Weight { .. }
            | Storage::Prepared { .. } => None,
        }
    }

    fn writer(&self, buffer: BufferId) -> Option<usize> {
        self.writers.get(&self.place(buffer)?).copied()
    }

    fn write(&mut self, buffer: BufferId, kernel: usize) {
        if let Some(place) = self.place(buffer) {
            self.writers.insert(place, kernel);
        }
    }
}

/// `source` says where the artifact is.
pub fn page(artifact: &Artifact, source: &str) -> String {
    let mut page = html::begin("Kernels", source);
    let mut about =
        format!("{}, compiled by {} for {}", artifact.model, artifact.compiler, artifact.target);
    if !artifact.specialisation.is_empty() {
        let _ = write!(about, "; the size that ran: {}", artifact.specialisation);
    }
    let _ = writeln!(page, "<p>{}</p>", escape(&about));
    let mut facts = vec![
        (time(artifact.seconds), format!("for a run on {} threads", artifact.threads)),
        (artifact.kernels.len().to_string(), "kernels".to_owned()),
    ];
    if let Some(limits) = &artifact.limits {
        facts.push((gflops(limits.flops_per_second), "GFLOP/s at most".to_owned()));
        facts.push((gflops(limits.bytes_per_second), "GB/s of memory at most".to_owned()));
    }
    html::list(&mut page, &facts);
    artifact.limits.iter().for_each(|limits| roofs(&mut page, artifact, limits));
    table(&mut page, artifact);
    drawing(&mut page, artifact);
    page + html::END
}

fn roofs(page: &mut String, artifact: &Artifact, limits: &Limits) {
    let dot = |k: &Kernel| Some(Dot { name: k.title(), roofline: k.roofline?, share: k.share });
    let dots: Vec<Dot> = artifact.kernels.iter().filter_map(dot).collect();
    let chart = roofline::chart(&dots, limits);
    let _ = writeln!(page, "<h2>Roofline</h2>\n<div class=\"scroll\">{chart}</div>");
}

fn table(page: &mut String, artifact: &Artifact) {
    let mut kernels: Vec<&Kernel> = artifact.kernels.iter().collect();
    kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let most = kernels.first().map_or(1.0, |k| k.share).max(f64::MIN_POSITIVE);
    page.push_str(
        "<h2>Kernels, the longest first</h2>\n<div class=\"scroll\"><table><thead><tr><th>nodes (kernel)</th><th>ms</th>\
         <th>GFLOP/s</th><th>limited by</th><th>schedule</th><th colspan=\"2\">share</th></tr></thead><tbody>\n",
    );
    for kernel in kernels {
        let tuning = kernel.tuning.as_ref();
        let steps = tuning.map(|t| format!("{}\n\n{}", t.rules.join(", "), t.steps.join("\n")));
        let rate = kernel.work as f64 / kernel.seconds;
        let _ = writeln!(
            page,
            "<tr><td>{}{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"share\"><i style=\"width:{:.1}%\"></i></td></tr>",
            escape(&kernel.title()),
            details("fused", Some(&kernel.nodes.join("\n"))),
            details("schedule", steps.as_deref()),
            digits(kernel.seconds * 1e3),
            or_dash(Some(rate).filter(|r| r.is_finite()).map(gflops)),
            or_dash(kernel.roofline.map(|r| r.in_words())),
            escape(&origin(tuning)),
            percent(kernel.share),
            kernel.share / most * 100.0
        );
    }
    page.push_str("</tbody></table></div>\n");
}

/// Where a schedule comes from, and what it took there.
pub fn origin(tuning: Option<&Tuning>) -> String {
    let Some(tuning) = tuning else { return "by default".into() };
    let gained = tuning.untuned_seconds.is_none_or(|untuned| tuning.seconds < untuned);
    let whence = match (gained, tuning.shipped) {
        (false, _) => "by default, since tuning found nothing that is surely faster",
        (true, true) => "comes with the compiler",
        (true, false) => "from records",
    };
    let ms = |seconds: f64| format!("{} ms", digits(seconds * 1e3));
    let untuned = tuning.untuned_seconds.filter(|_| gained).map(|s| format!(", default {}", ms(s)));
    let (took, untuned) = (ms(tuning.seconds), untuned.unwrap_or_default());
    if tuning.measured_on.is_empty() {
        return format!("{whence}; when it was tuned: {took}{untuned}");
    }
    let (machine, threads) = (machine_name(&tuning.measured_on), tuning.threads);
    let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
    format!("{whence}; on {machine}, {threads}: {took}{untuned}")
}

fn drawing(page: &mut String, artifact: &Artifact) {
    let boxes: Vec<graph::Box> = artifact
        .kernels
        .iter()
        .map(|k| graph::Box {
            title: k.title(),
            detail: format!("{}, {} nodes", time(k.seconds), k.nodes.len()),
            share: k.share,
        })
        .collect();
    let drawn = graph::draw(&boxes, &artifact.edges);
    let _ = writeln!(page, "<h2>Fused graph</h2>\n<div class=\"graphs\">{drawn}</div>");
}
