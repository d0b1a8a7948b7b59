//! The plan in the form in which it is executed.
//!
//! In: a specialisation of a manifest whose tables passed [`crate::validate`]. Out: a [`Program`],
//! or the first step that is unsound. Building it is the check: every buffer that a step names
//! exists, has the type the step needs, and may be written where the step writes it; so executing
//! needs no checks but those that depend on data.
//!
//! `Step::Kernel { kernel: 3, args: [7, 2] }` becomes `Action::Kernel { kernel: 3, args: 40..42 }`
//! with `program.args[40..42] == [7, 2]`: a session keeps the addresses of all arguments in one
//! table and hands a kernel its part of it.

use std::ops::Range;

use crate::dtype::DType;
use crate::host::{HostOp, indices};
use crate::manifest::{
    BufferId, BufferInfo, KernelInfo, LoopStep, Plan, Port, ScanStep, Specialisation, State, Step,
    Storage,
};
use crate::validate::{ManifestError, buffer, bytes_of, is_scalar};

pub(crate) struct Program {
    /// Arguments of all kernel steps, one after another.
    pub(crate) args: Vec<BufferId>,
    /// All steps in the order of the manifest, those of nested plans after the step they belong to.
    pub(crate) steps: Vec<StepInfo>,
    pub(crate) main: Block,
}

/// The facts about a step that a profile shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepInfo {
    pub(crate) name: String,
    pub(crate) kind: StepKind,
    /// How many steps it is inside of.
    pub(crate) depth: usize,
}

/// The kind of work that a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Compiled code.
    Kernel,
    /// An operator of the runtime.
    Host,
    /// A copy between buffers.
    Copy,
    /// One of two plans.
    If,
    /// A plan, repeatedly.
    Loop,
}

impl StepKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            StepKind::Kernel => "kernel",
            StepKind::Host => "host",
            StepKind::Copy => "copy",
            StepKind::If => "if",
            StepKind::Loop => "loop",
        }
    }
}

/// Actions with the index of their step in [`Program::steps`].
pub(crate) type Block = Vec<(usize, Action)>;

pub(crate) enum Action {
    Kernel {
        kernel: usize,
        /// Into [`Program::args`].
        args: Range<usize>,
        /// Arguments whose actual size other steps may have set.
        sized: Vec<BufferId>,
    },
    Host {
        call: HostOp,
        inputs: Vec<BufferId>,
        outputs: Vec<BufferId>,
    },
    /// The run fails if an index is out of range.
    Check {
        indices: BufferId,
        /// Extents of the axes that indices are of, in turn.
        extents: Vec<usize>,
    },
    Copy(Moves),
    If {
        condition: BufferId,
        then_block: Block,
        else_block: Block,
    },
    Loop(Box<LoopAction>),
}

pub(crate) struct LoopAction {
    pub(crate) max_trip: u64,
    pub(crate) trip: Option<BufferId>,
    pub(crate) condition: Option<BufferId>,
    pub(crate) iteration: Option<BufferId>,
    pub(crate) condition_in: Option<BufferId>,
    pub(crate) condition_out: Option<BufferId>,
    /// Into `carried_in`, before the first iteration.
    pub(crate) enter: Moves,
    /// From `carried_out` into `carried_in`, after each iteration.
    pub(crate) carry: Moves,
    /// From `carried_in`, at the end.
    pub(crate) leave: Moves,
    pub(crate) scan_inputs: Vec<Scan>,
    pub(crate) scan_outputs: Vec<Scan>,
    pub(crate) body: Block,
}

/// Copies that mean to happen at once.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// From, to.
    pub(crate) pairs: Vec<(BufferId, BufferId)>,
    /// One of them would overwrite what a later one reads, so all are read before any is written.
    pub(crate) staged: bool,
}

/// `whole` is `outer` times `len` pieces of `bytes` bytes; `slice` is `outer` such pieces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) whole: BufferId,
    pub(crate) slice: BufferId,
    pub(crate) axis: usize,
    pub(crate) outer: usize,
    pub(crate) len: usize,
    pub(crate) bytes: usize,
    pub(crate) reverse: bool,
}

/// The kind of a plan, which decides where the plan may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writes {
    /// Each run: its arena and the outputs.
    Outputs,
    /// The preparation: its arena and what is prepared.
    Prepared,
}

