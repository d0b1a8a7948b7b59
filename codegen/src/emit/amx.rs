//! Nests that are one instruction of AMX.
//!
//! A `Tensor` loop names its intrinsic. Where the target has the unit, its fragments become tile
//! registers: each tile of a fragment has a number while the loops that contain all uses of the
//! fragments run. Before these loops the tiles are configured, after them they are released.
//!
//! ```text
//! for j { for i in 0..14 tensor(amx_zero_f32_14) {..}  for k { .. }  .. }
//! =>
//! for j { ldtilecfg; tilezero 0; for k { tileload 1; tileload 2; tdpbf16ps 0, 1, 2 }; tilestore 0; tilerelease }
//! ```
//!
//! Where fragments take more tiles than there are, deeper loops are tried; where a nest has another
//! form than its name says, or a tile's number is not known when compiling, all that use its
//! fragments are executed as the loops that they are, in memory.

use std::collections::BTreeMap;

use ansc_graph::{BufId, VarId};
use ansc_runtime::DType;
use ansc_sketch::intrinsic::{self, AmxOp, NativeOp, Unit};
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Access, Block, Body, Scope, Stmt};
use inkwell::values::{IntValue, PointerValue};

use crate::affine::Affine;
use crate::emit::ahead::{part, stride_of};
use crate::emit::function::{Emitter, Result};
use crate::emit::{accesses, uses};
use crate::target::Target;

/// Tile registers.
const TILES: usize = 8;
/// Bytes of a row of a tile.
const ROW: i64 = 64;
/// Bytes of a configuration: the palette, then from byte 16 on the bytes of a row of each tile, and
/// from byte 48 on their rows.
const CONFIG: usize = 64;

/// An addition that nobody reads. After about a microsecond without one, the adders of vectors go
/// to sleep. The next addition, or the next store of a tile, then waits a third of a microsecond.
/// Each block of a long sum in tiles would.
const AWAKE: &str = "vxorps %xmm15, %xmm15, %xmm15\n\tvaddps %ymm15, %ymm15, %ymm15";
const CLOBBERED: &str = "~{xmm15}";

/// Tiles that are configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiles {
    /// The number of a fragment's first tile.
    first: BTreeMap<BufId, u8>,
    /// Rows and bytes of a row.
    shapes: Vec<(u8, u16)>,
}

/// The part of a fragment that an instruction uses.
struct Tile {
    buffer: BufId,
    /// Elements of a tile.
    elements: i64,
    rows: u8,
    bytes: u16,
    at: Affine,
}

/// Memory that an instruction goes through row by row.
struct Rows {
    buffer: BufId,
    at: Affine,
    /// From one row to the next, in elements.
    stride: i64,
}

/// An instruction and its operands.
enum Instruction {
    Zero(Tile),
    Load(Tile, Rows),
    Dot([DType; 2], [Tile; 3]),
    Store(Rows, Tile),
}

impl Instruction {
    fn tiles(&self) -> Vec<&Tile> {
        match self {
            Instruction::Zero(t) | Instruction::Load(t, _) | Instruction::Store(_, t) => vec![t],
            Instruction::Dot(_, tiles) => tiles.iter().collect(),
        }
    }
}

