//! Builds small artifacts without the compiler: kernels in C, a manifest made by hand.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ansc_runtime::manifest::{
    BufferId, BufferInfo, KernelInfo, Launch, Manifest, Port, Provenance, Size, Specialisation,
    State, Step, Storage, TargetInfo, seal,
};
use ansc_runtime::{DType, Extent, Model, Tensor};

/// A model under construction. Buffers and kernels are numbered as they are added.
pub(crate) struct Builder {
    pub(crate) manifest: Manifest,
    pub(crate) code: String,
    pub(crate) weights: Vec<u8>,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        let manifest = Manifest {
            compiler: "test".to_owned(),
            model: Provenance { name: "test".to_owned(), sha256: String::new() },
            target: TargetInfo {
                triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
                cpu: "generic".to_owned(),
                features: Vec::new(),
            },
            weight_bytes: 0,
            accurate: false,
            precision: Default::default(),
            quantization: None,
            dims: Default::default(),
            preparation: None,
            kernels: Vec::new(),
            specialisations: vec![Specialisation::default()],
        };
        Builder { manifest, code: "#include <stdint.h>\n".to_owned(), weights: Vec::new() }
    }

    /// The specialisation that is being built: the last one.
    pub(crate) fn plan(&mut self) -> &mut Specialisation {
        self.manifest.specialisations.last_mut().unwrap()
    }

    pub(crate) fn buffer(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
        at: Storage,
    ) -> BufferId {
        let id = BufferId(self.plan().buffers.len() as u32);
        let (name, shape) = (name.to_owned(), shape.to_vec());
        self.plan().buffers.push(BufferInfo { name, dtype, shape, storage: at });
        id
    }

    pub(crate) fn arena(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        let offset = self.plan().arena_bytes;
        let bytes = shape.iter().product::<usize>() * dtype.size();
        self.plan().arena_bytes += bytes.next_multiple_of(64);
        self.buffer(name, dtype, shape, Storage::Arena { offset })
    }

    pub(crate) fn weight(&mut self, name: &str, tensor: &Tensor) -> BufferId {
        let offset = self.weights.len();
        self.weights.extend(tensor.bytes());
        self.weights.resize(self.weights.len().next_multiple_of(64), 0);
        self.manifest.weight_bytes = self.weights.len();
        self.buffer(name, tensor.dtype(), tensor.shape(), Storage::Weight { offset })
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        let port = self.plan().inputs.len() as u32;
        let buffer = self.buffer(name, dtype, shape, Storage::Input(port));
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let extents = vec![];
        self.plan().inputs.push(Port {
            name,
            dtype,
            shape,
            extents,
            dense: false,
            buffer,
            bound: None,
        });
        buffer
    }

    pub(crate) fn output(&mut self, name: &str, dtype: DType, shape: &[usize]) -> BufferId {
        let port = self.plan().outputs.len() as u32;
        let buffer = self.buffer(name, dtype, shape, Storage::Output(port));
        self.expose(name, buffer);
        buffer
    }

    /// Makes any buffer an output.
    pub(crate) fn expose(&mut self, name: &str, buffer: BufferId) {
        let BufferInfo { dtype, shape, .. } = self.plan().buffers[buffer.0 as usize].clone();
        let (name, extents) = (name.to_owned(), vec![]);
        self.plan().outputs.push(Port {
            name,
            dtype,
            shape,
            extents,
            dense: false,
            buffer,
            bound: None,
        });
    }

    /// A size that a run may choose, and the buffer that tells kernels what it is.
    pub(crate) fn size(&mut self, name: &str, low: usize, high: usize) -> BufferId {
        let index = self.plan().sizes.len() as u32;
        self.plan().sizes.push(Size { name: name.to_owned(), low, high });
        self.buffer(name, DType::I64, &[], Storage::Size(index))
    }

    /// A state that runs change in place, by the names of its input and output: its room, and its
    /// extents before and after a run.
    pub(crate) fn state(
        &mut self,
        names: [&str; 2],
        dtype: DType,
        room: &[usize],
        extents: [&[Extent]; 2],
    ) -> BufferId {
        let number = self.plan().states.len() as u32;
        let buffer = self.buffer(names[0], dtype, room, Storage::State(number));
        let [input, output] = [0, 1].map(|i| Port {
            name: names[i].to_owned(),
            dtype,
            shape: room.to_vec(),
            extents: extents[i].to_vec(),
            dense: false,
            buffer,
            bound: None,
        });
        self.plan().states.push(State { input, output });
        buffer
    }

    /// Gives an input or output extents that follow from sizes.
    pub(crate) fn vary(&mut self, name: &str, extents: &[Extent]) {
        let Specialisation { inputs, outputs, .. } = self.plan();
        let port = inputs.iter_mut().chain(outputs).find(|port| port.name == name);
        port.unwrap().extents = extents.to_vec();
    }

    /// A kernel of one launch: `body` sees `b` (buffers), `s` (scratch) and `i`.
    /// All arguments are written but what cannot be, and what comes before it.
    pub(crate) fn kernel(
        &mut self,
        name: &str,
        extent: u64,
        (scratch, args): (usize, &[BufferId]),
        body: &str,
    ) -> u32 {
        self.code += &format!(
            "void {name}(char **b, char *s, int64_t begin, int64_t end) {{ \
             for (int64_t i = begin; i < end; ++i) {{ {body} }} }}\n"
        );
        let launches = vec![Launch { symbol: name.to_owned(), extent, scratch, needed: None }];
        let kernel = KernelInfo {
            name: name.to_owned(),
            nodes: vec![],
            flops: 0,
            work: None,
            bytes: 0,
            args: args.iter().map(|id| bytes(self.info(*id))).collect(),
            reads: args.iter().rposition(|id| !writable(self.info(*id))).map_or(0, |i| i + 1),
            launches,
            algorithm: None,
            precision: None,
            tuning: None,
        };
        self.manifest.kernels.push(kernel);
        self.manifest.kernels.len() as u32 - 1
    }

    fn info(&self, id: BufferId) -> &BufferInfo {
        &self.manifest.specialisations.last().unwrap().buffers[id.0 as usize]
    }

    /// Adds a kernel and a step of the main plan that runs it.
    pub(crate) fn step(&mut self, name: &str, extent: u64, args: &[BufferId], body: &str) {
        let step = self.kernel_step(name, extent, args, body);
        self.plan().plan.steps.push(step);
    }

    pub(crate) fn kernel_step(
        &mut self,
        name: &str,
        extent: u64,
        args: &[BufferId],
        body: &str,
    ) -> Step {
        let kernel = self.kernel(name, extent, (0, args), body);
        Step::Kernel { kernel, args: args.to_vec() }
    }

    /// Compiles and seals it; the path of the artifact.
    pub(crate) fn build(&self, dir: &Path) -> PathBuf {
        let at = |name: &str| dir.join(name);
        std::fs::write(at("manifest.json"), serde_json::to_vec(&self.manifest).unwrap()).unwrap();
        std::fs::write(at("weights.bin"), &self.weights).unwrap();
        std::fs::write(at("kernels.c"), format!("{}{SECTIONS}", self.code)).unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-nostdlib", "-w", "-o", "unsealed.so", "kernels.c"])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut bytes = std::fs::read(at("unsealed.so")).unwrap();
        seal(&mut bytes).unwrap();
        std::fs::write(at("model.ansc"), bytes).unwrap();
        at("model.ansc")
    }

    /// Builds and loads it.
    pub(crate) fn load(&self) -> Model {
        let dir = tempfile::tempdir().unwrap();
        Model::load(self.build(dir.path())).unwrap()
    }
}

