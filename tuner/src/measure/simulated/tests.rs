use ansc_sketch::trace::Unfit;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::testing::{elementwise, matmul, task};

fn seconds(machine: &Simulated, program: &Program) -> f64 {
    machine.outcome(program).seconds().unwrap()
}

/// Loops over one statement on matrices of 1024 by 1024 and a vector; `loops` are as in `i 1024
/// parallel, j 1024`.
fn program(loops: &str, statement: &str) -> Program {
    let mut text = String::from(
        "program k\nx: f32[1024, 1024] input\nz: f32[1024, 1024] input\ny: f32[1024, 1024] output\n\
         t: f32[64] local\nparams x, z, y\n",
    );
    let loops: Vec<Vec<&str>> = loops.split(", ").map(|l| l.split(' ').collect()).collect();
    for l in &loops {
        text += &format!("for {} in 0..{} {} {{\n", l[0], l[1], l[2..].join(" "));
    }
    text += &format!("block b () {{ {statement} }}\n{}", "}\n".repeat(loops.len()));
    Program::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn what_is_rewarded() {
    let map = "y[i, j] = mul(x[i, j], 2.0_f32)";
    let tiled = "y[add(mul(io, 4), i), add(mul(jo, 8), j)] sum= mul(x[add(mul(io, 4), i), k], z[k, add(mul(jo, 8), j)])";
    // The first is faster than the second.
    let table = [
        ("cores", map, "i 1024 parallel, j 1024", "i 1024, j 1024"),
        ("vectors", map, "i 1024, j 1024 vectorized", "i 1024, j 1024 unrolled"),
        ("contiguous axes", map, "i 1024, j 1024 vectorized", "j 1024, i 1024 vectorized"),
        ("the order of memory", map, "i 1024, j 1024", "j 1024, i 1024"),
        (
            "registers",
            tiled,
            "io 256, jo 128, k 1024, i 4 unrolled, j 8 vectorized",
            "io 256, jo 128, i 4, k 1024, j 8 vectorized",
        ),
        (
            "caches",
            tiled,
            "jo 128, io 256, k 1024, i 4 unrolled, j 8 vectorized",
            "io 256, jo 128, k 1024, i 4 unrolled, j 8 vectorized",
        ),
        (
            "sums in flight",
            "y[add(mul(io, 4), i), j] sum= mul(x[add(mul(io, 4), i), k], z[j, k])",
            "io 256, j 1024, k 1024, i 4 unrolled",
            "io 256, j 1024, i 4, k 1024",
        ),
    ];
    let machine = Simulated { longest_body: 1e9, ..Simulated::default() };
    for (what, statement, good, bad) in table {
        let time = |loops| seconds(&machine, &program(loops, statement));
        let (good, bad) = (time(good), time(bad));
        assert!(good < 0.95 * bad, "{what}: {good} and {bad}");
    }
}

#[test]
fn good_schedules_are_faster() {
    let machine = Simulated::default();
    for compute in [matmul(256, 256, 256), elementwise(512, 512)] {
        let task = task(compute);
        let naive = ansc_sketch::finish(task.naive());
        let random = &mut StdRng::seed_from_u64(0);
        let untuned = task.sample(&task.untuned(), Unfit::Refuse, random).unwrap();
        let (slow, fast) =
            (seconds(&machine, &naive), seconds(&machine, &untuned.scheduled.program));
        assert!(slow > 4.0 * fast, "{slow} {fast}");
    }
}

#[test]
fn schedules_differ_and_some_do_not_build() {
    let machine = Simulated { longest_body: 1024.0, ..Simulated::default() };
    let task = task(matmul(512, 512, 512));
    let random = &mut StdRng::seed_from_u64(0);
    let mut times = vec![];
    let mut failed = 0;
    for sketch in task.sketches() {
        for _ in 0..100 {
            let Ok(sample) = task.sample(&sketch.trace, Unfit::Refuse, random) else { continue };
            match machine.outcome(&sample.scheduled.program).seconds() {
                Some(seconds) => times.push(seconds),
                None => failed += 1,
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let distinct = times.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(distinct * 2 > times.len() && failed > 0, "{distinct} of {}, {failed}", times.len());
    // Most schedules are bad, few are good.
    let median = times[times.len() / 2];
    assert!(median > 2.0 * times[0] && times[times.len() - 1] > 2.0 * median, "{times:?}");
    // Nothing is faster than the machine: 2 * 512^3 operations, 2 cores with 2 * 8 multiply-adds a
    // cycle.
    assert!(times[0] > 2.0 * 512f64.powi(3) / (2.0 * 2.0 * 8.0 * 2.0 * 3e9), "{}", times[0]);
}

#[test]
fn noise_is_the_same_every_time() {
    let task = task(matmul(64, 64, 64));
    let random = &mut StdRng::seed_from_u64(0);
    let candidate = Candidate::of(&task, &task.untuned(), random).unwrap();
    let mut exact = Simulated::default();
    let mut noisy = Simulated { noise: 0.1, ..Simulated::default() };
    let candidates = [candidate.clone(), candidate];
    let outcomes = noisy.measure(&task, &candidates).unwrap();
    assert_eq!((outcomes[0].clone(), noisy.measured), (outcomes[1].clone(), 2));
    let Outcome::Seconds(times) = &outcomes[0] else { panic!("{outcomes:?}") };
    let exact = exact.measure(&task, &candidates).unwrap()[0].seconds().unwrap();
    assert!(times[0] != times[1] && times.iter().all(|t| (exact..exact * 1.1).contains(t)));
}
