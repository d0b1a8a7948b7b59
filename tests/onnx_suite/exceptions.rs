//! The list of cases that may fail: `suite/case: reason` on each line, `#` before a comment.

use std::collections::BTreeMap;
use std::path::Path;

/// Rewrites the list without the cases for which `drop` holds.
pub(crate) fn without(path: &Path, drop: impl Fn(&str) -> bool) -> Result<(), String> {
    let failed = |e| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let kept = text.lines().filter(|l| !l.split_once(": ").is_some_and(|(case, _)| drop(case)));
    let kept: String = kept.map(|l| format!("{l}\n")).collect();
    std::fs::write(path, kept).map_err(failed)
}

pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut exceptions = BTreeMap::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (case, reason) = line
            .split_once(": ")
            .filter(|(_, reason)| !reason.trim().is_empty())
            .ok_or_else(|| format!("{}: `{line}` gives no reason", path.display()))?;
        if exceptions.insert(case.to_string(), reason.to_string()).is_some() {
            return Err(format!("{}: `{case}` is listed twice", path.display()));
        }
    }
    Ok(exceptions)
}
