//! Compiles a program, loads it, and runs it on tensors.

use ansc_codegen::{Emitted, Target, compile_program};
use ansc_runtime::Tensor;
use ansc_runtime::manifest::KernelFn;
use ansc_sketch::{Program, Scope};

/// A loaded kernel.
pub(crate) struct Kernel {
    library: libloading::Library,
    emitted: Emitted,
    program: Program,
    _dir: tempfile::TempDir,
}

impl Kernel {
    pub(crate) fn new(program: &Program) -> Kernel {
        Kernel::for_target(program, &Target::native().unwrap())
    }

    pub(crate) fn for_target(program: &Program, target: &Target) -> Kernel {
        let emitted = compile_program(program, "k", target).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (object, library) = (dir.path().join("k.o"), dir.path().join("k.so"));
        std::fs::write(&object, &emitted.object).unwrap();
        let linked = std::process::Command::new("ld")
            .args(["-shared", "-o"])
            .args([&library, &object])
            .output()
            .unwrap();
        assert!(linked.status.success(), "{}", String::from_utf8_lossy(&linked.stderr));
        // SAFETY: the library was just made and has no initialisers.
        let library = unsafe { libloading::Library::new(&library) }.unwrap();
        Kernel { library, emitted, program: program.clone(), _dir: dir }
    }

    /// Outputs for these inputs; each parallel loop is run in `pieces` pieces.
    pub(crate) fn run_in(&self, inputs: &[&Tensor], pieces: u64) -> Vec<Tensor> {
        self.run_at(inputs, pieces, 0)
    }

    /// The same, with outputs that begin so many elements behind a multiple of 64 bytes.
    pub(crate) fn run_at(&self, inputs: &[&Tensor], pieces: u64, shift: usize) -> Vec<Tensor> {
        let program = &self.program;
        let is_input = |b: &ansc_graph::BufId| program.buffer(*b).scope == Scope::Input;
        let mut memory: Vec<Tensor> = Vec::new();
        let mut given = inputs.iter();
        for id in &program.params {
            let ty = &program.buffer(*id).ty;
            if is_input(id) {
                let tensor = given.next().expect("an input for each parameter");
                assert_eq!((tensor.dtype(), tensor.shape()), (ty.dtype, ty.shape.as_slice()));
                memory.push((*tensor).clone());
            } else {
                let mut tensor = Tensor::zeros(ty.dtype, &[ty.len() + shift]);
                if ty.dtype != ansc_runtime::DType::Bool {
                    tensor.bytes_mut().fill(0xA5);
                }
                memory.push(tensor);
            }
        }
        let places = program.params.iter().map(|id| match is_input(id) {
            true => 0,
            false => shift * program.buffer(*id).ty.dtype.size(),
        });
        let places: Vec<usize> = places.collect();
        memory.extend(self.emitted.workspace.iter().map(|ty| Tensor::zeros(ty.dtype, &ty.shape)));
        let places = places.into_iter().chain(std::iter::repeat(0));
        let pointers: Vec<*mut u8> = memory
            .iter_mut()
            .zip(places)
            .map(|(tensor, place)| tensor.bytes_mut()[place..].as_mut_ptr())
            .collect();
        for launch in &self.emitted.launches {
            let mut scratch = Tensor::zeros(ansc_runtime::DType::U8, &[launch.scratch]);
            // SAFETY: the symbol was emitted with this type.
            let kernel = unsafe { self.library.get::<KernelFn>(launch.symbol.as_bytes()) }.unwrap();
            let step = launch.extent.div_ceil(pieces);
            for begin in (0..launch.extent).step_by(step as usize) {
                let end = (begin + step).min(launch.extent);
                // SAFETY: arguments as the program declares them; every access is in bounds.
                unsafe {
                    kernel(
                        pointers.as_ptr(),
                        scratch.bytes_mut().as_mut_ptr(),
                        begin as i64,
                        end as i64,
                    );
                }
            }
        }
        let outputs = program.params.iter().zip(memory).filter(|(id, _)| !is_input(id));
        let shaped = |(id, memory): (&ansc_graph::BufId, Tensor)| {
            let ty = &program.buffer(*id).ty;
            let mut tensor = Tensor::zeros(ty.dtype, &ty.shape);
            let bytes = tensor.bytes_mut();
            bytes.copy_from_slice(&memory.bytes()[shift * ty.dtype.size()..]);
            tensor
        };
        outputs.map(shaped).collect()
    }

    pub(crate) fn run(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        self.run_in(inputs, 1)
    }
}

/// Whether the machine at hand has all that the target may use.
pub(crate) fn runs_here(target: &Target) -> bool {
    let native = Target::native().unwrap();
    target.arch == native.arch && target.features.iter().all(|f| native.has(f))
}