impl<'c> Emitter<'c, '_> {
    /// Writes a part of a function with registers for the fragments that these statements use, if
    /// they can be tiles and are not yet.
    pub(crate) fn with_tiles(
        &mut self,
        stmts: &[&Stmt],
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let wanted = self.tiles.is_none() && self.lanes.is_none() && has_amx(self.target);
        let Some(tiles) = wanted.then(|| self.registers_for(stmts)).flatten() else {
            return body(self);
        };
        self.configure(&tiles);
        self.tiles = Some(tiles);
        body(self)?;
        self.tiles = None;
        self.ir.intrinsic_on("llvm.x86.tilerelease", &[], &[]);
        Ok(())
    }

    /// How many of the statements use the fragments that the first of them uses.
    pub(crate) fn sharing_tiles(&self, stmts: &[&Stmt]) -> usize {
        if self.tiles.is_some() || !has_amx(self.target) {
            return 1;
        }
        let fragments = |stmt: &Stmt| -> Vec<BufId> {
            let all = uses(std::slice::from_ref(stmt)).into_keys();
            all.filter(|b| self.program.buffer(*b).scope == Scope::Fragment).collect()
        };
        let (mut known, mut end) = (fragments(stmts[0]), 1);
        for (at, stmt) in stmts.iter().enumerate().skip(1) {
            if fragments(stmt).iter().any(|b| known.contains(b)) {
                known.extend(stmts[end..=at].iter().flat_map(|s| fragments(s)));
                end = at + 1;
            }
        }
        end
    }

    /// The nest as one instruction; false if it is to be executed as loops.
    pub(crate) fn tensor(&mut self, l: &For) -> Result<bool> {
        if self.tiles.is_none() {
            return Ok(false);
        }
        let Some(instruction) = self.instruction(l) else { return Ok(false) };
        match instruction {
            Instruction::Zero(tile) => {
                let tile = self.number(&tile)?;
                self.ir.intrinsic_on("llvm.x86.tilezero", &[], &[tile.into()]);
            }
            Instruction::Load(tile, rows) => self.memory("llvm.x86.tileloadd64", &tile, &rows)?,
            Instruction::Store(rows, tile) => self.memory("llvm.x86.tilestored64", &tile, &rows)?,
            Instruction::Dot(factors, tiles) => {
                let [a, b, c] = &tiles;
                let numbers = [self.number(c)?, self.number(a)?, self.number(b)?];
                self.ir.intrinsic_on(product(factors), &[], &numbers.map(Into::into));
                if c.at.as_constant() == Some(0) {
                    self.ir.assembly(AWAKE, CLOBBERED);
                }
            }
        }
        Ok(true)
    }

    fn memory(&mut self, name: &str, tile: &Tile, rows: &Rows) -> Result<()> {
        let (at, _): (PointerValue<'c>, u32) = self.pointer(rows.buffer, &rows.at)?;
        let size = self.program.buffer(rows.buffer).ty.dtype.size() as i64;
        let (number, stride) = (self.number(tile)?, self.ir.index(rows.stride * size));
        self.ir.intrinsic_on(name, &[], &[number.into(), at.into(), stride.into()]);
        Ok(())
    }

    /// The register, as an operand of an instruction.
    fn number(&self, tile: &Tile) -> Result<IntValue<'c>> {
        let first = self.tiles.as_ref().and_then(|tiles| tiles.first.get(&tile.buffer));
        let place = tile.at.as_constant();
        let (Some(&first), Some(place)) = (first, place) else {
            return Err("a tile is used that has no register".into());
        };
        let number = i64::from(first) + place / tile.elements;
        Ok(self.ir.int(8, number, None).into_int_value())
    }

    fn configure(&mut self, tiles: &Tiles) {
        let mut bytes = [0u8; CONFIG];
        bytes[0] = 1;
        for (tile, (rows, row)) in tiles.shapes.iter().enumerate() {
            bytes[16 + 2 * tile..][..2].copy_from_slice(&row.to_le_bytes());
            bytes[48 + tile] = *rows;
        }
        let constant = self.ir.context.const_string(&bytes, false);
        let global = self.ir.module.add_global(constant.get_type(), None, "tiles");
        global.set_initializer(&constant);
        global.set_constant(true);
        global.set_linkage(inkwell::module::Linkage::Private);
        global.set_alignment(CONFIG as u32);
        let at = global.as_pointer_value();
        self.ir.intrinsic_on("llvm.x86.ldtilecfg", &[], &[at.into()]);
    }

    /// Registers for all fragments that are used by the statements, and nowhere else.
    fn registers_for(&mut self, stmts: &[&Stmt]) -> Option<Tiles> {
        let mut inside: BTreeMap<BufId, usize> = BTreeMap::new();
        for stmt in stmts {
            for (buffer, times) in uses(std::slice::from_ref(*stmt)) {
                *inside.entry(buffer).or_default() += times;
            }
        }
        let is_fragment = |b: &BufId| self.program.buffer(*b).scope == Scope::Fragment;
        let fragments: Vec<BufId> = inside.keys().copied().filter(is_fragment).collect();
        let own = |b: &BufId| inside[b] == self.buffers.uses[b];
        if fragments.is_empty() || !fragments.iter().all(own) {
            return None;
        }
        let mut found = BTreeMap::new();
        let ranges = self.ranges.clone();
        let known = stmts.iter().try_for_each(|s| self.collect(s, &mut vec![], &mut found));
        self.ranges = ranges;
        known?;
        let mut tiles = Tiles::default();
        for fragment in fragments {
            let (elements, rows, row) = found.get(&fragment).copied()?;
            let count = self.program.buffer(fragment).ty.len() as i64 / elements;
            tiles.first.insert(fragment, u8::try_from(tiles.shapes.len()).ok()?);
            tiles.shapes.extend((0..count).map(|_| (rows, row)));
            (tiles.shapes.len() <= TILES).then_some(())?;
        }
        Some(tiles)
    }

    /// Shapes of the tiles of all fragments that a statement uses. None if something uses one of
    /// them that is no instruction on tiles with known numbers.
    fn collect(
        &mut self,
        stmt: &Stmt,
        written_out: &mut Vec<VarId>,
        found: &mut BTreeMap<BufId, (i64, u8, u16)>,
    ) -> Option<()> {
        let l = match stmt {
            Stmt::For(l) => l,
            Stmt::Block(block) => {
                let is_fragment = |b: BufId| self.program.buffer(b).scope == Scope::Fragment;
                return (!accesses(block).any(is_fragment)).then_some(());
            }
        };
        if let ForKind::Tensor(_) = l.kind {
            for tile in self.instruction(l)?.tiles() {
                let vars = part(&tile.at, |v| !written_out.contains(v))?;
                vars.as_constant()?;
                let shape = (tile.elements, tile.rows, tile.bytes);
                if *found.entry(tile.buffer).or_insert(shape) != shape {
                    return None;
                }
            }
            return Some(());
        }
        self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        let is_written_out = l.kind == ForKind::Unrolled || l.extent == 1;
        written_out.extend(is_written_out.then_some(l.var));
        l.body.iter().try_for_each(|s| self.collect(s, written_out, found))?;
        written_out.retain(|v| *v != l.var);
        Some(())
    }

    /// The nest's instruction, if it has the form that its name says.
    fn instruction(&mut self, l: &For) -> Option<Instruction> {
        let ForKind::Tensor(name) = l.kind else { return None };
        let intrinsic = intrinsic::find(name.as_str())?;
        let native = intrinsic.as_native()?;
        has_unit(self.target, native.unit).then_some(())?;
        let NativeOp::Amx(op) = native.op else { return None };
        let (loops, block) = nest(l)?;
        let described = extents(&intrinsic.description().body);
        let vars = paired(&loops, &described)?;
        let hidden: Vec<_> =
            loops.iter().map(|l| (l.var, self.ranges.get(&l.var).copied())).collect();
        for l in &loops {
            self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        }
        let instruction = self.operands(op, block, &vars, &described);
        for (var, range) in hidden {
            match range {
                Some(range) => self.ranges.insert(var, range),
                None => self.ranges.remove(&var),
            };
        }
        instruction
    }

    /// `vars` are the loops of the axes of the description, `sizes` their extents; a loop of one
    /// iteration may be missing.
    fn operands(
        &self,
        op: AmxOp,
        block: &Block,
        vars: &[Option<VarId>],
        sizes: &[usize],
    ) -> Option<Instruction> {
        let loads = block.body.value().loads();
        let read = |n: usize| -> Option<(BufId, Affine)> {
            let (buffer, at) = loads.get(n)?;
            Some((*buffer, self.flatten(*buffer, at)))
        };
        let written = match (&block.body, op) {
            (Body::Reduce { dst, init: false, .. }, AmxOp::Dot(_)) => dst,
            (Body::Assign { dst, .. }, AmxOp::Zero | AmxOp::Load | AmxOp::Store) => dst,
            _ => return None,
        };
        let Access { buffer, indices } = written;
        let result = (*buffer, self.flatten(*buffer, indices));
        let own = Axes { emitter: self, vars, sizes };
        match op {
            AmxOp::Zero => Some(Instruction::Zero(own.tile(result, &[0, 1])?)),
            AmxOp::Store => {
                Some(Instruction::Store(own.rows(result, &[0, 1])?, own.tile(read(0)?, &[0, 1])?))
            }
            AmxOp::Load => Some(Instruction::Load(
                own.tile(result, &[0, 1, 2])?,
                own.rows(read(0)?, &[0, 1, 2])?,
            )),
            AmxOp::Dot(factors) => {
                let [a, b] = [read(0)?, read(1)?];
                let tiles = [
                    own.tile(a, &[0, 2, 3])?,
                    own.tile(b, &[2, 1, 3])?,
                    own.tile(result, &[0, 1])?,
                ];
                Some(Instruction::Dot(factors, tiles))
            }
        }
    }
}

