//! The description of an artifact that it holds itself, and the plan by which the runtime executes
//! it.
//!
//! An artifact is one ELF shared library with these sections of ours besides the code:
//!
//! | section | holds |
//! | --- | --- |
//! | `.ansc.weights` | constants at offsets that are multiples of 64, the section page-aligned |
//! | `.ansc.manifest` | this module's [`Manifest`] as JSON |
//! | `.ansc.seal` | magic, format version, hash of the whole file with the hash field zeroed, see [`seal_hash`] |
//!
//! Kernels are exported functions of the type [`KernelFn`].
//!
//! # What a kernel may assume
//!
//! * Buffers in the arena and in the weights begin at multiples of 64 bytes. Inputs and outputs of
//!   the model are the caller's memory: they are aligned to the size of their element and no more.
//! * Weights, prepared ones too, and inputs are read-only pages or may be: writing there is a fault.
//! * Of a [`State`], elements beyond its extents are anything, as beside smaller inputs. But along
//!   the axis that runs add to, they are zeros if it is changed in place.
//! * Outputs do not overlap inputs or each other. Which buffers of the arena overlap is the
//!   compiler's business: the runtime writes only what the plan's steps say.
//! * The floating-point mode is the usual one, but denormal operands and results may be zeros.
//! * A buffer that only a host operator or a loop fills may hold less than its type says; then its
//!   actual elements are the first ones, densely packed in the actual shape.
//! * Where a run chooses sizes ([`Specialisation::sizes`]), inputs and outputs have room for the
//!   largest ones, and the elements of a smaller one keep their indices. What lies beside them are
//!   elements of the type, but else anything: zeros, or what an earlier run was given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::extent::Extent;
use crate::host::HostOp;
use crate::precision::{Precision, Precisions};
use crate::quantization::Quantization;
use crate::tensor::Tensor;

/// `kernel(buffers, scratch, begin, end)`: iterations `begin..end` of the launch's parallel loop.
///
/// `buffers[i]` is the address of the i-th argument of the step. `scratch` points to
/// [`Launch::scratch`] bytes that belong to the calling thread alone, aligned to 64.
pub type KernelFn =
    unsafe extern "C" fn(buffers: *const *mut u8, scratch: *mut u8, begin: i64, end: i64);

/// The ELF section of constants, which [`Storage::Weight`] points into.
pub const WEIGHTS_SECTION: &str = ".ansc.weights";
/// The ELF section of the [`Manifest`], as JSON.
pub const MANIFEST_SECTION: &str = ".ansc.manifest";
/// Offsets in the arena and in the weights, and the weights in the file, are multiples of it.
pub const WEIGHT_ALIGN: usize = 64;

pub use crate::seal::{
    FORMAT_VERSION, SEAL_HASH_AT, SEAL_LEN, SEAL_MAGIC, SEAL_SECTION, SealError, SealHasher, seal,
    seal_hash,
};

/// All that an artifact says about its code and data: what a session executes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the compiler that wrote the artifact.
    pub compiler: String,
    /// The model that was compiled.
    pub model: Provenance,
    /// The machine that the code is for; checked before loading.
    pub target: TargetInfo,
    /// Bytes of [`WEIGHTS_SECTION`]; all `Storage::Weight` offsets lie below it.
    pub weight_bytes: usize,
    /// Whether the compiler was told to keep to direct sums.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accurate: bool,
    /// The bits of operands of convolutions and matrix products.
    #[serde(default, skip_serializing_if = "Precisions::is_full")]
    pub precision: Precisions,
    /// The scalings of what is computed with integers of 8 bits, if calibration found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<Quantization>,
    /// Sizes that the compiler was given for symbolic dimensions, one for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dims: BTreeMap<String, usize>,
    /// How constants are made of the weights when the model is loaded, if any are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<Preparation>,
    /// One for each place where compiled code runs; `Step::Kernel` of all plans index them.
    pub kernels: Vec<KernelInfo>,
    /// At least one. All have the same inputs and outputs but for shapes. No two without sizes take
    /// the same shapes; those with sizes may overlap. A run is of the first one that takes its
    /// inputs, those without sizes before all others.
    pub specialisations: Vec<Specialisation>,
}

