//! `Program::code_hash` says whether two programs become the same machine code.

use std::collections::BTreeMap;

use ansc_codegen::{Listing, Target, listing};
use ansc_graph::{BinOp, BufId, Combiner, Compute, Expr, Stage, TensorType, VarId};
use ansc_runtime::DType;
use ansc_sketch::Machine;
use ansc_sketch::{Body, Program, Scope, Stmt, Task};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn at(input: usize, axes: &[usize]) -> Expr {
    Expr::load(input, axes.iter().map(|&axis| Expr::var(axis)).collect())
}

fn product([m, n, k]: [usize; 3]) -> Compute {
    let body = at(0, &[0, 2]) * at(1, &[2, 1]);
    let stage = Stage::reduction("y", f32s(&[m, n]), Combiner::Sum, vec![k], body);
    let mut compute = Compute::single(vec![f32s(&[m, k]), f32s(&[k, n])], stage);
    let value = at(2, &[0, 1]).max(Expr::float(DType::F32, 0.0));
    compute.push(Stage::map("z", f32s(&[m, n]), value));
    compute.outputs = vec![1];
    compute
}

/// Each row less its largest element.
fn rows([m, n]: [usize; 2]) -> Compute {
    let most = Stage::reduction("s", f32s(&[m]), Combiner::Max, vec![n], at(0, &[0, 1]));
    let mut compute = Compute::single(vec![f32s(&[m, n])], most);
    compute.push(Stage::map("y", f32s(&[m, n]), at(0, &[0, 1]) - at(1, &[0])));
    compute.outputs = vec![1];
    compute
}

fn transposed([m, n]: [usize; 2]) -> Compute {
    Compute::single(vec![f32s(&[n, m])], Stage::map("t", f32s(&[m, n]), at(0, &[1, 0])))
}

fn programs() -> Vec<Program> {
    let computes = [
        product([32, 48, 40]),
        product([32, 48, 41]),
        product([37, 41, 29]),
        rows([16, 100]),
        rows([16, 96]),
        transposed([64, 48]),
        transposed([64, 49]),
    ];
    let of = |compute: &Compute, constant: bool, registers| {
        let constant: Vec<bool> = (0..compute.inputs.len()).map(|i| constant && i > 0).collect();
        Task::on_cpu("k", compute, &constant, &Machine::new(32, registers))
            .scheduled_as(None)
            .program
    };
    let each = computes.iter();
    each.flat_map(|c| [of(c, false, 16), of(c, true, 16), of(c, false, 8)]).collect()
}

fn assembly(program: &Program) -> String {
    let target = Target::parse("x86-64-v3").unwrap();
    listing(program, "k", &target, Listing::Assembly).unwrap_or_else(|e| panic!("{e}\n{program}"))
}

/// Programs of which the code is the same: names, numbers and iterators are others.
fn same(program: &Program) -> Vec<Program> {
    let mut named = program.clone();
    named.name = "other".into();
    named.vars.iter_mut().enumerate().for_each(|(i, name)| *name = format!("v{i}"));
    named.buffers.iter_mut().enumerate().for_each(|(i, buffer)| buffer.name = format!("b{i}"));
    visit(&mut named.body, &mut |block| block.name.insert(0, 'z'));
    let mut without = program.clone();
    visit(&mut without.body, &mut |block| {
        block.iters.retain(|iter| iter.kind == ansc_sketch::IterKind::Reduce)
    });
    let mut turned = program.clone();
    visit(&mut turned.body, &mut |block| {
        each_index(&mut block.body, &mut |e| *e = commuted(e));
    });
    vec![named, without, turned, backwards(program), reordered(program)]
}

fn visit(stmts: &mut [Stmt], f: &mut impl FnMut(&mut ansc_sketch::Block)) {
    for stmt in stmts {
        match stmt {
            Stmt::Block(block) => f(block),
            Stmt::For(l) => visit(&mut l.body, f),
        }
    }
}

