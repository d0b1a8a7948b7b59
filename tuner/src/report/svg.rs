//! Charts as SVG text. Colours are classes of the page's style sheet, so that they follow light and
//! dark.

use std::fmt::Write;

use super::Point;

pub(crate) const WIDTH: f64 = 360.0;
pub(crate) const HEIGHT: f64 = 190.0;
pub(crate) const LEFT: f64 = 52.0;
pub(crate) const RIGHT: f64 = 12.0;
pub(crate) const TOP: f64 = 14.0;
pub(crate) const BOTTOM: f64 = 34.0;
const TICKS: f64 = 5.0;
/// The unit of all times, and its number in a second: pages with several units mislead.
pub(crate) const MILLISECONDS: (&str, f64) = ("ms", 1e3);

/// A linear map from data to the page.
pub(crate) struct Scale {
    pub(crate) most: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Scale {
    pub(crate) fn at(&self, value: f64) -> f64 {
        self.from + value / self.most * (self.to - self.from)
    }
}

/// Steps down from the first point; `reference` is a dashed line across.
pub(super) fn steps(points: &[Point], reference: Option<f64>, label: &str) -> String {
    let (Some(last), Some(slowest)) =
        (points.last(), points.iter().map(|p| p.seconds).chain(reference).reduce(f64::max))
    else {
        return String::new();
    };
    let (unit, scale) = MILLISECONDS;
    let x = Scale { most: last.measurements as f64, from: LEFT, to: WIDTH - RIGHT };
    let y = Scale { most: slowest * scale * 1.05, from: HEIGHT - BOTTOM, to: TOP };
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#,
        super::html::escape(label)
    );
    axes(&mut svg, (&x, "measurements"), (&y, unit));
    if let Some(seconds) = reference {
        let at = y.at(seconds * scale);
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let _ = write!(svg, r#"<path class="reference" d="M{left:.1} {at:.1}H{right:.1}"/>"#);
        let _ = write!(
            svg,
            r#"<text x="{right:.1}" y="{:.1}" text-anchor="end">untuned</text>"#,
            at - 3.0
        );
    }
    let _ = write!(svg, r#"<path class="curve" d="{}"/>"#, path(points, &x, &y, scale));
    let (cx, cy) = (x.at(last.measurements as f64), y.at(last.seconds * scale));
    let _ = write!(svg, r#"<circle class="last" cx="{cx:.1}" cy="{cy:.1}" r="3"/></svg>"#);
    svg
}

fn path(points: &[Point], x: &Scale, y: &Scale, scale: f64) -> String {
    let mut path = String::new();
    for (i, point) in points.iter().enumerate() {
        let (px, py) = (x.at(point.measurements as f64), y.at(point.seconds * scale));
        let _ = match i {
            0 => write!(path, "M{px:.1} {py:.1}"),
            _ => write!(path, "H{px:.1}V{py:.1}"),
        };
    }
    path
}

/// Each with what it shows.
pub(crate) fn axes(svg: &mut String, (x, what): (&Scale, &str), (y, unit): (&Scale, &str)) {
    let (bottom, right) = (y.from, x.to);
    for tick in ticks(y.most) {
        let at = y.at(tick);
        let _ = write!(svg, r#"<path class="grid" d="M{LEFT:.1} {at:.1}H{right:.1}"/>"#);
        let (tx, ty) = (LEFT - 6.0, at + 3.5);
        let _ = write!(
            svg,
            r#"<text x="{tx:.1}" y="{ty:.1}" text-anchor="end">{}</text>"#,
            plain(tick)
        );
    }
    for tick in ticks(x.most).into_iter().filter(|t| t.fract() == 0.0) {
        let (at, ty) = (x.at(tick), bottom + 14.0);
        let _ = write!(
            svg,
            r#"<text x="{at:.1}" y="{ty:.1}" text-anchor="middle">{}</text>"#,
            plain(tick)
        );
    }
    let (middle, low) = ((x.from + x.to) / 2.0, HEIGHT - 4.0);
    let _ = write!(svg, r#"<text x="{middle:.1}" y="{low:.1}" text-anchor="middle">{what}</text>"#);
    let _ = write!(svg, r#"<text x="4" y="{:.1}">{unit}</text>"#, TOP - 3.0);
}

/// One bar for each row, the count behind it.
pub(super) fn bars(rows: &[(String, usize)], label: &str) -> String {
    const ROW: f64 = 22.0;
    const NAMES: f64 = 170.0;
    const FULL: f64 = 300.0;
    let most = rows.iter().map(|r| r.1).max().unwrap_or(1).max(1) as f64;
    let height = ROW * rows.len() as f64 + 4.0;
    let mut svg = format!(
        r#"<svg class="bars" viewBox="0 0 540 {height}" role="img" aria-label="{}">"#,
        super::html::escape(label)
    );
    for (i, (name, count)) in rows.iter().enumerate() {
        let top = ROW * i as f64 + 3.0;
        let (width, base) = ((*count as f64 / most * FULL).max(1.0), top + 12.5);
        let name = super::html::escape(name);
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{base:.1}" text-anchor="end">{name}</text><rect class="bar" x="{NAMES}" y="{top:.1}" width="{width:.1}" height="16"/><text x="{:.1}" y="{base:.1}">{count}</text>"#,
            NAMES - 8.0,
            NAMES + width + 6.0
        );
    }
    svg + "</svg>"
}

/// Multiples of 1, 2 or 5 times a power of ten, from 0 on.
pub(crate) fn ticks(most: f64) -> Vec<f64> {
    let raw = most / TICKS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= raw);
    let step = step.unwrap_or(10.0 * power);
    (0..).map(|i| f64::from(i) * step).take_while(|t| *t <= most).collect()
}

/// Without the digits that only rounding made.
pub(crate) fn plain(tick: f64) -> String {
    let text = format!("{tick:.7}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