/// The axes of an instruction.
struct Axes<'a, 'c, 'p> {
    emitter: &'a Emitter<'c, 'p>,
    vars: &'a [Option<VarId>],
    sizes: &'a [usize],
}

impl Axes<'_, '_, '_> {
    /// An operand that lies as a tile does: the axes one inside of the other, without gaps.
    fn tile(&self, (buffer, flat): (BufId, Affine), axes: &[usize]) -> Option<Tile> {
        let ty = &self.emitter.program.buffer(buffer).ty;
        (self.emitter.program.buffer(buffer).scope == Scope::Fragment).then_some(())?;
        let inner = self.dense(&flat, axes)?;
        let row = inner * ty.dtype.size() as i64 / self.sizes[axes[0]] as i64;
        let tile = Tile {
            buffer,
            elements: inner,
            rows: u8::try_from(self.sizes[axes[0]]).ok()?,
            bytes: u16::try_from(row).ok().filter(|&row| i64::from(row) <= ROW)?,
            at: self.base(&flat)?,
        };
        let whole = (ty.len() as i64) % inner == 0;
        whole.then_some(tile)
    }

    /// An operand in memory: all axes but the first one without gaps.
    fn rows(&self, (buffer, flat): (BufId, Affine), axes: &[usize]) -> Option<Rows> {
        let row = self.dense(&flat, &axes[1..])?;
        let stride = match self.vars[axes[0]] {
            Some(var) => stride_of(&flat, var)?,
            None => row,
        };
        Some(Rows { buffer, at: self.base(&flat)?, stride })
    }

    /// Elements of the axes, if these lie without gaps.
    fn dense(&self, flat: &Affine, axes: &[usize]) -> Option<i64> {
        let mut stride = 1;
        for &axis in axes.iter().rev() {
            if let Some(var) = self.vars[axis] {
                (stride_of(flat, var) == Some(stride)).then_some(())?;
            }
            stride *= self.sizes[axis] as i64;
        }
        Some(stride)
    }

    /// The first element.
    fn base(&self, flat: &Affine) -> Option<Affine> {
        part(flat, |v| !self.vars.contains(&Some(*v)))
    }
}

