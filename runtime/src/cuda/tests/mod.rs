//! Sessions on a driver without a GPU: memory, order of launches, arguments, errors.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use super::code::Code;
use super::plan::{self, Work};
use super::runs::{Io, Notes, Runs};
use crate::driver::{Address, Driver};
use crate::dtype::DType;
use crate::gpu::{GpuCode, GpuLaunch, GpuText};
use crate::host::Chance;
use crate::host::HostOp;
use crate::manifest::{
    BufferId, BufferInfo, KernelInfo, LoopStep, Manifest, Plan, Port, Provenance, ScanStep, Size,
    Specialisation, Step, Storage, TargetInfo,
};
use crate::program::{Program, Writes};
use crate::run_error::RunError;
use crate::validate::bytes_of;
use fake::{Body, Fake};

/// A manifest with the launches of its kernels, in the making.
struct Model {
    manifest: Manifest,
    one: Specialisation,
    code: GpuCode,
    weights: Vec<u8>,
}

impl Model {
    fn new() -> Model {
        let text = |sm: u32| GpuText { sm, ptx: format!("text for {sm}") };
        let manifest = Manifest {
            compiler: "test".into(),
            model: Provenance { name: "test".into(), sha256: String::new() },
            target: TargetInfo::of_gpus(&[80]),
            weight_bytes: 0,
            accurate: false,
            precision: Default::default(),
            quantization: None,
            dims: Default::default(),
            preparation: None,
            kernels: vec![],
            specialisations: vec![],
        };
        let one = Specialisation {
            name: String::new(),
            sizes: vec![],
            inputs: vec![],
            outputs: vec![],
            states: vec![],
            arena_bytes: 0,
            arena_bytes_without_reuse: 0,
            buffers: vec![],
            plan: Plan::default(),
        };
        let code = GpuCode { texts: vec![text(70), text(80), text(90)], kernels: vec![] };
        Model { manifest, one, code, weights: vec![] }
    }

    fn buffer(&mut self, dtype: DType, shape: &[usize], storage: Storage) -> BufferId {
        let name = format!("b{}", self.one.buffers.len());
        self.one.buffers.push(BufferInfo { name, dtype, shape: shape.to_vec(), storage });
        BufferId(self.one.buffers.len() as u32 - 1)
    }

    fn port(&self, dtype: DType, shape: &[usize], buffer: BufferId) -> Port {
        let (name, shape) = (format!("p{}", buffer.0), shape.to_vec());
        Port { name, dtype, shape, extents: vec![], dense: false, buffer, bound: None }
    }

    fn input(&mut self, dtype: DType, shape: &[usize]) -> BufferId {
        let number = self.one.inputs.len() as u32;
        let buffer = self.buffer(dtype, shape, Storage::Input(number));
        let port = self.port(dtype, shape, buffer);
        self.one.inputs.push(port);
        buffer
    }

    fn output(&mut self, dtype: DType, shape: &[usize]) -> BufferId {
        let number = self.one.outputs.len() as u32;
        let buffer = self.buffer(dtype, shape, Storage::Output(number));
        let port = self.port(dtype, shape, buffer);
        self.one.outputs.push(port);
        buffer
    }

    fn arena(&mut self, dtype: DType, shape: &[usize]) -> BufferId {
        let offset = self.one.arena_bytes;
        let bytes = shape.iter().product::<usize>() * dtype.size();
        self.one.arena_bytes = (offset + bytes).next_multiple_of(64);
        self.buffer(dtype, shape, Storage::Arena { offset })
    }

    fn weight(&mut self, values: &[f32]) -> BufferId {
        let offset = self.weights.len().next_multiple_of(64);
        self.weights.resize(offset, 0);
        self.weights.extend(values.iter().flat_map(|v| v.to_ne_bytes()));
        self.manifest.weight_bytes = self.weights.len();
        self.buffer(DType::F32, &[values.len()], Storage::Weight { offset })
    }

