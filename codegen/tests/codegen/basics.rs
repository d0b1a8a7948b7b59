//! Naive programs, compiled and run.

use ansc_codegen::{Target, compile_all};
use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::{DType, Tensor};

use crate::kernel::Kernel;

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

#[test]
fn a_matrix_product() {
    let body = Expr::load(0, vec![Expr::var(0), Expr::var(2)])
        * Expr::load(1, vec![Expr::var(2), Expr::var(1)]);
    let stage = Stage::reduction("mm", f32s(&[4, 6]), Combiner::Sum, vec![8], body);
    let compute = Compute::single(vec![f32s(&[4, 8]), f32s(&[8, 6])], stage);
    let program = ansc_sketch::finish(ansc_sketch::lower("mm", &compute));
    let a: Vec<f32> = (0..32).map(|i| i as f32 - 9.0).collect();
    let b: Vec<f32> = (0..48).map(|i| (i % 7) as f32 + 0.5).collect();
    let outputs = Kernel::new(&program)
        .run(&[&Tensor::from_slice(&[4, 8], &a), &Tensor::from_slice(&[8, 6], &b)]);
    let got = outputs[0].as_slice::<f32>();
    for i in 0..4 {
        for j in 0..6 {
            let expected: f32 = (0..8).map(|k| a[i * 8 + k] * b[k * 6 + j]).sum();
            assert_eq!(got[i * 6 + j], expected);
        }
    }
}

#[test]
fn programs_that_differ_in_names_only_share_code() {
    let program = |name: &str, shape: &[usize]| {
        let body = Expr::load(0, vec![Expr::var(0)]) + Expr::float(DType::F32, 1.0);
        let compute = Compute::single(vec![f32s(shape)], Stage::map(name, f32s(shape), body));
        ansc_sketch::finish(ansc_sketch::lower(name, &compute))
    };
    let programs = [program("a", &[4]), program("b", &[5]), program("c", &[4])];
    let target = Target::native().unwrap();
    let batch = compile_all(&programs.each_ref(), &target).unwrap();
    assert_eq!(batch.objects.len(), 2);
    assert_eq!(batch.kernels.iter().map(|k| k.object).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(batch.objects, compile_all(&programs.each_ref(), &target).unwrap().objects);
}
