//! Nests that are one instruction of a warp: `mma.sync` and what fills its fragments.
//!
//! Each thread holds its lane of a fragment: memory of its own, which becomes registers since
//! everything about it is known when compiling. Factors come from shared memory by `ldmatrix`,
//! which deals four matrices of 8 rows of 16 bytes out to the lanes of a warp: each lane names a
//! row, and gets four bytes of each matrix. Where bytes of one register do not lie side by side,
//! each lane loads its own.
//!
//! ```text
//! for i in 0..16 tensor(mma_rows_f16) { for k in 0..16 { a[lane, e] = s[r + i, c + k] } }
//! =>
//! a0, a1, a2, a3 = ldmatrix.x4 [s + (r + lane % 16) * stride + (c + lane / 16 * 8)]
//! ```

use ansc_graph::BufId;
use ansc_runtime::DType;
use ansc_sketch::intrinsic::mma::{self, COLUMNS, LANES, LOADED, MmaOp, ROWS, Side};
use ansc_sketch::intrinsic::{self, NativeOp};
use ansc_sketch::program::{For, ForKind};
use ansc_sketch::{Access, Block, Scope};
use inkwell::types::{BasicType, BasicTypeEnum};
use inkwell::values::PointerValue;

use crate::affine::Affine;
use crate::emit::ahead::{part, stride_of};
use crate::emit::amx::nest;
use crate::emit::function::{Emitter, Result};
use crate::ir::{Kind, Reg};

/// The first generation with these instructions.
const LEAST: u32 = 80;
/// Bytes of a row of a matrix that `ldmatrix` loads.
const ROW: i64 = 16;
/// Matrices that it loads.
const MATRICES: u32 = 4;

const POSITIONED: &str = "the builder is positioned";

/// A part of a shared buffer that an instruction loads.
struct Source {
    buffer: BufId,
    at: Affine,
    /// From one row to the next, in elements.
    stride: i64,
}

