//! The papers' plots as SVG: best time so far against trials or time, mean and deviation over the
//! seeds; and the spread of the results as boxes.

use std::fmt::Write;

use super::summary::{RunSummary, StrategySummary, deviation, mean};
use crate::report::html::escape;
use crate::report::svg::{
    BOTTOM, HEIGHT, LEFT, MILLISECONDS, RIGHT, Scale, TOP, WIDTH, axes, plain, ticks,
};

/// The quantity on the horizontal axis of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Against {
    /// Against the number of measurements.
    Trials,
    /// Against the seconds since a run began.
    Seconds,
}

/// Points of a curve.
const POINTS: usize = 160;
/// Times of more than this many times the best result are cut off at the top.
const CUT: f64 = 4.0;

/// A mean over the seeds, and its deviation.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    at: f64,
    mean: f64,
    deviation: f64,
}

impl Against {
    fn of(self, run: &RunSummary, entry: &(usize, f64, f64)) -> f64 {
        match self {
            Against::Trials => entry.0 as f64,
            Against::Seconds => entry.1.min(run.seconds),
        }
    }

    fn end(self, run: &RunSummary) -> f64 {
        match self {
            Against::Trials => run.trials as f64,
            Against::Seconds => run.seconds,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Against::Trials => "measurements",
            Against::Seconds => "seconds",
        }
    }
}

/// The best time so far, from where all runs of the strategy have one to where the first of them
/// ends.
fn curve(strategy: &StrategySummary, against: Against) -> Vec<Point> {
    let end = strategy.runs.iter().map(|r| against.end(r)).reduce(f64::min).unwrap_or(0.0);
    let at = |i: usize| {
        let at = end * (i as f64 + 1.0) / POINTS as f64;
        let best = |run: &RunSummary| {
            let so_far = run.curve.iter().take_while(|e| against.of(run, e) <= at);
            so_far.last().map(|e| e.2)
        };
        let all: Vec<f64> = strategy.runs.iter().map(best).collect::<Option<_>>()?;
        Some(Point { at, mean: mean(&all)?, deviation: deviation(&all).unwrap_or(0.0) })
    };
    (0..POINTS).filter_map(at).collect()
}