/// The loops from `l` on and the block in them, if there is nothing else.
pub(super) fn nest(l: &For) -> Option<(Vec<&For>, &Block)> {
    let mut loops = vec![l];
    loop {
        match loops.last()?.body.as_slice() {
            [Stmt::For(inner)] if inner.kind == ForKind::Serial => loops.push(inner),
            [Stmt::Block(block)] if block.predicate.is_none() => return Some((loops, block)),
            _ => return None,
        }
    }
}

fn extents(mut body: &[Stmt]) -> Vec<usize> {
    let mut all = Vec::new();
    while let [Stmt::For(l)] = body {
        all.push(l.extent);
        body = &l.body;
    }
    all
}

/// The loop of each axis. A loop of one iteration may be missing.
fn paired(loops: &[&For], sizes: &[usize]) -> Option<Vec<Option<VarId>>> {
    let mut left = loops.iter().peekable();
    let mut all = Vec::with_capacity(sizes.len());
    for &size in sizes {
        match left.next_if(|l| l.extent == size) {
            Some(l) => all.push(Some(l.var)),
            None if size == 1 => all.push(None),
            None => return None,
        }
    }
    left.next().is_none().then_some(all)
}

fn product(factors: [DType; 2]) -> &'static str {
    match factors {
        [DType::U8, DType::U8] => "llvm.x86.tdpbuud",
        [DType::U8, _] => "llvm.x86.tdpbusd",
        [DType::I8, DType::U8] => "llvm.x86.tdpbsud",
        [DType::I8, _] => "llvm.x86.tdpbssd",
        _ => "llvm.x86.tdpbf16ps",
    }
}

fn has_amx(target: &Target) -> bool {
    has_unit(target, Unit::AmxBf16) || has_unit(target, Unit::AmxInt8)
}

fn has_unit(target: &Target, unit: Unit) -> bool {
    target.has("amx-tile")
        && target.has(match unit {
            Unit::AmxBf16 => "amx-bf16",
            Unit::AmxInt8 => "amx-int8",
            Unit::Mma => return false,
        })
}
