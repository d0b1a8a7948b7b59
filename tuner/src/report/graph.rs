//! A graph of kernels as SVG: each below those that it reads from.

use std::fmt::Write;

use super::html::escape;
use crate::title::shortened;

/// A box of the drawing.
pub(super) struct Box {
    pub(super) title: String,
    pub(super) detail: String,
    /// How much of the whole it is; decides its colour.
    pub(super) share: f64,
}

const BOX_WIDTH: f64 = 190.0;
const BOX_HEIGHT: f64 = 38.0;
const GAP_X: f64 = 18.0;
const GAP_Y: f64 = 26.0;
/// Characters that fit a box.
const LETTERS: usize = 28;

/// `edges` go from a box to a later one. Empty without boxes.
pub(super) fn draw(boxes: &[Box], edges: &[(usize, usize)]) -> String {
    if boxes.is_empty() {
        return String::new();
    }
    let layers = layers(boxes.len(), edges);
    let widest = layers.iter().map(Vec::len).max().unwrap_or(1) as f64;
    let width = widest * (BOX_WIDTH + GAP_X) + GAP_X;
    let height = layers.len() as f64 * (BOX_HEIGHT + GAP_Y) + GAP_Y;
    let mut places = vec![(0.0, 0.0); boxes.len()];
    for (row, layer) in layers.iter().enumerate() {
        let used = layer.len() as f64 * (BOX_WIDTH + GAP_X) - GAP_X;
        for (column, &i) in layer.iter().enumerate() {
            let x = (width - used) / 2.0 + column as f64 * (BOX_WIDTH + GAP_X);
            places[i] = (x, GAP_Y + row as f64 * (BOX_HEIGHT + GAP_Y));
        }
    }
    let mut svg = format!(
        r#"<svg class="graph" style="width:{width:.0}px" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="kernels and what they read">"#
    );
    for &(from, to) in edges {
        edge(&mut svg, places[from], places[to]);
    }
    for (item, &place) in boxes.iter().zip(&places) {
        node(&mut svg, item, place);
    }
    svg + "</svg>"
}

/// Boxes by the length of the longest way to them.
fn layers(boxes: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut depth = vec![0; boxes];
    for i in 0..boxes {
        let above = edges.iter().filter(|(_, to)| *to == i).map(|(from, _)| depth[*from] + 1);
        depth[i] = above.max().unwrap_or(0);
    }
    let mut layers = vec![vec![]; depth.iter().max().map_or(0, |d| d + 1)];
    depth.into_iter().enumerate().for_each(|(i, d)| layers[d].push(i));
    layers
}

fn edge(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let (x0, y0) = (from.0 + BOX_WIDTH / 2.0, from.1 + BOX_HEIGHT);
    let (x1, y1) = (to.0 + BOX_WIDTH / 2.0, to.1);
    let reach = y1 - y0;
    // One that passes other layers goes around what stands between.
    let aside = if reach > GAP_Y + 1.0 { BOX_WIDTH / 2.0 + GAP_X / 2.0 } else { 0.0 };
    let _ = write!(
        svg,
        r#"<path class="edge" d="M{x0:.1} {y0:.1}C{:.1} {:.1} {:.1} {:.1} {x1:.1} {y1:.1}"/>"#,
        x0 + aside,
        y0 + reach * 0.4,
        x1 + aside,
        y1 - reach * 0.4
    );
}

fn node(svg: &mut String, item: &Box, (x, y): (f64, f64)) {
    let title = escape(&item.title);
    let title_in_box = shortened(&item.title, LETTERS);
    let heat = (item.share.clamp(0.0, 1.0).sqrt() * 0.7).min(0.7);
    let _ = write!(
        svg,
        r#"<g><title>{title}: {}</title><rect class="box" x="{x:.1}" y="{y:.1}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/><rect class="heat" x="{x:.1}" y="{y:.1}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" fill-opacity="{heat:.3}"/><text class="name" x="{tx:.1}" y="{:.1}">{}</text><text x="{tx:.1}" y="{:.1}">{}</text></g>"#,
        escape(&item.detail),
        y + 16.0,
        escape(&title_in_box),
        y + 31.0,
        escape(&shortened(&item.detail, LETTERS)),
        tx = x + 8.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_stands_below_what_it_reads() {
        // 0 -> 1 -> 3, 0 -> 2 -> 3, 0 -> 3, 4 alone
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)];
        assert_eq!(layers(5, &edges), [vec![0, 4], vec![1, 2], vec![3]]);
        assert!(layers(0, &[]).is_empty());
    }
}
