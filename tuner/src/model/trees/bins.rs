//! Numbers as small integers: which of at most 64 ranges each one is in.

use rayon::prelude::*;

pub(super) const MOST: usize = 64;

/// The rows of a training set, number by number. Numbers that are the same in all rows are left
/// out.
pub(super) struct Bins {
    pub(super) columns: Vec<Column>,
    pub(super) rows: usize,
}

pub(super) struct Column {
    /// The place of the number in a row.
    pub(super) feature: usize,
    /// Increasing: bin `b` holds what is more than `thresholds[b - 1]` and not more than
    /// `thresholds[b]`.
    pub(super) thresholds: Vec<f32>,
    /// The bin of each row.
    pub(super) bins: Vec<u8>,
}

impl Column {
    pub(super) fn bin_count(&self) -> usize {
        self.thresholds.len() + 1
    }
}

impl Bins {
    /// All rows are equally long.
    pub(super) fn of(rows: &[&[f32]]) -> Bins {
        let width = rows.first().map_or(0, |row| row.len());
        let columns = (0..width).into_par_iter().filter_map(|feature| column(rows, feature));
        Bins { columns: columns.collect(), rows: rows.len() }
    }
}

fn column(rows: &[&[f32]], feature: usize) -> Option<Column> {
    // Comparisons with NaN are false, so NaN goes into the first bin: to the left of every split.
    let values: Vec<f32> = rows.iter().map(|row| row[feature].clamp(f32::MIN, f32::MAX)).collect();
    let thresholds = thresholds(values.iter().copied().filter(|v| !v.is_nan()).collect());
    if thresholds.is_empty() {
        return None;
    }
    let bin = |v: &f32| thresholds.partition_point(|t| v > t) as u8;
    let bins = values.iter().map(bin).collect();
    Some(Column { feature, thresholds, bins })
}

/// Between neighbouring values if they are few, else so that bins hold about as many rows each.
fn thresholds(mut values: Vec<f32>) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let borders: Vec<usize> = (1..values.len()).filter(|&i| values[i - 1] < values[i]).collect();
    let between = |&i: &usize| middle(values[i - 1], values[i]);
    if borders.len() < MOST {
        return borders.iter().map(between).collect();
    }
    let mut chosen: Vec<usize> = vec![];
    for bin in 1..MOST {
        // The first border at or after the end of the bin.
        let end = bin * values.len() / MOST;
        let at = borders.partition_point(|&b| b < end);
        if let Some(&border) = borders.get(at)
            && chosen.last() != Some(&border)
        {
            chosen.push(border);
        }
    }
    chosen.iter().map(between).collect()
}

/// A number `t` with `low <= t < high`.
fn middle(low: f32, high: f32) -> f32 {
    let middle = low + (high - low) / 2.0;
    if middle.is_finite() && middle < high { middle } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_have_a_bin_each() {
        assert_eq!(thresholds(vec![3.0, 1.0, 1.0, 2.0]), [1.5, 2.5]);
        assert!(thresholds(vec![4.0; 9]).is_empty());
        assert!(thresholds(vec![]).is_empty());
    }

    #[test]
    fn many_values_share_bins_of_equal_size() {
        let values: Vec<f32> = (0..6400).map(|i| (i * 37 % 6400) as f32).collect();
        let found = thresholds(values);
        assert_eq!(found.len(), MOST - 1);
        assert!(found.iter().enumerate().all(|(i, t)| *t == 100.0 * (i + 1) as f32 - 0.5));
        // Half of the rows are equal.
        let skewed = (0..1000).map(|i| if i < 500 { 0.0 } else { i as f32 }).collect();
        let found = thresholds(skewed);
        assert!(found.len() < MOST && found.windows(2).all(|w| w[0] < w[1]), "{found:?}");
    }

    #[test]
    fn a_threshold_parts_neighbouring_floats() {
        let cases = [(1.0, 1.0f32.next_up()), (-1.0f32.next_up(), -1.0), (-0.0, f32::MIN_POSITIVE)];
        for (low, high) in cases {
            let t = middle(low, high);
            assert!(low <= t && t < high, "{low} {t} {high}");
        }
        assert!(middle(f32::MIN, f32::MAX) < f32::MAX);
    }

    #[test]
    fn rows_are_binned_by_what_is_not_constant() {
        let mut rows = [[1.0; 9]; 3];
        (rows[1][7], rows[2][7]) = (5.0, f32::NAN);
        let bins = Bins::of(&rows.each_ref().map(|row| &row[..]));
        assert_eq!(bins.columns.len(), 1);
        let column = &bins.columns[0];
        assert_eq!(
            (column.feature, &column.thresholds[..], &column.bins[..]),
            (7, &[3.0][..], &[0, 1, 0][..])
        );
    }
}
