//! Runs the code of a stage.
//!
//! Lanes run over chunks of the spatial axes, and for each chunk the reduction axes point by point;
//! where the result is small and the reduction is large, the other way round. Instructions
//! that need only some of the point axes are computed once per chunk for each of their values.
//! Large stages are computed in parts, side by side.

use std::collections::BTreeMap;
use std::ops::Range;

use ansc_runtime::Tensor;
use rayon::prelude::*;

use super::InterpError;
use super::code::{Code, Inst, Offset, Reg, build};
use super::domain::{Affine, Chunk, Domain, Pattern, Run};
use super::lanes::{self, Lane, Lanes, Stored, lane_of, with_stored};
use super::sink::{self, Sink};
use crate::compute::{Compute, Stage};
use crate::expr::BufId;

/// Lanes of a chunk at most: a handful of registers of this size stay in the first-level cache.
const CHUNK: usize = 512;
/// Fewer results than this are computed with lanes over the reduction, if that is larger.
const FEW_RESULTS: usize = 64;
/// Points at most for which values are kept for the whole chunk.
const TABLE: usize = 64;
/// Instructions of a lane that are worth another thread.
const PART: usize = 1 << 17;
/// Parts of a stage at most: enough for all threads to end at about the same time.
const MOST_PARTS: usize = 64;

/// Evaluates the stage at `index`; `buffers` are the inputs and the earlier stages.
pub(super) fn run_stage(
    compute: &Compute,
    index: usize,
    buffers: &[&Tensor],
) -> Result<Tensor, InterpError> {
    let stage = &compute.stages[index];
    let code = build(compute, index)?;
    let extents = stage.extents();
    let spatial = Domain::new(0..stage.ty.rank(), &extents);
    let reduce = Domain::new(stage.ty.rank()..extents.len(), &extents);
    let over_reduction = spatial.len() < FEW_RESULTS && reduce.len() > spatial.len();
    let mut out = Tensor::try_zeros(stage.ty.dtype, &stage.ty.shape)
        .map_err(|e| InterpError::Malformed { stage: stage.name.clone(), reason: e.to_string() })?;
    let (lanes, points) = if over_reduction { (reduce, spatial) } else { (spatial, reduce) };
    let part = part_len(&lanes, code.insts.len().saturating_mul(points.len()));
    let sinks = sink::new(stage, code.dtypes[code.root], over_reduction, &mut out, part);
    let part = if over_reduction { lanes.len() } else { part };
    let run = |(index, mut sink): (usize, Box<dyn Sink + '_>)| {
        let machine = Machine::new(stage, &code, buffers, lanes.clone(), points.clone());
        let first = index * part;
        machine.run(first..lanes.len().min(first + part), sink.as_mut())
    };
    if sinks.len() == 1 {
        sinks.into_iter().enumerate().try_for_each(run)?;
    } else {
        // Whoever comes first, the error is that of the first part which has one.
        let all: Vec<_> = sinks.into_par_iter().enumerate().map(run).collect();
        all.into_iter().collect::<Result<(), _>>()?;
    }
    Ok(out)
}

/// Lanes of a part: whole chunks, and enough of them to be worth a thread. A lane takes `work`
/// instructions.
fn part_len(lanes: &Domain, work: usize) -> usize {
    let chunk = lanes.chunk_len(CHUNK).max(1);
    let enough = PART.div_ceil(work.max(1)).max(lanes.len() / MOST_PARTS);
    enough.next_multiple_of(chunk)
}

/// Instructions that are computed at the same points: those of `vars`, a part of the point axes.
struct Group {
    domain: Domain,
    insts: Vec<Reg>,
    /// Registers of other groups that are read here, by group.
    reads: Vec<(usize, Vec<Reg>)>,
    /// Own registers that later groups read, which keep one value per point.
    kept: Vec<Reg>,
}

