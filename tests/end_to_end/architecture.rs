//! `ARCHITECTURE.md` says what is there: files, names, and who depends on whom.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ansc_codegen::Target;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The page without its diagrams, which name crates and stages in short.
fn page() -> String {
    let text = read("ARCHITECTURE.md");
    text.split("```").step_by(2).collect()
}

/// The texts that stand between backquotes.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn is_path(span: &str) -> bool {
    let has = |c: char| c.is_ascii_alphanumeric() || "._/-<>".contains(c);
    let is_file = [".rs", ".md", ".toml", ".txt"].iter().any(|end| span.ends_with(end));
    span.chars().all(has) && (span.contains('/') || is_file) && span != ".npy"
}

/// All sources of the workspace, once.
fn sources() -> String {
    let mut folders: Vec<PathBuf> = ["src", "tests"].map(|f| root().join(f)).into();
    for part in ["runtime", "graph", "frontend", "sketch", "codegen", "tuner", "models"] {
        folders.push(root().join(part));
    }
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with(file!()) {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

/// Packages and their features, as the command that starts this would build them.
fn built(arguments: &[&str]) -> BTreeSet<String> {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--prefix=none", "--format={p} [{f}]"]);
    let output = cargo.args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Otherwise a wheel beside the tests compiles the workspace once more, which takes minutes.
#[test]
fn wheels_are_linked_of_what_tests_are_linked_of() {
    let tests = built(&["--workspace", "--edges=normal,build,dev"]);
    let wheel = built(&["--package=ansc-python", "--edges=normal,build"]);
    assert!(wheel.len() > 100, "{wheel:?}");
    let others: Vec<&String> = wheel.difference(&tests).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn every_path_exists() {
    let page = page();
    let paths: Vec<&str> = spans(&page).into_iter().filter(|s| is_path(s)).collect();
    assert!(paths.len() > 60, "the page names its files by their paths: {paths:?}");
    let missing = paths.iter().filter(|path| {
        // `ops/<family>.rs` is any file of the folder.
        let path = if path.contains('<') { path.rsplit_once('/').unwrap().0 } else { path };
        !root().join(path).exists()
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn every_name_occurs_in_the_sources() {
    let (page, sources) = (page(), sources());
    let words: BTreeSet<&str> =
        sources.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let names = spans(&page).into_iter().filter(|span| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        span.chars().all(is_name)
    });
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 40, "{names:?}");
    let known = |name: &&&str| name.split("::").all(|part| words.contains(part));
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert_eq!(unknown, Vec::<&&str>::new());
}

/// The crates of ours that a manifest's `[dependencies]` name.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("\n[").find_map(|s| s.strip_prefix("dependencies]"));
    let lines = section.unwrap_or_default().lines();
    let names = lines.map(|line| line.split(['.', ' ', '=']).next().unwrap_or_default());
    let own = names.filter_map(|name| match name {
        "ansc" => Some("src"),
        name => name.strip_prefix("ansc-"),
    });
    own.map(str::to_owned).collect()
}

#[test]
fn crates_depend_as_the_table_says() {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        let folder = columns[0].trim_end_matches("/`");
        told.insert(folder.into(), spans(columns[2]).into_iter().map(String::from).collect());
    }
    // The command knows all but what is made of it: its row has no list.
    let made_of_it: Vec<String> =
        told.iter().filter(|(_, knows)| knows.contains("src")).map(|(f, _)| f.clone()).collect();
    let is_known = |f: &&String| *f != "src" && !made_of_it.contains(f);
    let all: BTreeSet<String> = told.keys().filter(is_known).cloned().collect();
    assert!(told.insert("src".into(), all).is_some_and(|list| list.is_empty()));
    let mut found = BTreeMap::from([("src".to_owned(), dependencies(&read("Cargo.toml")))]);
    let workspace = read("Cargo.toml");
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    for member in members.split('"').skip(1).step_by(2) {
        let manifest = read(Path::new(member).join("Cargo.toml"));
        found.insert(member.into(), dependencies(&manifest));
    }
    assert_eq!(told, found);
}

#[test]
fn one_crate_knows_onnx_and_one_knows_llvm() {
    for (library, only) in [("tract-onnx", "frontend"), ("inkwell", "codegen")] {
        for part in ["runtime", "graph", "frontend", "sketch", "codegen", "tuner", "models"] {
            let manifest = read(Path::new(part).join("Cargo.toml"));
            let section = manifest.split("\n[").find_map(|s| s.strip_prefix("dependencies]"));
            let knows = section.unwrap_or_default().lines().any(|line| line.starts_with(library));
            assert_eq!(knows, part == only, "{part}: {library}");
        }
    }
}

/// One that is there already, `Erf`, has its parts where the page says, and nowhere else.
#[test]
fn a_scalar_function_has_the_parts_that_are_listed() {
    let page = page();
    let start = page.find("- **A scalar function**").unwrap();
    let item = page[start + 1..].split("\n- **").next().unwrap();
    let listed: Vec<&str> = spans(item).into_iter().filter(|s| is_path(s)).collect();
    // Operators are made of scalar functions, and networks of operators.
    let users = ["graph/src/ops", "frontend/src/ops", "models/src"];
    let mentions = files_with(&["Erf"])
        .into_iter()
        .filter(|path| path.ends_with("adjoint.rs") || !users.iter().any(|u| path.starts_with(u)));
    let mentions: BTreeSet<String> = mentions.collect();
    let beside: Vec<_> =
        mentions.iter().filter(|path| !listed.iter().any(|l| path.starts_with(l))).collect();
    assert_eq!(beside, Vec::<&String>::new(), "not listed");
    let idle: Vec<_> =
        listed.iter().filter(|l| !mentions.iter().any(|path| path.starts_with(*l))).collect();
    assert_eq!(idle, Vec::<&&str>::new(), "listed without need");
}

/// Code that knew them elsewhere would be left behind by a new row.
#[test]
fn generations_of_gpus_are_told_apart_in_one_table() {
    let page = page();
    let start = page.find("- **A generation of GPUs**").unwrap();
    let item = page[start + 1..].split("\n\n").next().unwrap();
    let listed: Vec<&str> = spans(item).into_iter().filter(|s| is_path(s)).collect();
    let names = Target::sms().map(|sm| sm.to_string()).collect::<Vec<_>>();
    // Some are common numbers, but no other file has all of those that are none.
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.ends_with('0')).collect();
    assert!(names.len() > 2, "{names:?}");
    assert_eq!(files_with(&names), listed);
}

/// The words of the command line are known to itself alone, and to verbs.
#[test]
fn the_library_does_not_know_the_command_line() {
    let of_it = ["src/cli", "src/verbs/", "src/command_line.rs", "src/idle.rs"];
    for part in ["crate::cli", "crate::verbs", "cli::", "verbs::"] {
        let mut others = files_where(|text| text.contains(part));
        others.retain(|path| path.starts_with("src/"));
        others.retain(|path| !of_it.iter().any(|own| path.starts_with(own)));
        assert_eq!(others, Vec::<String>::new(), "{part}");
    }
}

/// The name of one that is there already, `gbdt`, stands where the page says, and nowhere else.
#[test]
fn a_cost_model_is_named_where_the_page_says() {
    let page = page();
    let start = page.find("- **A cost model**").unwrap();
    let item = page[start + 1..].split("\n- **").next().unwrap();
    let named = files_where(|text| text.contains("\"gbdt\""));
    assert_eq!(named, ["tuner/src/model/kind.rs"]);
    let models = files_where(|text| text.contains("impl CostModel for Gbdt"));
    assert!(named.iter().all(|path| item.contains(path)) && models.len() == 1, "{item}");
    assert!(item.contains("`tuner/src/model`") && models[0].starts_with("tuner/src/model/"));
}

/// Source files that have all of these words, by their paths in the repository.
fn files_with(words: &[&str]) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    files_where(|text| {
        let has: BTreeSet<&str> = text.split(|c| !is_word(c)).collect();
        words.iter().all(|word| has.contains(word))
    })
}

/// Source files whose text is so. Files of tests are left out.
fn files_where(holds: impl Fn(&str) -> bool) -> Vec<String> {
    let mut folders = vec![root().join("src")];
    for part in ["runtime", "graph", "frontend", "sketch", "codegen", "tuner", "models"] {
        folders.push(root().join(part).join("src"));
    }
    let mut found = vec![];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs")
                && !name.contains("/test")
                && holds(&std::fs::read_to_string(&path).unwrap())
            {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}
