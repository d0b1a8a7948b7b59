//! Programs that hold, each with one fault planted; and what is left open.

use ansc_graph::{BufId, Expr, VarId};
use ansc_runtime::DType;

use super::*;
use crate::machine::Machine;
use crate::program::{Buffer, ForKind, Scope, Shared};
use crate::task::Task;
use crate::testing::*;
use crate::tree;

/// A product of matrices, of which each thread has a row.
const PRODUCT: &str = "program k
x: f32[8, 6] input
w: f32[6, 8] input
y: f32[8, 8] output
acc: f32[8] local
params x, w, y
for p in 0..8 parallel {
  for l in 0..8 vectorized {
    block start (vl: spatial 8 = l) {
      acc[vl] = 0.0_f32
    }
  }
  for r in 0..6 {
    for m in 0..8 vectorized {
      block product (vp: spatial 8 = p, vm: spatial 8 = m, vr: reduce 6 = r) {
        acc[vm] sum= mul(x[vp, vr], w[vr, vm])
      }
    }
  }
  for n in 0..8 vectorized {
    block store (vq: spatial 8 = p, vn: spatial 8 = n) {
      y[vq, vn] = max(acc[vn], 0.0_f32)
    }
  }
}
";

/// A window over a padded row, in tiles that reach beyond it.
const WINDOW: &str = "program k
x: f32[13] input
y: f32[13] output
params x, y
for i in 0..4 {
  for j in 0..4 {
    for k in 0..3 {
      block window (v: spatial 13 = add(mul(i, 4), j), vk: reduce 3 = k) {
        where lt(add(mul(i, 4), j), 13)
        init y[v] sum= select(and(le(1, add(v, vk)), lt(add(v, vk), 14)), x[sub(add(v, vk), 1)], 0.0_f32)
      }
    }
  }
}
";

fn parsed(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The fault of a program that holds until `plant` changes it.
fn planted(mut program: Program, plant: impl FnOnce(&mut Program)) -> Fault {
    verify(&program).unwrap_or_else(|fault| panic!("{fault}\n{program}"));
    plant(&mut program);
    verify(&program).expect_err("a fault is planted")
}

/// The same, where a part of the text is another one.
fn rewritten(text: &str, from: &str, to: &str) -> Fault {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    planted(parsed(text), |program| *program = parsed(&text.replace(from, to)))
}

fn block<'p>(program: &'p mut Program, name: &str) -> &'p mut Block {
    let path = tree::find(&program.body, &mut |s| matches!(s, Stmt::Block(b) if b.name == name));
    match tree::stmt_mut(&mut program.body, &path.expect("there is such a block")) {
        Stmt::Block(block) => block,
        Stmt::For(_) => unreachable!("it is a block"),
    }
}

fn var(program: &Program, name: &str) -> VarId {
    VarId::new(program.vars.iter().position(|v| v == name).expect("there is such a variable"))
}

/// The statements of the only loop of the root.
fn inside(program: &mut Program) -> &mut Vec<Stmt> {
    match &mut program.body[..] {
        [Stmt::For(l)] => &mut l.body,
        _ => unreachable!("the root is a loop"),
    }
}

#[test]
fn swapped_indices_leave_their_buffer() {
    let fault = rewritten(PRODUCT, "x[vp, vr]", "x[vr, vp]");
    let expected = Fault::OutOfBounds {
        block: "product".into(),
        buffer: "x".into(),
        axis: 1,
        value: 7,
        extent: 6,
    };
    assert_eq!(fault, expected);
    assert_eq!(fault.to_string(), "block `product` can access axis 1 of `x` at 7, outside of 0..6");
}

#[test]
fn a_missing_guard_lets_iterators_run_out() {
    let fault = rewritten(WINDOW, "        where lt(add(mul(i, 4), j), 13)\n", "");
    let expected =
        Fault::Iterator { block: "window".into(), iter: "v".into(), value: 15, extent: 13 };
    assert_eq!(fault, expected);
}

