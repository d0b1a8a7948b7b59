//! Inside each crate, data flows one way: no two top-level modules import each other, not even by
//! way of others. What a test imports does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules that each module imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for part in ["", "codegen", "frontend", "graph", "models", "runtime", "sketch", "tuner"] {
        let imports = imports(&root.join(part).join("src"));
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(count > 5, "{part}: {imports:?}");
        if let Some(cycle) = cycle(&imports) {
            panic!("{part}/src: {}", cycle.join(" -> "));
        }
    }
}

#[test]
fn cycles_are_found() {
    let text = |of: &str| firsts(of, 1, &BTreeMap::from([("Graph".into(), "graph".into())]));
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(text("use crate::a::{self, b::C};\nuse crate::{d::E, f};"), set(&["a", "d", "f"]));
    assert_eq!(text("use super::a::B;\nfn f() -> crate::Graph {}"), set(&["a", "graph"]));
    assert_eq!(
        firsts("use super::a::B;\nuse super::super::c::D;", 2, &BTreeMap::new()),
        set(&["c"])
    );
    assert_eq!(text("// crate::a\n#[cfg(test)]\nmod tests {\n use crate::b::C;\n}\n"), set(&[]));
    let imports = |edges: &[(&str, &[&str])]| {
        edges.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect::<Imports>()
    };
    let mut all = imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["d"])]);
    assert_eq!(cycle(&all), None);
    all.insert("d".into(), set(&["b"]));
    assert_eq!(cycle(&all).unwrap().len(), 4);
}

fn imports(folder: &Path) -> Imports {
    let lib = std::fs::read_to_string(folder.join("lib.rs")).unwrap();
    let files = files(folder);
    let top = |path: &Path| {
        let first = path.strip_prefix(folder).unwrap().iter().next().unwrap();
        first.to_str().unwrap().trim_end_matches(".rs").to_owned()
    };
    let modules: BTreeSet<String> = files.iter().map(|path| top(path)).collect();
    let exported = exported(&lib);
    let mut imports = Imports::new();
    for path in files {
        let parts = path.strip_prefix(folder).unwrap().iter().count();
        let depth = if path.ends_with("mod.rs") { parts - 1 } else { parts };
        let found = firsts(&std::fs::read_to_string(&path).unwrap(), depth, &exported);
        let own = top(&path);
        let others = found.into_iter().filter(|name| *name != own && modules.contains(name));
        imports.entry(own.clone()).or_default().extend(others);
    }
    imports
}

/// Sources of modules; those of tests and the roots of crates are left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if name.contains("test") || name == "lib.rs" || name == "main.rs" {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found
}

/// The module that each name of the crate's root comes from.
fn exported(lib: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for tree in code(lib).split("pub use ").skip(1) {
        let tree = tree.split(';').next().unwrap();
        let module = tree.trim_start_matches("crate::").split("::").next().unwrap().trim();
        for name in tree.split(|c: char| !c.is_alphanumeric() && c != '_') {
            found.insert(name.to_owned(), module.to_owned());
        }
    }
    found
}

/// The text without comments and without the tests at its end.
fn code(text: &str) -> String {
    let before = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    before.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The top-level modules that a file names whose module is so many levels deep.
fn firsts(text: &str, depth: usize, exported: &BTreeMap<String, String>) -> BTreeSet<String> {
    let code = code(text).replace("$crate::", "");
    let up = "super::".repeat(depth);
    let paths = code.split("crate::").skip(1);
    let above = code.split(up.as_str()).skip(1).filter(|rest| !rest.starts_with("super::"));
    let mut found = BTreeSet::new();
    for rest in paths.chain(above) {
        for name in heads(rest) {
            found.insert(exported.get(name).map_or(name, String::as_str).to_owned());
        }
    }
    found
}

/// The first names of a path, or of all paths between the braces that it begins with.
fn heads(rest: &str) -> Vec<&str> {
    let name = |text: &str| -> usize {
        text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
    };
    let Some(list) = rest.strip_prefix('{') else { return vec![&rest[..name(rest)]] };
    let (mut level, mut heads, mut starts) = (0, vec![], true);
    for (at, c) in list.char_indices() {
        match c {
            '}' if level == 0 => break,
            '{' => level += 1,
            '}' => level -= 1,
            ',' if level == 0 => starts = true,
            c if starts && !c.is_whitespace() => {
                heads.push(&list[at..at + name(&list[at..])]);
                starts = false;
            }
            _ => {}
        }
    }
    heads
}

/// Modules each of which imports the next one, and the last the first one.
fn cycle(imports: &Imports) -> Option<Vec<String>> {
    fn search(
        at: &str,
        imports: &Imports,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(first) = path.iter().position(|module| module == at) {
            path.drain(..first);
            path.push(at.to_owned());
            return true;
        }
        if !done.insert(at.to_owned()) {
            return false;
        }
        path.push(at.to_owned());
        let next = imports.get(at).into_iter().flatten();
        if next.into_iter().any(|next| search(next, imports, path, done)) {
            return true;
        }
        path.pop();
        false
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|start| {
        let mut path = vec![];
        search(start, imports, &mut path, &mut done).then_some(path)
    })
}
