//! Kernels to machine code, for a CPU or for GPUs, and from there to an artifact.
//!
//! For a CPU, kernels are objects that are linked into the artifact's library. For GPUs they are
//! PTX, a text for each generation, that the driver translates on the machine at hand; the library
//! then holds none.

use std::path::Path;
use std::time::Duration;

use ansc_codegen::ptx::{Ptx, compile_ptx_all, join};
use ansc_codegen::{Batch, CodegenError, Kernel, Target, artifact, bundle, compile_all};
use ansc_graph::TensorType;
use ansc_runtime::gpu::{GpuCode, GpuText};
use ansc_runtime::manifest::{Manifest, TargetInfo};
use ansc_sketch::gpu::GpuProgram;

use crate::Error;
use crate::assemble::{self, Assembly};
use crate::choice::{Aim, Form};

pub(crate) struct Code {
    /// For a GPU without objects and launches, but with workspaces.
    pub(crate) batch: Batch,
    pub(crate) target: TargetInfo,
    gpu: Option<GpuCode>,
}

impl Code {
    pub(crate) fn generate(assembly: &Assembly, aim: &Aim, target: &Target) -> Result<Code, Error> {
        let forms = assembly.kernels.kernels.iter().map(|kernel| &kernel.form);
        if let Aim::Gpu(gpus) = aim {
            let programs = forms.filter_map(Form::gpu).collect::<Vec<_>>();
            return gpu(&programs, assembly, gpus.sms());
        }
        let programs = forms.filter_map(Form::cpu).collect::<Vec<_>>();
        let batch = compile_all(&programs, target)?;
        Ok(Code { batch, target: target.info(), gpu: None })
    }

    /// Bytes of the arguments of the `index`-th kernel: what it reads and writes, then its
    /// workspace.
    pub(crate) fn arguments(&self, kernel: &assemble::Kernel, index: usize) -> Vec<usize> {
        let workspace = &self.batch.kernels[index].workspace;
        kernel.operands().iter().chain(workspace).map(TensorType::bytes).collect()
    }

    pub(crate) fn write(
        &self,
        path: &Path,
        assembly: &Assembly,
        target: &Target,
        manifest: &Manifest,
    ) -> Result<(), CodegenError> {
        let weights = weights(assembly);
        if let Some(code) = &self.gpu {
            return artifact::write_gpu(path, target, code, &weights, manifest);
        }
        let objects: Vec<&[u8]> = self.batch.objects.iter().map(Vec::as_slice).collect();
        artifact::write(path, target, &objects, &weights, manifest)
    }

    /// For a CPU only.
    pub(crate) fn write_bundle(
        &self,
        files: &bundle::Files,
        assembly: &Assembly,
        target: &Target,
        manifest: &Manifest,
    ) -> Result<(), CodegenError> {
        let objects: Vec<&[u8]> = self.batch.objects.iter().map(Vec::as_slice).collect();
        bundle::write(files, target, &objects, &weights(assembly), manifest)
    }
}

fn weights(assembly: &Assembly) -> Vec<artifact::Weight<'_>> {
    assembly.weights.parts.iter().map(|(at, t)| (*at, t.bytes())).collect()
}

fn gpu(programs: &[&GpuProgram], assembly: &Assembly, sms: &[u32]) -> Result<Code, Error> {
    let mut texts = vec![];
    let mut last: Vec<Ptx> = vec![];
    let mut spent = vec![Duration::ZERO; programs.len()];
    for &sm in sms {
        last = compile_ptx_all(programs, &Target::cuda(sm)?)?;
        spent.iter_mut().zip(&last).for_each(|(sum, ptx)| *sum += ptx.spent);
        let all: Vec<&str> = last.iter().map(|p| p.text.as_str()).collect();
        texts.push(GpuText { sm, ptx: join(&all) });
    }
    // Launches and workspaces are the same on every generation.
    let kernels = last.iter().zip(spent).map(|(ptx, spent)| Kernel {
        launches: vec![],
        workspace: ptx.workspace.clone(),
        object: 0,
        spent,
    });
    let batch = Batch { objects: vec![], kernels: kernels.collect() };
    let launches = assembly.uses.iter().map(|u| last[u.kernel].launches.clone()).collect();
    let target = TargetInfo::of_gpus(sms);
    Ok(Code { batch, target, gpu: Some(GpuCode { texts, kernels: launches }) })
}
