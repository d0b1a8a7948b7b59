//! A thin layer over the LLVM builder in which scalars and vectors are written alike.
//!
//! An operand is a number or a fixed vector of numbers; the lane count is part of its LLVM type.
//! Nothing here knows about programs or buffers.

mod marks;

use inkwell::attributes::AttributeLoc;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicType, BasicTypeEnum};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, CallSiteValue, FastMathFlags,
    InstructionOpcode, InstructionValue, IntValue, MetadataValue, PhiValue, PointerValue,
};
use inkwell::{FloatPredicate, IntPredicate};

use marks::Marks;

/// The purpose of a prefetch, by LLVM's number.
#[derive(Clone, Copy)]
pub(crate) enum Fetch {
    Read = 0,
    Write = 1,
}

/// Where a prefetch brings a line, by LLVM's number.
#[derive(Clone, Copy)]
pub(crate) enum Near {
    /// To all caches.
    First = 3,
    /// To all but the nearest.
    Second = 2,
}

/// A value in registers: scalar or vector.
pub(crate) type Reg<'c> = BasicValueEnum<'c>;

/// The type of a scalar, or of one lane of a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Int(u32),
    F16,
    F32,
    F64,
}

/// Fast-math flags: `a * b + c` may become one operation.
const CONTRACT: FastMathFlags = FastMathFlags::AllowContract;
const NO_SIGNED_ZEROS: FastMathFlags = FastMathFlags::NoSignedZeros;

const POSITIONED: &str = "the builder is positioned inside a block";

impl Kind {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Kind::Int(bits) => bits.div_ceil(8),
            Kind::F16 => 2,
            Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }
}

pub(crate) struct Ir<'c> {
    pub(crate) context: &'c Context,
    pub(crate) module: Module<'c>,
    pub(crate) builder: Builder<'c>,
    /// Whether functions of the C library may be called.
    pub(crate) libm: bool,
    pub(crate) marks: Marks<'c>,
}

/// Lanes of a vector, `None` for a scalar.
pub(crate) fn lanes(v: Reg<'_>) -> Option<u32> {
    match v {
        BasicValueEnum::VectorValue(v) => Some(v.get_type().get_size()),
        _ => None,
    }
}

/// The value of a scalar constant.
fn integer(v: Reg<'_>) -> Option<i64> {
    let BasicValueEnum::IntValue(v) = v else { return None };
    v.get_sign_extended_constant()
}

/// Types and constants.
impl<'c> Ir<'c> {
    pub(crate) fn new(context: &'c Context, name: &str, libm: bool) -> Ir<'c> {
        let (module, builder) = (context.create_module(name), context.create_builder());
        Ir { context, module, builder, libm, marks: Marks::new(context) }
    }

    pub(crate) fn scalar_type(&self, kind: Kind) -> BasicTypeEnum<'c> {
        match kind {
            Kind::Int(1) => self.context.bool_type().into(),
            Kind::Int(8) => self.context.i8_type().into(),
            Kind::Int(16) => self.context.i16_type().into(),
            Kind::Int(32) => self.context.i32_type().into(),
            Kind::Int(64) => self.context.i64_type().into(),
            Kind::Int(bits) => unreachable!("no element has {bits} bits"),
            Kind::F16 => self.context.f16_type().into(),
            Kind::F32 => self.context.f32_type().into(),
            Kind::F64 => self.context.f64_type().into(),
        }
    }

