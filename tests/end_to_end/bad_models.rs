//! Models that no compiler could compile: one error each, that names the file and the cause, and
//! exit code 1.

use std::path::Path;

use crate::common::{ansc, model, refuses, small_model, str, text};
use ansc_models::proto::Message;

const FLOAT: i64 = 1;

fn value_info(name: &str, dims: &[i64]) -> Message {
    let dims = dims
        .iter()
        .fold(Message::default(), |shape, &d| shape.nested(1, &Message::default().int(1, d)));
    let tensor = Message::default().int(1, FLOAT).nested(2, &dims);
    Message::default().text(1, name).nested(2, &Message::default().nested(1, &tensor))
}

fn node(op: &str, inputs: &[&str], output: &str) -> Message {
    let node = inputs.iter().fold(Message::default(), |m, i| m.text(1, i));
    node.text(2, output).text(3, &format!("n_{output}")).text(4, op)
}

fn initializer(name: &str, dims: &[i64]) -> Message {
    dims.iter().fold(Message::default(), |m, &d| m.int(1, d)).int(2, FLOAT).text(8, name)
}

/// A graph of these nodes with the input `x: f32[4]` and the output `y`.
fn graph(nodes: &[Message]) -> Message {
    let graph = nodes.iter().fold(Message::default(), |m, n| m.nested(1, n));
    graph.nested(11, &value_info("x", &[4])).nested(12, &value_info("y", &[4]))
}

fn add(left: &str, right: &str) -> Message {
    node("Add", &[left, right], "y")
}

/// `compile` and `check` of these bytes fail for these reasons.
fn refused(dir: &Path, name: &str, bytes: &[u8], causes: &[&str]) {
    let path = dir.join(format!("{name}.onnx"));
    std::fs::write(&path, bytes).unwrap();
    let artifact = dir.join("out.ansc");
    refuses(&["compile", str(&path), "-o", str(&artifact)], 1, str(&path), causes);
    assert!(!artifact.exists(), "{name}");
    let check = ansc(&["check", str(&path)]);
    assert_eq!(check.status.code(), Some(1), "{name}");
    assert!(!text(&check.stderr).contains("panicked"), "{name}");
}

#[test]
fn models_that_contradict_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let with = |tensor: Message| model(graph(&[add("x", "w")]).nested(5, &tensor));
    let raw = |dims: &[i64], bytes: usize| with(initializer("w", dims).data(9, &vec![0; bytes]));
    let cycle = [add("x", "a"), node("Relu", &["b"], "a"), node("Relu", &["a"], "b")];
    let twice =
        |tensor: Message| model(graph(&[add("x", "w")]).nested(5, &tensor).nested(5, &tensor));
    let weight = initializer("w", &[4]).data(9, &[0; 16]);
    let renamed = [node("Relu", &["x"], "y"), node("Neg", &["x"], "y")];
    let cases: [(&str, Vec<u8>, &[&str]); 20] = [
        ("two_weights", twice(weight), &["initializer `w` is used twice"]),
        ("two_results", model(graph(&renamed)), &["`n_y` (Neg)", "result `y` is used twice"]),
        ("empty", vec![], &["is empty"]),
        ("text", b"this is no model".to_vec(), &["is not an ONNX model"]),
        ("no_graph", Message::default().int(1, 8).into_bytes(), &["holds no graph"]),
        ("cycle", model(graph(&cycle)), &["is part of a cycle", "(Relu"]),
        ("self", model(graph(&[add("x", "y")])), &["cycle", "`n_y`"]),
        ("missing", model(graph(&[add("x", "nowhere")])), &["nothing computes", "`nowhere`"]),
        ("no_output", model(graph(&[node("Relu", &["x"], "z")])), &["graph output `y`"]),
        ("no_operator", model(graph(&[node("Foo", &["x"], "y")])), &["(Foo", "not supported"]),
        ("short", raw(&[4], 15), &["initializer `w`", "16 bytes", "15"]),
        ("long", raw(&[4], 17), &["initializer `w`", "17"]),
        ("no_data", raw(&[4], 0), &["initializer `w`", "4 elements", "0"]),
        ("negative", raw(&[-4], 16), &["initializer `w`", "-4 is negative"]),
        ("huge", raw(&[1 << 62], 16), &["initializer `w`", "larger than any machine"]),
        ("product", raw(&[1 << 32, 1 << 32, 1 << 32], 16), &["`w`", "larger than any machine"]),
        ("large", raw(&[1 << 35], 16), &["initializer `w`", "16"]),
        ("type", with(Message::default().int(1, 4).int(2, 99).text(8, "w")), &["type 99"]),
        ("broadcast", raw(&[3], 12), &["`n_y`", "broadcast"]),
        ("arity", model(graph(&[node("Add", &["x"], "y")])), &["`n_y`", "input 1"]),
    ];
    for (name, bytes, causes) in cases {
        refused(dir.path(), name, &bytes, causes);
    }
}