#[test]
fn a_select_that_lets_too_much_pass_is_seen() {
    let fault = rewritten(WINDOW, "lt(add(v, vk), 14)", "lt(add(v, vk), 15)");
    assert!(matches!(fault, Fault::OutOfBounds { value: 13, extent: 13, .. }), "{fault}");
    let fault = rewritten(WINDOW, "le(1, add(v, vk))", "le(0, add(v, vk))");
    assert!(matches!(fault, Fault::OutOfBounds { value: -1, .. }), "{fault}");
}

#[test]
fn a_removed_init_leaves_a_sum_without_beginning() {
    let undefined =
        |block: &str, buffer: &str| Fault::Undefined { block: block.into(), buffer: buffer.into() };
    let fault = planted(parsed(PRODUCT), |program| _ = inside(program).remove(0));
    assert_eq!(fault, undefined("product", "acc"));
    assert_eq!(rewritten(WINDOW, "init y", "y"), undefined("window", "y"));
}

#[test]
fn a_read_before_the_write_is_seen() {
    let fault = planted(parsed(PRODUCT), |program| inside(program).rotate_right(1));
    assert_eq!(fault, Fault::Undefined { block: "store".into(), buffer: "acc".into() });
}

#[test]
fn a_sum_that_begins_anew_with_each_term_is_seen() {
    let fault = planted(parsed(PRODUCT), |program| {
        let start = inside(program).remove(0);
        let Stmt::For(terms) = &mut inside(program)[0] else { unreachable!("a loop") };
        terms.body.insert(0, start);
    });
    let expected =
        Fault::InitialisedAgain { block: "start".into(), buffer: "acc".into(), var: "r".into() };
    assert_eq!(fault, expected);
}

#[test]
fn a_sum_that_begins_twice_is_seen() {
    let halves = schedule_halves();
    let fault = planted(halves, |program| {
        let Body::Reduce { init, .. } = &mut block(program, "window_1").body else {
            unreachable!("a reduction")
        };
        *init = true;
    });
    assert!(matches!(fault, Fault::InitialisedTwice { .. }), "{fault}");
}

/// The first and the other terms of a sum, each in a nest of its own.
fn schedule_halves() -> Program {
    parsed(
        "program k
x: f32[4, 6] input
y: f32[4] output
params x, y
for i in 0..4 {
  for r in 0..2 {
    block window (v: spatial 4 = i, vr: reduce 6 = r) {
      init y[v] sum= x[v, vr]
    }
  }
}
for j in 0..4 {
  for s in 0..4 {
    block window_1 (w: spatial 4 = j, ws: reduce 6 = add(s, 2)) {
      y[w] sum= x[w, ws]
    }
  }
}
",
    )
}

#[test]
fn a_doubled_write_in_a_parallel_loop_is_a_race() {
    let race = |var: &str| Fault::Race {
        block: "store".into(),
        other: "store".into(),
        buffer: "y".into(),
        var: var.into(),
    };
    assert_eq!(rewritten(PRODUCT, "y[vq, vn]", "y[floor_div(vq, 2), vn]"), race("p"));
    assert_eq!(rewritten(PRODUCT, "y[vq, vn]", "y[vq, floor_div(vn, 2)]"), race("n"));
}

#[test]
fn a_read_of_what_another_thread_writes_is_a_race() {
    let fault = rewritten(PRODUCT, "max(acc[vn], 0.0_f32)", "max(y[0, vn], acc[vn])");
    assert!(matches!(&fault, Fault::Race { var, .. } if var == "p"), "{fault}");
}

#[test]
fn a_local_buffer_does_not_leave_its_thread() {
    let fault = planted(parsed(PRODUCT), |program| {
        let mut store = inside(program).remove(2);
        let rows = program.add_var("q");
        let (p, extent) = (var(program, "p"), 8);
        let blocks = std::slice::from_mut(&mut store);
        tree::visit_blocks_mut(blocks, &mut |b| {
            b.substitute_loops(&|v| (v == p).then_some(Expr::Var(rows)));
        });
        let l = For { var: rows, extent, kind: ForKind::Serial, body: vec![store] };
        program.body.push(Stmt::For(Shared::new(l)));
    });
    assert_eq!(fault, Fault::Lifetime { buffer: "acc".into(), var: "p".into() });
}