    pub(crate) fn ty(&self, kind: Kind, lanes: Option<u32>) -> BasicTypeEnum<'c> {
        let scalar = self.scalar_type(kind);
        match (lanes, scalar) {
            (None, _) => scalar,
            (Some(n), BasicTypeEnum::IntType(t)) => t.vec_type(n).into(),
            (Some(n), BasicTypeEnum::FloatType(t)) => t.vec_type(n).into(),
            (Some(_), other) => unreachable!("{other} is not an element type"),
        }
    }

    pub(crate) fn index(&self, value: i64) -> IntValue<'c> {
        self.context.i64_type().const_int(value as u64, true)
    }

    /// Goes on in a block: at its end, or before the branch that ends it.
    pub(crate) fn position_at(&self, block: BasicBlock<'c>) {
        match block.get_terminator() {
            Some(end) => self.builder.position_before(&end),
            None => self.builder.position_at_end(block),
        }
    }

    /// An index that comes from the block before; its values are still to be added.
    pub(crate) fn phi_at_start(&self, block: BasicBlock<'c>) -> PhiValue<'c> {
        let here = self.builder.get_insert_block().expect("the builder is positioned");
        match block.get_first_instruction() {
            Some(first) => self.builder.position_before(&first),
            None => self.builder.position_at_end(block),
        }
        let phi = self.builder.build_phi(self.context.i64_type(), "");
        self.position_at(here);
        phi.expect("the builder is positioned")
    }

    /// The constant in every lane.
    pub(crate) fn int(&self, bits: u32, value: i64, lanes: Option<u32>) -> Reg<'c> {
        let scalar = self.scalar_type(Kind::Int(bits)).into_int_type();
        self.repeat(scalar.const_int(value as u64, false).into(), lanes)
    }

    /// The constant in every lane.
    pub(crate) fn float(&self, kind: Kind, value: f64, lanes: Option<u32>) -> Reg<'c> {
        let scalar = self.scalar_type(kind).into_float_type();
        self.repeat(scalar.const_float(value).into(), lanes)
    }

    /// A constant of the same type as `like`.
    pub(crate) fn same(&self, like: Reg<'c>, value: f64) -> Reg<'c> {
        match self.kind(like) {
            Kind::Int(bits) => self.int(bits, value as i64, lanes(like)),
            kind => self.float(kind, value, lanes(like)),
        }
    }

    fn repeat(&self, scalar: Reg<'c>, lanes: Option<u32>) -> Reg<'c> {
        use inkwell::types::VectorType;
        match lanes {
            None => scalar,
            Some(n) => VectorType::const_vector(&vec![scalar; n as usize]).into(),
        }
    }

    /// `<0, 1, 2, ...>`
    pub(crate) fn iota(&self, bits: u32, lanes: u32) -> Reg<'c> {
        use inkwell::types::VectorType;
        let all: Vec<Reg<'c>> = (0..lanes).map(|i| self.int(bits, i64::from(i), None)).collect();
        VectorType::const_vector(&all).into()
    }

    pub(crate) fn kind(&self, v: Reg<'c>) -> Kind {
        let scalar = match v.get_type() {
            BasicTypeEnum::VectorType(t) => t.get_element_type(),
            other => other,
        };
        match scalar {
            BasicTypeEnum::IntType(t) => Kind::Int(t.get_bit_width()),
            t if t == self.context.f16_type().into() => Kind::F16,
            t if t == self.context.f32_type().into() => Kind::F32,
            _ => Kind::F64,
        }
    }
}

/// Arithmetic.
impl<'c> Ir<'c> {
    pub(crate) fn binop(&self, op: InstructionOpcode, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.builder.build_binop(op, a, b, "").expect(POSITIONED)
    }

    /// A floating-point operation that may be fused with its neighbour.
    fn contracted(&self, op: InstructionOpcode, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        let value = self.binop(op, a, b);
        if let Some(instruction) = value.as_instruction_value() {
            // An instruction that takes no flags keeps none.
            let _ = instruction.set_fast_math_flags(CONTRACT);
        }
        value
    }

    pub(crate) fn add(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        match (self.kind(a), integer(a), integer(b)) {
            (_, Some(0), _) => b,
            (_, _, Some(0)) => a,
            (Kind::Int(_), ..) => self.binop(InstructionOpcode::Add, a, b),
            _ => self.contracted(InstructionOpcode::FAdd, a, b),
        }
    }

    pub(crate) fn sub(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        match self.kind(a) {
            Kind::Int(_) => self.binop(InstructionOpcode::Sub, a, b),
            _ => self.contracted(InstructionOpcode::FSub, a, b),
        }
    }

    pub(crate) fn mul(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        match (self.kind(a), integer(a), integer(b)) {
            (_, Some(1), _) => b,
            (_, _, Some(1)) => a,
            (Kind::Int(_), ..) => self.binop(InstructionOpcode::Mul, a, b),
            _ => self.contracted(InstructionOpcode::FMul, a, b),
        }
    }

