use super::*;
use crate::default::gpu_program;
use crate::testing::*;

fn on_gpu(compute: &ansc_graph::Compute) -> Arc<Task> {
    Arc::new(Task::on_gpu("k", compute, &GpuLimits::default()))
}

#[test]
fn first_candidates_are_the_code_of_the_default_schedule() {
    let mut wrong = vec![];
    for compute in forms() {
        let task = on_gpu(&compute);
        let limits = GpuLimits::default();
        let expected = gpu_program("k", &compute, &limits).unwrap();
        match sketch(&task) {
            Err(e) => wrong.push(format!("{e}\n{compute}")),
            Ok((sketch, made)) => {
                if made.program.code_hash() != expected.code_hash() {
                    wrong.push(format!(
                        "{:?}\n{}\n{}\n{expected}",
                        sketch.rules, sketch.trace, made.program
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n------\n"));
}

fn forms() -> Vec<ansc_graph::Compute> {
    vec![
        matmul_bias_relu(128, 128, 64),
        matmul_bias_relu(37, 41, 29),
        matmul_bias_relu(1, 1000, 2048),
        matmul_bias_relu(1, 37, 129),
        conv(32, 16, 14, 14, 1),
        conv(32, 16, 14, 14, 2),
        softmax(64, 200),
        softmax(3, 5),
        reduce(3, 500),
        arg_max(3, 70),
        transpose(20, 30, 50),
        concat(30, 20, 40),
    ]
}