/// Kernels that run once, when the model is loaded. They write constants that are much larger than the weights that they
/// are made of: the file holds those only.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Preparation {
    /// Bytes that are made; all `Storage::Prepared` offsets lie below it.
    pub bytes: usize,
    /// As [`Manifest::kernels`], for the steps of `plan`.
    pub kernels: Vec<KernelInfo>,
    /// Without inputs and outputs: kernels from weights to what is prepared.
    pub plan: Specialisation,
}

/// The model for certain shapes of its inputs. Specialisations share weights and code, and a
/// session's memory: it executes one at a time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Specialisation {
    /// The name that tells it from the others, as in `batch=4`; empty if it is the only one.
    pub name: String,
    /// The sizes that a run may choose: the shapes of its inputs tell them. None if there is
    /// nothing to choose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<Size>,
    /// In the model's order.
    pub inputs: Vec<Port>,
    /// In the model's order.
    pub outputs: Vec<Port>,
    /// The tensors that a session keeps from one run to the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Bytes of the arena; all `Storage::Arena` offsets lie below it.
    pub arena_bytes: usize,
    /// The bytes that the arena would need if no two buffers shared memory.
    pub arena_bytes_without_reuse: usize,
    /// All memory that steps work on; a [`BufferId`] is a place in this list.
    pub buffers: Vec<BufferInfo>,
    /// The steps of a run.
    pub plan: Plan,
}

/// An input and an output of the model that are one tensor of the session: a run reads what the
/// run before left. Both have the same type and room. In other specialisations the room may be
/// another one along the first axis, if runs do not add to that.
///
/// Keys and values of earlier tokens: `past: [1, 8, past, 64]` and `present: [1, 8, past + 1, 64]`,
/// in a room of `[1, 8, 1024, 64]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// The end that a run reads, in a buffer of [`Storage::State`]. Where the shape is not that of
    /// the room, the extents tell it.
    pub input: Port,
    /// The end that it leaves: in the same buffer, which it changes then, or in one of
    /// [`Storage::NextState`].
    pub output: Port,
}

impl State {
    /// Whether runs add to an axis. Before the first run it has no elements.
    pub fn grows(&self, axis: usize) -> bool {
        let of = |port: &Port| port.extents.get(axis).cloned();
        of(&self.input) != of(&self.output)
    }

    /// Whether a run changes the tensor where it lies.
    pub fn in_place(&self) -> bool {
        self.input.buffer == self.output.buffer
    }
}

/// A size that a run may choose. All buffers have room for the largest sizes, whose extents their
/// shapes are; a run for smaller ones leaves the end of each axis as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Size {
    /// The name of the dimension in the model.
    pub name: String,
    /// The smallest size.
    pub low: usize,
    /// The largest size.
    pub high: usize,
}

/// Tells the model that an artifact was compiled from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// The file's name without its folder.
    pub name: String,
    /// The hash of the file in 64 hexadecimal digits, without external data.
    pub sha256: String,
}

/// The machine that code is for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TargetInfo {
    /// As LLVM writes it, such as `x86_64-unknown-linux-gnu`; for GPUs [`GPU_TRIPLE`].
    pub triple: String,
    /// A name that LLVM knows, such as `skylake`; for GPUs the generations, such as `sm_80,sm_90`.
    pub cpu: String,
    /// LLVM feature names that the code relies on (`avx2`, `fma`, ...); checked before loading.
    pub features: Vec<String>,
}

/// The triple of NVIDIA's GPUs.
pub const GPU_TRIPLE: &str = "nvptx64-nvidia-cuda";

/// The name of a generation of GPUs, of compute capability `sm / 10`, as LLVM has it.
pub fn gpu_cpu(sm: u32) -> String {
    format!("sm_{sm}")
}

impl TargetInfo {
    /// GPUs of these generations, by compute capability times ten.
    pub fn of_gpus(sms: &[u32]) -> TargetInfo {
        let names: Vec<String> = sms.iter().map(|&sm| gpu_cpu(sm)).collect();
        TargetInfo { triple: GPU_TRIPLE.into(), cpu: names.join(","), features: vec![] }
    }

