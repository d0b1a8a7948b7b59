//! Names to suggest in place of one that does not exist.
//!
//! ```text
//! similar("con1", ["conv1", "conv2", "relu"])  ->  ["conv1", "conv2"]
//! ```

/// Names that are suggested at most.
const SUGGESTIONS: usize = 3;

/// Those of the `known` names that differ in few letters from `name`, the nearest first.
pub fn similar<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let all = known.into_iter().map(|k| (distance(name, k), k));
    let mut near: Vec<(usize, &str)> =
        all.filter(|(distance, k)| *distance <= 2.max(k.len().min(name.len()) / 3)).collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTIONS).map(|(_, known)| known).collect()
}

/// Letters to insert, remove or replace to make one name of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn the_nearest_come_first() {
        let known = ["conv2", "relu", "conv1", "convolution"];
        assert_eq!(similar("con1", known), ["conv1", "conv2"]);
        assert!(similar("pool", known).is_empty());
        assert_eq!(similar("layer1/conv", ["layer1/conv1", "layer1/add"]), ["layer1/conv1"]);
    }
}