#[test]
fn an_output_with_a_hole_is_seen() {
    let fault = planted(parsed(PRODUCT), |program| {
        let Stmt::For(store) = &mut inside(program)[2] else { unreachable!("a loop") };
        store.extent = 7;
    });
    assert_eq!(fault, Fault::Uncovered { buffer: "y".into(), element: vec![0, 7] });
    let fault = planted(parsed(WINDOW), |program| {
        let Stmt::For(tiles) = &mut program.body[0] else { unreachable!("a loop") };
        tiles.extent = 3;
    });
    assert_eq!(fault, Fault::Uncovered { buffer: "y".into(), element: vec![12] });
}

#[test]
fn inputs_are_not_written() {
    let fault = rewritten(PRODUCT, "y[vq, vn] = max", "x[vq, vn] = max");
    assert_eq!(fault, Fault::WritesInput { block: "store".into(), buffer: "x".into() });
}

#[test]
fn variables_are_in_scope_and_bound_once() {
    let fault = planted(parsed(PRODUCT), |program| {
        let r = var(program, "r");
        block(program, "store").iters[1].binding = Expr::Var(r);
    });
    assert_eq!(fault, Fault::OutOfScope { block: "store".into(), var: "r".into() });
    let fault = planted(parsed(PRODUCT), |program| {
        let m = var(program, "m");
        let Stmt::For(store) = &mut inside(program)[2] else { unreachable!("a loop") };
        store.var = m;
    });
    assert_eq!(fault, Fault::BoundTwice { place: "a loop".into(), var: "m".into() });
    let fault = planted(parsed(PRODUCT), |program| {
        block(program, "store").iters[0].var = VarId::new(99);
    });
    assert!(matches!(fault, Fault::NoSuchVariable { index: 99, .. }), "{fault}");
}

#[test]
fn buffers_exist_and_differ_in_names() {
    let fault = planted(parsed(PRODUCT), |program| {
        program.buffers.push(Buffer::new("acc", f32s(&[1]), Scope::Global));
    });
    assert_eq!(fault, Fault::SameName { buffer: "acc".into() });
    let fault = planted(parsed(PRODUCT), |program| {
        let Body::Assign { dst, .. } = &mut block(program, "store").body else {
            unreachable!("an assignment")
        };
        dst.buffer = BufId::new(9);
    });
    assert!(matches!(fault, Fault::NoSuchBuffer { index: 9, .. }), "{fault}");
}

#[test]
fn parameters_are_inputs_and_outputs() {
    let fault = planted(parsed(PRODUCT), |program| program.params[1] = BufId::new(0));
    assert_eq!(fault, Fault::Parameter { buffer: "x".into(), count: 2 });
    let fault = planted(parsed(PRODUCT), |program| program.params.push(BufId::new(3)));
    assert_eq!(fault, Fault::PrivateParameter { buffer: "acc".into() });
}

#[test]
fn types_and_ranks_agree() {
    let fault = rewritten(PRODUCT, "acc: f32[8]", "acc: f64[8]");
    assert!(
        matches!(fault, Fault::Type { expected: DType::F64, found: DType::F32, .. }),
        "{fault}"
    );
    let fault = rewritten(PRODUCT, "w: f32[6, 8]", "w: i32[6, 8]");
    assert!(matches!(&fault, Fault::IllTyped { block, .. } if block == "product"), "{fault}");
    let fault = planted(parsed(PRODUCT), |program| {
        let Body::Assign { dst, .. } = &mut block(program, "store").body else {
            unreachable!("an assignment")
        };
        dst.indices.pop();
    });
    assert!(matches!(fault, Fault::Rank { rank: 2, found: 1, .. }), "{fault}");
}