struct Machine<'a> {
    stage: &'a Stage,
    code: &'a Code,
    buffers: &'a [&'a Tensor],
    lanes: Domain,
    points: Domain,
    /// In order of dependence; the last one is that of all point axes.
    groups: Vec<Group>,
    registers: Vec<Lanes>,
    /// Where the values of each instruction start in `registers`, and the one in use now.
    base: Vec<usize>,
    current: Vec<usize>,
    patterns: Vec<Option<Pattern>>,
    chunk: Chunk,
    point: Vec<i64>,
}

fn mask(domain: &Domain) -> u64 {
    domain.axes.iter().fold(0, |m, (v, _)| m | 1 << v)
}

fn part(domain: &Domain, vars: u64) -> Domain {
    Domain { axes: domain.axes.iter().copied().filter(|(v, _)| vars >> v & 1 == 1).collect() }
}

/// Sorts instructions by the point axes that they depend on.
fn group(code: &Code, points: &Domain) -> Vec<Group> {
    let all = mask(points);
    let mut sets: BTreeMap<(u32, u64), Vec<Reg>> = BTreeMap::from([((64, all), vec![])]);
    for (reg, deps) in code.deps.iter().enumerate() {
        let vars = deps & all;
        let size = part(points, vars).len();
        let key = if size <= TABLE && size * 2 <= points.len() {
            (vars.count_ones(), vars)
        } else {
            (64, all)
        };
        sets.entry(key).or_default().push(reg);
    }
    let mut home = vec![0; code.insts.len()];
    for (group, insts) in sets.values().enumerate() {
        insts.iter().for_each(|&reg| home[reg] = group);
    }
    let mut groups: Vec<Group> = Vec::new();
    for ((_, vars), insts) in sets {
        let domain = part(points, vars);
        groups.push(Group { domain, insts, reads: vec![], kept: vec![] });
    }
    for index in 0..groups.len() {
        connect(&mut groups, index, code, &home);
    }
    groups
}

/// Finds what the group at `index` reads of earlier ones.
fn connect(groups: &mut [Group], index: usize, code: &Code, home: &[usize]) {
    let mut reads: BTreeMap<usize, Vec<Reg>> = BTreeMap::new();
    let root = (index + 1 == groups.len()).then_some(code.root);
    let operands = groups[index].insts.iter().flat_map(|&r| code.insts[r].operands());
    for reg in operands.chain(root).filter(|&r| home[r] != index) {
        let of_group = reads.entry(home[reg]).or_default();
        if !of_group.contains(&reg) {
            of_group.push(reg);
        }
    }
    for (&from, regs) in &reads {
        for reg in regs {
            if !groups[from].kept.contains(reg) {
                groups[from].kept.push(*reg);
            }
        }
    }
    groups[index].reads = reads.into_iter().collect();
}

