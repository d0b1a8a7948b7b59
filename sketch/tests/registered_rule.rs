//! A rule that a user registers is asked for every task. It is the only test of its process: rules
//! stay registered.

use std::sync::Arc;

use ansc_graph::{Compute, interp};
use ansc_runtime::Tensor;
use ansc_sketch::rules::{self, Outcome, Rule, Space, State};
use ansc_sketch::trace::{StepError, Unfit};
use ansc_sketch::{Machine, Task, exec};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Every stage is tiled 2 x 4.
struct Small;

impl Rule for Small {
    fn name(&self) -> &str {
        "small"
    }

    fn apply(&self, _: &Space, state: &State) -> Result<Outcome, StepError> {
        let mut next = state.clone();
        let recorder = &mut next.recorder;
        let block = recorder.get_block(state.stage())?;
        let loops = recorder.get_loops(block)?;
        let rows = recorder.split(loops[0], &[0.into(), 2.into()])?;
        let columns = recorder.split(loops[1], &[0.into(), 4.into()])?;
        recorder.reorder(&[rows[0], columns[0], rows[1], columns[1]])?;
        Ok(Outcome::ApplyAndSkipRest(vec![next.next()]))
    }
}

#[test]
fn a_registered_rule_is_asked_for_every_task() {
    let text = "compute(in0: f32[6, 12]) -> y { y: f32[6, 12] = add(in0[i0, i1], in0[i0, i1]) }";
    let compute = Compute::parse(text).unwrap();
    let task = Arc::new(Task::on_cpu("k", &compute, &[false], &Machine::new(32, 16)));
    let of_rule =
        |task: &Arc<Task>| task.sketches().into_iter().find(|sketch| sketch.rules == ["small"]);
    assert_eq!(of_rule(&task), None);
    rules::register(Box::new(Small));
    let sketch = of_rule(&task).expect("a sketch of the rule");
    let random = &mut StdRng::seed_from_u64(0);
    let sample = task.sample(&sketch.trace, Unfit::Refuse, random).unwrap();
    let input = Tensor::from_slice(&[6, 12], &(0..72).map(|i| i as f32).collect::<Vec<_>>());
    let found = exec::run(&sample.scheduled.program, &[&input]).unwrap();
    assert_eq!(found, interp::eval(&compute, &[&input]).unwrap());
}
