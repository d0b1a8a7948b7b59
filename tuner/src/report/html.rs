//! The page: one file that needs no other and no script.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::roofline::{self, Dot};
use super::svg;
use super::{Machine, Model, Summary, Task};
use crate::records::{Limits, machine_name};

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --faint: #667085; --line: #d9dee6; --page: #fff; --card: #f6f8fa;
  --curve: #0b65c2; --bar: #c2570b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --faint: #97a1b0; --line: #343c48; --page: #14181e;
  --card: #1b2128; --curve: #6cb2ff; --bar: #f0964f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 76rem;
  margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; } h3 { font-size: 1rem; margin: 1.5rem 0 .3rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; overflow-wrap: anywhere; }
p { margin: .3rem 0; color: var(--faint); overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .5rem .9rem; color: var(--faint); min-width: 0; }
.facts b { display: block; font-size: 1.25rem; color: var(--ink); font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--faint); } th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 11rem; }
.share { width: 7rem; } .share i { display: block; height: .7rem; background: var(--curve); border-radius: 2px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem; margin-top: 1rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem; min-width: 0; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; display: block; } svg.bars { max-width: 40rem; min-width: 24rem; }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
.last { fill: var(--curve); } .curve { fill: none; stroke: var(--curve); stroke-width: 2; } .grid { stroke: var(--line); }
.reference { stroke: var(--faint); stroke-dasharray: 4 3; } .bar { fill: var(--bar); }
.roof { fill: none; stroke: var(--ink); stroke-width: 1.5; } .dot { fill: var(--curve); fill-opacity: .55; stroke: var(--curve); }
svg.roofline { max-width: 52rem; min-width: 32rem; } svg.graph { max-width: none; height: auto; } .edge { fill: none; stroke: var(--faint); }
.box { fill: var(--card); stroke: var(--line); } .heat { fill: var(--bar); } svg text.name { fill: var(--ink); font-weight: 600; }
.graphs { overflow: auto; max-height: 44rem; border: 1px solid var(--line); border-radius: 8px; }
details { margin-top: .4rem; } summary { cursor: pointer; color: var(--faint); }
pre { overflow-x: auto; font: 12px/1.4 ui-monospace, monospace; }
";

/// The page of a summary; `source` says where the records are.
pub fn page(summary: &Summary, source: &str) -> String {
    let mut page = begin("Tuning", &format!("Records of {source}"));
    totals(&mut page, summary);
    rejected(&mut page, summary);
    summary.machines.iter().for_each(|m| machine(&mut page, m));
    page + END
}

/// A page up to its heading; [`END`] ends it.
pub(super) fn begin(title: &str, what: &str) -> String {
    let (title, what) = (escape(title), escape(what));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}: {what}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1><p>{what}</p>\n"
    )
}

pub(super) const END: &str = "</body></html>\n";

fn totals(page: &mut String, summary: &Summary) {
    let keys = summary.machines.iter().flat_map(|m| &m.tasks).map(|t| &t.key);
    let tasks = keys.collect::<BTreeSet<_>>().len();
    let failed: usize = summary.failures.values().sum();
    let share = percent(failed as f64 / summary.measurements.max(1) as f64);
    let facts = [
        (summary.measurements.to_string(), "measurements".to_owned()),
        (tasks.to_string(), "subgraphs".to_owned()),
        (format!("{failed}"), format!("rejected ({share})")),
    ];
    list(page, &facts);
}

pub(crate) fn list(page: &mut String, facts: &[(String, String)]) {
    page.push_str("<ul class=\"facts\">");
    for (value, what) in facts {
        let _ = write!(page, "<li><b>{}</b>{}</li>", escape(value), escape(what));
    }
    page.push_str("</ul>\n");
}

fn rejected(page: &mut String, summary: &Summary) {
    if summary.failures.is_empty() {
        return;
    }
    let rows: Vec<(String, usize)> =
        summary.failures.iter().map(|(f, n)| (f.to_string(), *n)).collect();
    let chart = svg::bars(&rows, "rejected candidates by cause");
    let _ = writeln!(page, "<h2>Rejected candidates</h2>\n<div class=\"scroll\">{chart}</div>");
}

fn machine(page: &mut String, machine: &Machine) {
    let threads = if machine.threads == 1 { "thread" } else { "threads" };
    let name = escape(&machine_name(&machine.target));
    let _ = writeln!(page, "<h2>{name}, {} {threads}</h2>", machine.threads);
    page.push_str(&details("the machine", Some(&machine.target)));
    let mut facts =
        vec![(time(machine.best_seconds), "all subgraphs at best, each once".to_owned())];
    if let Some(compared) = machine.compared {
        let ratio = compared.best_seconds / compared.untuned_seconds;
        facts.push((
            format!("{ratio:.3}"),
            "of the untuned time, where that was measured".to_owned(),
        ));
    }
    if let Some(limits) = machine.limits {
        facts.push((gflops(limits.flops_per_second), "GFLOP/s at most".to_owned()));
        facts.push((gflops(limits.bytes_per_second), "GB/s of memory at most".to_owned()));
    }
    list(page, &facts);
    table(page, machine);
    machine.models.iter().for_each(|m| model(page, m));
    if let Some(limits) = &machine.limits {
        roofs(page, machine, limits);
    }
    page.push_str("<div class=\"charts\">\n");
    machine.tasks.iter().for_each(|t| figure(page, t));
    page.push_str("</div>\n");
}