    /// A step that launches `symbols` in their order.
    fn kernel(&mut self, symbols: &[&str], args: &[BufferId]) -> Step {
        let launch = |symbol: &&str| GpuLaunch {
            symbol: (*symbol).to_owned(),
            grid: [2, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
        };
        self.code.kernels.push(symbols.iter().map(launch).collect());
        let storage = |id: &BufferId| self.one.buffers[id.0 as usize].storage;
        let written =
            |id: &BufferId| matches!(storage(id), Storage::Arena { .. } | Storage::Output(_));
        let bytes = |id: &BufferId| bytes_of(&self.one.buffers[id.0 as usize]);
        let info = KernelInfo {
            name: symbols.concat(),
            nodes: vec![],
            flops: 0,
            work: None,
            bytes: 0,
            args: args.iter().map(bytes).collect(),
            reads: args.iter().rposition(|id| !written(id)).map_or(0, |last| last + 1),
            launches: vec![],
            algorithm: None,
            precision: None,
            tuning: None,
        };
        self.manifest.kernels.push(info);
        Step::Kernel { kernel: self.manifest.kernels.len() as u32 - 1, args: args.to_vec() }
    }

    fn program(&self) -> Program {
        let mut manifest = self.manifest.clone();
        manifest.specialisations = vec![self.one.clone()];
        crate::validate::check(&manifest, self.weights.len()).unwrap();
        Program::new(&self.one, &self.manifest.kernels, Writes::Outputs).unwrap()
    }

    fn load(&self, fake: &Arc<Fake>) -> Result<Loaded, crate::TargetError> {
        let program = self.program();
        let driver: Arc<dyn Driver> = fake.clone();
        let code = Code::new(&driver, &[(&self.one, &program)], &self.code, &self.weights)?;
        Ok(Loaded { one: self.one.clone(), program, code: Arc::new(code) })
    }
}

struct Loaded {
    one: Specialisation,
    program: Program,
    code: Arc<Code>,
}

impl Loaded {
    fn session(&self) -> Runs {
        Runs::new(&self.code, 0, &self.one, &self.program).unwrap()
    }

    /// Every output as `f32`, cut to its actual number of elements.
    fn run(&self, runs: &mut Runs, inputs: &[&[f32]]) -> Result<Vec<Vec<f32>>, RunError> {
        let bytes: Vec<Vec<u8>> = inputs
            .iter()
            .map(|values| values.iter().flat_map(|v| v.to_ne_bytes()).collect())
            .collect();
        let inputs: Vec<Option<&[u8]>> = bytes.iter().map(|b| Some(&b[..])).collect();
        let ports = &self.one.outputs;
        let sizes = ports.iter().map(|p| p.shape.iter().product::<usize>() * p.dtype.size());
        let mut outputs: Vec<Vec<u8>> = sizes.map(|n| vec![0; n]).collect();
        let mut actual = vec![None; self.one.buffers.len()];
        let io =
            Io { inputs: &inputs, outputs: outputs.iter_mut().map(|o| Some(&mut o[..])).collect() };
        let notes = Notes { actual: &mut actual, times: None, chance: Chance::default() };
        runs.run((&self.one, &self.program), io, notes)?;
        let floats = |bytes: &Vec<u8>| {
            bytes.chunks(4).map(|c| f32::from_ne_bytes(c.try_into().unwrap())).collect()
        };
        Ok(outputs.iter().map(floats).collect())
    }
}

fn floats<'a>(address: Address, count: usize) -> &'a mut [f32] {
    // SAFETY: the plans of these tests give kernels buffers of at least as many elements.
    unsafe { std::slice::from_raw_parts_mut(address as *mut f32, count) }
}

/// `args[1] = 2 * args[0]`
fn double(args: &[Address]) {
    let (x, y) = (floats(args[0], 4), floats(args[1], 4));
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * *x);
}

/// `args[2] = args[0] + args[1]`
fn add(args: &[Address]) {
    let (a, b, y) = (floats(args[0], 4), floats(args[1], 4), floats(args[2], 4));
    (0..4).for_each(|i| y[i] = a[i] + b[i]);
}

/// `args[0] += args[0]`
fn again(args: &[Address]) {
    floats(args[0], 4).iter_mut().for_each(|v| *v += *v);
}

/// The state grows by the slice; the slice of the result is the state, negated.
fn step(args: &[Address]) {
    let (slice, state, next, result) =
        (floats(args[0], 2), floats(args[1], 2), floats(args[2], 2), floats(args[3], 2));
    for i in 0..2 {
        next[i] = state[i] + slice[i];
        result[i] = -next[i];
    }
}

fn kernels() -> Vec<(&'static str, Body)> {
    vec![("double", double), ("add", add), ("again", again), ("step", step)]
}

fn fake() -> Arc<Fake> {
    Arc::new(Fake::new(kernels()))
}

/// `y = 2 * x + w`, in a step of two launches and one of one.
fn chain() -> Model {
    let mut m = Model::new();
    let (x, w) = (m.input(DType::F32, &[4]), m.weight(&[10.0, 20.0, 30.0, 40.0]));
    let (t, y) = (m.arena(DType::F32, &[4]), m.output(DType::F32, &[4]));
    let first = m.kernel(&["double", "again"], &[x, t]);
    // `again` changes the first argument only: the session's own copy of the input, which is done with.
    let second = m.kernel(&["add"], &[t, w, y]);
    m.one.plan.steps = vec![first, second];
    m
}

