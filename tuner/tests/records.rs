//! Files of records under what may happen to them: `kill -9`, other writers, a full disk, damage.
//!
//! Writers that are killed are processes: this program again, as the ignored test `writer`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ansc_sketch::Trace;
use ansc_tuner::outcome::{Failure, Outcome};
use ansc_tuner::records::{
    InMemory, Key, Record, Records, RecordsError, Sqlite, TaskRecord, jsonl,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FILE: &str = "ANSC_TEST_RECORDS";
const WRITER: &str = "ANSC_TEST_WRITER";
const LIMIT: &str = "ANSC_TEST_FILE_LIMIT";
/// Records of one call of `add`.
const ROUND: u64 = 8;

fn key(task: u64) -> Key {
    Key { task: format!("{task:032x}"), target: "x86_64 some avx2".into(), threads: 2 }
}

fn trace(text: &str) -> Trace {
    serde_json::from_str(text).unwrap()
}

fn outcome(n: u64) -> Outcome {
    match n % 5 {
        4 => Outcome::Failed(Failure::ALL[(n / 5) as usize % Failure::ALL.len()]),
        _ => Outcome::Seconds((1..4).map(|i| (n + i) as f64 * 1.1e-5 / 3.0).collect()),
    }
}

/// The `n`-th record: different from all others.
fn record(key: &Key, n: u64) -> Record {
    let choice = n % 4;
    let text = format!(
        r#"[{{"op": "sample_categorical", "candidates": [4, 1, 2, 8], "weights": [0.25, 0.25, 0.25, 0.25],
             "out": 0, "decision": {choice}}},
            {{"op": "complete"}}]"#
    );
    Record {
        key: key.clone(),
        trace: trace(&text),
        outcome: outcome(n),
        program: n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        version: "0.1.0".into(),
        time: 1_800_000_000 + n,
        machine: n.is_multiple_of(3).then(|| format!("host-{n}")),
    }
}

fn round(key: &Key, number: u64) -> Vec<Record> {
    (number * ROUND..(number + 1) * ROUND).map(|n| record(key, n)).collect()
}

fn numbers(records: &Sqlite, key: &Key) -> Vec<u64> {
    records.of(key).unwrap().iter().map(|r| r.time - 1_800_000_000).collect()
}

/// The writer: round after round, saying after each that it is durable, until somebody ends it.
#[test]
#[ignore = "a process of the other tests"]
fn writer() {
    let (Ok(file), Ok(writer)) = (std::env::var(FILE), std::env::var(WRITER)) else { return };
    if let Ok(limit) = std::env::var(LIMIT) {
        limit_files(limit.parse().unwrap());
    }
    let mut records = Sqlite::open(Path::new(&file)).unwrap();
    let key = key(writer.parse().unwrap());
    let begin = records.of(&key).unwrap().len() as u64 / ROUND;
    for number in begin..begin + 400 {
        if let Err(e) = records.add(&round(&key, number)) {
            println!("error: {e}");
            return;
        }
        println!("round: {number}");
    }
}

/// Makes files that grow beyond `bytes` fail, as a full disk does.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the structure is complete, and ignoring a signal runs no code of ours.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