impl<'a> Machine<'a> {
    fn new(
        stage: &'a Stage,
        code: &'a Code,
        buffers: &'a [&'a Tensor],
        lanes: Domain,
        points: Domain,
    ) -> Machine<'a> {
        let groups = group(code, &points);
        let mut base: Vec<usize> = (0..code.insts.len()).collect();
        let mut registers = vec![Lanes::default(); code.insts.len()];
        for group in &groups {
            for &reg in &group.kept {
                base[reg] = registers.len();
                registers.resize_with(base[reg] + group.domain.len(), Lanes::default);
            }
        }
        Machine {
            stage,
            code,
            buffers,
            lanes,
            points,
            groups,
            registers,
            current: base.clone(),
            base,
            patterns: code.insts.iter().map(|_| None).collect(),
            chunk: Chunk::default(),
            point: vec![0; stage.extents().len()],
        }
    }

    fn run(mut self, part: Range<usize>, sink: &mut dyn Sink) -> Result<(), InterpError> {
        let step = self.lanes.chunk_len(CHUNK);
        if self.points.len() > 0 {
            for start in part.clone().step_by(step.max(1)) {
                self.run_chunk(start, step.min(part.end - start), sink)?;
            }
        }
        sink.finish();
        Ok(())
    }

    fn run_chunk(
        &mut self,
        start: usize,
        len: usize,
        sink: &mut dyn Sink,
    ) -> Result<(), InterpError> {
        self.chunk.set(&self.lanes, start, len, self.point.len());
        self.find_patterns();
        let groups = std::mem::take(&mut self.groups);
        let (last, tables) = groups.split_last().expect("there is a group of all points");
        for group in tables {
            self.each_point(group, &groups, &mut |_, _| ())?;
        }
        sink.begin(&self.chunk);
        let root = self.code.root;
        self.each_point(last, &groups, &mut |machine, position| {
            let value = &machine.registers[machine.current[root]];
            sink.step(value, position, &machine.chunk);
        })?;
        sink.end(&self.chunk);
        self.groups = groups;
        Ok(())
    }

    fn find_patterns(&mut self) {
        let lane_vars = mask(&self.lanes);
        for (reg, inst) in self.code.insts.iter().enumerate() {
            if let Inst::Load(_, Offset::Affine(offset)) = inst
                && self.code.deps[reg] & lane_vars != 0
            {
                let terms = offset.terms.iter().copied().filter(|(v, _)| lane_vars >> v & 1 == 1);
                let varying = Affine { terms: terms.collect(), constant: 0 };
                self.patterns[reg] = Some(self.chunk.pattern(&varying));
            }
        }
    }

    /// Runs a group's instructions at each of its points, then calls `then` with the position.
    fn each_point(
        &mut self,
        group: &Group,
        groups: &[Group],
        then: &mut dyn FnMut(&Machine<'_>, usize),
    ) -> Result<(), InterpError> {
        self.point.fill(0);
        for position in 0..group.domain.len() {
            for (from, regs) in &group.reads {
                let position = self.position(&groups[*from].domain);
                regs.iter().for_each(|&r| self.current[r] = self.base[r] + position);
            }
            for &reg in &group.kept {
                self.current[reg] = self.base[reg] + position;
            }
            for &reg in &group.insts {
                self.execute(reg)?;
            }
            then(self, position);
            group.domain.advance(&mut self.point);
        }
        Ok(())
    }

    /// The row-major position of the present point among those of `domain`.
    fn position(&self, domain: &Domain) -> usize {
        domain.axes.iter().fold(0, |p, &(v, extent)| p * extent + self.point[v] as usize)
    }

    fn read(&self, reg: Reg) -> &Lanes {
        &self.registers[self.current[reg]]
    }

    fn execute(&mut self, reg: Reg) -> Result<(), InterpError> {
        let code = self.code;
        let inst = &code.insts[reg];
        if let Inst::Check { buffer, axis, index, active } = inst {
            return self.check(*buffer, *axis, *index, *active);
        }
        let mut out = std::mem::take(&mut self.registers[self.current[reg]]);
        let dtype = code.dtypes[reg];
        match inst {
            Inst::Const(s) => with_stored!(dtype, S => {
                <S as Stored>::Lane::fill(&mut out).push(sink::constant::<S>(*s));
            }),
            Inst::Index(affine) => self.index(reg, affine, i64::fill(&mut out)),
            Inst::Load(buffer, offset) => self.load(reg, *buffer, offset, &mut out),
            Inst::Unary(op, x) => lanes::unary(*op, code.dtypes[*x], self.read(*x), &mut out),
            Inst::Binary(op, a, b) => {
                lanes::binary(*op, code.dtypes[*a], self.read(*a), self.read(*b), &mut out);
            }
            Inst::Select(c, a, b) => {
                lanes::select(dtype, self.read(*c), self.read(*a), self.read(*b), &mut out);
            }
            Inst::Cast(x) => lanes::cast(code.dtypes[*x], dtype, self.read(*x), &mut out),
            Inst::Check { .. } => {}
        }
        self.registers[self.current[reg]] = out;
        Ok(())
    }

    fn varies(&self, reg: Reg) -> bool {
        self.code.deps[reg] & mask(&self.lanes) != 0
    }

    /// The part of an affine value that is the same for all lanes: lane variables are zero in
    /// `point`.
    fn index(&self, reg: Reg, affine: &Affine, out: &mut Vec<i64>) {
        if !self.varies(reg) {
            out.push(affine.at(&self.point));
            return;
        }
        let shared = affine.at(&self.point).wrapping_sub(affine.constant);
        let mut varying = affine.clone();
        varying.constant = affine.constant.wrapping_add(shared);
        varying.terms.retain(|(v, _)| mask(&self.lanes) >> v & 1 == 1);
        self.chunk.values(&varying, out);
    }

    fn load(&self, reg: Reg, buffer: BufId, offset: &Offset, out: &mut Lanes) {
        let tensor = self.buffers[buffer.index()];
        with_stored!(tensor.dtype(), S => {
            let data = tensor.as_slice::<S>();
            let out = <S as Stored>::Lane::fill(out);
            match offset {
                Offset::Computed(reg) => gather(data, 0, i64::of(self.read(*reg)), out),
                Offset::Affine(affine) => {
                    let base = affine.at(&self.point);
                    match &self.patterns[reg] {
                        None => gather(data, base, &[0], out),
                        Some(Pattern::Gather(offsets)) => gather(data, base, offsets, out),
                        Some(Pattern::Runs(runs)) => copy_runs(data, base, runs, out),
                    }
                }
            }
        });
    }

    fn check(
        &self,
        buffer: BufId,
        axis: usize,
        index: Reg,
        active: Option<Reg>,
    ) -> Result<(), InterpError> {
        let indices = i64::of(self.read(index));
        let active = active.map_or(&[true][..], |a| bool::of(self.read(a)));
        let extent = self.extent(buffer, axis);
        let outside = |i: i64, active: bool| active && i as u64 >= extent as u64;
        let lanes = indices.len().max(active.len());
        let bad = (0..lanes).find(|&l| outside(lane_of(indices, l), lane_of(active, l)));
        match bad {
            None => Ok(()),
            Some(lane) => {
                let mut point = self.point.clone();
                self.chunk.point(&self.lanes, lane, &mut point);
                Err(InterpError::OutOfBounds {
                    stage: self.stage.name.clone(),
                    buffer,
                    axis,
                    index: lane_of(indices, lane),
                    extent,
                    point,
                })
            }
        }
    }

    fn extent(&self, buffer: BufId, axis: usize) -> usize {
        self.buffers[buffer.index()].shape()[axis]
    }
}

/// The element at an offset; anything where there is none, since a guard then discards it.
fn element<S: Stored>(data: &[S], offset: i64) -> S::Lane {
    usize::try_from(offset).ok().and_then(|i| data.get(i)).copied().unwrap_or_default().to_lane()
}

fn gather<S: Stored>(data: &[S], base: i64, offsets: &[i64], out: &mut Vec<S::Lane>) {
    out.extend(offsets.iter().map(|&o| element(data, base.wrapping_add(o))));
}

fn copy_runs<S: Stored>(data: &[S], base: i64, runs: &[Run], out: &mut Vec<S::Lane>) {
    for run in runs {
        let first = base.wrapping_add(run.first);
        let contiguous = usize::try_from(first)
            .ok()
            .filter(|_| run.step == 1)
            .and_then(|start| data.get(start..start.checked_add(run.len)?));
        match contiguous {
            Some(values) => out.extend(values.iter().map(|&v| v.to_lane())),
            None if run.step == 0 => out.extend(std::iter::repeat_n(element(data, first), run.len)),
            None => out.extend(
                (0..run.len as i64)
                    .map(|i| element(data, first.wrapping_add(i.wrapping_mul(run.step)))),
            ),
        }
    }
}
