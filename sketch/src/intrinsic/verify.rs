//! Whether two programs do the same to the same parameters, by running them.

use ansc_graph::{Expr, TensorType};
use ansc_runtime::{DType, Tensor};

use super::{IntrinsicError, is_result};
use crate::exec;
use crate::program::{
    Access, Block, Body, For, ForKind, Iter, IterKind, Program, Scope, Shared, Stmt,
};
use crate::tree;

/// Operands are drawn this many times.
const ROUNDS: u64 = 4;

pub(super) fn same(a: &Program, b: &Program) -> Result<(), IntrinsicError> {
    if params(a) != params(b) {
        return Err(IntrinsicError::Parameters);
    }
    let (a, b) = (with_given_results(a), with_given_results(b));
    for round in 0..ROUNDS {
        let inputs: Vec<Tensor> = a
            .params
            .iter()
            .map(|&p| a.buffer(p))
            .filter(|buffer| buffer.scope == Scope::Input)
            .enumerate()
            .map(|(i, buffer)| operand(&buffer.ty, round * 97 + i as u64))
            .collect();
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        if exec::run(&a, &inputs)? != exec::run(&b, &inputs)? {
            return Err(IntrinsicError::Different);
        }
    }
    Ok(())
}

fn params(program: &Program) -> Vec<(&TensorType, Scope)> {
    let of = |&p| (&program.buffer(p).ty, program.buffer(p).scope);
    program.params.iter().map(of).collect()
}

/// Results begin with what further inputs hold: an update is a function of that too.
pub(super) fn with_given_results(program: &Program) -> Program {
    let mut program = program.clone();
    let results: Vec<_> =
        program.params.iter().copied().filter(|&p| is_result(&program, p)).collect();
    for (n, result) in results.into_iter().enumerate() {
        let ty = program.buffer(result).ty.clone();
        let before = program.add_buffer(format!("before{n}"), ty.clone(), Scope::Input);
        program.params.push(before);
        let (mut loops, mut iters) = (vec![], vec![]);
        for &extent in &ty.shape {
            let var = program.add_var("i");
            loops.push(For { var, extent, kind: ForKind::Serial, body: vec![] });
            let binding = Expr::Var(var);
            let var = program.add_var("v");
            iters.push(Iter { var, extent, kind: IterKind::Spatial, binding });
        }
        let indices: Vec<Expr> = iters.iter().map(|i| Expr::Var(i.var)).collect();
        let value = Expr::Load(before, indices.clone());
        let body = Body::Assign { dst: Access { buffer: result, indices }, value };
        let name = program.fresh_block_name("before");
        let block = Block { name, iters, predicate: None, body };
        program.body.splice(0..0, tree::nest(loops, vec![Stmt::Block(Shared::new(block))]));
    }
    program
}

/// Small whole numbers, so that sums are exact in any order.
pub(crate) fn operand(ty: &TensorType, seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut tensor = Tensor::zeros(ty.dtype, &ty.shape);
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % 5
    };
    macro_rules! fill {
        ($($dtype:ident $ty:ty, $from:expr;)*) => {
            match ty.dtype {
                $(DType::$dtype => {
                    tensor.as_mut_slice::<$ty>().iter_mut().for_each(|x| *x = $from(next()));
                })*
            }
        };
    }
    let signed = |n: i64| n - 2;
    fill! {
        F32 f32, |n| signed(n) as f32;
        F64 f64, |n| signed(n) as f64;
        F16 half::f16, |n| half::f16::from_f32(signed(n) as f32);
        BF16 half::bf16, |n| half::bf16::from_f32(signed(n) as f32);
        Bool bool, |n| n > 2;
        I8 i8, |n| signed(n) as i8;
        I16 i16, |n| signed(n) as i16;
        I32 i32, |n| signed(n) as i32;
        I64 i64, signed;
        U8 u8, |n| n as u8;
        U16 u16, |n| n as u16;
        U32 u32, |n| n as u32;
        U64 u64, |n| n as u64;
    }
    tensor
}
