use super::*;

fn task(weight: f64) -> TaskSpec {
    TaskSpec { uses: vec![Use { network: 0, weight }], flops: 1000, structure: None }
}

fn similar(flops: u64) -> TaskSpec {
    TaskSpec { flops, structure: Some("conv".into()), ..task(1.0) }
}

fn scheduler(tasks: &[TaskSpec]) -> Scheduler {
    Scheduler::new(tasks.to_vec(), Options::default())
}

/// Tells rounds of 64 trials with these best times.
fn tell(scheduler: &mut Scheduler, task: TaskId, times: &[f64]) {
    times.iter().for_each(|&time| scheduler.told(task, Some(time), 64));
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
        "{found} and not {expected}"
    );
}

#[test]
fn without_history_only_hope_counts() {
    let mut s = scheduler(&[task(3.0)]);
    tell(&mut s, 0, &[0.5]);
    // chain * (1 - 0.2) * (-g / t)
    close(s.gradient(0), 3.0 * 0.8 * -0.5);
    tell(&mut s, 0, &[0.4]);
    close(s.gradient(0), 3.0 * 0.8 * -0.2);
    tell(&mut s, 0, &[0.4]);
    close(s.gradient(0), 3.0 * 0.8 * (-0.4 / 3.0));
}

#[test]
fn the_past_counts_once_it_is_longer_than_the_window() {
    let mut s = scheduler(&[task(2.0)]);
    tell(&mut s, 0, &[1.0, 0.7, 0.6, 0.4]);
    close(s.gradient(0), 2.0 * (0.2 * (0.4 - 1.0) / 3.0 + 0.8 * (-0.4 / 4.0)));
    tell(&mut s, 0, &[0.4]);
    close(s.gradient(0), 2.0 * (0.2 * (0.4 - 0.7) / 3.0 + 0.8 * (-0.4 / 5.0)));
    // A slower round is no news.
    tell(&mut s, 0, &[0.9]);
    close(s.gradient(0), 2.0 * (0.2 * (0.4 - 0.6) / 3.0 + 0.8 * (-0.4 / 6.0)));
}

#[test]
fn similar_tasks_say_what_can_be_reached() {
    let mut s = scheduler(&[similar(1000), similar(1000), similar(9000)]);
    tell(&mut s, 0, &[1.0; 9]);
    tell(&mut s, 1, &[0.1]);
    tell(&mut s, 2, &[9.0]);
    // The other reaches 10,000 operations a second: 2 * 1000 / 10,000 - 1.0 is below -1.0 / 9.
    close(s.gradient(0), 0.8 * (0.2 - 1.0));
    // The best of a group is no prophet to itself: 2 * 0.1 - 0.1 is above zero.
    close(s.gradient(1), 0.8 * -0.1);
    // Nine times the operations are not similar.
    close(s.gradient(2), 0.8 * -9.0);
}

#[test]
fn what_is_slow_for_long_is_not_similar() {
    let mut s = scheduler(&[similar(1000), similar(1010)]);
    tell(&mut s, 1, &[0.1]);
    tell(&mut s, 0, &[1.0; 6]);
    close(s.gradient(0), 0.8 * (2.0 * 1000.0 / 10_100.0 - 1.0));
    // Seven rounds are more than five and those of the other.
    tell(&mut s, 0, &[1.0]);
    close(s.gradient(0), 0.8 * (-1.0 / 7.0));
    // Half as fast is fast enough to stay.
    let mut s = scheduler(&[similar(1000), similar(1000)]);
    tell(&mut s, 1, &[0.5]);
    tell(&mut s, 0, &[1.0; 20]);
    assert_eq!(s.groups.best_throughput(0, &s.tasks), Some(2000.0));
}

#[test]
fn structure_and_magnitude_make_a_group() {
    let of = |tasks: &[TaskSpec]| Groups::new(tasks).of;
    let other = TaskSpec { structure: Some("pool".into()), ..similar(1000) };
    let tasks = [similar(1000), task(1.0), other, similar(1010), similar(2000)];
    assert_eq!(of(&tasks), [Some(0), None, Some(1), Some(0), Some(2)]);
}