/// Shows the share of each subgraph in the time of a model, and in the time that tuning took away.
fn model(page: &mut String, model: &Model) {
    let ratio = model.best_seconds / model.untuned_seconds.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        page,
        "<h3>{}</h3><p>{} untuned, {} at best ({ratio:.3}), all subgraphs as often as they occur{}</p>",
        escape(&model.name),
        time(model.untuned_seconds),
        time(model.best_seconds),
        if model.missing > 0 { format!(", {} not measured", model.missing) } else { String::new() }
    );
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>subgraph</th><th>occurs</th><th>untuned, ms</th><th>best, ms</th>\
         <th>share of what was gained</th><th colspan=\"2\">share of the model</th></tr></thead><tbody>\n",
    );
    let gained = (model.untuned_seconds - model.best_seconds).max(f64::MIN_POSITIVE);
    for part in &model.parts {
        let share = part.best_seconds / model.best_seconds.max(f64::MIN_POSITIVE);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"share\"><i style=\"width:{:.1}%\"></i></td></tr>",
            escape(&part.title),
            part.count,
            digits(part.untuned_seconds * 1e3),
            digits(part.best_seconds * 1e3),
            percent(((part.untuned_seconds - part.best_seconds) / gained).clamp(-1.0, 1.0)),
            percent(share),
            share * 100.0
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn roofs(page: &mut String, machine: &Machine, limits: &Limits) {
    let dot = |task: &'_ Task| {
        let share = task.best_seconds? / machine.best_seconds.max(f64::MIN_POSITIVE);
        Some(Dot { name: task.title().to_owned(), roofline: task.roofline(limits)?, share })
    };
    let dots: Vec<Dot> = machine.tasks.iter().filter_map(dot).collect();
    let chart = roofline::chart(&dots, limits);
    if !chart.is_empty() {
        let _ = writeln!(page, "<h3>Roofline</h3>\n<div class=\"scroll\">{chart}</div>");
    }
}

fn table(page: &mut String, machine: &Machine) {
    page.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>subgraph</th><th>measured</th><th>rejected</th>\
         <th>untuned, ms</th><th>best, ms</th><th>ratio</th><th>GFLOP/s</th><th>share of the best</th></tr></thead><tbody>\n",
    );
    for task in &machine.tasks {
        let failed: usize = task.failures.values().sum();
        let share = task.best_seconds.unwrap_or(0.0) / machine.best_seconds.max(f64::MIN_POSITIVE);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{failed}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td class=\"share\"><i style=\"width:{:.1}%\" title=\"{}\"></i></td></tr>",
            escape(task.title()),
            task.measurements,
            or_dash(task.untuned_seconds.map(|s| digits(s * 1e3))),
            or_dash(task.best_seconds.map(|s| digits(s * 1e3))),
            or_dash(task.ratio().map(|r| format!("{r:.3}"))),
            or_dash(task.gflops().map(digits)),
            share * 100.0,
            percent(share)
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn figure(page: &mut String, task: &Task) {
    let label = format!("best time of {} against measurements", task.title());
    let chart = svg::steps(&task.curve, task.untuned_seconds, &label);
    let nothing = "<p>No candidate was measured successfully.</p>";
    let _ = writeln!(
        page,
        "<figure><figcaption>{}</figcaption>{}{}{}</figure>",
        escape(task.title()),
        if chart.is_empty() { nothing } else { &chart },
        details("subgraph", task.compute.as_deref()),
        details("best schedule", steps(task).as_deref())
    );
}

/// In words, then as it is.
fn steps(task: &Task) -> Option<String> {
    let trace = task.best_trace.as_deref()?;
    Some(format!("{}\n\n{trace}", task.best_steps.join("\n")))
}

pub(super) fn details(what: &str, text: Option<&str>) -> String {
    let text = text.map(escape);
    text.map_or(String::new(), |text| {
        format!("<details><summary>{what}</summary><pre>{text}</pre></details>")
    })
}

/// Four digits that count.
pub(crate) fn digits(value: f64) -> String {
    let before_point = value.abs().log10().floor() + 1.0;
    let decimals =
        if before_point.is_finite() { (4.0 - before_point).clamp(0.0, 9.0) } else { 0.0 };
    format!("{value:.*}", decimals as usize)
}

/// In the one unit of all pages, so that numbers compare.
pub(super) fn time(seconds: f64) -> String {
    format!("{} ms", digits(seconds * 1e3))
}

/// In 10^9, without digits that do not count.
pub(super) fn gflops(per_second: f64) -> String {
    format!("{:.1}", per_second / 1e9)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

pub(super) fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".into())
}

/// Text that stands for itself, in elements and attributes. Control characters, which no page may
/// have, become replacement characters.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits() {
        let table = [
            (2424.31, "2424"),
            (18.92345, "18.92"),
            (0.017923, "0.01792"),
            (123456.7, "123457"),
            (0.0, "0"),
            (1.0, "1.000"),
        ];
        for (value, text) in table {
            assert_eq!(digits(value), text);
        }
    }
}