impl Program {
    pub(crate) fn new(
        specialisation: &Specialisation,
        kernels: &[KernelInfo],
        writes: Writes,
    ) -> Result<Program, ManifestError> {
        let Specialisation { buffers, inputs, plan, states, .. } = specialisation;
        let sized = sized(plan, buffers.len());
        let (args, steps) = (Vec::new(), Vec::new());
        let mut builder = Builder { kernels, buffers, inputs, states, args, steps, sized, writes };
        let main = builder.block(plan, 0)?;
        Ok(Program { args: builder.args, steps: builder.steps, main })
    }
}

/// Calls `visit` with the step, the indices and the extents of every check of indices.
pub(crate) fn index_checks<'a>(
    block: &'a Block,
    visit: &mut dyn FnMut(usize, BufferId, &'a [usize]),
) {
    for (step, action) in block {
        match action {
            Action::Check { indices, extents } => visit(*step, *indices, extents),
            Action::If { then_block, else_block, .. } => {
                index_checks(then_block, visit);
                index_checks(else_block, visit);
            }
            Action::Loop(l) => index_checks(&l.body, visit),
            Action::Kernel { .. } | Action::Host { .. } | Action::Copy(_) => {}
        }
    }
}

/// Whether a step other than a kernel writes each buffer, and so may set its actual size.
fn sized(plan: &Plan, buffers: usize) -> Vec<bool> {
    let mut sized = vec![false; buffers];
    let mut mark = |id: BufferId| {
        if let Some(flag) = sized.get_mut(id.0 as usize) {
            *flag = true;
        }
    };
    plan.visit(&mut |step| match step {
        Step::Kernel { .. } | Step::If { .. } => {}
        Step::Host { outputs, .. } => outputs.iter().copied().for_each(&mut mark),
        Step::Copy { to, .. } => mark(*to),
        Step::Loop(l) => {
            l.carried_in.iter().chain(&l.results).copied().for_each(&mut mark);
            l.scan_outputs.iter().for_each(|s| mark(s.whole));
        }
    });
    sized
}

struct Builder<'a> {
    kernels: &'a [KernelInfo],
    buffers: &'a [BufferInfo],
    inputs: &'a [Port],
    states: &'a [State],
    args: Vec<BufferId>,
    steps: Vec<StepInfo>,
    sized: Vec<bool>,
    writes: Writes,
}

