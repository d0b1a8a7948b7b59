//! Why no choice of precisions is good enough, and what may help.

use ansc_runtime::Precision;

use super::search::Found;
use super::{LayerLoss, Work};
use crate::Error;

/// Layers that a message names.
const NAMED: usize = 3;

pub(super) fn refusal(work: &Work<'_>, found: &Found, held_back: Option<f64>) -> Error {
    let bound = work.settings.max_error;
    let error = held_back.unwrap_or(found.error).max(found.error);
    let layers = found.layers();
    let worst: Vec<String> = layers.iter().take(NAMED).map(in_words).collect();
    let what = match found.choice.values().any(|p| *p != Precision::F32) {
        true => {
            let where_ = if found.error > bound { "the samples" } else { "held-back samples" };
            format!("outputs are {error:.1e} from those of f32 on {where_}, of {bound:.1e} allowed")
        }
        false => format!("no layer may be rounded if outputs may be {bound:.1e} from those of f32"),
    };
    let remedy = match layers.first() {
        Some(layer) if found.choice.get(&layer.node) != Some(&Precision::F32) => {
            format!("keep the worst as they are (`--keep {}`)", layer.node)
        }
        _ => "try `--calibration entropy` or `percentile`".into(),
    };
    let reason = format!(
        "{what}; alone, the worst layers cost {}\n      remedy: {remedy}, give more samples, or \
         allow more (`--max-error {:.1e}`)",
        worst.join(", "),
        2.0 * error.max(bound),
    );
    Error::file(work.model, reason)
}

fn in_words(layer: &LayerLoss) -> String {
    let worst = layer.alone.values().copied().fold(0.0, f64::max);
    format!("`{}` {worst:.1e}", layer.node)
}
