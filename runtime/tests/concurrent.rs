//! Many sessions of one model at the same time, on pools of their own and on a shared one.

mod common;

use std::sync::Arc;
use std::thread;

use ansc_runtime::{Model, Pool, PoolOptions, Session, SessionOptions, Tensor};
use common::Builder;

const LEN: usize = 1000;

/// `y = 3 * x + 1` in two parallel steps, through the arena.
fn model() -> Model {
    let mut b = Builder::new();
    let x = b.input("x", ansc_runtime::DType::I64, &[LEN]);
    let middle = b.arena("middle", ansc_runtime::DType::I64, &[LEN]);
    let y = b.output("y", ansc_runtime::DType::I64, &[LEN]);
    let (triple, add) = (
        "((int64_t**)b)[1][i] = 3 * ((int64_t**)b)[0][i];",
        "((int64_t**)b)[1][i] = 1 + ((int64_t**)b)[0][i];",
    );
    b.step("triple", LEN as u64, &[x, middle], triple);
    b.step("add", LEN as u64, &[middle, y], add);
    b.load()
}

/// Eight threads with eight sessions each, all alive at once.
fn hammer(model: &Model, options: &SessionOptions) {
    thread::scope(|scope| {
        for thread in 0..8i64 {
            scope.spawn(move || {
                let mut sessions: Vec<Session> =
                    (0..8).map(|_| model.session_with(options).unwrap()).collect();
                for round in 0..20 {
                    for (i, session) in sessions.iter_mut().enumerate() {
                        let base = thread * 1_000_000 + round * 10_000 + i as i64;
                        let x: Vec<i64> = (0..LEN as i64).map(|k| base + k).collect();
                        let outputs =
                            session.run(&[("x", &Tensor::from_slice(&[LEN], &x))]).unwrap();
                        let expected: Vec<i64> = x.iter().map(|x| 3 * x + 1).collect();
                        assert_eq!(outputs[0].1.as_slice::<i64>(), expected);
                    }
                }
            });
        }
    });
}

#[test]
fn sessions_with_threads_of_their_own() {
    let options = SessionOptions { threads: 2, ..SessionOptions::default() };
    hammer(&model(), &options);
}

#[test]
fn sessions_that_share_a_pool() {
    let pool = Pool::new(&PoolOptions { threads: 4, ..PoolOptions::default() }).unwrap();
    let options = SessionOptions { pool: Some(Arc::new(pool)), ..SessionOptions::default() };
    hammer(&model(), &options);
}

#[test]
fn a_session_outlives_its_model_and_moves_between_threads() {
    let mut session = model().session().unwrap();
    let worker = thread::spawn(move || {
        let x = Tensor::from_slice(&[LEN], &[2i64; LEN]);
        session.run(&[("x", &x)]).unwrap()[0].1.as_slice::<i64>()[LEN - 1]
    });
    assert_eq!(worker.join().unwrap(), 7);
}