    /// The generations of GPUs that the code is for, by compute capability times ten; none if it is
    /// for a CPU.
    pub fn gpus(&self) -> Option<Vec<u32>> {
        let sm = |name: &str| name.strip_prefix("sm_")?.parse().ok();
        (self.triple == GPU_TRIPLE).then(|| self.cpu.split(',').filter_map(sm).collect())
    }
}

/// An input or output of the model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Port {
    /// As in the model, where users name inputs and outputs by it.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// For an output whose size the data decides, the upper bound; where the sizes of a run decide,
    /// the extents for the largest ones.
    pub shape: Vec<usize>,
    /// For each axis, the extent that the sizes of a run give it; nothing if no axis varies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<Extent>,
    /// Whether kernels read an input whose extents vary where the caller has it. Else the elements
    /// of a smaller one are copied to where they are in the largest one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dense: bool,
    /// For an input, the caller's memory (`Storage::Input`), or the weight it is bound to. An
    /// output may be any buffer: what is not the caller's memory (`Storage::Output`) is copied
    /// there at the end.
    pub buffer: BufferId,
    /// An input whose value was fixed when compiling: the weight buffer that holds it. A session
    /// refuses any other value, and takes this one if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<BufferId>,
}

/// A place in [`Specialisation::buffers`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BufferId(pub u32);

/// A dense row-major tensor in memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BufferInfo {
    /// Its name for errors and reports.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its extents; where the data decides them, the largest possible ones.
    pub shape: Vec<usize>,
    /// Whose memory it lies in.
    pub storage: Storage,
}

/// Whose memory a buffer lies in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// The caller's memory for the i-th model input.
    Input(u32),
    /// The caller's memory for the i-th model output.
    Output(u32),
    /// An `i64` scalar that holds the i-th size of a run.
    Size(u32),
    /// The session's i-th state, as the run before left it.
    State(u32),
    /// The session's i-th state, as this run leaves it.
    NextState(u32),
    /// The session's own memory, in which buffers that are not needed at once share places.
    Arena {
        /// Bytes from the beginning of the arena.
        offset: usize,
    },
    /// Constants of the artifact, which nobody writes.
    Weight {
        /// Bytes from the beginning of [`WEIGHTS_SECTION`].
        offset: usize,
    },
    /// Constants that the [`Preparation`] made; only it writes there.
    Prepared {
        /// Bytes from the beginning of the memory that was prepared.
        offset: usize,
    },
}

/// Steps run one after another; parallelism is inside a launch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// In the order of execution.
    pub steps: Vec<Step>,
}

/// One piece of a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// All launches of a kernel, in order.
    Kernel {
        /// A place in [`Manifest::kernels`].
        kernel: u32,
        /// Buffers that the kernel reads, then those that it writes.
        args: Vec<BufferId>,
    },
    /// An operator that the runtime computes itself.
    Host {
        /// The model's node, for errors and profiles.
        name: String,
        /// The operator with its attributes.
        call: HostOp,
        /// In ONNX's order.
        inputs: Vec<BufferId>,
        /// Where the results go, in ONNX's order.
        outputs: Vec<BufferId>,
    },
    /// Copies all elements of a buffer to another of the same type and shape.
    Copy {
        /// The buffer that is read.
        from: BufferId,
        /// The buffer that is written.
        to: BufferId,
    },
    /// Runs one of two plans.
    If {
        /// The model's node, for errors and profiles.
        name: String,
        /// A `bool` scalar.
        condition: BufferId,
        /// Runs if the condition holds.
        then_plan: Plan,
        /// Runs if it does not.
        else_plan: Plan,
    },
    /// Runs a plan several times.
    Loop(Box<LoopStep>),
}

