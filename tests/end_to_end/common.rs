//! Tools that the tests of bad input share.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ansc_models::proto::Message;
use serde_json::Value;

/// The command line program.
pub(crate) fn ansc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ansc")).args(args).output().expect("ansc starts")
}

/// The same in a directory.
pub(crate) fn ansc_in(directory: &Path, args: &[&str]) -> Output {
    let mut ansc = Command::new(env!("CARGO_BIN_EXE_ansc"));
    ansc.current_dir(directory).args(args).output().expect("ansc starts")
}

/// The one object on standard output, and the exit code.
pub(crate) fn json_in(directory: &Path, args: &[&str]) -> (Value, i32) {
    let output = ansc_in(directory, args);
    let text = String::from_utf8(output.stdout).unwrap();
    let object = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"));
    (object, output.status.code().unwrap())
}

/// Runs a command that must succeed; gives its standard output.
pub(crate) fn ok_in(directory: &Path, args: &[&str]) -> String {
    let output = ansc_in(directory, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A path as text.
pub(crate) fn str(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Runs a command that must fail: with this exit code, with one error that names `file` and says
/// every one of `causes`, without a panic and without a result.
pub(crate) fn refuses(args: &[&str], code: i32, file: &str, causes: &[&str]) {
    let output = ansc(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}{err}");
    assert!(!err.contains("panicked"), "{args:?}\n{err}");
    assert_eq!(err.matches("error: ").count(), 1, "{args:?}\n{err}");
    assert!(err.starts_with(&format!("error: {file}: ")), "{args:?}: no `{file}` in\n{err}");
    for cause in causes {
        assert!(err.contains(cause), "{args:?}: no `{cause}` in\n{err}");
    }
    assert!(out.is_empty(), "{out}");
}

/// A model file around a graph's fields.
pub(crate) fn model(graph: Message) -> Vec<u8> {
    let opset = Message::default().text(1, "").int(2, 17);
    Message::default().int(1, 8).nested(8, &opset).nested(7, &graph.text(2, "g")).into_bytes()
}

/// `relu(x + w)` of `f32[4]`; one initializer of raw data.
pub(crate) fn small_model(dir: &Path) -> PathBuf {
    let mut b = ansc_models::Builder::new("small");
    let x = b.input("x", &[1, 3, 16, 16]);
    let w = b.weight(&[8, 3, 3, 3], 27, 1.0);
    let y = b.op("Conv", &[&x, &w], &[]);
    let y = b.op("Relu", &[&y], &[]);
    b.result("y", &[1, 8, 1, 1], "GlobalAveragePool", &[&y], &[]);
    let path = dir.join("small.onnx");
    std::fs::write(&path, b.finish().to_bytes()).expect("a temporary file can be written");
    path
}

/// A deterministic source of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn range(&mut self, len: usize, longest: usize) -> std::ops::Range<usize> {
        let begin = self.below(len);
        begin..(begin + 1 + self.below(longest)).min(len)
    }
}

/// Numbers that sizes stumble over, as protobuf writes them.
const NUMBERS: [i64; 10] =
    [-1, 0, i64::MIN, i64::MAX, 1 << 62, 1 << 32, 1 << 31, (1 << 31) - 1, 65_536, 127];

/// The `index`-th damaged model: one to four changes to one of the seeds.
pub(crate) fn mutant(seeds: &[Vec<u8>], index: u64) -> Vec<u8> {
    let mut random = Random(index.wrapping_mul(0xd134_2543_de82_ef95));
    let mut bytes = seeds[random.below(seeds.len())].clone();
    let changes = if random.below(3) == 0 { 2 + random.below(3) } else { 1 };
    for _ in 0..changes {
        change(&mut bytes, seeds, &mut random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    match random.below(8) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = random.next() as u8,
        3 => {
            let new: Vec<u8> = (0..=random.below(8)).map(|_| random.next() as u8).collect();
            bytes.splice(at..at, new);
        }
        4 => drop(bytes.drain(random.range(bytes.len(), 16))),
        5 => {
            let number = Message::default().int(1, NUMBERS[random.below(NUMBERS.len())]);
            bytes.splice(at..at + 1, number.into_bytes().into_iter().skip(1));
        }
        6 => {
            let copy = bytes[random.range(bytes.len(), 64)].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let piece = other[random.range(other.len(), 128)].to_vec();
            let replaced = random.range(bytes.len(), 128);
            bytes.splice(replaced, piece);
        }
    }
}

/// All files of a folder of `tests/corpus`, by name.
pub(crate) fn corpus(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|f| (f.clone(), std::fs::read(f).expect("the corpus is readable")))
        .collect()
}
