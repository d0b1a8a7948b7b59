//! Domains of operators, and the versions of them that a model imports.

use std::collections::BTreeMap;
use std::sync::Arc;

use tract_onnx::pb::OperatorSetIdProto;

/// Opset version by domain; the default domain is "".
pub(crate) type Opsets = Arc<BTreeMap<String, i64>>;

/// "ai.onnx" is another name of the default domain.
pub(crate) fn canonical_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// Version by domain: the highest one where a domain is listed several times.
pub(crate) fn versions(imports: &[OperatorSetIdProto]) -> BTreeMap<String, i64> {
    let mut versions = BTreeMap::new();
    for import in imports {
        let domain = canonical_domain(&import.domain).to_string();
        let version = versions.entry(domain).or_insert(import.version);
        *version = import.version.max(*version);
    }
    versions
}

/// Files older than the notion of opsets are of opset 1.
pub(crate) fn opsets(imports: &[OperatorSetIdProto]) -> Opsets {
    let mut versions = versions(imports);
    if versions.is_empty() {
        versions.insert(String::new(), 1);
    }
    Arc::new(versions)
}