#[test]
fn kinds_of_loops_stand_where_they_may() {
    let kind = |of: &'static str, kind| {
        planted(parsed(PRODUCT), move |program| {
            let wanted = var(program, of);
            let path =
                tree::find(&program.body, &mut |s| matches!(s, Stmt::For(l) if l.var == wanted));
            let Stmt::For(l) = tree::stmt_mut(&mut program.body, &path.unwrap()) else {
                unreachable!("a loop")
            };
            l.kind = kind;
        })
    };
    assert_eq!(kind("l", ForKind::Parallel), Fault::InnerParallel { var: "l".into() });
    let expected = Fault::VectorOfTerms { block: "product".into(), var: "r".into() };
    assert_eq!(kind("r", ForKind::Vectorized), expected);
}

#[test]
fn guards_do_not_mix_results_and_terms() {
    let fault = rewritten(
        WINDOW,
        "where lt(add(mul(i, 4), j), 13)",
        "where lt(add(add(mul(i, 4), j), k), 13)",
    );
    // Where iterators run out is found first if the guard does not bound them.
    assert!(matches!(fault, Fault::MixedGuard { .. } | Fault::Iterator { .. }), "{fault}");
    let fault = rewritten(
        WINDOW,
        "where lt(add(mul(i, 4), j), 13)",
        "where and(lt(add(mul(i, 4), j), 13), lt(add(v, vk), 9))",
    );
    assert_eq!(fault, Fault::MixedGuard { block: "window".into() });
}

#[test]
fn terms_of_an_arg_reduction_come_in_order() {
    let fault = planted(crate::lower("k", &arg_max(3, 5)), |program| {
        let Body::ArgReduce { term, .. } = &mut block(program, "arg").body else {
            unreachable!("an arg-reduction")
        };
        *term = Expr::int(4) - term.clone();
    });
    assert_eq!(fault, Fault::TermOrder { block: "arg".into() });
}

#[test]
fn faults_in_a_schedule_are_found() {
    let machine = Machine::new(32, 16);
    let task = Task::on_cpu("k", &conv(16, 8, 14, 14, 1), &[false, true, true], &machine);
    let program = || task.scheduled_as(None).program;
    // Each write of an output in turn goes to its first element.
    let outputs = program().blocks().len();
    let mut found = 0;
    for n in 0..outputs {
        let mut program = program();
        let output = *program.params.last().expect("an output");
        let (mut at, mut changed) = (0, false);
        tree::visit_blocks_mut(&mut program.body, &mut |b| {
            if let Body::Assign { dst, .. } = &mut b.body
                && at == n
                && dst.buffer == output
            {
                dst.indices.iter_mut().for_each(|e| *e = Expr::int(0));
                changed = true;
            }
            at += 1;
        });
        if changed {
            found += 1;
            let fault = verify(&program).expect_err("all threads write one element");
            assert!(matches!(fault, Fault::Race { .. } | Fault::Uncovered { .. }), "{fault}");
        }
    }
    assert!(found > 0);
}

#[test]
fn all_questions_about_a_schedule_are_answered() {
    let machine = Machine::new(32, 16);
    for compute in [conv(16, 8, 14, 14, 1), matmul_bias_relu(37, 41, 29), softmax(8, 50)] {
        let constant = vec![false; compute.inputs.len()];
        let program = Task::on_cpu("k", &compute, &constant, &machine).scheduled().program;
        let report = report(&program).unwrap_or_else(|fault| panic!("{fault}\n{program}"));
        for question in [Question::Index, Question::Iterator, Question::Race, Question::TermOrder] {
            assert_eq!(report.of(question).unknown, 0, "{question:?}\n{program}");
        }
        assert!(report.of(Question::Index).proven > 5);
    }
}

/// A question that depends on data stays open, and passes.
#[test]
fn what_data_decide_is_unknown() {
    let text = "program k
x: f32[9] input
at: i64[4] input
y: f32[4] output
params x, at, y
for i in 0..4 {
  block gather (v: spatial 4 = i) {
    y[v] = x[at[v]]
  }
}
";
    let report = report(&parsed(text)).unwrap();
    assert_eq!(report.of(Question::Index), Answered { proven: 2, unknown: 1 });
}