#[test]
fn a_run_is_one_graph_between_copies() {
    let fake = fake();
    let loaded = chain().load(&fake).unwrap();
    let log = fake.take_log();
    assert_eq!(log[0], "load text for 80", "the newest text that sm_86 runs");
    assert_eq!(log.iter().filter(|l| l.starts_with("upload")).count(), 1, "{log:?}");
    let mut session = loaded.session();
    fake.take_log();
    let outputs = loaded.run(&mut session, &[&[1.0, 2.0, 3.0, 4.0]]).unwrap();
    assert_eq!(outputs, [[12.0, 24.0, 36.0, 48.0]]);
    let threads = "[2, 1, 1] [32, 1, 1]";
    let noted = ["double", "again", "add"].map(|k| format!("launch {k} {threads}"));
    let expected = ["upload 16", "begin", &noted[0], &noted[1], &noted[2], "end", "graph"];
    assert_eq!(fake.take_log(), [&expected[..], &["download 16", "wait"]].concat());
    // The second run needs no launches any more.
    let outputs = loaded.run(&mut session, &[&[0.0; 4]]).unwrap();
    assert_eq!(outputs, [[10.0, 20.0, 30.0, 40.0]]);
    assert_eq!(fake.take_log(), ["upload 16", "graph", "download 16", "wait"]);
}

#[test]
fn views_of_inputs_and_outputs_lie_where_those_lie() {
    let fake = fake();
    let mut m = Model::new();
    let (x, y) = (m.input(DType::F32, &[4]), m.output(DType::F32, &[4]));
    let flat = m.one.buffers.len();
    m.buffer(DType::F32, &[2, 2], m.one.buffers[x.0 as usize].storage);
    m.buffer(DType::F32, &[2, 2], m.one.buffers[y.0 as usize].storage);
    let [from, to] = [flat, flat + 1].map(|n| BufferId(n as u32));
    m.one.plan.steps = vec![m.kernel(&["double"], &[from, to])];
    let loaded = m.load(&fake).unwrap();
    let outputs = loaded.run(&mut loaded.session(), &[&[1.0, 2.0, 3.0, 4.0]]).unwrap();
    assert_eq!(outputs, [[2.0, 4.0, 6.0, 8.0]]);
}

#[test]
fn a_model_without_kernels_has_nothing_to_translate() {
    let fake = fake();
    let mut m = Model::new();
    let (x, y) = (m.input(DType::F32, &[4]), m.output(DType::F32, &[4]));
    m.one.plan.steps = vec![Step::Copy { from: x, to: y }];
    let loaded = m.load(&fake).unwrap();
    assert!(!fake.take_log().iter().any(|l| l.starts_with("load")));
    let outputs = loaded.run(&mut loaded.session(), &[&[1.0, 2.0, 3.0, 4.0]]).unwrap();
    assert_eq!(outputs, [[1.0, 2.0, 3.0, 4.0]]);
}

#[test]
fn sessions_share_weights_and_nothing_else() {
    let fake = fake();
    let loaded = chain().load(&fake).unwrap();
    let mut sessions = [loaded.session(), loaded.session(), loaded.session()];
    std::thread::scope(|scope| {
        for (i, session) in sessions.iter_mut().enumerate() {
            let loaded = &loaded;
            scope.spawn(move || {
                for round in 0..50 {
                    let x = (i * 100 + round) as f32;
                    let outputs = loaded.run(session, &[&[x; 4]]).unwrap();
                    assert_eq!(outputs[0][3], 2.0 * x + 40.0);
                }
            });
        }
    });
    let log = fake.take_log();
    let uploads = log.iter().filter(|l| *l == "upload 16").count();
    assert_eq!(uploads, 1 + 3 * 50, "weights, and the inputs of each run");
    drop(sessions);
    drop(loaded);
    assert_eq!(fake.alive(), 0, "everything is given back");
}