#[test]
fn tasks_can_be_left_alone() {
    let mut s = scheduler(&[similar(1000), similar(1010)]);
    let alone = Options { policy: Policy::GradientAlone, ..Options::default() };
    let mut apart = Scheduler::new(vec![similar(1000), similar(1010)], alone);
    for s in [&mut s, &mut apart] {
        tell(s, 0, &[1.0]);
        tell(s, 1, &[0.1]);
    }
    tell(&mut s, 0, &[1.0]);
    tell(&mut apart, 0, &[1.0]);
    // After two rounds a task alone hopes for a half; the other is ten times as fast.
    close(s.gradient(0), 0.8 * (2.0 * 1000.0 / 10_100.0 - 1.0));
    close(apart.gradient(0), 0.8 * -0.5);
}

#[test]
fn a_round_each_and_then_the_steepest() {
    let mut s = scheduler(&[task(1.0), task(1.0), task(8.0)]);
    for (expected, time) in [(0, 0.3), (1, 0.1), (2, 0.03)] {
        assert_eq!(s.next(), Some(expected));
        s.told(expected, Some(time), 64);
    }
    // -0.24, -0.08 and -0.192: the first, until its second round halves its hope.
    assert_eq!(s.next(), Some(0));
    s.told(0, Some(0.3), 64);
    assert_eq!(s.next(), Some(2));
    s.told(2, Some(0.03), 64);
    assert_eq!(s.next(), Some(0));
}

#[test]
fn equal_tasks_are_drawn() {
    let drawn = |seed| {
        let mut s = Scheduler::new(vec![task(1.0); 4], Options { seed, ..Options::default() });
        (0..4).for_each(|i| s.told(i, Some(0.5), 64));
        s.next().unwrap()
    };
    assert_eq!(drawn(1), drawn(1));
    assert!((0..40).map(drawn).collect::<std::collections::BTreeSet<_>>().len() == 4);
}

#[test]
fn round_robin() {
    let options = Options { policy: Policy::RoundRobin, trials: 6 * 64, ..Options::default() };
    let mut s = Scheduler::new(vec![task(1.0), task(100.0), task(1.0)], options);
    let mut order = vec![];
    while let Some(next) = s.next() {
        order.push(next);
        s.told(next, Some(1.0), 64);
    }
    assert_eq!((order, s.stop()), (vec![0, 1, 2, 0, 1, 2], Some(StopReason::Trials)));
}

#[test]
fn the_dead_are_left_alone() {
    let mut s = Scheduler::new(
        vec![task(1.0); 3],
        Options { task_patience: Some(100), ..Options::default() },
    );
    s.told(0, None, 64);
    s.told(1, Some(1.0), 64);
    s.told(2, Some(1.0), 64);
    s.told(2, Some(1.0), 0);
    assert_eq!([0, 1, 2].map(|i| s.tasks[i].dead), [true, false, true]);
    assert_eq!(s.next(), Some(1));
    s.told(1, Some(1.0), 64);
    assert_eq!(s.next(), Some(1));
    s.told(1, Some(1.0), 64);
    assert_eq!((s.next(), s.stop()), (None, Some(StopReason::NothingLeft)));
    assert_eq!(scheduler(&[]).stop(), Some(StopReason::NothingLeft));
}

#[test]
fn patience_with_everything() {
    let options = Options { patience: Some(150), ..Options::default() };
    let mut s = Scheduler::new(vec![task(1.0); 2], options);
    tell(&mut s, 0, &[1.0; 9]);
    // The other has no time yet.
    assert_eq!(s.stop(), None);
    tell(&mut s, 1, &[1.0, 1.0, 1.0]);
    assert_eq!(s.stop(), None);
    tell(&mut s, 1, &[1.0]);
    assert_eq!(s.stop(), Some(StopReason::NoImprovement));
}

