//! Numbers below the smallest normal one: zeros, unless a session keeps them; and the caller's own
//! mode.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod common;

use ansc_runtime::host::{HostOp, ScatterMode};
use ansc_runtime::manifest::{BufferId, Preparation, Specialisation, Step, Storage};
use ansc_runtime::{DType, Model, RunError, Session, SessionOptions, Tensor};
use common::{Builder, sample};

const TINY: f32 = f32::MIN_POSITIVE;
const COUNT: usize = 64;

/// `y = x / 2`, a thread for each element.
fn halves() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[COUNT]);
    let y = b.output("y", DType::F32, &[COUNT]);
    let code = "((float**)b)[1][i] = ((float**)b)[0][i] * 0.5f;";
    b.step("halve", COUNT as u64, &[x, y], code);
    b
}

fn session(model: &Model, threads: usize, keep_denormals: bool) -> Session {
    let options = SessionOptions { threads, keep_denormals, ..SessionOptions::default() };
    model.session_with(&options).unwrap()
}

fn run(session: &mut Session, x: f32) -> Vec<f32> {
    let x = Tensor::from_slice(&[COUNT], &[x; COUNT]);
    session.run(&[("x", &x)]).unwrap()[0].1.as_slice::<f32>().to_vec()
}

#[test]
fn they_are_zeros_unless_the_session_keeps_them() {
    let model = halves().load();
    for threads in [1, 3] {
        let mut flushes = session(&model, threads, false);
        let mut keeps = session(&model, threads, true);
        for _ in 0..2 {
            assert_eq!(run(&mut flushes, TINY), [0.0; COUNT], "results");
            assert!(run(&mut flushes, -TINY).iter().all(|y| *y == 0.0 && y.is_sign_negative()));
            assert_eq!(run(&mut flushes, TINY * 0.75), [0.0; COUNT], "operands");
            assert_eq!(run(&mut flushes, TINY * 2.0), [TINY; COUNT]);
            assert_eq!(run(&mut keeps, TINY), [TINY * 0.5; COUNT]);
            assert_eq!(run(&mut keeps, TINY * 0.75), [TINY * 0.375; COUNT]);
        }
    }
}

#[test]
fn sessions_of_either_kind_share_a_pool() {
    let model = halves().load();
    let pool = std::sync::Arc::new(ansc_runtime::Pool::new(&Default::default()).unwrap());
    let mut sessions = [false, true].map(|keep_denormals| {
        let pool = Some(pool.clone());
        let options = SessionOptions { pool, keep_denormals, ..SessionOptions::default() };
        model.session_with(&options).unwrap()
    });
    for _ in 0..20 {
        assert_eq!(run(&mut sessions[0], TINY), [0.0; COUNT]);
        assert_eq!(run(&mut sessions[1], TINY), [TINY * 0.5; COUNT]);
    }
}

/// The thread's control register.
#[cfg(target_arch = "x86_64")]
fn control() -> u64 {
    let mut word = 0u32;
    // SAFETY: it stores 4 bytes, which `word` has.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack)) };
    u64::from(word)
}

#[cfg(target_arch = "x86_64")]
fn set_control(word: u64) {
    let word = word as u32;
    // SAFETY: the register takes what was read from it, or another rounding mode.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack)) };
}

#[cfg(target_arch = "x86_64")]
const ROUND_UP: u64 = 2 << 13;

#[cfg(target_arch = "aarch64")]
fn control() -> u64 {
    let word: u64;
    // SAFETY: every program may read it.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack)) };
    word
}

#[cfg(target_arch = "aarch64")]
fn set_control(word: u64) {
    // SAFETY: the register takes what was read from it, or another rounding mode.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word, options(nostack)) };
}

#[cfg(target_arch = "aarch64")]
const ROUND_UP: u64 = 1 << 22;

/// A kernel, then a step of the runtime that refuses an index.
fn fails_in_a_host_step() -> Builder {
    let mut b = halves();
    let indices = b.input("indices", DType::I64, &[1, 1]);
    let data = b.arena("data", DType::F32, &[COUNT]);
    let updates = b.arena("updates", DType::F32, &[1]);
    let out = b.output("z", DType::F32, &[COUNT]);
    let step = Step::Host {
        name: "scatter".to_owned(),
        call: HostOp::ScatterNd { mode: ScatterMode::Assign },
        inputs: vec![data, indices, updates],
        outputs: vec![out],
    };
    b.plan().plan.steps.push(step);
    b
}

#[test]
fn the_callers_mode_is_left_as_it_is() {
    let model = fails_in_a_host_step().load();
    let x = Tensor::from_slice(&[COUNT], &[TINY; COUNT]);
    let usual = control();
    for mode in [usual, usual | ROUND_UP] {
        for threads in [1, 2] {
            set_control(mode);
            let mut session = session(&model, threads, false);
            for (index, fails) in [(0i64, false), (COUNT as i64, true), (1, false)] {
                let index = Tensor::from_slice(&[1, 1], &[index]);
                let result = session.run(&[("x", &x), ("indices", &index)]);
                let after = control();
                assert_eq!(after, mode, "{result:?}");
                assert_eq!(matches!(result, Err(RunError::Index(_))), fails);
            }
            assert!(session.run(&[]).is_err());
            assert_eq!(control(), mode);
        }
    }
    set_control(usual);
}

/// Threads of a pool round to nearest, whatever their starter does; so does the calling one.
#[test]
fn the_callers_rounding_changes_no_result() {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[COUNT]);
    let y = b.output("y", DType::F32, &[COUNT]);
    b.step("third", COUNT as u64, &[x, y], "((float**)b)[1][i] = ((float**)b)[0][i] / 3;");
    let model = b.load();
    let expected = [std::hint::black_box(1f32) / std::hint::black_box(3f32); COUNT];
    let usual = control();
    set_control(usual | ROUND_UP);
    let results = [1, 2].map(|threads| run(&mut session(&model, threads, false), 1.0));
    set_control(usual);
    assert_eq!(results, [expected, expected]);
}

/// Constants that are made of weights when loading are the same for all sessions, and they keep
/// denormal numbers.
#[test]
fn preparation_keeps_them() {
    let mut b = sample();
    let weight = Tensor::from_slice(&[1], &[TINY]);
    let source = b.weight("source", &weight);
    let source_info = b.plan().buffers[source.0 as usize].clone();
    let y = b.output("prepared", DType::F32, &[1]);
    let prepared = b.buffer("made", DType::F32, &[1], Storage::Prepared { offset: 0 });
    b.plan().plan.steps.push(Step::Copy { from: prepared, to: y });
    let halve = "((float**)b)[1][0] = ((float**)b)[0][0] * 0.5f;";
    let kernel = b.kernel("make", 1, (0, &[source, prepared]), halve);
    let kernel = b.manifest.kernels.remove(kernel as usize);
    let made = b.plan().buffers[prepared.0 as usize].clone();
    let step = Step::Kernel { kernel: 0, args: vec![BufferId(0), BufferId(1)] };
    let mut plan = Specialisation { buffers: vec![source_info, made], ..Default::default() };
    plan.plan.steps.push(step);
    b.manifest.preparation = Some(Preparation { bytes: 4, kernels: vec![kernel], plan });
    let x = Tensor::zeros(DType::F32, &[2, 4]);
    let outputs = b.load().session().unwrap().run(&[("x", &x)]).unwrap();
    assert_eq!(outputs[2].1.as_slice::<f32>(), [TINY * 0.5]);
}
