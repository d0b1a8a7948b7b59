//! A comparison as a page: a table, the curves, the boxes.

use std::fmt::Write;

use super::chart::{Against, boxes, curves};
use super::summary::{Comparison, StrategySummary};
use crate::report::html::{STYLE, digits, escape, list};

const COLOURS: &str = "
.s0 { --own: #0b65c2; } .s1 { --own: #c2570b; } .s2 { --own: #2a9d4a; } .s3 { --own: #8a4fd0; } .s4 { --own: #c9184a; }
.s5 { --own: #0a9396; } .s6 { --own: #9a8200; } .s7 { --own: #667085; }
.line { fill: none; stroke: var(--own, currentColor); stroke-width: 1.6; } .band { fill: var(--own, currentColor); opacity: .12; }
.box { fill: var(--own, currentColor); fill-opacity: .3; stroke: var(--own, currentColor); }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; background: var(--own, currentColor); margin-right: .4rem; }
";

const LEGEND: &str = "</tbody></table></div>\n\
    <p>Mean, deviation and median are of the best schedules that the runs found. The rank is the place among the strategies, \
    1 the best, on average over the runs. Failed are candidates that did not build, crashed, took too long or were wrong. \
    Search is what the strategy itself took, without building and measuring.</p>\n";

/// A page of HTML that needs no other file: a table, curves, and the spread of results.
pub fn page(comparison: &Comparison) -> String {
    let task = escape(&comparison.task);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Strategies: {task}</title><style>{STYLE}{COLOURS}</style></head><body>\n\
         <h1>{task}</h1><p>{}, {} threads</p>\n",
        escape(&comparison.target),
        comparison.threads
    );
    let facts = [
        (comparison.space_size.clone(), format!("decisions in the space {}", comparison.space)),
        (comparison.trials.to_string(), "measurements of each run".to_owned()),
        (comparison.seeds.to_string(), "seeds".to_owned()),
        (
            comparison.untuned_seconds.map_or("–".into(), |s| digits(s * 1e3)),
            "ms untuned".to_owned(),
        ),
    ];
    list(&mut page, &facts);
    table(&mut page, comparison);
    charts(&mut page, comparison);
    page + "</body></html>\n"
}

fn table(page: &mut String, comparison: &Comparison) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>strategy</th><th>mean, ms</th><th>deviation</th>\
         <th>median</th><th>least</th><th>GFLOP/s</th><th>mean rank</th><th>failed</th><th>search, s</th></tr></thead><tbody>\n",
    );
    for (i, strategy) in comparison.strategies.iter().enumerate() {
        let failed: usize = strategy.runs.iter().map(|r| r.failed).sum();
        let least = strategy.runs.iter().filter_map(|r| r.result).reduce(f64::min);
        let gflops = strategy.mean.map(|s| comparison.flops as f64 / s / 1e9);
        let _ = writeln!(
            page,
            "<tr><td><i class=\"key s{i}\"></i>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{failed}</td><td>{:.1}</td></tr>",
            escape(&strategy.name),
            ms(strategy.mean),
            ms(strategy.deviation),
            ms(strategy.median),
            ms(least),
            gflops.map_or("–".into(), digits),
            strategy.mean_rank.map_or("–".into(), |r| format!("{r:.2}")),
            strategy.searching_seconds
        );
    }
    page.push_str(LEGEND);
}

fn ms(seconds: Option<f64>) -> String {
    seconds.map_or("–".into(), |s| digits(s * 1e3))
}

fn charts(page: &mut String, comparison: &Comparison) {
    let strategies: &[StrategySummary] = &comparison.strategies;
    let charts = [
        (
            "best so far against measurements, mean and deviation",
            curves(strategies, Against::Trials, "best time against measurements"),
        ),
        (
            "best so far against time, mean and deviation",
            curves(strategies, Against::Seconds, "best time against seconds"),
        ),
        (
            "results: least, quartiles, largest",
            boxes(strategies, "spread of the results of each strategy"),
        ),
    ];
    page.push_str("<div class=\"charts\">\n");
    for (caption, chart) in charts.iter().filter(|(_, chart)| !chart.is_empty()) {
        let _ = writeln!(page, "<figure><figcaption>{caption}</figcaption>{chart}</figure>");
    }
    page.push_str("</div>\n");
}