fn exprs(body: &mut Body, f: &mut impl FnMut(&mut Expr)) {
    match body {
        Body::Assign { dst, value } | Body::Reduce { dst, value, .. } => {
            dst.indices.iter_mut().for_each(&mut *f);
            f(value);
        }
        Body::ArgReduce { .. } => unreachable!("none of the programs has one"),
    }
}

fn each_index(body: &mut Body, f: &mut impl FnMut(&mut Expr)) {
    let (Body::Assign { dst, value } | Body::Reduce { dst, value, .. }) = body else { return };
    dst.indices.iter_mut().for_each(&mut *f);
    value.visit_mut(&mut |node| {
        if let Expr::Load(_, indices) = node {
            indices.iter_mut().for_each(&mut *f);
        }
    });
}

/// Sums with their sides changed.
fn commuted(e: &Expr) -> Expr {
    e.rewrite(&mut |node| match node {
        Expr::Binary(BinOp::Add, a, b) => Some(Expr::Binary(BinOp::Add, b.clone(), a.clone())),
        _ => None,
    })
}

/// Variables numbered from the other end.
fn backwards(program: &Program) -> Program {
    let last = program.vars.len() - 1;
    let new = |v: VarId| VarId::new(last - v.index());
    let mut turned = program.clone();
    turned.vars.reverse();
    fn loops(stmts: &mut [Stmt], new: &impl Fn(VarId) -> VarId) {
        for stmt in stmts {
            if let Stmt::For(l) = stmt {
                l.var = new(l.var);
                loops(&mut l.body, new);
            }
        }
    }
    loops(&mut turned.body, &new);
    visit(&mut turned.body, &mut |block| {
        for iter in &mut block.iters {
            iter.var = new(iter.var);
            iter.binding = iter.binding.substitute(&|v| Some(Expr::Var(new(v))));
        }
        let renamed = |e: &Expr| e.substitute(&|v| Some(Expr::Var(new(v))));
        block.predicate = block.predicate.as_ref().map(renamed);
        exprs(&mut block.body, &mut |e| *e = renamed(e));
    });
    turned
}

/// Local buffers in the opposite order.
fn reordered(program: &Program) -> Program {
    let is_local = |i: &usize| program.buffers[*i].scope == Scope::Local;
    let local: Vec<usize> = (0..program.buffers.len()).filter(is_local).collect();
    let places: BTreeMap<usize, usize> =
        local.iter().copied().zip(local.iter().rev().copied()).collect();
    let new = |b: BufId| BufId::new(*places.get(&b.index()).unwrap_or(&b.index()));
    let mut turned = program.clone();
    for (from, to) in &places {
        turned.buffers[*to] = program.buffers[*from].clone();
    }
    visit(&mut turned.body, &mut |block| {
        let (Body::Assign { dst, .. } | Body::Reduce { dst, .. }) = &mut block.body else { return };
        dst.buffer = new(dst.buffer);
        exprs(&mut block.body, &mut |e| {
            e.visit_mut(&mut |node| {
                if let Expr::Load(buffer, _) = node {
                    *buffer = new(*buffer);
                }
            });
        });
    });
    turned
}

#[test]
fn the_hash_is_one_of_the_code() {
    let mut by_hash: BTreeMap<u64, String> = BTreeMap::new();
    for program in programs() {
        let (hash, code) = (program.code_hash(), assembly(&program));
        for (n, other) in same(&program).iter().enumerate() {
            assert_eq!(other.code_hash(), hash, "form {n}\n{other}\n{program}");
            assert_eq!(assembly(other), code, "form {n}\n{other}\n{program}");
        }
        assert_eq!(*by_hash.entry(hash).or_insert_with(|| code.clone()), code, "{program}");
    }
    let mut codes: Vec<&String> = by_hash.values().collect();
    let hashes = codes.len();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), hashes, "programs of one code have one hash");
    assert!(hashes > 8);
}