impl<'c> Emitter<'c, '_> {
    /// The nest as an instruction of the warp.
    pub(crate) fn warp(&mut self, l: &For) -> Result<()> {
        let ForKind::Tensor(name) = l.kind else { return Err("a loop is no instruction".into()) };
        if self.target.sm().is_none_or(|sm| sm < LEAST) {
            return Err(format!(
                "{name} needs compute capability 8.0; compile for --sm 80 or more"
            ));
        }
        let native = intrinsic::find(name.as_str()).and_then(|i| i.as_native().copied());
        let Some(NativeOp::Mma(op)) = native.map(|native| native.op) else {
            return Err(format!("{name} is no instruction of a warp"));
        };
        let form = || format!("a nest has another form than {name}");
        let (loops, block) = nest(l).ok_or_else(form)?;
        let source = match op {
            MmaOp::Load { .. } => Some(self.source(&loops, block).ok_or_else(form)?),
            MmaOp::Zero | MmaOp::Dot(_) => None,
        };
        for l in &loops {
            self.bindings.insert(l.var, Affine::constant(0));
        }
        let done = match (op, source) {
            (MmaOp::Load { side, across }, Some(source)) => {
                self.load_fragment(block, side, across, &source)
            }
            (MmaOp::Dot(factors), _) => self.dot(block, factors),
            _ => self.zero(block),
        };
        for l in &loops {
            self.bindings.remove(&l.var);
        }
        done
    }

    fn zero(&mut self, block: &Block) -> Result<()> {
        let (buffer, at) = self.written(block)?;
        let kind = sums(self.program.buffer(buffer).ty.dtype);
        let zero = match kind {
            Kind::Int(bits) => self.ir.int(bits, 0, None),
            float => self.ir.float(float, 0.0, None),
        };
        let registers = vec![zero; ROWS * COLUMNS / LANES];
        self.hold(buffer, &at, 1, &registers)
    }

    fn dot(&mut self, block: &Block, factors: [DType; 2]) -> Result<()> {
        let loads = block.body.value().loads();
        let [(a, at_a), (b, at_b)] = loads[..] else {
            return Err("a product has two factors".into());
        };
        let (at_a, at_b) = (self.flatten(a, at_a), self.flatten(b, at_b));
        let (c, at_c) = self.written(block)?;
        let w = mma::word(factors[0]) as i64;
        let sum = sums(self.program.buffer(c).ty.dtype);
        let mut operands = self.held(a, &at_a, w, 4, Kind::Int(32))?;
        operands.extend(self.held(b, &at_b, w, 2, Kind::Int(32))?);
        if factors[0] == DType::F32 {
            operands = operands.into_iter().map(|bits| self.tf32(bits)).collect::<Result<_>>()?;
        }
        if factors[0] == DType::F16 {
            let pair = self.ir.context.f16_type().vec_type(2);
            let as_pair = |v| self.ir.builder.build_bit_cast(v, pair, "").expect(POSITIONED);
            operands = operands.into_iter().map(as_pair).collect();
        }
        operands.extend(self.held(c, &at_c, 1, 4, sum)?);
        let results = self.call(&product(factors), &[], &operands, 4)?;
        self.hold(c, &at_c, 1, &results)
    }

    /// The bits of an `f32` that the tensor cores read, rounded.
    fn tf32(&self, bits: Reg<'c>) -> Result<Reg<'c>> {
        let float = self.ir.bitcast(bits, Kind::F32);
        let rounded = self.ir.intrinsic_on("llvm.nvvm.f2tf32.rna", &[], &[float]);
        rounded.ok_or_else(|| "this LLVM has no floats of tensor cores".into())
    }

    fn load_fragment(
        &mut self,
        block: &Block,
        side: Side,
        across: bool,
        source: &Source,
    ) -> Result<()> {
        let (fragment, at) = self.written(block)?;
        let dtype = self.program.buffer(fragment).ty.dtype;
        let size = dtype.size() as i64;
        let (from, align) = self.pointer(source.buffer, &source.at.variable_part())?;
        let constant = source.at.constant * size;
        let rows = (source.stride * size) % ROW == 0 && constant % ROW == 0;
        let fits = rows && i64::from(align) >= ROW && (!across || size == 2);
        let registers = match fits {
            true => self.matrices(side, across, from, source.stride * size, constant)?,
            false => self.each_lane(side, across, from, source.stride, constant, dtype)?,
        };
        self.hold(fragment, &at, mma::word(dtype) as i64, &registers)
    }

    /// Registers of four matrices, of rows that are so many bytes apart.
    fn matrices(
        &mut self,
        side: Side,
        across: bool,
        from: PointerValue<'c>,
        stride: i64,
        constant: i64,
    ) -> Result<Vec<Reg<'c>>> {
        let lane = self.lane_of_warp()?;
        // The second matrix is that of the next rows, or of what follows in the same ones.
        let (row, column) = match (side == Side::Rows) != across {
            true => (self.modulo(lane, 16), self.quotient(lane, 16)),
            false => {
                let upper = self.ir.mul(self.quotient(lane, 16), self.ir.int(32, 8, None));
                (self.ir.add(self.modulo(lane, 8), upper), self.modulo(self.quotient(lane, 8), 2))
            }
        };
        let rows = self.ir.mul(row, self.ir.int(32, stride, None));
        let columns = self.ir.mul(column, self.ir.int(32, ROW, None));
        let at = self.beside(from, self.ir.add(rows, columns), constant);
        let order = if across { ".trans" } else { "" };
        let name = format!("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{MATRICES}{order}.b16");
        let pointer = at.get_type().as_basic_type_enum();
        self.call(&name, &[pointer], &[at.into()], MATRICES)
    }

    /// The same registers, element by element: `stride` counts elements.
    fn each_lane(
        &mut self,
        side: Side,
        across: bool,
        from: PointerValue<'c>,
        stride: i64,
        constant: i64,
        dtype: DType,
    ) -> Result<Vec<Reg<'c>>> {
        let (size, w) = (dtype.size() as i64, mma::word(dtype) as i64);
        let (of_row, of_term) = if across { (1, stride) } else { (stride, 1) };
        let lane = self.lane_of_warp()?;
        let row = self.ir.mul(self.quotient(lane, 4), self.ir.int(32, of_row * size, None));
        let term = self.ir.mul(self.modulo(lane, 4), self.ir.int(32, w * of_term * size, None));
        let own = self.ir.add(row, term);
        let bits = 8 * size as u32;
        let mut registers = vec![];
        for number in 0..i64::from(MATRICES) {
            // Which eight rows, and which half of the terms.
            let (eight, half) = match side {
                Side::Rows => (number % 2, number / 2),
                Side::Columns => (number / 2, number % 2),
            };
            let first = eight * 8 * of_row + half * 4 * w * of_term;
            let mut word = self.ir.int(32, 0, None);
            for e in 0..w {
                let offset = constant + (first + e * of_term) * size;
                let at = self.beside(from, own, offset);
                let ty = self.ir.ty(Kind::Int(bits), None);
                let element = self.ir.resize(self.ir.load(ty, at, size as u32), 32, false);
                let place = self.ir.int(32, e * i64::from(bits), None);
                word = self.ir.or(word, self.ir.shl(element, place));
            }
            registers.push(word);
        }
        Ok(registers)
    }

    /// Further than `from` by bytes that depend on the lane, and by others that do not.
    fn beside(&self, from: PointerValue<'c>, own: Reg<'c>, constant: i64) -> PointerValue<'c> {
        let own = self.ir.resize(own, 64, false).into_int_value();
        self.ir.offset(self.ir.offset(from, own), self.ir.index(constant))
    }

    /// The index of a thread in its warp: blocks of warps have 32 threads along the first axis.
    fn lane_of_warp(&mut self) -> Result<Reg<'c>> {
        let index =
            self.in_head(0, |e| e.ir.intrinsic_on("llvm.nvvm.read.ptx.sreg.tid.x", &[], &[]));
        index.ok_or_else(|| "this LLVM has no indices of threads".into())
    }

    /// By a power of two.
    fn quotient(&self, a: Reg<'c>, by: u32) -> Reg<'c> {
        self.ir.lshr(a, self.ir.int(32, i64::from(by.trailing_zeros()), None))
    }

    fn modulo(&self, a: Reg<'c>, by: u32) -> Reg<'c> {
        self.ir.and(a, self.ir.int(32, i64::from(by) - 1, None))
    }

    /// Results of an intrinsic that has several.
    fn call(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[Reg<'c>],
        count: u32,
    ) -> Result<Vec<Reg<'c>>> {
        let all = self.ir.intrinsic_on(name, types, args).ok_or("an instruction has results")?;
        let all = all.into_struct_value();
        let one = |i| self.ir.builder.build_extract_value(all, i, "").expect(POSITIONED);
        Ok((0..count).map(one).collect())
    }

    /// The element that the first iteration of the nest writes.
    fn written(&mut self, block: &Block) -> Result<(BufId, Affine)> {
        let writes = block.body.writes();
        let [Access { buffer, indices }] = writes[..] else {
            return Err("an instruction has one result".into());
        };
        Ok((*buffer, self.flatten(*buffer, indices)))
    }

    /// Registers of a fragment, each of `w` elements.
    fn held(
        &mut self,
        fragment: BufId,
        at: &Affine,
        w: i64,
        count: i64,
        kind: Kind,
    ) -> Result<Vec<Reg<'c>>> {
        (0..count)
            .map(|n| {
                let (at, align) =
                    self.pointer(fragment, &at.clone().plus(&Affine::constant(n * w)))?;
                Ok(self.ir.load(self.ir.ty(kind, None), at, align))
            })
            .collect()
    }

    fn hold(&mut self, fragment: BufId, at: &Affine, w: i64, registers: &[Reg<'c>]) -> Result<()> {
        for (n, register) in registers.iter().enumerate() {
            let at = at.clone().plus(&Affine::constant(n as i64 * w));
            let (at, align) = self.pointer(fragment, &at)?;
            self.ir.store(*register, at, align);
        }
        Ok(())
    }

    /// The shared memory that a nest of two loops loads from.
    fn source(&mut self, loops: &[&For], block: &Block) -> Option<Source> {
        let [outer, inner] = loops else { return None };
        let loads = block.body.value().loads();
        let [(buffer, at)] = loads[..] else { return None };
        (self.program.buffer(buffer).scope == Scope::Shared).then_some(())?;
        for l in loops {
            self.ranges.insert(l.var, (0, l.extent as i64 - 1));
        }
        let flat = self.flatten(buffer, at);
        for l in loops {
            self.ranges.remove(&l.var);
        }
        let side_by_side = stride_of(&flat, inner.var) == Some(1);
        let vars = [outer.var, inner.var];
        let source = Source {
            buffer,
            stride: stride_of(&flat, outer.var)?,
            at: part(&flat, |v| !vars.contains(v))?,
        };
        side_by_side.then_some(source)
    }
}

fn sums(dtype: DType) -> Kind {
    if dtype == DType::F32 { Kind::F32 } else { Kind::Int(32) }
}

/// LLVM's name of the product of one instruction.
fn product(factors: [DType; 2]) -> String {
    let types = match factors {
        [DType::F16, _] => "16.row.col.f32.f32",
        [DType::BF16, _] => "16.row.col.bf16",
        [DType::F32, _] => "8.row.col.tf32",
        [DType::I8, DType::I8] => "32.row.col.s8",
        [DType::I8, _] => "32.row.col.s8.u8",
        [_, DType::I8] => "32.row.col.u8.s8",
        _ => "32.row.col.u8",
    };
    const _: () = assert!(ROWS == 16 && COLUMNS == 8 && LOADED == 16);
    format!("llvm.nvvm.mma.m{ROWS}n{COLUMNS}k{types}")
}
