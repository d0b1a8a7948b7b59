//! A roofline as SVG: operations in a second against operations for each byte, both in powers of
//! ten.

use std::fmt::Write;

use super::html::escape;
use crate::records::Limits;
use crate::roofline::Roofline;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;

/// A kernel to be shown, and how much of the whole it is.
pub(super) struct Dot {
    pub(super) name: String,
    pub(super) roofline: Roofline,
    /// Its share of the whole time. It decides the size of the dot.
    pub(super) share: f64,
}

/// The whole powers of ten that contain all values.
struct Decades {
    first: i32,
    last: i32,
    from: f64,
    to: f64,
}

impl Decades {
    fn of(values: &[f64], from: f64, to: f64) -> Decades {
        let sound = || values.iter().filter(|v| v.is_finite() && **v > 0.0);
        let least = sound().copied().fold(f64::INFINITY, f64::min);
        let most = sound().copied().fold(0.0, f64::max);
        let (first, last) = match most > 0.0 {
            true => (least.log10().floor() as i32, most.log10().ceil() as i32),
            false => (0, 1),
        };
        Decades { first, last: last.max(first + 1), from, to }
    }

    /// The position of a value. A value that is out of range lies at the border.
    fn at(&self, value: f64) -> f64 {
        let (first, last) = (f64::from(self.first), f64::from(self.last));
        let place = if value > 0.0 { value.log10().clamp(first, last) } else { first };
        self.from + (place - first) / (last - first) * (self.to - self.from)
    }
}

/// Empty without dots.
pub(super) fn chart(dots: &[Dot], limits: &Limits) -> String {
    if dots.is_empty() {
        return String::new();
    }
    let ridge = limits.flops_per_second / limits.bytes_per_second;
    let of = |f: fn(&Roofline) -> f64| dots.iter().map(move |d| f(&d.roofline));
    let across: Vec<f64> = of(|r| r.intensity).chain([ridge]).collect();
    let up: Vec<f64> =
        of(|r| r.flops_per_second / 1e9).chain([limits.flops_per_second / 1e9]).collect();
    let x = Decades::of(&across, LEFT, WIDTH - RIGHT);
    let y = Decades::of(&up, HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        r#"<svg class="roofline" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="kernels under the roofs of computing and memory">"#
    );
    grid(&mut svg, &x, &y);
    roof(&mut svg, &x, &y, limits);
    for dot in dots {
        let (cx, cy) = (x.at(dot.roofline.intensity), y.at(dot.roofline.flops_per_second / 1e9));
        let radius = 3.0 + 9.0 * dot.share.clamp(0.0, 1.0).sqrt();
        let (name, words) = (escape(&dot.name), dot.roofline.in_words());
        let gflops = dot.roofline.flops_per_second / 1e9;
        let _ = write!(
            svg,
            r#"<circle class="dot" cx="{cx:.1}" cy="{cy:.1}" r="{radius:.1}"><title>{name}: {gflops:.1} GFLOP/s, limited by {words}</title></circle>"#
        );
    }
    svg + "</svg>"
}

fn grid(svg: &mut String, x: &Decades, y: &Decades) {
    let (left, right, top, bottom) = (x.from, x.to, y.to, y.from);
    for power in y.first..=y.last {
        let at = y.at(10f64.powi(power));
        let _ = write!(svg, r#"<path class="grid" d="M{left:.1} {at:.1}H{right:.1}"/>"#);
        label(svg, (left - 6.0, at + 3.5), "end", &decade(power));
    }
    for power in x.first..=x.last {
        let at = x.at(10f64.powi(power));
        let _ = write!(svg, r#"<path class="grid" d="M{at:.1} {top:.1}V{bottom:.1}"/>"#);
        label(svg, (at, bottom + 14.0), "middle", &decade(power));
    }
    label(svg, ((left + right) / 2.0, HEIGHT - 6.0), "middle", "operations for each byte");
    label(svg, (4.0, TOP - 14.0), "start", "GFLOP/s");
}

fn roof(svg: &mut String, x: &Decades, y: &Decades, limits: &Limits) {
    let (peak, slope) = (limits.flops_per_second / 1e9, limits.bytes_per_second / 1e9);
    let least = 10f64.powi(x.first);
    // The slope enters at the left or, where that is below the chart, at the bottom.
    let begin = least.max(10f64.powi(y.first) / slope).min(peak / slope);
    let _ = write!(
        svg,
        r#"<path class="roof" d="M{:.1} {:.1}L{:.1} {:.1}H{:.1}"/>"#,
        x.at(begin),
        y.at(begin * slope),
        x.at(peak / slope),
        y.at(peak),
        x.to
    );
    let text = format!("{peak:.0} GFLOP/s");
    label(svg, (x.to, y.at(peak) - 5.0), "end", &text);
    let text = format!("{slope:.1} GB/s");
    label(svg, (x.at(begin) + 10.0, y.at(begin * slope) + 14.0), "start", &text);
}

fn label(svg: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let (x, y) = at;
    let _ = write!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(text)
    );
}

/// `1000`, `0.01`
fn decade(power: i32) -> String {
    match power {
        0..=6 => format!("{}", 10i64.pow(power as u32)),
        -4..=-1 => format!("{:.*}", -power as usize, 10f64.powi(power)),
        _ => format!("1e{power}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_their_decades() {
        let scale = Decades::of(&[0.3, 40.0], 0.0, 300.0);
        assert_eq!((scale.first, scale.last), (-1, 2));
        assert_eq!((scale.at(0.1), scale.at(1.0), scale.at(100.0)), (0.0, 100.0, 300.0));
        assert_eq!((scale.at(0.0), scale.at(1e9)), (0.0, 300.0));
        let empty = Decades::of(&[0.0, f64::NAN], 0.0, 1.0);
        assert_eq!((empty.first, empty.last), (0, 1));
    }

    #[test]
    fn decades_as_text() {
        let texts = [-6, -2, 0, 3, 9].map(decade);
        assert_eq!(texts, ["1e-6", "0.01", "1", "1000", "1e9"]);
    }
}