/// A counted or conditional loop. Before the first iteration `initial[i]` is copied into
/// `carried_in[i]`; after each one `carried_out[i]` is copied into `carried_in[i]`; at the end
/// `carried_in[i]` holds the results and is copied into `results[i]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LoopStep {
    /// The model's node, for errors and profiles.
    pub name: String,
    /// Iterations at most; also the length of every scan output.
    pub max_trip: u64,
    /// An `i64` scalar that lowers the trip count at run time.
    pub trip: Option<BufferId>,
    /// A `bool` scalar that lets the first iteration happen.
    pub condition: Option<BufferId>,
    /// Written before each iteration with its number (`i64` scalar), if the body wants it.
    pub iteration: Option<BufferId>,
    /// The `bool` scalar that the body reads as its condition, if it wants it.
    pub condition_in: Option<BufferId>,
    /// The `bool` scalar that the body leaves to say whether to go on.
    pub condition_out: Option<BufferId>,
    /// Values that the loop begins with.
    pub initial: Vec<BufferId>,
    /// Values that the body reads.
    pub carried_in: Vec<BufferId>,
    /// Values that the body leaves for the next iteration.
    pub carried_out: Vec<BufferId>,
    /// Where the values of the last iteration go.
    pub results: Vec<BufferId>,
    /// Before each iteration the iteration's slice of `whole` is copied into `slice`.
    pub scan_inputs: Vec<ScanStep>,
    /// After each iteration `slice` is copied into its place in `whole`.
    pub scan_outputs: Vec<ScanStep>,
    /// The steps of one iteration.
    pub body: Plan,
}

/// A tensor of which each iteration of a loop reads or writes one slice.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScanStep {
    /// The tensor outside of the loop.
    pub whole: BufferId,
    /// The slice inside of it, without the axis.
    pub slice: BufferId,
    /// The axis of `whole` that iterations count along.
    pub axis: usize,
    /// Slices are taken from the last to the first.
    pub reverse: bool,
}

/// A kernel as a run sees it: a function of the compiled code, and what is known about it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KernelInfo {
    /// How profiles and reports call it; the names of functions are in `launches`.
    pub name: String,
    /// Names of the model's nodes that were fused into it.
    pub nodes: Vec<String>,
    /// Operations of the nodes, as the model has them.
    pub flops: u64,
    /// Operations of its program, which are others where an algorithm such as Winograd's computes
    /// the same; four products of bytes at a time count as one. Older compilers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<u64>,
    /// Bytes that a run must move at least: inputs, constants and outputs, each counted once.
    pub bytes: u64,
    /// Bytes of each argument that every step passes: what it reads, what it writes, its workspace.
    pub args: Vec<usize>,
    /// How many of its arguments, the first ones, it only reads. It writes all others.
    pub reads: usize,
    /// In the order of execution.
    pub launches: Vec<Launch>,
    /// How a convolution or another sum of products is computed: `direct`, or the name of an
    /// algorithm as traces have it, such as `im2col` or `winograd_4`. Older compilers wrote words
    /// for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// The type of operands that it reads in fewer bits than `f32`, if it does. Sums have 32 bits
    /// all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Where a search found its schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
}

/// How a kernel came to its schedule. The runtime does nothing with it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tuning {
    /// The instructions of the schedule, as records of measurements hold them.
    pub trace: serde_json::Value,
    /// The same in words.
    pub steps: Vec<String>,
    /// The rules that derived its sketch.
    pub rules: Vec<String>,
    /// Seconds of one run of this schedule when it was measured.
    pub seconds: f64,
    /// Seconds of one run of the schedule that nobody tuned, in the same measurement, if it was
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untuned_seconds: Option<f64>,
    /// The machine that measured, as records name it, and its threads. Older compilers do not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub measured_on: String,
    /// Threads that the measurement used; 0 in artifacts of older compilers.
    #[serde(default)]
    pub threads: usize,
    /// Whether it comes with the compiler, and not from records of the user.
    #[serde(default)]
    pub shipped: bool,
}

/// One parallel loop (or one serial piece) of a kernel; launches of a kernel are separated by barriers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// The name of its function ([`KernelFn`]) in the compiled code.
    pub symbol: String,
    /// Extent of the parallel loop; 1 for a serial piece.
    pub extent: u64,
    /// Bytes of scratch memory per thread.
    pub scratch: usize,
    /// If a run may need fewer iterations, how many: the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed: Option<Needed>,
}

