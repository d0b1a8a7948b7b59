use rand::RngExt;
use rand::SeedableRng;
use rand::rngs::StdRng;

use ansc_graph::{Combiner, Compute, Expr, Stage, UnOp};
use ansc_runtime::DType;

use std::sync::Arc;

use super::*;
use crate::scheduled::Scheduled;
use crate::task::Task;
use crate::testing::*;
use crate::trace::Unfit;

const WIDE: Machine = Machine::new(64, 32);
const NARROW: Machine = Machine::new(16, 16);

fn size(body: &str) -> usize {
    let text = format!(
        "program k\nx: f32[4096] input\ny: f32[4096] output\nacc: f32[8, 16] local\nparams x, y\n{body}"
    );
    code_size(&Program::parse(&text).unwrap(), &WIDE)
}

#[test]
fn copies_count_but_for_what_they_share() {
    let copied = |extent: usize| {
        size(&format!(
            "for u in 0..{extent} unrolled {{\n  block a (v: spatial {extent} = u) {{\n    y[u] = exp(x[0])\n  }}\n}}\n"
        ))
    };
    // One function, and a store for each copy.
    assert_eq!(copied(64) - copied(8), 64 - 8);
    let rolled =
        size("for u in 0..64 {\n  block a (v: spatial 64 = u) {\n    y[u] = exp(x[0])\n  }\n}\n");
    assert!(rolled < copied(64));
}

#[test]
fn lanes_count_where_they_do_not_lie_side_by_side() {
    let of = |index: &str| {
        size(&format!(
            "for l in 0..16 vectorized {{\n  block a (v: spatial 16 = l) {{\n    y[l] = x[{index}]\n  }}\n}}\n"
        ))
    };
    let (one, four) = (of("l"), of("mul(l, 4)"));
    let (far, irregular) = (of("mul(l, 21)"), of("floor_div(mul(l, l), 7)"));
    assert!(one < four && four < far && far < irregular, "{one} {four} {far} {irregular}");
}

/// Four bytes of an integer are one load where code generation makes one of them.
#[test]
fn bytes_side_by_side_are_loaded_at_once() {
    let of = |apart: usize, lanes_apart: usize| {
        let byte = |i: usize| format!("i32(b[add(mul(l, {lanes_apart}), {})])", apart * i);
        let shifted = |i: usize| format!("shl({}, {})", byte(i), 8 * i);
        let [b1, b2, b3] = [1, 2, 3].map(shifted);
        let word = format!("or(or({}, {b1}), or({b2}, {b3}))", byte(0));
        let text = format!(
            "program k\nb: u8[4096] input\ny: i32[16] output\nparams b, y\n\
             for l in 0..16 vectorized {{\n  block a (v: spatial 16 = l) {{\n    y[l] = {word}\n  }}\n}}\n"
        );
        code_size(&Program::parse(&text).unwrap(), &WIDE)
    };
    let one = of(1, 4);
    assert!(of(1, 0) == one && of(1, 8) > 4 * one && of(2, 8) > 4 * one, "{one} {}", of(2, 8));
}

#[test]
fn conditions_that_unrolling_decides_cost_one_side() {
    let of = |extent: usize, kind: &str| {
        size(&format!(
            "for u in 0..{extent}{kind} {{\n  block a (v: spatial {extent} = u) {{\n    y[u] = select(lt(u, 1), exp(x[u]), x[u])\n  }}\n}}\n"
        ))
    };
    assert!(of(8, " unrolled") < 8 * of(8, ""), "the function is there once");
}

/// A sum of what is looked up far away, by places that are computed at length.
fn looked_up(rows: usize, columns: usize, terms: usize, chain: usize) -> Compute {
    let mut at = load(1, &[v(0), v(2)]) * load(1, &[v(1), v(2)]);
    for i in 0..chain {
        at = Expr::unary(UnOp::Abs, at + f32c(i as f64)).min(f32c(15.0));
    }
    let index = Expr::cast(DType::F32, DType::I64, at).max(Expr::int(0)).min(Expr::int(15));
    let value = load(0, &[index, v(1)]) * load(1, &[v(0), v(2)]);
    let most = rows.max(columns);
    let sum = Stage::reduction("sum", f32s(&[rows, columns]), Combiner::Sum, vec![terms], value);
    Compute {
        inputs: vec![f32s(&[16, columns]), f32s(&[most, terms])],
        stages: vec![sum],
        outputs: vec![0],
    }
}

fn operator(r: &mut StdRng) -> Compute {
    let mut n = |most: usize| r.random_range(1..=most);
    match n(8) {
        1 => matmul_bias_relu(n(40), n(300), n(64)),
        2 => conv(n(20), n(20), n(40), n(40), n(3)),
        3 => softmax(n(64), n(5000)),
        4 => reduce(n(64), n(5000)),
        5 => transpose(n(300), n(300), n(80)),
        6 => concat(n(20), n(20), n(500)),
        7 => transpose(1, n(70_000), n(64)),
        _ => looked_up(n(30), n(40), n(16), n(60)),
    }
}

/// Programs that nobody tuned, and those that other decisions make.
#[test]
fn schedules_always_fit() {
    let random = &mut StdRng::seed_from_u64(1);
    let mut over = 0;
    for n in 0..200 {
        let compute = operator(random);
        let machine = if n % 3 == 0 { NARROW } else { WIDE };
        let task = Arc::new(Task::on_cpu("k", &compute, &[false; 4], &machine));
        let made = match n % 2 {
            0 => task.scheduled_as(None),
            _ => match task.sample(&task.sketches()[0].trace, Unfit::Resample, random) {
                Ok(sample) => sample.scheduled,
                Err(_) => continue,
            },
        };
        let found = code_size(&made.program, &machine);
        assert!(found <= BUDGET, "{found}: {}", made.program);
        over += usize::from(found > BUDGET / 4);
    }
    assert!(over > 0, "none of them came near the budget");
}

#[test]
fn what_is_rolled_up_is_smaller_and_computes_the_same() {
    let computes = [
        matmul_bias_relu(23, 17, 33),
        conv(4, 3, 9, 17, 2),
        softmax(5, 67),
        transpose(3, 37, 21),
        looked_up(7, 19, 4, 5),
    ];
    for compute in computes {
        for machine in [WIDE, NARROW] {
            let Scheduled { program, packings } =
                Task::on_cpu("k", &compute, &[false; 4], &machine).scheduled_as(None);
            let mut last = code_size(&program, &machine);
            for budget in [last / 2, last / 4, 0] {
                let rolled = fitted(program.clone(), &machine, budget);
                let found = code_size(&rolled, &machine);
                assert!(found <= last, "{found} after {last}: {rolled}");
                last = found;
                let rolled = Scheduled { program: rolled, packings: packings.clone() };
                compare_scheduled(&compute, &rolled).unwrap();
            }
        }
    }
}
