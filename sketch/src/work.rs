//! How many operations a program executes.
//!
//! In: a program. Out: a number to hold against what a machine computes in a second. It differs
//! from [`ansc_graph::cost::flops`] of the subgraph where an algorithm computes the same with fewer
//! products, and where a schedule computes something twice.

use ansc_graph::{BufId, cost};
use ansc_runtime::DType;

use crate::program::{Block, Body, Program, Stmt};

/// Operations of one run, each element of a vector by itself; `u64::MAX` where there are more. Four
/// products of bytes and their sum are one product and one sum: that is what a processor with an
/// instruction for them has time for.
pub fn work(program: &Program) -> u64 {
    let dtype = |buffer: BufId| program.buffer(buffer).ty.dtype;
    program.body.iter().map(|s| of(s, 1, &dtype)).fold(0, u64::saturating_add)
}

fn of(stmt: &Stmt, times: u64, dtype: &impl Fn(BufId) -> DType) -> u64 {
    match stmt {
        Stmt::For(l) => {
            let times = times.saturating_mul(l.extent as u64);
            l.body.iter().map(|s| of(s, times, dtype)).fold(0, u64::saturating_add)
        }
        Stmt::Block(block) => instances(block, times).saturating_mul(of_body(&block.body, dtype)),
    }
}

/// How often the body is executed. Iterations that the predicate leaves out belong to no instance.
fn instances(block: &Block, times: u64) -> u64 {
    if block.predicate.is_none() {
        return times;
    }
    let domain = block.iters.iter().fold(1, |n: u64, i| n.saturating_mul(i.extent as u64));
    times.min(domain)
}

fn of_body(body: &Body, dtype: &impl Fn(BufId) -> DType) -> u64 {
    match body {
        Body::Assign { value, .. } => cost::operations_on_words(value, dtype),
        Body::Reduce { value, .. } | Body::ArgReduce { value, .. } => {
            1 + cost::operations_on_words(value, dtype)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ansc_graph::Compute;

    use super::*;
    use crate::algorithm::Algorithm;
    use crate::machine::Machine;
    use crate::task::Task;
    use crate::testing::*;

    const MACHINE: Machine = Machine::new(32, 16);

    fn scheduled(compute: &Compute) -> u64 {
        let constant = vec![false; compute.inputs.len()];
        work(&Task::on_cpu("k", compute, &constant, &MACHINE).scheduled_as(None).program)
    }

    #[test]
    fn a_schedule_does_the_work_of_its_subgraph() {
        for compute in [matmul_bias_relu(23, 17, 33), conv(4, 3, 9, 17, 1)] {
            let flops = cost::flops(&compute);
            assert_eq!(work(&crate::lower("k", &compute)), flops);
            let found = scheduled(&compute);
            assert!((flops..flops + flops / 4).contains(&found), "{found} of {flops}");
        }
    }

    /// 36 products for 16 results of 9 terms each, and transformations.
    #[test]
    fn winograd_does_less() {
        let (channels, size) = (64, 34);
        let compute = conv(channels, channels, size, size, 1);
        let constant = vec![false, true, false, false][..compute.inputs.len()].to_vec();
        let task = Task::on_cpu("k", &compute, &constant, &MACHINE);
        let task = Arc::new(task);
        let rewritten = Algorithm::Winograd4.rewrite(&task).unwrap().task;
        let done = rewritten.scheduled_as(None);
        let (found, direct) = (work(&done.program), cost::flops(&task.compute));
        assert!((direct / 4..direct * 6 / 10).contains(&found), "{found} of {direct}");
    }

    #[test]
    fn four_bytes_at_a_time_are_one_product() {
        let text = "compute(in0: i32[16], in1: i32[16, 3]) -> y { y: i32[3] = sum{r0: 16} dot4(in0[r0], in1[r0, i0]) }";
        assert_eq!(work(&crate::lower("k", &Compute::parse(text).unwrap())), 3 * 16 * 2);
    }
}
