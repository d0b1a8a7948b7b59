//! The header of a bundle: C99, and C++.

use std::fmt::Write;

use ansc_runtime::DType;
use ansc_runtime::manifest::{Manifest, Port, WEIGHT_ALIGN};

use super::entry::Weights;
use super::names::fields;
use super::plan::Plan;
use super::{INDEX_OUT_OF_RANGE, MISALIGNED, OK};

pub(super) fn text(
    plan: &Plan<'_>,
    symbol: &str,
    weights: Weights,
    manifest: &Manifest,
    imports: &[String],
) -> String {
    let upper = symbol.to_ascii_uppercase();
    let mut out = String::new();
    intro(&mut out, symbol, manifest, imports);
    let _ = writeln!(out, "#ifndef {upper}_ANSC_BUNDLE_H\n#define {upper}_ANSC_BUNDLE_H\n");
    let _ = writeln!(out, "#include <stdint.h>\n");
    macros(&mut out, &upper, plan, weights, manifest);
    let _ = writeln!(out, "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n");
    structure(&mut out, symbol, plan, manifest);
    function(&mut out, symbol, weights);
    let _ = writeln!(out, "#ifdef __cplusplus\n}}\n#endif\n\n#endif");
    out
}

fn intro(out: &mut String, symbol: &str, manifest: &Manifest, imports: &[String]) {
    let target = &manifest.target;
    let _ = writeln!(
        out,
        "/* {symbol}: {}, compiled by {} for {}.\n *",
        comment(&manifest.model.name),
        manifest.compiler,
        target.triple
    );
    let _ = writeln!(out, " * The processor must have: {}.", listed(&target.features));
    if target.features.iter().any(|f| f.starts_with("amx-")) {
        let _ = writeln!(
            out,
            " * Before the first call the process must ask Linux for the tile registers of AMX:\n \
             * syscall(SYS_arch_prctl, 0x1023, 18) must return 0 (ARCH_REQ_XCOMP_PERM)."
        );
    }
    let calls = match imports {
        [] => "It calls no function of a library.".to_owned(),
        some => format!("It calls these functions of the C library: {}.", some.join(", ")),
    };
    let _ = writeln!(out, " * {calls} */");
}

fn listed(features: &[String]) -> String {
    if features.is_empty() { "nothing beyond the base".into() } else { features.join(", ") }
}

fn macros(out: &mut String, upper: &str, plan: &Plan<'_>, weights: Weights, manifest: &Manifest) {
    let _ = writeln!(out, "/* Return values of {}_run. */", upper.to_ascii_lowercase());
    let mut define = |name: &str, value: usize| {
        let _ = writeln!(out, "#define {upper}_{name} {value}");
    };
    define("OK", OK as usize);
    define("MISALIGNED", MISALIGNED as usize);
    define("INDEX_OUT_OF_RANGE", INDEX_OUT_OF_RANGE as usize);
    // An array of C has at least one element.
    define("WORKSPACE_BYTES", plan.workspace().max(WEIGHT_ALIGN));
    define("WORKSPACE_ALIGN", WEIGHT_ALIGN);
    if weights == Weights::Given {
        define("WEIGHTS_BYTES", manifest.weight_bytes);
        define("WEIGHTS_ALIGN", WEIGHT_ALIGN);
    }
    for (prefix, ports) in [("IN", &plan.inputs), ("OUT", &plan.outputs)] {
        let names = fields(prefix, ports.iter().map(|port| port.name.as_str()));
        for (name, port) in names.iter().zip(ports) {
            define(&format!("{name}_LEN"), len(port));
        }
    }
    out.push('\n');
}

fn structure(out: &mut String, symbol: &str, plan: &Plan<'_>, manifest: &Manifest) {
    let _ = writeln!(
        out,
        "/* The caller's memory, in row-major order. Each pointer is aligned to its elements;\n \
         * outputs overlap neither inputs nor each other. */"
    );
    for port in manifest.specialisations.iter().flat_map(|s| &s.inputs) {
        if port.bound.is_some() {
            let name = comment(&port.name);
            let _ = writeln!(out, "/* Input {name} was fixed when the model was compiled. */");
        }
    }
    let _ = writeln!(out, "struct {symbol}_io {{");
    for (prefix, constness, ports) in [("in", "const ", &plan.inputs), ("out", "", &plan.outputs)] {
        let names = fields(prefix, ports.iter().map(|port| port.name.as_str()));
        for (name, port) in names.iter().zip(ports) {
            let (ty, what) = (c_type(port.dtype), describe(port));
            let _ = writeln!(out, "    /* {what} */\n    {constness}{ty} *{name};");
        }
    }
    if plan.inputs.is_empty() && plan.outputs.is_empty() {
        let _ = writeln!(out, "    const void *unused;");
    }
    let _ = writeln!(out, "}};\n");
}

fn function(out: &mut String, symbol: &str, weights: Weights) {
    let given = weights == Weights::Given;
    let _ = writeln!(
        out,
        "/* Runs the model on the calling thread. It keeps nothing between calls: several threads may\n \
         * call it at once, each with a workspace of its own. The workspace needs no initial value. */"
    );
    if given {
        let _ = writeln!(out, "/* `weights` is what {symbol}.weights holds, aligned as above. */");
    }
    let last = if given { ", const void *weights" } else { "" };
    let _ =
        writeln!(out, "int {symbol}_run(const struct {symbol}_io *io, void *workspace{last});\n");
}

fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "uint8_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// `x: f32 [1, 3, 16, 16]`
fn describe(port: &Port) -> String {
    format!("{}: {} {:?}", comment(&port.name), port.dtype, port.shape)
}

/// A name that ends no comment and begins no other.
fn comment(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    plain.collect::<String>().replace("*/", "* /").replace("/*", "/ *")
}

fn len(port: &Port) -> usize {
    port.shape.iter().product()
}