fn bytes(buffer: &BufferInfo) -> usize {
    buffer.shape.iter().product::<usize>() * buffer.dtype.size()
}

fn writable(buffer: &BufferInfo) -> bool {
    matches!(
        buffer.storage,
        Storage::Arena { .. } | Storage::Output(_) | Storage::State(_) | Storage::NextState(_)
    )
}

const SECTIONS: &str = r#"
__asm__(".section .ansc.manifest,\"\",@progbits\n.incbin \"manifest.json\"\n"
        ".section .ansc.weights,\"a\",@progbits\n.balign 4096\n.incbin \"weights.bin\"\n"
        ".section .ansc.seal,\"\",@progbits\n.zero 32\n.text\n");
"#;

/// `scaled = x * w` (8 floats, in parallel), `y = scaled + x`; `sum` of `y` by a serial kernel.
pub(crate) fn sample() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[2, 4]);
    let w = b.weight("w", &Tensor::from_slice(&[2, 4], &WEIGHTS));
    let scaled = b.arena("scaled", DType::F32, &[2, 4]);
    let y = b.output("y", DType::F32, &[2, 4]);
    let sum = b.output("sum", DType::F32, &[]);
    b.step(
        "scale",
        8,
        &[x, w, scaled],
        "((float**)b)[2][i] = ((float**)b)[0][i] * ((float**)b)[1][i];",
    );
    b.step(
        "add",
        8,
        &[scaled, x, y],
        "((float**)b)[2][i] = ((float**)b)[0][i] + ((float**)b)[1][i];",
    );
    b.step(
        "total",
        1,
        &[y, sum],
        "float t = 0; for (int k = 0; k < 8; ++k) t += ((float**)b)[0][k]; ((float**)b)[1][0] = t;",
    );
    b
}

pub(crate) const WEIGHTS: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

/// The results `y` and `sum` of [`sample`].
pub(crate) fn sample_result(x: &[f32]) -> (Vec<f32>, f32) {
    let y: Vec<f32> = x.iter().zip(WEIGHTS).map(|(x, w)| x * w + x).collect();
    let sum = y.iter().sum();
    (y, sum)
}