/// `for x in xs { state += x; ys = -state }`, forwards or backwards.
fn scan(reverse: bool, outer: usize) -> Model {
    let mut m = Model::new();
    let whole: Vec<usize> = [outer, 3, 2 / outer].to_vec();
    let part: Vec<usize> = [outer, 2 / outer].to_vec();
    let xs = m.input(DType::F32, &whole);
    let start = m.weight(&[100.0, 200.0]);
    let (slice, state) = (m.arena(DType::F32, &part), m.arena(DType::F32, &[2]));
    let (next, result) = (m.arena(DType::F32, &[2]), m.arena(DType::F32, &part));
    let number = m.arena(DType::I64, &[]);
    let condition = m.arena(DType::Bool, &[]);
    let (ys, last) = (m.output(DType::F32, &whole), m.output(DType::F32, &[2]));
    let body = m.kernel(&["step"], &[slice, state, next, result]);
    let scan = |whole, slice| ScanStep { whole, slice, axis: 1, reverse };
    m.one.plan.steps = vec![Step::Loop(Box::new(LoopStep {
        name: "scan".into(),
        max_trip: 3,
        trip: None,
        condition: None,
        iteration: Some(number),
        condition_in: Some(condition),
        condition_out: None,
        initial: vec![start],
        carried_in: vec![state],
        carried_out: vec![next],
        results: vec![last],
        scan_inputs: vec![scan(xs, slice)],
        scan_outputs: vec![scan(ys, result)],
        body: Plan { steps: vec![body] },
    }))];
    m
}

#[test]
fn counted_loops_are_written_out_into_the_graph() {
    for (reverse, outer) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let model = scan(reverse, outer);
        let xs = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let fake = fake();
        let written_out = model.load(&fake).unwrap();
        let found = written_out.run(&mut written_out.session(), &[&xs]).unwrap();
        let log = fake.take_log();
        assert_eq!(log.iter().filter(|l| l.starts_with("launch step")).count(), 3);
        assert_eq!(log.iter().filter(|l| *l == "graph").count(), 1);
        assert!(log.contains(&format!("copy {outer} x {}", 8 / outer)), "{log:?}");
        assert!(log.contains(&"fill Word(2) 1".to_owned()), "the last iteration's number: {log:?}");
        // The same plan with the host going through it.
        let mut by_host = model.load(&fake).unwrap();
        Arc::get_mut(&mut by_host.code).unwrap().ops = vec![None];
        assert_eq!(by_host.run(&mut by_host.session(), &[&xs]).unwrap(), found);
        // And by hand, for one row.
        if outer == 1 && !reverse {
            let ys = vec![-101.0, -202.0, -105.0, -210.0, -121.0, -242.0];
            assert_eq!(found, [ys, vec![121.0, 242.0]]);
        }
    }
}

/// A loop that the body may end.
fn endless() -> Model {
    let mut m = scan(false, 1);
    let condition = m.arena(DType::Bool, &[]);
    let Step::Loop(l) = &mut m.one.plan.steps[0] else { unreachable!("made as a loop") };
    l.condition_out = Some(condition);
    m
}

#[test]
fn what_the_host_decides_is_no_graph() {
    let flat = |m: &Model| plan::flatten(&m.one, &m.program());
    assert!(flat(&endless()).is_none());
    let ops = flat(&chain()).unwrap();
    assert!(ops.iter().all(|op| matches!(op.work, Work::Kernel { .. })));
    assert_eq!(ops.iter().map(|op| op.step).collect::<Vec<_>>(), [0, 1]);
    // A plan of more operations than a graph should have.
    let mut long = scan(false, 1);
    let many = 20_001;
    let Step::Loop(l) = &mut long.one.plan.steps[0] else { unreachable!("made as a loop") };
    (l.max_trip, l.scan_inputs, l.scan_outputs) = (many, vec![], vec![]);
    assert!(flat(&long).is_none());
}

/// Positions of elements that are not zero, of `2 * x`.
fn positions() -> Model {
    let mut m = Model::new();
    let (x, t) = (m.input(DType::F32, &[4]), m.arena(DType::F32, &[4]));
    let found = m.output(DType::I64, &[1, 4]);
    let first = m.kernel(&["double"], &[x, t]);
    let host = Step::Host {
        name: "positions".into(),
        call: HostOp::NonZero,
        inputs: vec![t],
        outputs: vec![found],
    };
    m.one.plan.steps = vec![first, host];
    m
}

#[test]
fn host_operators_wait_for_kernels_and_see_their_memory() {
    let fake = fake();
    let loaded = positions().load(&fake).unwrap();
    let log = fake.take_log();
    assert!(log.iter().all(|l| !l.starts_with("allocate") || l.ends_with("Both")), "{log:?}");
    let mut session = loaded.session();
    fake.take_log();
    let outputs = loaded.run(&mut session, &[&[0.0, 1.0, 0.0, 3.0]]).unwrap();
    let bits = |i: usize| u64::from(outputs[0][2 * i].to_bits());
    assert_eq!((bits(0), bits(1)), (1, 3), "as 64-bit integers");
    let log = fake.take_log();
    let at = |what: &str| log.iter().position(|l| l.starts_with(what)).unwrap();
    assert!(log[at("launch")..].contains(&"wait".to_owned()), "{log:?}");
    assert_eq!(log.iter().find(|l| l.starts_with("download")).unwrap(), "download 16");
}