#[test]
fn inputs_of_absurd_size() {
    let dir = tempfile::tempdir().unwrap();
    let of = |dims: &[i64]| {
        let graph = Message::default().nested(1, &node("Relu", &["x"], "y"));
        model(graph.nested(11, &value_info("x", dims)).nested(12, &value_info("y", dims)))
    };
    let cases: [(&str, &[i64], &str); 4] = [
        ("one", &[1 << 62], "too large"),
        ("several", &[1 << 31, 1 << 31, 1 << 31], "too large"),
        ("negative", &[-7], "dimension of -7"),
        ("least", &[i64::MIN], "dimension of -9223372036854775808"),
    ];
    for (name, dims, cause) in cases {
        refused(dir.path(), name, &of(dims), &["input `x`", cause]);
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = [node("Foo", &["x"], "a"), node("Bar", &["x"], "b"), add("a", "b")];
    let causes = ["for 2 reasons", "`n_a` (Foo", "`n_b` (Bar"];
    refused(dir.path(), "several", &model(graph(&nodes)), &causes);
    let path = dir.path().join("several.onnx");
    let output = ansc(&["compile", str(&path), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["exit_code"].as_u64(), output.status.code()), (Some(1), Some(1)));
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(2));
}

#[test]
fn external_data_stays_in_its_folder() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), [1; 16]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("models");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(dir.path().join("secret"), [1; 16]).unwrap();
    std::fs::write(inside.join("data"), [0; 16]).unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), inside.join("link")).unwrap();
    std::os::unix::fs::symlink(dir.path(), inside.join("up")).unwrap();
    std::fs::hard_link(dir.path().join("secret"), inside.join("hard")).unwrap();
    let absolute = outside.path().join("secret");
    let of = |entries: &[(&str, &str)]| {
        let entry = |m: Message, (key, value): &(&str, &str)| {
            m.nested(13, &Message::default().text(1, key).text(2, value))
        };
        let tensor = entries.iter().fold(initializer("w", &[4]), entry).int(14, 1);
        model(graph(&[add("x", "w")]).nested(5, &tensor))
    };
    let relative = "must be a relative path without `..`";
    let cases: [(&[(&str, &str)], &str); 10] = [
        (&[("location", "../secret")], relative),
        (&[("location", "up/../secret")], relative),
        (&[("location", str(&absolute))], relative),
        (&[("location", "link")], "symbolic links are not followed"),
        (&[("location", "up/secret")], "data `up/secret`"),
        (&[("location", "hard")], "hard links"),
        (&[("location", "missing")], "data `missing`"),
        (&[("location", "data"), ("offset", "4")], "do not lie within the file's 16 bytes"),
        (&[("location", "data"), ("length", "12")], "12 bytes are given"),
        (&[], "no `location`"),
    ];
    for (i, (entries, cause)) in cases.into_iter().enumerate() {
        refused(
            &inside,
            &format!("m{i}"),
            &of(entries),
            &["initializer `w`", "external data", cause],
        );
    }
    // The test itself is right: what may be read is read.
    let good = inside.join("good.onnx");
    std::fs::write(&good, of(&[("location", "data"), ("length", "16")])).unwrap();
    let artifact = dir.path().join("good.ansc");
    assert!(ansc(&["compile", str(&good), "-o", str(&artifact)]).status.success());
}

/// Functions of the domain `f` of which each calls the one before it twice.
fn nested(levels: usize, leaf: &[Message]) -> Vec<u8> {
    let opsets = || {
        let opset = |domain: &str, v| Message::default().text(1, domain).int(2, v);
        [opset("", 17), opset("f", 1)]
    };
    let function = |name: &str, nodes: &[Message]| {
        let f = Message::default().text(1, name).text(4, "x").text(5, "y").text(10, "f");
        let f = nodes.iter().fold(f, |f, n| f.nested(7, n));
        opsets().iter().fold(f, |f, o| f.nested(9, o))
    };
    let call =
        |level: usize, from: &str, to: &str| node(&format!("f{level}"), &[from], to).text(7, "f");
    let calls = |level: usize| [call(level - 1, "x", "t"), call(level - 1, "t", "y")];
    let graph = graph(&[call(levels - 1, "x", "y")]).text(2, "g");
    let model = Message::default().int(1, 8).nested(7, &graph);
    let model = opsets().iter().fold(model, |m, o| m.nested(8, o));
    let model = model.nested(25, &function("f0", leaf));
    let all = (1..levels).map(|level| function(&format!("f{level}"), &calls(level)));
    all.fold(model, |m, f| m.nested(25, &f)).into_bytes()
}

