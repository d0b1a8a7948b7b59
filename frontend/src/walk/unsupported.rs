//! Advice to the user about an operator that has no importer.

/// `domain` is "" for ONNX's own operators.
pub(super) fn remedy(domain: &str, op: &str) -> &'static str {
    match domain {
        // Each of these is a quantised operator of its own. The other format marks what is
        // quantised and keeps the operators.
        "com.microsoft" if op.starts_with("QLinear") => {
            "quantise the model in the other format of ONNX Runtime, `quant_format=QuantFormat.QDQ`"
        }
        "com.microsoft" => {
            "if the optimiser of ONNX Runtime put it there, compile the model as it was before; \
             else export the model with operators that `ansc operators` lists"
        }
        "com.microsoft.nchwc" => {
            "ONNX Runtime's optimiser laid the model out for one kind of processor: compile the \
             model as it was before, or as the level `ORT_ENABLE_EXTENDED` leaves it"
        }
        "ai.onnx.ml" => "cut it off the model: classical machine learning is not supported",
        _ => {
            "export the model with operators that `ansc operators` lists, or define this one as a \
             model-local function of them"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    #[test]
    fn remedies_are_for_what_is_not_supported() {
        assert!(ops::lookup("com.microsoft", "QLinearTanh").is_none());
        assert!(remedy("com.microsoft", "QLinearTanh").contains("QDQ"));
        assert!(ops::lookup("com.microsoft.nchwc", "Conv").is_none());
        assert!(remedy("com.microsoft.nchwc", "Conv").contains("ORT_ENABLE_EXTENDED"));
        // The remedy leads to these operators, so they must be supported.
        for op in ["QuantizeLinear", "DequantizeLinear", "Gemm"] {
            assert!(ops::lookup("", op).is_some(), "{op}");
        }
    }
}
