//! `ansc operators`: what can be compiled. The page `docs/src/operators.md` is its output.

use std::fmt::Write;

use ansc_frontend::operators;

use super::print_json;
use crate::Error;
use crate::cli::Operators;

pub(super) fn run(args: &Operators) -> Result<(), Error> {
    if args.json {
        print_json(&serde_json::json!({ "operators": operators() }));
    } else {
        print!("{}", page());
    }
    Ok(())
}

/// A table for each domain.
pub fn page() -> String {
    let all = operators();
    let mut text = String::from("# Operators\n\nWritten by `ansc operators`.\n");
    for domain in ["", "com.microsoft", "ai.onnx.preview.training"] {
        let title = if domain.is_empty() { "ai.onnx" } else { domain };
        let own: Vec<_> = all.iter().filter(|o| o.domain == domain).collect();
        let count = own.len();
        let _ = write!(text, "\n## {title}: {count}\n\n| Operator | From opset |\n| --- | --- |\n");
        for operator in own {
            let _ = writeln!(text, "| {} | {} |", operator.name, operator.since);
        }
    }
    text
}
