//! Constants in the form in which a kernel reads them.

use ansc_graph::{BufId, Compute, Expr};

/// Parameter `param` of a program is not the constant itself but what `compute`, which has that
/// constant as its only input, makes of it: the compiler evaluates it once.
#[derive(Clone, PartialEq, Debug)]
pub struct Packing {
    /// The position among the parameters of the program.
    pub param: usize,
    /// An expression of the constant alone.
    pub compute: Compute,
}

/// The packings of `first`, then those of `second`, whose inputs are what the first ones made.
pub fn in_turn(mut first: Vec<Packing>, second: Vec<Packing>) -> Vec<Packing> {
    for packing in second {
        match first.iter_mut().find(|p| p.param == packing.param) {
            Some(before) => append(&mut before.compute, &packing.compute),
            None => first.push(packing),
        }
    }
    first
}

/// Lets `next` work on the only result of `compute`.
fn append(compute: &mut Compute, next: &Compute) {
    let result = compute.stage_buffer(compute.outputs[0]);
    let first = compute.stages.len();
    for stage in &next.stages {
        let mut stage = stage.clone();
        stage.body = stage.body.rewrite(&mut |e| match e {
            Expr::Load(b, indices) => Some(match next.stage_of(*b) {
                None => Expr::Load(result, indices.clone()),
                Some(s) => Expr::Load(BufId::new(1 + first + s), indices.clone()),
            }),
            _ => None,
        });
        compute.push(stage);
    }
    compute.outputs = next.outputs.iter().map(|s| first + s).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(param: usize, body: &str) -> Packing {
        let text = format!("compute(in0: f32[4]) -> p {{ q: f32[4] = {body} p: f32[4] = q[i0] }}");
        Packing { param, compute: Compute::parse(&text).unwrap() }
    }

    #[test]
    fn the_second_works_on_what_the_first_made() {
        let (double, next) =
            (packing(1, "mul(in0[i0], 2.0_f32)"), packing(1, "add(in0[i0], 1.0_f32)"));
        let all = in_turn(vec![double], vec![next, packing(0, "in0[i0]")]);
        assert_eq!(all.iter().map(|p| p.param).collect::<Vec<_>>(), [1, 0]);
        let x = ansc_runtime::Tensor::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0]);
        let made = ansc_graph::interp::eval(&all[0].compute, &[&x]).unwrap().remove(0);
        assert_eq!(made.to_f64_vec(), [3.0, 5.0, 7.0, 9.0]);
    }
}