impl Builder<'_> {
    fn block(&mut self, plan: &Plan, depth: usize) -> Result<Block, ManifestError> {
        plan.steps.iter().map(|step| self.step(step, depth)).collect()
    }

    fn step(&mut self, step: &Step, depth: usize) -> Result<(usize, Action), ManifestError> {
        let index = self.steps.len();
        let info = StepInfo { name: self.name(step), kind: kind(step), depth };
        let place = format!("step {index}, {} `{}`", info.kind.name(), info.name);
        self.steps.push(info);
        let action = match step {
            Step::If { condition, then_plan, else_plan, .. } => {
                self.scalar(*condition, DType::Bool, "condition")
                    .map_err(|problem| ManifestError::at(place, problem))?;
                Action::If {
                    condition: *condition,
                    then_block: self.block(then_plan, depth + 1)?,
                    else_block: self.block(else_plan, depth + 1)?,
                }
            }
            Step::Loop(step) => {
                let mut action =
                    self.loop_head(step).map_err(|problem| ManifestError::at(place, problem))?;
                action.body = self.block(&step.body, depth + 1)?;
                Action::Loop(Box::new(action))
            }
            simple => self.simple(simple).map_err(|problem| ManifestError::at(place, problem))?,
        };
        Ok((index, action))
    }

    fn name(&self, step: &Step) -> String {
        let buffer_name = |id: BufferId| self.buffers.get(id.0 as usize).map(|b| &b.name);
        match step {
            Step::Kernel { kernel, .. } => {
                self.kernels.get(*kernel as usize).map(|k| k.name.clone())
            }
            Step::Copy { to, .. } => buffer_name(*to).cloned(),
            Step::Host { name, .. } | Step::If { name, .. } => Some(name.clone()),
            Step::Loop(step) => Some(step.name.clone()),
        }
        .unwrap_or_default()
    }

    fn simple(&mut self, step: &Step) -> Result<Action, String> {
        match step {
            Step::Kernel { kernel, args } => self.kernel(*kernel, args),
            Step::Host { call: HostOp::CheckIndices { extents }, inputs, outputs, .. } => {
                self.check(extents, inputs, outputs)
            }
            Step::Host { call, inputs, outputs, .. } => {
                inputs.iter().try_for_each(|id| self.buffer(*id).map(drop))?;
                outputs.iter().try_for_each(|id| self.writable(*id).map(drop))?;
                let (inputs, outputs) = (inputs.clone(), outputs.clone());
                Ok(Action::Host { call: call.clone(), inputs, outputs })
            }
            Step::Copy { from, to } => Ok(Action::Copy(self.moves(&[*from], &[*to], "copy")?)),
            Step::If { .. } | Step::Loop(_) => Err("a nested plan where none belongs".to_owned()),
        }
    }

    fn kernel(&mut self, kernel: u32, args: &[BufferId]) -> Result<Action, String> {
        let info = self.kernels.get(kernel as usize);
        let info = info.ok_or_else(|| format!("there is no kernel {kernel}"))?;
        if args.len() != info.args.len() {
            return Err(format!("{} arguments, where it takes {}", args.len(), info.args.len()));
        }
        for (i, (id, &bytes)) in args.iter().zip(&info.args).enumerate() {
            let of = if i < info.reads { buffer(self.buffers, *id) } else { self.writable(*id) };
            let (buffer, found) = of.map(|buffer| (buffer, bytes_of(buffer)))?;
            if found != bytes {
                let name = &buffer.name;
                return Err(format!("argument {i}, `{name}`, has {found} bytes, not {bytes}"));
            }
        }
        let begin = self.args.len();
        self.args.extend(args);
        let sized = args.iter().copied().filter(|id| self.sized[id.0 as usize]).collect();
        Ok(Action::Kernel { kernel: kernel as usize, args: begin..self.args.len(), sized })
    }

    fn check(
        &self,
        extents: &[usize],
        inputs: &[BufferId],
        outputs: &[BufferId],
    ) -> Result<Action, String> {
        let ([indices], []) = (inputs, outputs) else {
            return Err("a check of indices has one input and no output".to_owned());
        };
        let info = self.buffer(*indices)?;
        if !indices::fits(info.dtype, &info.shape, extents) {
            return Err(format!("`{}` holds no indices of {} axes", info.name, extents.len()));
        }
        Ok(Action::Check { indices: *indices, extents: extents.to_vec() })
    }

    /// Everything of a loop but its body.
    fn loop_head(&self, step: &LoopStep) -> Result<LoopAction, String> {
        self.optional_scalar(step.trip, DType::I64, "trip count")?;
        self.optional_scalar(step.condition, DType::Bool, "condition")?;
        self.optional_scalar(step.condition_out, DType::Bool, "condition of the body")?;
        for (written, dtype, what) in [
            (step.iteration, DType::I64, "iteration number"),
            (step.condition_in, DType::Bool, "condition for the body"),
        ] {
            self.optional_scalar(written, dtype, what)?;
            written.map_or(Ok(()), |id| self.writable(id).map(drop))?;
        }
        let scan = |scan: &ScanStep| self.scan(scan, step.max_trip);
        let (inputs, outputs) = (step.scan_inputs.iter(), step.scan_outputs.iter());
        let scan_inputs = inputs.map(scan).collect::<Result<Vec<_>, _>>()?;
        let scan_outputs = outputs.map(scan).collect::<Result<Vec<_>, _>>()?;
        scan_inputs.iter().try_for_each(|s| self.writable(s.slice).map(drop))?;
        scan_outputs.iter().try_for_each(|s| self.writable(s.whole).map(drop))?;
        if let Some(scan) = scan_outputs.iter().find(|s| s.len as u64 != step.max_trip) {
            return Err(format!("scan output of {} for {} iterations", scan.len, step.max_trip));
        }
        Ok(LoopAction {
            max_trip: step.max_trip,
            trip: step.trip,
            condition: step.condition,
            iteration: step.iteration,
            condition_in: step.condition_in,
            condition_out: step.condition_out,
            enter: self.moves(&step.initial, &step.carried_in, "initial values")?,
            carry: self.moves(&step.carried_out, &step.carried_in, "carried values")?,
            leave: self.moves(&step.carried_in, &step.results, "results")?,
            scan_inputs,
            scan_outputs,
            body: Block::new(),
        })
    }

    fn scan(&self, step: &ScanStep, max_trip: u64) -> Result<Scan, String> {
        let (whole, slice) = (self.buffer(step.whole)?, self.buffer(step.slice)?);
        let axis = step.axis;
        let Some(&len) = whole.shape.get(axis) else {
            return Err(format!("`{}` has no axis {axis} to scan", whole.name));
        };
        let (outer, inner) = (&whole.shape[..axis], &whole.shape[axis + 1..]);
        if whole.dtype != slice.dtype || slice.shape != [outer, inner].concat() {
            return Err(format!("`{}` is not a slice of `{}`", slice.name, whole.name));
        }
        if max_trip > len as u64 {
            return Err(format!("`{}` has less than {max_trip} slices", whole.name));
        }
        // An empty tensor's other extents may overflow; nothing is copied from or to it.
        let product = |dims: &[usize]| dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let (outer, bytes) = match bytes_of(slice) {
            0 => (0, 0),
            _ => (product(outer), product(inner) * whole.dtype.size()),
        };
        let (whole, slice) = (step.whole, step.slice);
        Ok(Scan { whole, slice, axis, outer, len, bytes, reverse: step.reverse })
    }

    fn moves(&self, from: &[BufferId], to: &[BufferId], what: &str) -> Result<Moves, String> {
        if from.len() != to.len() {
            return Err(format!("{what}: {} sources for {} targets", from.len(), to.len()));
        }
        for (&from, &to) in from.iter().zip(to) {
            let (source, target) = (self.buffer(from)?, self.writable(to)?);
            if source.dtype != target.dtype || bytes_of(source) != bytes_of(target) {
                let (source, target) = (&source.name, &target.name);
                return Err(format!("{what}: `{source}` and `{target}` differ in type or size"));
            }
        }
        let pairs: Vec<_> = from.iter().copied().zip(to.iter().copied()).collect();
        let staged = pairs
            .iter()
            .enumerate()
            .any(|(i, (_, to))| pairs[i + 1..].iter().any(|(later, _)| self.overlap(*later, *to)));
        Ok(Moves { pairs, staged })
    }

    fn overlap(&self, a: BufferId, b: BufferId) -> bool {
        let place = |id: BufferId| {
            let buffer = &self.buffers[id.0 as usize];
            let (storage, at) = match buffer.storage {
                Storage::Arena { offset } => ((0, 0), offset),
                Storage::Weight { offset } => ((1, 0), offset),
                Storage::Input(port) => ((2, port), 0),
                Storage::Output(port) => ((3, port), 0),
                Storage::Prepared { offset } => ((4, 0), offset),
                Storage::Size(size) => ((5, size), 0),
                Storage::State(state) => ((6, state), 0),
                Storage::NextState(state) => ((7, state), 0),
            };
            (storage, at..at + bytes_of(buffer))
        };
        let ((a, a_range), (b, b_range)) = (place(a), place(b));
        a == b && a_range.start < b_range.end && b_range.start < a_range.end
    }

    /// A buffer that holds as many bytes as it declares: of a dense input only kernels know where
    /// it ends.
    fn buffer(&self, id: BufferId) -> Result<&BufferInfo, String> {
        let info = buffer(self.buffers, id)?;
        match info.storage {
            Storage::Input(port) if self.inputs.get(port as usize).is_some_and(|p| p.dense) => {
                Err(format!("`{}` is a dense input, which only kernels may read", info.name))
            }
            _ => Ok(info),
        }
    }

    fn writable(&self, id: BufferId) -> Result<&BufferInfo, String> {
        let buffer = self.buffer(id)?;
        match buffer.storage {
            Storage::Arena { .. } | Storage::Output(_) | Storage::NextState(_) => Ok(buffer),
            Storage::Prepared { .. } if self.writes == Writes::Prepared => Ok(buffer),
            Storage::State(i) if self.states.get(i as usize).is_some_and(State::in_place) => {
                Ok(buffer)
            }
            Storage::Input(_)
            | Storage::Size(_)
            | Storage::State(_)
            | Storage::Weight { .. }
            | Storage::Prepared { .. } => {
                Err(format!("`{}` is written, but it is read-only", buffer.name))
            }
        }
    }

    fn scalar(&self, id: BufferId, dtype: DType, what: &str) -> Result<(), String> {
        let ok = is_scalar(self.buffer(id)?, dtype);
        if ok { Ok(()) } else { Err(format!("the {what} is not a scalar of type {dtype}")) }
    }

    fn optional_scalar(
        &self,
        id: Option<BufferId>,
        dtype: DType,
        what: &str,
    ) -> Result<(), String> {
        id.map_or(Ok(()), |id| self.scalar(id, dtype, what))
    }
}

fn kind(step: &Step) -> StepKind {
    match step {
        Step::Kernel { .. } => StepKind::Kernel,
        Step::Host { .. } => StepKind::Host,
        Step::Copy { .. } => StepKind::Copy,
        Step::If { .. } => StepKind::If,
        Step::Loop(_) => StepKind::Loop,
    }
}
