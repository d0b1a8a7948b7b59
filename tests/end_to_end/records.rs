//! `ansc records` and `ansc report`, as a script sees them.

use std::path::Path;

use ansc_tuner::outcome::{Failure, Outcome};
use ansc_tuner::records::{Key, Record, Records, Sqlite, TaskRecord};

use crate::common::{ansc_in as ansc, json_in as json, ok_in as ok};

/// Ten measurements of each of two subgraphs, the second of which fails every other time.
fn file(path: &Path, from: u64) {
    let mut file = Sqlite::open(path).unwrap();
    for task in 0..2 {
        let key = format!("{task:032x}");
        let compute = "compute(in0: f32[4]) -> y {\n  y: f32[4] = in0[i0]\n}".to_owned();
        let known =
            TaskRecord { key: key.clone(), name: format!("conv_{task}"), compute, flops: 1000 };
        file.add_task(&known).unwrap();
        let record = |n: u64| Record {
            key: Key { task: key.clone(), target: "x86_64 native".into(), threads: 2 },
            trace: serde_json::from_str(r#"[{"op": "get_block", "name": "b", "out": 0}]"#).unwrap(),
            outcome: match task * n % 2 {
                0 => Outcome::Seconds(vec![1e-3 / (n + 1) as f64]),
                _ => Outcome::Failed(Failure::Crash),
            },
            program: n,
            version: "0.1.0".into(),
            time: n,
            machine: None,
        };
        file.add(&(from..from + 10).map(record).collect::<Vec<_>>()).unwrap();
    }
}

#[test]
fn from_file_to_file() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    file(&dir.join("a.db"), 0);
    file(&dir.join("b.db"), 5);
    let text = ok(dir, &["records", "ls", "a.db"]);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.starts_with("on native, 2 threads:\n"), "{text}");
    assert!(text.contains("0.1000") && text.contains("conv_1"), "{text}");
    let (listed, code) = json(dir, &["records", "ls", "a.db", "--json"]);
    assert_eq!((code, &listed["keys"][1]["failed"]), (0, &5.into()));

    let (done, _) = json(dir, &["records", "export", "a.db", "-o", "a.jsonl", "--json"]);
    assert_eq!(done["records"], 20);
    let lines = ok(dir, &["records", "export", "a.db"]);
    assert_eq!(lines, std::fs::read_to_string(dir.join("a.jsonl")).unwrap());
    assert_eq!(lines.lines().count(), 22);

    let (done, code) = json(dir, &["records", "import", "b.db", "a.jsonl", "a.jsonl", "--json"]);
    assert_eq!(code, 0);
    let counts = |i: usize| &done["from"][i]["imported"];
    assert_eq!((&counts(0)["records"], &counts(0)["duplicates"]), (&10.into(), &10.into()));
    assert_eq!((&counts(1)["records"], &counts(1)["duplicates"]), (&0.into(), &20.into()));

    let (done, _) = json(dir, &["records", "merge", "c.db", "a.db", "b.db", "--json"]);
    assert_eq!(done["from"][0]["merged"]["records"], 20);
    assert_eq!(done["from"][1]["merged"]["records"], 10);

    let (done, _) = json(dir, &["records", "prune", "c.db", "--keep", "2", "--json"]);
    assert_eq!(done["pruned"], 26);
    let (listed, _) = json(dir, &["records", "ls", "c.db", "--json"]);
    assert_eq!(
        (&listed["keys"][0]["records"], &listed["keys"][1]["failed"]),
        (&2.into(), &0.into())
    );
}

#[test]
fn bad_lines_are_told_and_the_others_taken() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    file(&dir.join("a.db"), 0);
    let good = ok(dir, &["records", "export", "a.db"]);
    std::fs::write(dir.join("mixed.jsonl"), format!("no line\n{good}{{}}\n")).unwrap();
    let output = ansc(dir, &["records", "import", "new.db", "mixed.jsonl"]);
    let text = crate::common::text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("20 new records") && text.contains("line 1: expected"), "{text}");
    assert!(text.contains("line 24: missing field `format`"), "{text}");
    let (done, code) = json(dir, &["records", "import", "new.db", "mixed.jsonl", "--json"]);
    assert_eq!((code, &done["from"][0]["imported"]["bad_lines"][1]["line"]), (1, &24.into()));
}

#[test]
fn files_that_are_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("noise.db"), [7; 5000]).unwrap();
    file(Path::new(&at("a.db")), 0);
    for verb in ["ls", "export", "prune"] {
        crate::common::refuses(
            &["records", verb, &at("no.db")],
            1,
            &at("no.db"),
            &["no such file"],
        );
        crate::common::refuses(
            &["records", verb, &at("noise.db")],
            1,
            &at("noise.db"),
            &["not a file of records"],
        );
    }
    crate::common::refuses(&["report", &at("no.db")], 1, &at("no.db"), &["no such file"]);
    crate::common::refuses(
        &["records", "merge", &at("a.db"), &at("no.db")],
        1,
        &at("no.db"),
        &["no such file"],
    );
    crate::common::refuses(
        &["records", "import", &at("a.db"), &at("no")],
        1,
        &at("no"),
        &["No such file"],
    );
    let usage = ansc(directory.path(), &["records", "export", "a.db", "--json"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(!Path::new(&at("no.db")).exists());
}

#[test]
fn a_page_of_records() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    file(&dir.join("a.db"), 0);
    assert_eq!(ok(dir, &["report", "a.db"]), "a.html\n");
    let page = std::fs::read_to_string(dir.join("a.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("conv_1") && page.contains("crashes"));
    let (report, code) = json(dir, &["report", "a.db", "-o", "page.html", "--json"]);
    assert_eq!((code, &report["page"]), (0, &"page.html".into()));
    assert_eq!(report["summary"]["measurements"], 20);
    assert_eq!(report["summary"]["failures"]["crash"], 5);
    assert_eq!(std::fs::read_to_string(dir.join("page.html")).unwrap(), page);
}