fn start(file: &Path, writer: u64, limit: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--ignored", "--nocapture"]);
    command.env(FILE, file).env(WRITER, writer.to_string());
    if let Some(limit) = limit {
        command.env(LIMIT, limit.to_string());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The lines that a writer printed until it ended.
fn said(child: &mut Child) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter(|l| l.contains(": ") && !l.starts_with("test")).collect()
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.db");
    (directory, file)
}

#[test]
fn nothing_acknowledged_is_lost_to_kill_9() {
    let (_directory, file) = file();
    let mut random = StdRng::seed_from_u64(1);
    let mut acknowledged = 0;
    for _ in 0..20 {
        let mut child = start(&file, 7, None);
        std::thread::sleep(Duration::from_millis(random.random_range(5..120)));
        child.kill().unwrap();
        let rounds = said(&mut child).iter().filter(|l| l.starts_with("round: ")).count() as u64;
        child.wait().unwrap();
        let records = Sqlite::open(&file).unwrap();
        records.check().unwrap();
        let found = numbers(&records, &key(7));
        let least = acknowledged + rounds * ROUND;
        assert!(found.len() as u64 >= least, "{} of {least} records", found.len());
        assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
        assert_eq!(found.len() as u64 % ROUND, 0, "half a round");
        acknowledged = found.len() as u64;
    }
    assert!(acknowledged > 0);
}

#[test]
fn processes_write_at_once() {
    let (_directory, file) = file();
    let mut children: Vec<Child> = (0..3).map(|writer| start(&file, writer, None)).collect();
    let mut reader = Sqlite::open(&file).unwrap();
    reader.add(&round(&key(3), 0)).unwrap();
    for child in &mut children {
        let rounds = said(child).iter().filter(|l| l.starts_with("round: ")).count();
        assert_eq!(rounds, 400);
        assert!(child.wait().unwrap().success());
    }
    for writer in 0..3 {
        assert_eq!(numbers(&reader, &key(writer)), (0..400 * ROUND).collect::<Vec<_>>());
    }
    assert_eq!(reader.keys().unwrap(), (0..4).map(key).collect::<Vec<_>>());
    reader.check().unwrap();
}

#[test]
fn a_full_disk_ends_the_run_and_keeps_what_was_written() {
    let (_directory, file) = file();
    let mut child = start(&file, 1, Some(400_000));
    let said = said(&mut child);
    child.wait().unwrap();
    let rounds = said.iter().filter(|l| l.starts_with("round: ")).count() as u64;
    let error = said.last().unwrap();
    assert!(rounds > 0 && error.starts_with("error: ") && error.contains("cannot be written"));
    assert!(error.contains("r.db") && error.contains("make room"), "{error}");
    let mut records = Sqlite::open(&file).unwrap();
    records.check().unwrap();
    assert_eq!(numbers(&records, &key(1)), (0..rounds * ROUND).collect::<Vec<_>>());
    // With room again it goes on.
    records.add(&round(&key(1), rounds)).unwrap();
    assert_eq!(numbers(&records, &key(1)).len() as u64, (rounds + 1) * ROUND);
}

#[test]
fn what_is_written_reads_back() {
    let (_directory, file) = file();
    let task = TaskRecord {
        key: key(1).task,
        name: "mm".into(),
        compute: "compute(in0: f32[4]) -> y {\n  y: f32[4] = in0[i0]\n}".into(),
        flops: u64::MAX,
    };
    let mut records = Sqlite::open(&file).unwrap();
    records.add(&round(&key(1), 0)).unwrap();
    records.add(&round(&key(2), 1)).unwrap();
    records.add_task(&task).unwrap();
    records.add_task(&TaskRecord { name: "later".into(), ..task.clone() }).unwrap();
    drop(records);
    let records = Sqlite::open_existing(&file).unwrap();
    assert_eq!(records.tasks().unwrap(), [task]);
    for (task, number) in [(1, 0), (2, 1)] {
        for (found, expected) in
            records.of(&key(task)).unwrap().iter().zip(round(&key(task), number))
        {
            assert_eq!(found.digest(), expected.digest());
            assert_eq!((&found.key, &found.trace), (&expected.key, &expected.trace));
            assert_eq!((found.program, found.time), (expected.program, expected.time));
        }
    }
    assert_eq!(records.of(&key(3)).unwrap(), []);
}

#[test]
fn the_best_is_that_of_pooled_measurements() {
    let (_directory, file) = file();
    let with = |n: u64, outcome| Record { outcome, program: n % 10, ..record(&key(1), n) };
    let all = [
        with(0, Outcome::Seconds(vec![1.0])),
        with(1, Outcome::Seconds(vec![2.0, 2.0, 2.0])),
        // The first was lucky.
        with(10, Outcome::Seconds(vec![3.0, 3.0, 3.0])),
        // This one is fast because it is wrong.
        with(2, Outcome::Seconds(vec![0.5])),
        with(12, Outcome::Failed(Failure::WrongResult)),
    ];
    let mut file = Sqlite::open(&file).unwrap();
    let mut memory = InMemory::default();
    file.add(&all).unwrap();
    memory.add(&all).unwrap();
    let expected = Some((all[1].trace.clone(), 2.0));
    assert_eq!(file.best(&key(1), None).unwrap(), expected);
    assert_eq!(memory.best(&key(1), None).unwrap(), expected);
    assert_eq!(file.best(&key(2), None).unwrap(), None);
    let overview = &file.overview().unwrap()[0];
    assert_eq!((overview.records, overview.failed, overview.best_seconds), (5, 1, Some(0.5)));
}

#[test]
fn pruning_keeps_the_best_and_the_untuned() {
    let (_directory, path) = file();
    let mut file = Sqlite::open(&path).unwrap();
    for number in 0..200 {
        file.add(&round(&key(1), number)).unwrap();
        file.add(&round(&key(2), number)).unwrap();
    }
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    drop(file);
    let before = size(&path);
    let mut file = Sqlite::open(&path).unwrap();
    let gone = file.prune(3).unwrap();
    for task in [1, 2] {
        let left = numbers(&file, &key(task));
        // Times grow with the number; every fourth is what nobody tuned gets.
        let expected: Vec<u64> = (0..200 * ROUND).filter(|n| *n < 3 || n % 4 == 0).collect();
        assert_eq!(left, expected);
        assert_eq!(gone, 2 * (200 * ROUND as usize - expected.len()));
    }
    file.check().unwrap();
    drop(file);
    assert!(size(&path) * 2 < before, "{} of {before}", size(&path));
}

#[test]
fn wrong_files_are_refused_and_left_alone() {
    let (directory, file) = file();
    let text = directory.path().join("text");
    std::fs::write(
        &text,
        "no database, but a text that is long enough to be taken for one".repeat(9),
    )
    .unwrap();
    let other = directory.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    drop(connection);
    let newer = directory.path().join("newer.db");
    drop(Sqlite::open(&newer).unwrap());
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let table: [(&Path, &str); 5] = [
        (&text, "is not a file of records"),
        (&other, "a database of another program"),
        (&newer, "is of format 99"),
        (directory.path(), "cannot be written"),
        (&directory.path().join("absent/r.db"), "cannot be written"),
    ];
    for (path, message) in table {
        let before = std::fs::read(path).ok();
        let error = Sqlite::open(path).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(path.to_str().unwrap()), "{error}");
        assert_eq!(std::fs::read(path).ok(), before, "{path:?}");
    }
    let absent = Sqlite::open_existing(&file).unwrap_err();
    assert!(matches!(absent, RecordsError::Absent { .. }) && !file.exists());
}