#[test]
fn functions_that_unfold_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let deep = nested(40, &[node("Neg", &["x"], "y")]);
    assert!(deep.len() < 4096);
    refused(dir.path(), "deep", &deep, &["call each other more than 32 deep"]);
    let wide = nested(30, &[node("Neg", &["x"], "y")]);
    refused(dir.path(), "wide", &wide, &["unfolds to more than", "remedy: nest functions less"]);
    // A megabyte that a hundred thousand calls share.
    let value = initializer("c", &[1 << 18]).data(9, &[0; 1 << 20]);
    let value = Message::default().text(1, "value").nested(5, &value).int(20, 4);
    let constant = Message::default().text(2, "c").text(4, "Constant").nested(5, &value);
    let leaf = [constant, node("ReduceSum", &["c"], "s"), node("Add", &["x", "s"], "y")];
    let path = dir.path().join("shared.onnx");
    std::fs::write(&path, nested(12, &leaf)).unwrap();
    let output = limited(&["check", str(&path)], 1 << 20);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The program with so many kilobytes of address space.
fn limited(args: &[&str], kilobytes: u64) -> std::process::Output {
    let script = format!("ulimit -v {kilobytes} && exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_ansc")]).args(args).output().unwrap()
}

#[test]
fn data_for_which_there_is_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = std::fs::File::create(dir.path().join("data")).unwrap();
    let of = |elements: i64| {
        let location = Message::default().text(1, "location").text(2, "data");
        let tensor = initializer("w", &[elements]).nested(13, &location).int(14, 1);
        let path = dir.path().join("m.onnx");
        std::fs::write(&path, model(graph(&[add("x", "w")]).nested(5, &tensor))).unwrap();
        path
    };
    // A file of 128 GiB that holds nothing.
    data.set_len(1 << 37).unwrap();
    let path = of(1 << 35);
    let causes = ["initializer `w`", "external data `data`", "out of proportion"];
    refuses(&["compile", str(&path)], 1, str(&path), &causes);
    // Half a gigabyte, more than the process may have.
    data.set_len(1 << 29).unwrap();
    let output = limited(&["check", str(&of(1 << 27))], 400_000);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("initializer `w`") && said.contains("no memory"), "{said}");
}

#[test]
fn outputs_listed_twice_are_one() {
    let dir = tempfile::tempdir().unwrap();
    let twice = graph(&[node("Relu", &["x"], "y")]).nested(12, &value_info("y", &[4]));
    let (path, artifact) = (dir.path().join("m.onnx"), dir.path().join("m.ansc"));
    std::fs::write(&path, model(twice)).unwrap();
    let output = ansc(&["compile", str(&path), "-o", str(&artifact)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let loaded = ansc_runtime::Model::load(&artifact).unwrap();
    assert_eq!(loaded.outputs().len(), 1);
}

#[test]
fn truncated_files() {
    let dir = tempfile::tempdir().unwrap();
    let whole = ansc_models::find("C1D").unwrap().build().to_bytes();
    let path = dir.path().join("cut.onnx");
    let options = ansc_frontend::import::ImportOptions::default();
    let lengths: Vec<usize> = (0..whole.len()).step_by(1000).chain([whole.len() - 1]).collect();
    assert!(lengths.len() > 90);
    for length in lengths {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = ansc_frontend::import::load(&path, &options).unwrap_err().to_string();
        assert!(error.starts_with(str(&path)), "{length}: {error}");
    }
    // And once with the whole program.
    refuses(&["compile", str(&path)], 1, str(&path), &["is not an ONNX model"]);
}

#[test]
fn files_that_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.onnx");
    let folder = str(dir.path());
    refuses(&["compile", str(&missing)], 1, str(&missing), &["No such file"]);
    refuses(&["compile", folder, "-o", str(&missing)], 1, folder, &[]);
    refuses(&["inspect", str(&missing)], 1, str(&missing), &["No such file"]);
}

#[test]
fn wrong_usage_has_a_code_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let good = small_model(dir.path());
    let cases: [&[&str]; 4] = [
        &["compile"],
        &["compile", str(&good), "--target", "abacus"],
        &["compile", str(&good), "--target-cpu", "abacus"],
        &["frobnicate"],
    ];
    for args in cases {
        assert_eq!(ansc(args).status.code(), Some(2), "{args:?}");
    }
}