/// How many iterations of a loop a run needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Needed {
    /// The arguments of the kernel that hold sizes, each as an `i64`.
    pub sizes: Vec<usize>,
    /// The number, as a function of these.
    pub extent: Extent,
}

impl Plan {
    /// Calls `visit` for every step, those of nested plans after the step that they belong to.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Step)) {
        for step in &self.steps {
            visit(step);
            match step {
                Step::If { then_plan, else_plan, .. } => {
                    then_plan.visit(visit);
                    else_plan.visit(visit);
                }
                Step::Loop(l) => l.body.visit(visit),
                Step::Kernel { .. } | Step::Host { .. } | Step::Copy { .. } => {}
            }
        }
    }
}

impl Manifest {
    /// The kernels that a specialisation's plan names, in its order.
    pub fn kernels_of<'a>(&'a self, specialisation: &Specialisation) -> Vec<&'a KernelInfo> {
        let mut kernels = Vec::new();
        specialisation.plan.visit(&mut |step| {
            if let Step::Kernel { kernel, .. } = step {
                kernels.extend(self.kernels.get(*kernel as usize));
            }
        });
        kernels
    }
}

/// The shapes of a run, in the model's order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shapes {
    /// The shapes of inputs.
    pub inputs: Vec<Vec<usize>>,
    /// The shapes of outputs; where the data decides them, the largest possible ones.
    pub outputs: Vec<Vec<usize>>,
}

impl Specialisation {
    /// The shapes of inputs and outputs for these sizes, one for each of [`Specialisation::sizes`];
    /// `None` if they are not as many, one is out of its range, or they lead to no shape.
    ///
    /// `x [batch, 3]` and `y [2 * batch]` with `batch` of 1 to 8 are `[5, 3]` and `[10]` at 5.
    pub fn shapes_at(&self, sizes: &[usize]) -> Option<Shapes> {
        let in_range = |(size, at): (&Size, &usize)| (size.low..=size.high).contains(at);
        if sizes.len() != self.sizes.len() || !self.sizes.iter().zip(sizes).all(in_range) {
            return None;
        }
        let sizes: Vec<i64> = sizes.iter().map(|&at| at.try_into().ok()).collect::<Option<_>>()?;
        let shapes = |ports: &[Port]| -> Option<Vec<Vec<usize>>> {
            ports.iter().map(|port| port.shape_at(&sizes)).collect()
        };
        Some(Shapes { inputs: shapes(&self.inputs)?, outputs: shapes(&self.outputs)? })
    }

    /// All that varies with sizes: inputs and outputs, and what states are before and after a run.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &Port> {
        let states = self.states.iter().flat_map(|state| [&state.input, &state.output]);
        self.inputs.iter().chain(&self.outputs).chain(states)
    }

    /// The smallest or the largest sizes; `None` if one does not fit `i64`.
    pub(crate) fn limits(&self, of: fn(&Size) -> usize) -> Option<Vec<i64>> {
        self.sizes.iter().map(|size| of(size).try_into().ok()).collect()
    }
}

impl Port {
    /// The shape that the sizes of a run give it; `None` if they give none, or a larger one than
    /// there is room for.
    pub fn shape_at(&self, sizes: &[i64]) -> Option<Vec<usize>> {
        if self.extents.is_empty() {
            return Some(self.shape.clone());
        }
        let axis = |(extent, most): (&Extent, &usize)| {
            let extent = usize::try_from(extent.at(sizes)?).ok()?;
            (extent <= *most).then_some(extent)
        };
        self.extents.iter().zip(&self.shape).map(axis).collect()
    }

    /// Whether the sizes of a run give it a shape that there is room for.
    pub(crate) fn has_room(&self, sizes: &[i64]) -> bool {
        let fits = |(extent, most): (&Extent, &usize)| {
            let extent = extent.at(sizes).and_then(|extent| usize::try_from(extent).ok());
            extent.is_some_and(|extent| extent <= *most)
        };
        self.extents.iter().zip(&self.shape).all(fits)
    }

    /// Whether the tensor has this type and shape.
    pub fn accepts(&self, tensor: &Tensor) -> bool {
        self.dtype == tensor.dtype() && self.shape == tensor.shape()
    }
}