#[test]
fn requirements_and_references() {
    let tasks = [task(2.0), TaskSpec { uses: vec![Use { network: 1, weight: 1.0 }], ..task(1.0) }];
    let with = |objective| {
        let mut s = Scheduler::new(tasks.to_vec(), Options { objective, ..Options::default() });
        tell(&mut s, 0, &[0.25]);
        tell(&mut s, 1, &[0.8]);
        s
    };
    // f2: of 0.5 s 0.6 are allowed, of 0.8 s 0.7.
    let s = with(Objective::Requirement(vec![0.6, 0.7]));
    close(s.objective(), 0.6 + 0.8);
    assert_eq!(s.gradient(0), 0.0);
    close(s.gradient(1), 0.8 * -0.8);
    assert_eq!(with(Objective::Requirement(vec![0.6, 0.9])).stop(), Some(StopReason::Satisfied));
    // f3: -sqrt(1.0 / 0.5 * 0.2 / 0.8).
    let s = with(Objective::Speedup(vec![1.0, 0.2]));
    close(s.objective(), -(0.5f64.sqrt()));
    // d(-sqrt(B / (w g) * c)) / dg = sqrt(..) / (2 g), up to the step of the difference.
    assert!((s.chain(0) - 0.5f64.sqrt() / 0.5).abs() < 1e-3, "{}", s.chain(0));
    assert!((s.chain(1) - 0.5f64.sqrt() / 1.6).abs() < 1e-3, "{}", s.chain(1));
}

#[test]
fn early_stopped_tasks_promise_nothing() {
    let options = Options { objective: Objective::EarlyStopping(100), ..Options::default() };
    let mut s = Scheduler::new(vec![task(1.0), task(1.0)], options);
    tell(&mut s, 1, &[0.1]);
    tell(&mut s, 0, &[0.5, 0.5]);
    close(s.gradient(0), 0.8 * -0.25);
    tell(&mut s, 0, &[0.5]);
    assert_eq!((s.gradient(0), s.next()), (0.0, Some(1)));
    tell(&mut s, 1, &[0.1, 0.1]);
    assert_eq!(s.stop(), Some(StopReason::Satisfied));
}

#[test]
fn gains_are_shares_of_the_latency() {
    let mut s = scheduler(&[task(1.0), task(2.0)]);
    tell(&mut s, 0, &[0.4]);
    assert_eq!(s.expected_gain(), 1.0);
    tell(&mut s, 1, &[0.3]);
    // The latency is 1.0 s; hope says 0.4 and 0.6.
    close(s.expected_gain(), 0.6);
    tell(&mut s, 1, &[0.3, 0.3, 0.3]);
    // The second brought nothing in three rounds.
    close(s.expected_gain(), 0.4);
    tell(&mut s, 0, &[0.38, 0.36, 0.34]);
    close(s.expected_gain(), 0.02 / 0.94);
    // From the fourth of eight rounds on: (0.34 - 0.3) / 4.
    tell(&mut s, 0, &[0.3, 0.3, 0.3, 0.3]);
    close(s.expected_gain(), 0.01 / 0.9);
    s.options.least_gain = Some(0.01);
    assert_eq!(s.stop(), None);
    s.options.least_gain = Some(0.012);
    assert_eq!(s.stop(), Some(StopReason::LittleToGain));
}

#[test]
fn records_stand_for_rounds() {
    let measured = [None, Some(3.0), Some(2.0), Some(4.0), Some(1.0), None, Some(5.0)];
    let mut s = scheduler(&[task(1.0), task(1.0)]);
    s.resume(0, &measured, 3);
    assert_eq!(s.tasks[0].history, [Some(2.0), Some(1.0)]);
    assert_eq!((s.trials(), s.rounds(0)), (0, 2));
    s.resume(1, &measured[..1], 3);
    assert_eq!((s.rounds(1), s.next()), (0, Some(1)));
    s.told(1, Some(0.6), 3);
    // 1.0 after two rounds promises less than 0.6 after one.
    assert_eq!(s.next(), Some(1));
}

#[test]
fn short_tasks_have_a_slope_too() {
    let mut s = scheduler(&[task(1.0)]);
    tell(&mut s, 0, &[3e-6]);
    assert!((s.chain(0) - 1.0).abs() < 1e-6);
}

#[test]
fn rounds_share_the_trials() {
    assert_eq!(trials_per_round(1000, 10, 64), Some(64));
    assert_eq!(trials_per_round(1000, 100, 64), Some(10));
    assert_eq!(trials_per_round(99, 100, 64), None);
    assert_eq!(trials_per_round(99, 0, 64), None);
}