/// Lines with bands, one for each strategy; `class` `s0`, `s1`, .. gives their colours.
pub fn curves(strategies: &[StrategySummary], against: Against, label: &str) -> String {
    let all: Vec<Vec<Point>> = strategies.iter().map(|s| curve(s, against)).collect();
    let points = || all.iter().flatten();
    let (Some(least), Some(slowest), Some(end)) = (
        points().map(|p| p.mean).reduce(f64::min),
        points().map(|p| p.mean + p.deviation).reduce(f64::max),
        points().map(|p| p.at).reduce(f64::max),
    ) else {
        return String::new();
    };
    let most = slowest.min(CUT * least);
    let (unit, scale) = MILLISECONDS;
    let x = Scale { most: end, from: LEFT, to: WIDTH - RIGHT };
    let y = Scale { most: most * scale * 1.05, from: HEIGHT - BOTTOM, to: TOP };
    let mut svg = begin(HEIGHT, label);
    axes(&mut svg, (&x, against.what()), (&y, unit));
    let place = |at: f64, seconds: f64| {
        let height = y.at(seconds.min(most * 1.05) * scale);
        format!("{:.1} {:.1}", x.at(at), height.max(TOP))
    };
    for (i, points) in all.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
        let above = points.iter().map(|p| place(p.at, p.mean + p.deviation));
        let below = points.iter().rev().map(|p| place(p.at, (p.mean - p.deviation).max(0.0)));
        let band: Vec<String> = above.chain(below).collect();
        let line: Vec<String> = points.iter().map(|p| place(p.at, p.mean)).collect();
        let _ = write!(svg, r#"<path class="band s{i}" d="M{}Z"/>"#, band.join("L"));
        let _ = write!(svg, r#"<path class="line s{i}" d="M{}"/>"#, line.join("L"));
    }
    svg + "</svg>"
}

/// For each strategy a box from the first to the third quartile of its results with the median in
/// it, and lines to the least and the largest.
pub fn boxes(strategies: &[StrategySummary], label: &str) -> String {
    const ROW: f64 = 24.0;
    const NAMES: f64 = 96.0;
    let results = |s: &StrategySummary| -> Vec<f64> {
        let mut all: Vec<f64> = s.runs.iter().filter_map(|r| r.result).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let Some(slowest) = strategies.iter().flat_map(results).reduce(f64::max) else {
        return String::new();
    };
    let (unit, scale) = MILLISECONDS;
    let x = Scale { most: slowest * scale * 1.02, from: NAMES, to: WIDTH - RIGHT };
    let bottom = TOP + ROW * strategies.len() as f64;
    let mut svg = begin(bottom + BOTTOM, label);
    for tick in ticks(x.most) {
        let (at, low) = (x.at(tick), bottom + 14.0);
        let _ = write!(svg, r#"<path class="grid" d="M{at:.1} {TOP}V{bottom:.1}"/>"#);
        let _ = write!(
            svg,
            r#"<text x="{at:.1}" y="{low:.1}" text-anchor="middle">{}</text>"#,
            plain(tick)
        );
    }
    let _ = write!(svg, r#"<text x="4" y="{:.1}">{unit}</text>"#, bottom + 14.0);
    for (i, strategy) in strategies.iter().enumerate() {
        let middle = TOP + ROW * (i as f64 + 0.5);
        let (names, base, name) = (NAMES - 8.0, middle + 3.5, escape(&strategy.name));
        let _ = write!(svg, r#"<text x="{names}" y="{base:.1}" text-anchor="end">{name}</text>"#);
        let all: Vec<f64> = results(strategy).iter().map(|s| x.at(s * scale)).collect();
        if !all.is_empty() {
            let [least, first, median, third, largest] =
                [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| quantile(&all, share));
            let (top, height, width) = (middle - 7.0, 14.0, (third - first).max(1.0));
            let _ = write!(
                svg,
                r#"<path class="line s{i}" d="M{least:.1} {middle:.1}H{largest:.1}"/><rect class="box s{i}" x="{first:.1}" y="{top:.1}" width="{width:.1}" height="{height}"/><path class="line s{i}" d="M{median:.1} {top:.1}v{height}"/>"#
            );
        }
    }
    svg + "</svg>"
}

fn begin(height: f64, label: &str) -> String {
    let label = escape(label);
    format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">"#)
}

/// A quantile of sorted values, linear between neighbours.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(curve: &[(usize, f64, f64)]) -> RunSummary {
        let result = curve.last().map(|e| e.2);
        RunSummary { seed: 0, trials: 160, failed: 0, result, curve: curve.to_vec(), seconds: 16.0 }
    }

    fn strategy(runs: Vec<RunSummary>) -> StrategySummary {
        StrategySummary {
            name: "a < b".into(),
            runs,
            mean: None,
            deviation: None,
            median: None,
            mean_rank: None,
            searching_seconds: 0.0,
        }
    }

    #[test]
    fn curves_are_means_over_the_seeds() {
        let runs = vec![run(&[(1, 0.1, 4.0), (80, 8.0, 2.0)]), run(&[(40, 4.0, 2.0)])];
        let points = curve(&strategy(runs), Against::Trials);
        assert_eq!(points[0].at, 40.0);
        assert_eq!((points[0].mean, points[0].deviation), (3.0, 2f64.sqrt()));
        let last = points.last().unwrap();
        assert_eq!((last.at, last.mean, last.deviation), (160.0, 2.0, 0.0));
    }

    #[test]
    fn quartiles() {
        let all = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|s| quantile(&all, s)), [1.0, 1.75, 2.5, 4.0]);
        assert_eq!(quantile(&[7.0], 0.25), 7.0);
    }

    #[test]
    fn nothing_gives_no_chart() {
        let none = [strategy(vec![run(&[])])];
        assert_eq!(curves(&none, Against::Seconds, "x") + &boxes(&none, "x"), "");
    }
}
