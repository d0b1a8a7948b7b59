//! Makes `include/ansc.h` from `src/c/*.rs`: `ansc-header`, or `ansc-header --check` to compare.
//!
//! The last line of the header is a hash of the sources, by which the tests of the runtime see that
//! it is current without having this program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cbindgen::{Builder, Config, EnumConfig, ExportConfig, Language, RenameRule, Style};

const SOURCES: [&str; 5] = ["status", "port", "model", "session", "state"];

const INTRODUCTION: &str = "\
/* ansc: runs models compiled by `ansc compile`.

   Link with -lansc_runtime. Of the static library also: -lm -lpthread -ldl -lgcc_s.

   Functions return an AnscStatus. Unless it is ANSC_STATUS_OK, nothing was written through the
   result pointers, and ansc_error_message() says what happened. Null where a handle or a result is
   needed is an error, never a crash; freeing null is nothing. No exception or panic leaves a
   function.

   Threads: a model may be used by any number of threads at once. A session runs in one thread at a
   time, in any one; a call while it runs in another gives ANSC_STATUS_BUSY. Different sessions, of
   one model or of several, run at the same time. Messages of errors belong to their thread. */";

fn main() -> ExitCode {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = runtime.join("include/ansc.h");
    let header = make(&runtime);
    if !std::env::args().any(|arg| arg == "--check") {
        std::fs::write(&target, header).expect("the header can be written");
        return ExitCode::SUCCESS;
    }
    if std::fs::read_to_string(&target).is_ok_and(|found| found == header) {
        return ExitCode::SUCCESS;
    }
    eprintln!("{} is not current; run runtime/header/generate", target.display());
    ExitCode::FAILURE
}

fn make(runtime: &Path) -> String {
    let files: Vec<PathBuf> =
        SOURCES.iter().map(|name| runtime.join(format!("src/c/{name}.rs"))).collect();
    let builder = Builder::new().with_config(config());
    let builder = files.iter().fold(builder, |builder, file| builder.with_src(file));
    let mut text = Vec::new();
    builder.generate().expect("the interface is one that C can express").write(&mut text);
    let text = String::from_utf8(text).expect("sources are UTF-8");
    format!("{}\n/* sources: {:032x} */\n", without_safety(&text).trim_end(), hash(&files))
}

fn config() -> Config {
    Config {
        language: Language::C,
        header: Some(INTRODUCTION.to_owned()),
        include_guard: Some("ANSC_H".to_owned()),
        cpp_compat: true,
        usize_is_size_t: true,
        style: Style::Both,
        line_length: 100,
        documentation_style: cbindgen::DocumentationStyle::C99,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            enum_class: false,
            ..EnumConfig::default()
        },
        // No signature names it: a number from C need not be one of its values.
        export: ExportConfig { include: vec!["AnscDtype".to_owned()], ..ExportConfig::default() },
        ..Config::default()
    }
}

/// Removes the `# Safety` sections. The introduction and the texts of the types say what a caller
/// must promise.
fn without_safety(header: &str) -> String {
    let mut kept = Vec::new();
    let mut in_safety = false;
    for line in header.lines() {
        let is_comment = line.trim_start().starts_with("//");
        in_safety = is_comment && (in_safety || line.trim() == "// # Safety");
        if in_safety && kept.last().is_some_and(|last: &&str| last.trim() == "//") {
            kept.pop();
        }
        if !in_safety {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// xxh3 of all sources, one after another.
fn hash(files: &[PathBuf]) -> u128 {
    let read = |file: &PathBuf| std::fs::read(file).expect("the source can be read");
    xxhash_rust::xxh3::xxh3_128(&files.iter().flat_map(read).collect::<Vec<u8>>())
}