    pub(crate) fn fdiv(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::FDiv, a, b)
    }

    pub(crate) fn and(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::And, a, b)
    }

    pub(crate) fn or(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::Or, a, b)
    }

    pub(crate) fn xor(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::Xor, a, b)
    }

    pub(crate) fn shl(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::Shl, a, b)
    }

    pub(crate) fn lshr(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::LShr, a, b)
    }

    pub(crate) fn ashr(&self, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        self.binop(InstructionOpcode::AShr, a, b)
    }

    pub(crate) fn not(&self, a: Reg<'c>) -> Reg<'c> {
        let Kind::Int(bits) = self.kind(a) else { unreachable!("`not` is for integers") };
        self.xor(a, self.int(bits, -1, lanes(a)))
    }

    pub(crate) fn neg(&self, a: Reg<'c>) -> Reg<'c> {
        match (self.kind(a), a) {
            (Kind::Int(_), _) => self.sub(self.same(a, 0.0), a),
            (_, BasicValueEnum::VectorValue(v)) => {
                self.builder.build_float_neg(v, "").expect(POSITIONED).into()
            }
            (_, v) => {
                self.builder.build_float_neg(v.into_float_value(), "").expect(POSITIONED).into()
            }
        }
    }

    pub(crate) fn icmp(&self, predicate: IntPredicate, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        match (a, b) {
            (BasicValueEnum::VectorValue(a), BasicValueEnum::VectorValue(b)) => {
                self.builder.build_int_compare(predicate, a, b, "").expect(POSITIONED).into()
            }
            (a, b) => self
                .builder
                .build_int_compare(predicate, a.into_int_value(), b.into_int_value(), "")
                .expect(POSITIONED)
                .into(),
        }
    }

    pub(crate) fn fcmp(&self, predicate: FloatPredicate, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        match (a, b) {
            (BasicValueEnum::VectorValue(a), BasicValueEnum::VectorValue(b)) => {
                self.builder.build_float_compare(predicate, a, b, "").expect(POSITIONED).into()
            }
            (a, b) => self
                .builder
                .build_float_compare(predicate, a.into_float_value(), b.into_float_value(), "")
                .expect(POSITIONED)
                .into(),
        }
    }

    /// Each of the three may be scalar where another is a vector.
    pub(crate) fn select(&self, condition: Reg<'c>, a: Reg<'c>, b: Reg<'c>) -> Reg<'c> {
        let (a, b) = self.level(a, b);
        if let Some(known) = integer(condition) {
            return if known == 0 { b } else { a };
        }
        match condition {
            BasicValueEnum::VectorValue(c) => {
                let n = Some(c.get_type().get_size());
                self.builder.build_select(c, self.splat(a, n), self.splat(b, n), "")
            }
            c => self.builder.build_select(c.into_int_value(), a, b, ""),
        }
        .expect(POSITIONED)
    }

    /// Converts every lane; the lane count stays.
    pub(crate) fn cast(&self, op: InstructionOpcode, v: Reg<'c>, to: Kind) -> Reg<'c> {
        self.builder.build_cast(op, v, self.ty(to, lanes(v)), "").expect(POSITIONED)
    }

    /// The same bits under another kind of the same size.
    pub(crate) fn bitcast(&self, v: Reg<'c>, to: Kind) -> Reg<'c> {
        self.cast(InstructionOpcode::BitCast, v, to)
    }

    /// The same bits as a type of the same size, of as many lanes as that has.
    pub(crate) fn reinterpret(&self, v: Reg<'c>, to: BasicTypeEnum<'c>) -> Reg<'c> {
        if v.get_type() == to {
            return v;
        }
        self.builder.build_bit_cast(v, to, "").expect(POSITIONED)
    }

    /// Widens or narrows an integer.
    pub(crate) fn resize(&self, v: Reg<'c>, bits: u32, signed: bool) -> Reg<'c> {
        let Kind::Int(from) = self.kind(v) else { unreachable!("`resize` is for integers") };
        match bits.cmp(&from) {
            std::cmp::Ordering::Equal => v,
            std::cmp::Ordering::Less => self.cast(InstructionOpcode::Trunc, v, Kind::Int(bits)),
            std::cmp::Ordering::Greater if signed => {
                self.cast(InstructionOpcode::SExt, v, Kind::Int(bits))
            }
            std::cmp::Ordering::Greater => self.cast(InstructionOpcode::ZExt, v, Kind::Int(bits)),
        }
    }
}

/// Calls.
impl<'c> Ir<'c> {
    /// Calls an LLVM intrinsic overloaded on `types`.
    pub(crate) fn intrinsic_on(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[Reg<'c>],
    ) -> Option<Reg<'c>> {
        let intrinsic = Intrinsic::find(name).expect("the intrinsic exists in this LLVM");
        let function = intrinsic
            .get_declaration(&self.module, types)
            .expect("the intrinsic is declared with its overload types");
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|&a| a.into()).collect();
        let call = self.builder.build_call(function, &args, "").expect(POSITIONED);
        call.try_as_basic_value().basic()
    }

    /// Writes instructions that are executed where they stand, for what they do to the processor.
    pub(crate) fn assembly(&self, text: &str, clobbered: &str) {
        let ty = self.context.void_type().fn_type(&[], false);
        let (text, clobbered) = (text.to_string(), clobbered.to_string());
        let code = self.context.create_inline_asm(ty, text, clobbered, true, false, None, false);
        self.builder.build_indirect_call(ty, code, &[], "").expect(POSITIONED);
    }

    /// Calls an intrinsic that is overloaded on the type of its first operand and returns a value.
    pub(crate) fn intrinsic(&self, name: &str, args: &[Reg<'c>]) -> Reg<'c> {
        self.intrinsic_on(name, &[args[0].get_type()], args).expect("the intrinsic returns a value")
    }

    /// The same, where it does not matter which zero the result is.
    pub(crate) fn of_any_zero(&self, name: &str, args: &[Reg<'c>]) -> Reg<'c> {
        let value = self.intrinsic(name, args);
        if let Some(instruction) = value.as_instruction_value() {
            // An operand that was folded away has no flags, and needs none.
            let _ = instruction.set_fast_math_flags(NO_SIGNED_ZEROS);
        }
        value
    }

    /// `a * b + c`, fused where the target can.
    pub(crate) fn fma(&self, a: Reg<'c>, b: Reg<'c>, c: Reg<'c>) -> Reg<'c> {
        self.intrinsic("llvm.fmuladd", &[a, b, c])
    }
}

/// Lanes.
impl<'c> Ir<'c> {
    pub(crate) fn splat(&self, v: Reg<'c>, lanes: Option<u32>) -> Reg<'c> {
        let Some(n) = lanes else { return v };
        if let BasicValueEnum::VectorValue(_) = v {
            return v;
        }
        if v.is_const() {
            return self.repeat(v, lanes);
        }
        let poison = self.poison_of(v, n);
        let one = self
            .builder
            .build_insert_element(poison, v, self.context.i32_type().const_zero(), "")
            .expect(POSITIONED);
        self.shuffle(one.into(), one.into(), &vec![0; n as usize])
    }

    /// Nothing, of the type of a vector.
    pub(crate) fn poison(&self, like: Reg<'c>) -> Reg<'c> {
        like.get_type().into_vector_type().get_poison().into()
    }

    fn poison_of(&self, like: Reg<'c>, lanes: u32) -> inkwell::values::VectorValue<'c> {
        self.ty(self.kind(like), Some(lanes)).into_vector_type().get_poison()
    }

    pub(crate) fn shuffle(&self, a: Reg<'c>, b: Reg<'c>, mask: &[u32]) -> Reg<'c> {
        use inkwell::types::VectorType;
        let i32_type = self.context.i32_type();
        let mask: Vec<_> = mask.iter().map(|&m| i32_type.const_int(u64::from(m), false)).collect();
        self.builder
            .build_shuffle_vector(
                a.into_vector_value(),
                b.into_vector_value(),
                VectorType::const_vector(&mask),
                "",
            )
            .expect(POSITIONED)
            .into()
    }

    /// The same floats, into which LLVM does not look: it tries to put shuffles of shuffles
    /// together, in time that doubles with each.
    pub(crate) fn as_it_is(&self, v: Reg<'c>) -> Reg<'c> {
        match self.kind(v) {
            Kind::F32 | Kind::F64 => self.intrinsic("llvm.arithmetic.fence", &[v]),
            Kind::Int(_) | Kind::F16 => v,
        }
    }

    pub(crate) fn lane(&self, v: Reg<'c>, lane: u32) -> Reg<'c> {
        let BasicValueEnum::VectorValue(v) = v else { return v };
        let at = self.context.i32_type().const_int(u64::from(lane), false);
        self.builder.build_extract_element(v, at, "").expect(POSITIONED)
    }

    pub(crate) fn join_lanes(&self, all: &[Reg<'c>]) -> Reg<'c> {
        let count = u32::try_from(all.len()).expect("few lanes");
        let mut vector = self.poison_of(all[0], count);
        for (i, &v) in all.iter().enumerate() {
            let at = self.context.i32_type().const_int(i as u64, false);
            vector = self.builder.build_insert_element(vector, v, at, "").expect(POSITIONED);
        }
        vector.into()
    }

    /// Both operands as vectors of the same lane count, or both scalar.
    pub(crate) fn level(&self, a: Reg<'c>, b: Reg<'c>) -> (Reg<'c>, Reg<'c>) {
        let n = lanes(a).or(lanes(b));
        (self.splat(a, n), self.splat(b, n))
    }
}

/// Memory.
impl<'c> Ir<'c> {
    /// `base + bytes`
    pub(crate) fn offset(&self, base: PointerValue<'c>, bytes: IntValue<'c>) -> PointerValue<'c> {
        if bytes.get_sign_extended_constant() == Some(0) {
            return base;
        }
        // SAFETY: a byte offset of a byte type is well formed; without `inbounds` any value is.
        unsafe { self.builder.build_gep(self.context.i8_type(), base, &[bytes], "") }
            .expect(POSITIONED)
    }

    pub(crate) fn address(&self, at: PointerValue<'c>) -> Reg<'c> {
        let ty = self.context.i64_type();
        self.builder.build_ptr_to_int(at, ty, "").expect(POSITIONED).into()
    }

    pub(crate) fn load(&self, ty: impl BasicType<'c>, at: PointerValue<'c>, align: u32) -> Reg<'c> {
        let value = self.builder.build_load(ty, at, "").expect(POSITIONED);
        let load = value.as_instruction_value().expect("a load is an instruction");
        load.set_alignment(align).expect("alignment is a power of two");
        value
    }

    pub(crate) fn store(
        &self,
        value: Reg<'c>,
        at: PointerValue<'c>,
        align: u32,
    ) -> InstructionValue<'c> {
        let store = self.builder.build_store(at, value).expect(POSITIONED);
        store.set_alignment(align).expect("alignment is a power of two");
        store
    }

    /// Loads the lanes where `mask` is set; the others are zero and not accessed.
    pub(crate) fn masked_load(
        &self,
        ty: BasicTypeEnum<'c>,
        at: PointerValue<'c>,
        align: u32,
        mask: Reg<'c>,
    ) -> Reg<'c> {
        let nothing = ty.into_vector_type().const_zero().into();
        self.masked("llvm.masked.load", ty, &[], at, align, &[mask, nothing])
            .try_as_basic_value()
            .basic()
            .expect("a load returns a value")
    }

    /// Stores the lanes where `mask` is set.
    pub(crate) fn masked_store(
        &self,
        value: Reg<'c>,
        at: PointerValue<'c>,
        align: u32,
        mask: Reg<'c>,
    ) -> InstructionValue<'c> {
        self.masked("llvm.masked.store", value.get_type(), &[value], at, align, &[mask])
            .try_as_basic_value()
            .instruction()
            .expect("a store returns nothing")
    }

    fn masked(
        &self,
        name: &str,
        ty: BasicTypeEnum<'c>,
        before: &[Reg<'c>],
        at: PointerValue<'c>,
        align: u32,
        after: &[Reg<'c>],
    ) -> CallSiteValue<'c> {
        let intrinsic = Intrinsic::find(name).expect("the intrinsic exists in this LLVM");
        let function = intrinsic
            .get_declaration(&self.module, &[ty, at.get_type().into()])
            .expect("the intrinsic is declared with its overload types");
        let mut args: Vec<BasicMetadataValueEnum<'c>> = before.iter().map(|&v| v.into()).collect();
        args.push(at.into());
        // Before LLVM 22 the alignment was an argument, since then it is an attribute.
        let is_argument = function.count_params() as usize > before.len() + 1 + after.len();
        if is_argument {
            args.push(self.context.i32_type().const_int(u64::from(align), false).into());
        }
        args.extend(after.iter().map(|&v| BasicMetadataValueEnum::from(v)));
        let call = self.builder.build_call(function, &args, "").expect(POSITIONED);
        if !is_argument {
            call.set_alignment_attribute(AttributeLoc::Param(before.len() as u32), align);
        }
        call
    }

    /// Says something of the instruction that made a value.
    pub(crate) fn mark(&self, value: Reg<'c>, kind: u32, node: MetadataValue<'c>) {
        if let Some(instruction) = value.as_instruction_value() {
            instruction.set_metadata(node, kind).expect("a metadata node");
        }
    }

    /// Fetches a line into the second cache, for reading.
    pub(crate) fn prefetch(&self, at: PointerValue<'c>, what: Fetch, to: Near) {
        let [write, near, data] = [what as i64, to as i64, 1].map(|n| self.int(32, n, None));
        let ty = at.get_type().into();
        self.intrinsic_on("llvm.prefetch", &[ty], &[at.into(), write, near, data]);
    }

    /// Whether any lane of a mask is set.
    pub(crate) fn any(&self, mask: Reg<'c>) -> Reg<'c> {
        match mask {
            BasicValueEnum::VectorValue(_) => self.intrinsic("llvm.vector.reduce.or", &[mask]),
            scalar => scalar,
        }
    }
}
