//! How people are told which machine a record is of.

/// The end of the name of a machine whose candidates had to fetch their constants from memory.
const COLD: &str = " with cold constants";

/// `x86_64-unknown-linux-gnu znver5 avx avx2 ..` as `znver5`: the processor, or what else tells
/// machines apart.
pub fn processor(target: &str) -> &str {
    let mut words = target.strip_suffix(COLD).unwrap_or(target).split_whitespace();
    let first = words.next().unwrap_or(target);
    words.next().unwrap_or(first)
}

/// The same, with what is special about the measurements.
pub fn machine_name(target: &str) -> String {
    let constants = if target.ends_with(COLD) { ", constants in memory" } else { "" };
    format!("{}{constants}", processor(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_by_their_processor() {
        let target = "x86_64-unknown-linux-gnu znver5 avx avx2";
        assert_eq!(machine_name(target), "znver5");
        let cold = format!("{target} with cold constants");
        assert_eq!(machine_name(&cold), "znver5, constants in memory");
        assert_eq!(machine_name("nvptx64-nvidia-cuda sm_80"), "sm_80");
        assert_eq!((machine_name("simulated"), machine_name("")), ("simulated".into(), "".into()));
    }
}