/// `y = 2 * x`, where `x` is said to hold indices.
fn checked(indices: Storage) -> Model {
    let mut m = Model::new();
    let (x, y) = (m.input(DType::I32, &[4]), m.output(DType::F32, &[4]));
    let arena = m.arena(DType::I32, &[4]);
    let check = Step::Host {
        name: "gather".into(),
        call: HostOp::CheckIndices { extents: vec![3] },
        inputs: vec![if matches!(indices, Storage::Input(_)) { x } else { arena }],
        outputs: vec![],
    };
    m.one.plan.steps = vec![check, m.kernel(&["double"], &[x, y])];
    m
}

#[test]
fn indices_that_are_inputs_are_checked_before_the_graph_runs() {
    let fake = fake();
    let loaded = checked(Storage::Input(0)).load(&fake).unwrap();
    let mut session = loaded.session();
    assert!(session.is_graph());
    fake.take_log();
    let ints = |values: [i32; 4]| values.map(|i| f32::from_bits(i as u32));
    let error = loaded.run(&mut session, &[&ints([0, 2, 3, 9])]).unwrap_err();
    let said =
        "node `gather`: index 3 at [2] of input `b0` is out of range; it must be from -3 to 2";
    assert_eq!(error.to_string(), said);
    assert!(fake.take_log().is_empty(), "nothing ran");
    loaded.run(&mut session, &[&ints([0, 2, -3, 1])]).unwrap();
    // The host has to look at indices that the device computes, so there is no graph for them.
    let inside = checked(Storage::Arena { offset: 0 });
    assert!(plan::flatten(&inside.one, &inside.program()).is_none());
}

#[test]
fn times_are_those_of_steps() {
    let loaded = chain().load(&fake()).unwrap();
    let mut session = loaded.session();
    let mut times = vec![(Duration::ZERO, 0); 2];
    let mut actual = vec![None; loaded.one.buffers.len()];
    let mut notes =
        Notes { actual: &mut actual, times: Some(&mut times), chance: Chance::default() };
    session.begin((&loaded.one, &loaded.program), &mut notes).unwrap();
    assert_eq!(times, [(Duration::from_micros(1), 1); 2]);
}

#[test]
fn errors_name_what_failed() {
    let mut old = chain();
    old.code.texts.retain(|t| t.sm == 90);
    let error = old.load(&fake()).err().unwrap().to_string();
    assert_eq!(
        error,
        "is compiled for an NVIDIA GPU (sm_90), but the Fake 100 is sm_86; compile with --sm 86"
    );
    for call in ["load", "function", "allocate", "upload"] {
        let fake = fake();
        fake.fail(call);
        let error = chain().load(&fake).err().unwrap().to_string();
        assert!(
            error.starts_with("is compiled for an NVIDIA GPU (sm_70,sm_80,sm_90), but"),
            "{error}"
        );
        assert!(error.contains(call), "{error}");
        assert_eq!(fake.alive(), 0, "{call}");
    }
    let mut unknown = chain();
    unknown.code.kernels[0][0].symbol = "absent".into();
    assert!(unknown.load(&fake()).err().unwrap().to_string().contains("absent"));
    for call in ["begin", "launch", "end", "graph", "download", "wait"] {
        let fake = fake();
        let loaded = chain().load(&fake).unwrap();
        let mut session = loaded.session();
        fake.fail(call);
        let error = loaded.run(&mut session, &[&[1.0; 4]]).unwrap_err();
        assert!(matches!(error, RunError::Device(_)), "{call}: {error}");
        // Nothing is left half done: the next attempt fails in the same place.
        assert_eq!(loaded.run(&mut session, &[&[1.0; 4]]), Err(error), "{call}");
    }
}

#[test]
fn launches_of_other_kernels_are_refused() {
    let mut m = chain();
    m.code.kernels.pop();
    let problem = super::code::check(&m.manifest, &m.code).unwrap_err();
    assert_eq!(problem, "launches of 1 kernels, where there are 2");
    let size = Size { name: "n".into(), low: 1, high: 4 };
    m.manifest.specialisations = vec![Specialisation { sizes: vec![size], ..m.one }];
    let problem = super::code::check(&m.manifest, &m.code).unwrap_err();
    assert_eq!(problem, "specialisation `` is of a range of sizes");
}
