//! One program as an artifact: every parameter is an input or an output, nothing is a weight.

use std::path::Path;
use std::time::Instant;

use ansc_codegen::ptx::compile_ptx;
use ansc_codegen::{artifact, compile_program};
use ansc_graph::TensorType;
use ansc_runtime::gpu::{GpuCode, GpuText};
use ansc_runtime::manifest::{
    BufferId, BufferInfo, KernelInfo, Manifest, Plan, Port, Provenance, Specialisation, Step,
    Storage, TargetInfo,
};
use ansc_runtime::tensor::ALIGN;
use ansc_sketch::gpu::{self, GpuLimits};
use ansc_sketch::{Program, Scope};

use super::Targets;
use crate::Error;

/// Seconds of the phases of a build.
pub(super) struct Phases {
    pub(super) codegen: f64,
    pub(super) link: f64,
}

/// Compiles `program` and writes the artifact.
pub(super) fn build(program: &Program, targets: &Targets, output: &Path) -> Result<Phases, Error> {
    let start = Instant::now();
    let Some(gpu) = &targets.gpu else {
        let emitted = compile_program(program, "candidate", &targets.host)?;
        let codegen = start.elapsed().as_secs_f64();
        let ports = Ports::of(program, &emitted.workspace);
        let launches = emitted.launches.clone();
        let manifest = ports.into_manifest(&program.name, targets.host.info(), launches);
        artifact::write(output, &targets.host, &[&emitted.object], &[], &manifest)?;
        return Ok(Phases { codegen, link: start.elapsed().as_secs_f64() - codegen });
    };
    let refused = |e| Error::Usage(format!("not a program for a GPU: {e}"));
    let sm = gpu.sm().ok_or_else(|| Error::Usage(format!("{} is not a GPU", gpu.cpu)))?;
    let kernels = gpu::lower(program, &GpuLimits::of(&[sm])).map_err(refused)?;
    let ptx = compile_ptx(&kernels, "candidate", gpu)?;
    let codegen = start.elapsed().as_secs_f64();
    let ports = Ports::of(program, &ptx.workspace);
    let manifest = ports.into_manifest(&program.name, gpu.info(), vec![]);
    let code = GpuCode { texts: vec![GpuText { sm, ptx: ptx.text }], kernels: vec![ptx.launches] };
    artifact::write_gpu(output, &targets.host, &code, &[], &manifest)?;
    Ok(Phases { codegen, link: start.elapsed().as_secs_f64() - codegen })
}

/// Buffers in the order of the kernel's arguments.
#[derive(Default)]
struct Ports {
    buffers: Vec<BufferInfo>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    arena: usize,
}

impl Ports {
    /// The parameters of a program, then its workspace.
    fn of(program: &Program, workspace: &[TensorType]) -> Ports {
        let mut ports = Ports::default();
        for &param in &program.params {
            let buffer = program.buffer(param);
            let is_output = buffer.scope == Scope::Output;
            ports.add_port(is_output, buffer.ty.dtype, &buffer.ty.shape);
        }
        for ty in workspace {
            ports.add_workspace(ty.dtype, &ty.shape);
        }
        ports
    }

    fn add(&mut self, name: String, dtype: ansc_runtime::DType, shape: &[usize], storage: Storage) {
        self.buffers.push(BufferInfo { name, dtype, shape: shape.to_vec(), storage });
    }

    fn add_port(&mut self, is_output: bool, dtype: ansc_runtime::DType, shape: &[usize]) {
        let buffer = BufferId(self.buffers.len() as u32);
        let ports = if is_output { &mut self.outputs } else { &mut self.inputs };
        let (kind, number) = (if is_output { "out" } else { "in" }, ports.len() as u32);
        let name = format!("{kind}{number}");
        ports.push(Port {
            name: name.clone(),
            dtype,
            shape: shape.to_vec(),
            extents: vec![],
            dense: false,
            buffer,
            bound: None,
        });
        let storage = if is_output { Storage::Output(number) } else { Storage::Input(number) };
        self.add(name, dtype, shape, storage);
    }

    fn add_workspace(&mut self, dtype: ansc_runtime::DType, shape: &[usize]) {
        let offset = self.arena.next_multiple_of(ALIGN);
        self.arena = offset + shape.iter().product::<usize>() * dtype.size();
        self.add("workspace".into(), dtype, shape, Storage::Arena { offset });
    }

    fn into_manifest(
        self,
        name: &str,
        target: TargetInfo,
        launches: Vec<ansc_runtime::manifest::Launch>,
    ) -> Manifest {
        let args = (0..self.buffers.len() as u32).map(BufferId).collect();
        let bytes = |b: &BufferInfo| b.shape.iter().product::<usize>() * b.dtype.size();
        let kernel = KernelInfo {
            name: name.into(),
            nodes: vec![],
            flops: 0,
            work: None,
            bytes: 0,
            args: self.buffers.iter().map(bytes).collect(),
            reads: self.inputs.len(),
            launches,
            algorithm: None,
            precision: None,
            tuning: None,
        };
        Manifest {
            compiler: format!("ansc {}", env!("CARGO_PKG_VERSION")),
            model: Provenance { name: "candidate".into(), sha256: String::new() },
            target,
            weight_bytes: 0,
            accurate: false,
            precision: Default::default(),
            quantization: None,
            dims: Default::default(),
            preparation: None,
            kernels: vec![kernel],
            specialisations: vec![Specialisation {
                name: String::new(),
                sizes: vec![],
                inputs: self.inputs,
                outputs: self.outputs,
                states: vec![],
                arena_bytes: self.arena,
                arena_bytes_without_reuse: self.arena,
                buffers: self.buffers,
                plan: Plan { steps: vec![Step::Kernel { kernel: 0, args }] },
            }],
        }
    }
}
