//! Many weights move to large pages when a model is loaded, or stay in those of the file.

mod common;

use ansc_runtime::{DType, LoadOptions, Model, Tensor};
use common::Builder;

/// 20 MiB of weights.
const LEN: usize = 5 << 20;

/// `y[i] = a[i] + b[i] + x[i]`
fn model() -> Builder {
    let mut b = Builder::new();
    let x = b.input("x", DType::F32, &[LEN]);
    let weight = |n: usize| (0..LEN).map(|i| (i % 1000 * n) as f32).collect::<Vec<_>>();
    let first = b.weight("a", &Tensor::from_slice(&[LEN], &weight(1)));
    let second = b.weight("b", &Tensor::from_slice(&[LEN], &weight(2)));
    let y = b.output("y", DType::F32, &[LEN]);
    let code = "float **f = (float **)b; f[3][i] = f[0][i] + f[1][i] + f[2][i];";
    b.step("add", LEN as u64, &[x, first, second, y], code);
    b
}

fn check(model: &Model) {
    let x: Vec<f32> = (0..LEN).map(|i| (i % 7) as f32).collect();
    let expected: Vec<f32> = (0..LEN).map(|i| (i % 1000 * 3 + i % 7) as f32).collect();
    let mut session = model.session().unwrap();
    let found = session.run(&[("x", &Tensor::from_slice(&[LEN], &x))]).unwrap().remove(0).1;
    assert!(found == Tensor::from_slice(&[LEN], &expected));
}

/// Bytes of this process that are in memory: of no file, and of files.
fn resident() -> [usize; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = |key: &str| -> usize {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    ["RssAnon:", "RssFile:"].map(value)
}

/// One test, for each reads what the process holds.
#[test]
fn weights_are_in_memory_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = model().build(folder.path());
    let bytes = 2 * 4 * LEN;
    let holds = |options: &LoadOptions| {
        let before = resident();
        let model = Model::load_with(&path, options).unwrap();
        let after = resident();
        check(&model);
        [0, 1].map(|i| after[i].saturating_sub(before[i]))
    };
    let [own, of_file] = holds(&LoadOptions::default());
    assert!(own >= bytes && own < bytes * 3 / 2, "{own} bytes of {bytes}");
    assert!(of_file < bytes / 2, "{of_file} bytes of the file, too");
    let [own, of_file] = holds(&LoadOptions { share_weights: true });
    assert!(own < bytes / 2, "{own} bytes that nobody shares");
    assert!(of_file >= bytes, "{of_file} bytes of {bytes}");
    check(&Model::from_bytes(&std::fs::read(&path).unwrap()).unwrap());
}
