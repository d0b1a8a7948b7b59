//! Names of a model as words of C.
//!
//! ```text
//! my-net.v2 -> my_net_v2     0.onnx -> m0_onnx     inputs `a/b`, `a.b` -> in_a_b, in_a_b_2
//! ```

/// The prefix of all that a bundle defines; never empty, and no digit comes first.
pub fn symbol(name: &str) -> String {
    let word = word(name);
    let starts_well = word.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts_well { word } else { format!("m{word}") }
}

/// Fields of a struct for these names, all different. The prefix keeps them from being words of the
/// language.
pub(super) fn fields<'a>(prefix: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken: Vec<String> = vec![];
    for name in names {
        let first = format!("{prefix}_{}", word(name));
        let others = (2..).map(|n| format!("{first}_{n}"));
        let free = std::iter::once(first.clone()).chain(others).find(|f| !taken.contains(f));
        taken.extend(free);
    }
    taken
}

fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_become_words() {
        for (name, expected) in
            [("net", "net"), ("my-net.v2", "my_net_v2"), ("0.x", "m0_x"), ("", "m"), ("é", "m_")]
        {
            assert_eq!(symbol(name), expected, "{name}");
        }
    }

    #[test]
    fn fields_differ() {
        let names = ["a/b", "a.b", "a_b_2", "int"];
        let expected = ["in_a_b", "in_a_b_2", "in_a_b_2_2", "in_int"];
        assert_eq!(fields("in", names.into_iter()), expected);
    }
}