#[test]
fn records_of_another_version_are_passed_over_and_stay() {
    let (_directory, path) = file();
    let mut own = Sqlite::open(&path).unwrap();
    own.add(&round(&key(1), 0)).unwrap();
    let best = own.best(&key(1), None).unwrap().unwrap();
    drop(own);
    // A step that nobody knows, and one without an argument that it has here.
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (time, step) in [(0, r#"{"op": "unheard_of"}"#), (1, r#"{"op": "split", "out": []}"#)] {
        let (text, time) = (format!("[{step}]"), 1_800_000_000 + time);
        let change = "UPDATE records SET trace = ? WHERE time = ?";
        assert_eq!(connection.execute(change, rusqlite::params![text, time]).unwrap(), 1);
    }
    drop(connection);
    let mut file = Sqlite::open(&path).unwrap();
    assert_eq!(numbers(&file, &key(1)), (2..ROUND).collect::<Vec<_>>());
    let (_, seconds) = file.best(&key(1), None).unwrap().unwrap();
    assert!(seconds > best.1, "the fastest ones are not known");
    let mut other = InMemory::default();
    ansc_tuner::records::merge(&file, &mut other).unwrap();
    assert_eq!(other.of(&key(1)).unwrap().len() as u64, ROUND - 2);
    // Another version may know them.
    file.prune(1).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let foreign = "SELECT count(*) FROM records WHERE time < 1800000002";
    assert_eq!(connection.query_row(foreign, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
}

/// Lines that somebody may put into a file so that reading it never ends, or writing loses what is
/// written.
const HOSTILE: &[(&str, &str)] = &[
    (
        "ALTER TABLE tasks RENAME TO t; CREATE VIEW tasks AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
         SELECT i + 1 FROM n) SELECT 'k' || i AS key, 'n' AS name, 'c' AS compute, '1' AS flops FROM n",
        "table \"t\"",
    ),
    (
        "CREATE TRIGGER lose BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END",
        "trigger \"lose\"",
    ),
    ("CREATE VIEW v AS SELECT 1", "view \"v\""),
    ("CREATE TABLE lost_and_found (x)", "table \"lost_and_found\""),
    ("CREATE INDEX one ON records (task)", "index \"one\""),
    ("ALTER TABLE records ADD COLUMN more AS (zeroblob(1000000))", "table \"records\""),
    ("DROP INDEX records_of_key", "no index \"records_of_key\""),
    (
        "DROP TABLE models; CREATE TABLE models (digest TEXT, name TEXT, tasks TEXT)",
        "table \"models\"",
    ),
];

#[test]
fn tables_that_are_not_ours_are_refused_before_anything_is_read() {
    for (change, message) in HOSTILE {
        let (_directory, path) = file();
        let mut own = Sqlite::open(&path).unwrap();
        own.add(&round(&key(1), 0)).unwrap();
        drop(own);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(change).unwrap();
        drop(connection);
        let before = std::fs::read(&path).unwrap();
        for open in [Sqlite::open, Sqlite::open_existing] {
            let error = open(&path).unwrap_err();
            assert!(matches!(error, RecordsError::Foreign { .. }), "{change}: {error}");
            assert!(error.to_string().contains(message), "{change}: {error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "{change}");
    }
}

/// Pages of a tree that all lead to the same page are few, and the ways through them are more than
/// can be gone.
#[test]
fn pages_that_refer_to_one_another_are_damage() {
    let (_directory, path) = file();
    let mut own = Sqlite::open(&path).unwrap();
    (0..400).for_each(|number| own.add(&round(&key(1), number)).unwrap());
    drop(own);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let ask =
        |what: &str| connection.query_row(what, [], |row| row.get::<_, i64>(0)).unwrap() as usize;
    let root = ask("SELECT rootpage FROM sqlite_schema WHERE name = 'records'");
    let page = ask("PRAGMA page_size");
    connection.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&path).unwrap();
    let interior = &mut bytes[(root - 1) * page..root * page];
    assert_eq!(interior[0], 5, "the table has an interior page");
    // Each cell begins with the number of the page that it leads to.
    let cells = usize::from(u16::from_be_bytes([interior[3], interior[4]]));
    assert!(cells > 2);
    for cell in 0..cells {
        let at = 12 + 2 * cell;
        let at = usize::from(u16::from_be_bytes([interior[at], interior[at + 1]]));
        let first: [u8; 4] = interior[8..12].try_into().unwrap();
        interior[at..at + 4].copy_from_slice(&first);
    }
    std::fs::write(&path, bytes).unwrap();
    let error = Sqlite::open(&path).unwrap_err();
    assert!(matches!(error, RecordsError::Damaged { .. }), "{error}");
}

#[test]
fn a_device_or_a_pipe_is_no_file_of_records() {
    for path in ["/dev/zero", "/dev/null"] {
        let error = Sqlite::open(Path::new(path)).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}

#[test]
fn damage_is_an_error() {
    let (_directory, path) = file();
    let mut file = Sqlite::open(&path).unwrap();
    (0..100).for_each(|number| file.add(&round(&key(1), number)).unwrap());
    drop(file);
    let sound = std::fs::read(&path).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    let mut noticed = 0;
    for _ in 0..60 {
        let mut bytes = sound.clone();
        let begin = random.random_range(100..bytes.len() - 600);
        bytes[begin..begin + 600].fill(random.random());
        std::fs::write(&path, &bytes).unwrap();
        noticed += usize::from(!reads(&path));
    }
    assert!(noticed > 50, "{noticed} of 60");
    std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    assert!(!reads(&path));
}

/// Whether everything in a file can be read. What cannot must give an error that says what to do.
fn reads(path: &Path) -> bool {
    let read = || -> Result<(), RecordsError> {
        let file = Sqlite::open(path)?;
        for key in file.keys()? {
            file.of(&key)?;
            file.best(&key, None)?;
        }
        file.tasks()?;
        file.check()
    };
    match read() {
        Ok(()) => true,
        Err(
            RecordsError::Damaged { path: file, .. } | RecordsError::Foreign { path: file, .. },
        ) => {
            assert_eq!(file, path.to_str().unwrap());
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn lines_carry_everything() {
    let (_directory, path) = file();
    let mut file = Sqlite::open(&path).unwrap();
    let task = TaskRecord {
        key: key(1).task,
        name: "sum".into(),
        compute: "compute(in0: f32[4]) -> y {\n  y: f32[4] = in0[i0]\n}".into(),
        flops: 12,
    };
    file.add_task(&task).unwrap();
    file.add(&round(&key(2), 1)).unwrap();
    file.add(&round(&key(1), 0)).unwrap();
    let mut lines = vec![];
    assert_eq!(jsonl::export(&file, &mut lines).unwrap(), 2 * ROUND as usize);
    let mut memory = InMemory::default();
    let done = jsonl::import(&mut &lines[..], &mut memory).unwrap();
    assert_eq!((done.records, done.duplicates, done.tasks, done.bad), (16, 0, 1, 0));
    let mut again = vec![];
    jsonl::export(&memory, &mut again).unwrap();
    assert_eq!(digests(&memory), digests(&file));
    // Records that are there already are not added again. Records that a file repeats are added
    // once.
    let twice = [&lines[..], &again[..]].concat();
    let done = jsonl::import(&mut &twice[..], &mut file).unwrap();
    assert_eq!((done.records, done.duplicates), (0, 32));
    assert_eq!(memory.tasks().unwrap(), [task]);
}

fn digests(records: &dyn Records) -> Vec<String> {
    let keys = records.keys().unwrap();
    keys.iter().flat_map(|k| records.of(k).unwrap()).map(|r| r.digest()).collect()
}

#[test]
fn bad_lines_are_refused_one_by_one() {
    let mut memory = InMemory::default();
    memory.add(&round(&key(1), 0)).unwrap();
    let mut lines = vec![];
    jsonl::export(&memory, &mut lines).unwrap();
    let good = String::from_utf8(lines).unwrap().lines().next().unwrap().to_owned();
    let table = [
        ("", None),
        (&good, None),
        ("{", Some("EOF")),
        ("\u{1}\u{2}", Some("expected value")),
        ("{\"kind\":\"record\"}", Some("missing field `format`")),
        (&good.replace("\"format\":1", "\"format\":2"), Some("of format 2")),
        (
            &good.replace("\"kind\":\"record\"", "\"kind\":\"dream\""),
            Some("unknown variant `dream`"),
        ),
        (&good.replace("\"threads\":2", "\"threads\":0"), Some("no thread")),
        (&good.replace("\"threads\":2", "\"threads\":-2"), Some("invalid value")),
        (&good.replace(&key(1).task, "../../etc"), Some("not the key of a task")),
        (&good.replace("complete", "format_disk"), Some("unknown variant `format_disk`")),
        (&good.replace("\"seconds\":[", "\"seconds\":[-1.0,"), Some("not positive")),
        (&good.replace("\"seconds\":[", "\"seconds\":[1e999,"), Some("out of range")),
    ];
    let text: String = table.iter().map(|(line, _)| format!("{line}\n")).collect();
    let mut into = InMemory::default();
    let done = jsonl::import(&mut text.as_bytes(), &mut into).unwrap();
    assert_eq!((done.records, done.bad), (1, table.len() - 2));
    let expected = table.iter().enumerate().filter_map(|(i, (_, r))| Some((i + 1, r.as_ref()?)));
    for (found, (line, reason)) in done.bad_lines.iter().zip(expected) {
        assert_eq!(found.line, line, "{found}");
        assert!(found.reason.contains(reason), "{found}");
    }
    // A line without an end is not read into memory as a whole.
    let endless = [&vec![b'x'; 40 << 20][..], b"\n", good.as_bytes()].concat();
    let mut into = InMemory::default();
    let done = jsonl::import(&mut &endless[..], &mut into).unwrap();
    assert_eq!((done.records, done.bad, done.bad_lines[0].line), (1, 1, 1));
}
