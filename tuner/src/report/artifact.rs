//! The page of an artifact: its kernels, what each takes and what limits it, and how they hang together.

use std::collections::BTreeMap;
use std::fmt::Write;

use ansc_runtime::manifest::{
    BufferId, BufferInfo, KernelInfo, Manifest, Plan, Step, Storage, Tuning,
};
use serde::Serialize;

use super::graph;
use super::html::{self, details, digits, escape, gflops, or_dash, percent, time};
use super::roofline::{self, Dot};
use crate::records::Limits;
use crate::roofline::{Copying, Roofline, roofline as under_roof};

/// An artifact as it ran on a machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Artifact {
    pub model: String,
    pub compiler: String,
    pub target: String,
    pub threads: usize,
    pub limits: Limits,
    pub copies: Vec<Copying>,
    /// Of all steps together.
    pub seconds: f64,
    /// In the order of execution.
    pub kernels: Vec<Kernel>,
    /// From kernels to kernels that read what they write, by place.
    pub edges: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kernel {
    pub name: String,
    /// Nodes of the model that were fused into it.
    pub nodes: Vec<String>,
    pub flops: u64,
    pub bytes: u64,
    /// Of one run of the model.
    pub seconds: f64,
    /// Of the time of all steps.
    pub share: f64,
    pub roofline: Option<Roofline>,
    pub tuning: Option<Tuning>,
}

impl Artifact {
    /// `seconds` are those of each kernel in one run of the model, by place in the manifest.
    pub fn new(
        manifest: &Manifest,
        seconds: &[f64],
        threads: usize,
        limits: Limits,
        copies: Vec<Copying>,
    ) -> Artifact {
        let total: f64 = seconds.iter().sum();
        let kernel = |(k, &seconds): (&KernelInfo, &f64)| Kernel {
            name: k.name.clone(),
            nodes: k.nodes.clone(),
            flops: k.flops,
            bytes: k.bytes,
            seconds,
            share: if total > 0.0 { seconds / total } else { 0.0 },
            roofline: under_roof(&limits, &copies, k.flops, k.bytes, seconds),
            tuning: k.tuning.clone(),
        };
        let kernels = manifest.kernels.iter().zip(seconds).map(kernel).collect();
        Artifact {
            model: manifest.model.name.clone(),
            compiler: manifest.compiler.clone(),
            target: format!("{} {}", manifest.target.triple, manifest.target.cpu),
            threads,
            limits,
            copies,
            seconds: total,
            kernels,
            edges: edges(manifest),
        }
    }
}

/// Who reads what whom wrote.
fn edges(manifest: &Manifest) -> Vec<(usize, usize)> {
    let mut edges = vec![];
    for one in &manifest.specialisations {
        let (kernels, buffers) = (&manifest.kernels, &one.buffers);
        let mut flow = Flow { kernels, buffers, writers: BTreeMap::new(), edges: vec![] };
        flow.plan(&one.plan);
        edges.extend(flow.edges);
    }
    edges.sort_unstable();
    edges.dedup();
    // What an iteration of a loop reads of the one before is not drawn.
    edges.retain(|(from, to)| from < to);
    edges
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

    /// What no kernel makes comes from whoever made what it is made of.
    fn pass_on(&mut self, from: &[BufferId], to: &[BufferId]) {
        if let Some(writer) = from.iter().find_map(|&b| self.writer(b)) {
            to.iter().for_each(|&b| self.write(b, writer));
        }
    }

    fn place(&self, buffer: BufferId) -> Option<(u8, usize)> {
        match self.buffers.get(buffer.0 as usize)?.storage {
            Storage::Arena { offset } => Some((0, offset)),
            Storage::Output(i) => Some((1, i as usize)),
            Storage::Input(_) | Storage::Weight { .. } | Storage::Prepared { .. } => None,
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
    let facts = [
        (time(artifact.seconds), format!("for a run on {} threads", artifact.threads)),
        (artifact.kernels.len().to_string(), "kernels".to_owned()),
        (gflops(artifact.limits.flops_per_second), "GFLOP/s at most".to_owned()),
        (gflops(artifact.limits.bytes_per_second), "GB/s of memory at most".to_owned()),
    ];
    let about =
        format!("{}, compiled by {} for {}", artifact.model, artifact.compiler, artifact.target);
    let _ = writeln!(page, "<p>{}</p>", escape(&about));
    html::list(&mut page, &facts);
    let dots: Vec<Dot<'_>> = artifact
        .kernels
        .iter()
        .filter_map(|k| Some(Dot { name: &k.name, roofline: k.roofline?, share: k.share }))
        .collect();
    let _ = writeln!(page, "<h2>Roofline</h2>\n{}", roofline::chart(&dots, &artifact.limits));
    table(&mut page, artifact);
    drawing(&mut page, artifact);
    page + html::END
}

fn table(page: &mut String, artifact: &Artifact) {
    let mut kernels: Vec<&Kernel> = artifact.kernels.iter().collect();
    kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let most = kernels.first().map_or(1.0, |k| k.share).max(f64::MIN_POSITIVE);
    page.push_str(
        "<h2>Kernels, the longest first</h2>\n<div class=\"scroll\"><table><thead><tr><th>kernel</th><th>ms</th>\
         <th>GFLOP/s</th><th>limited by</th><th>untuned, ms</th><th>when tuned, ms</th><th colspan=\"2\">share</th>\
         </tr></thead><tbody>\n",
    );
    for kernel in kernels {
        let tuning = kernel.tuning.as_ref();
        let steps = tuning.map(|t| format!("{}\n\n{}", t.rules.join(", "), t.steps.join("\n")));
        let _ = writeln!(
            page,
            "<tr><td>{}{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"share\"><i style=\"width:{:.1}%\"></i></td></tr>",
            escape(&kernel.name),
            details("fused", Some(&kernel.nodes.join("\n"))),
            details("schedule", steps.as_deref()),
            digits(kernel.seconds * 1e3),
            or_dash(kernel.roofline.map(|r| gflops(r.flops_per_second))),
            or_dash(kernel.roofline.map(|r| r.in_words())),
            or_dash(tuning.and_then(|t| t.untuned_seconds).map(|s| digits(s * 1e3))),
            or_dash(tuning.map(|t| digits(t.seconds * 1e3))),
            percent(kernel.share),
            kernel.share / most * 100.0
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn drawing(page: &mut String, artifact: &Artifact) {
    let boxes: Vec<graph::Box<'_>> = artifact
        .kernels
        .iter()
        .map(|k| graph::Box {
            title: &k.name,
            detail: format!("{}, {} nodes", time(k.seconds), k.nodes.len()),
            share: k.share,
        })
        .collect();
    let drawn = graph::draw(&boxes, &artifact.edges);
    let _ = writeln!(page, "<h2>Fused graph</h2>\n<div class=\"graphs\">{drawn}</div>");
}
