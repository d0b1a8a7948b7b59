//! The C interface, called from Rust and from C.

mod common;

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use ansc_runtime::DType;
use ansc_runtime::c::{
    AnscDtype, AnscInput, AnscModel, AnscOutput, AnscPort, AnscSession, AnscSessionOptions,
    AnscStatus, ansc_error_message, ansc_model_free, ansc_model_input, ansc_model_input_count,
    ansc_model_load, ansc_model_load_from_memory, ansc_model_load_shared, ansc_model_name,
    ansc_model_output, ansc_model_output_count, ansc_session_free, ansc_session_new,
    ansc_session_output_shape, ansc_session_run, ansc_session_threads,
};
use ansc_runtime::host::HostOp;
use ansc_runtime::manifest::Step;
use common::{sample, sample_result};

const X: [f32; 8] = [1.0, -2.0, 3.0, 0.5, 0.0, 7.0, -1.0, 2.0];
const F32: u32 = AnscDtype::F32 as u32;

fn message() -> &'static str {
    // SAFETY: never null; each test reads it before its next call.
    unsafe { CStr::from_ptr(ansc_error_message()) }.to_str().unwrap()
}

fn loaded() -> *mut AnscModel {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(sample().build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: both pointers are valid.
    let status = unsafe { ansc_model_load(path.as_ptr(), &raw mut model) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    model
}

/// The defaults, on one thread.
const OPTIONS: AnscSessionOptions = AnscSessionOptions {
    threads: 1,
    spin_microseconds: 0,
    cores: null(),
    cores_count: 0,
    keep_denormals: 0,
};

fn session_of(model: *const AnscModel, threads: usize) -> *mut AnscSession {
    let options = AnscSessionOptions { threads, spin_microseconds: -1, ..OPTIONS };
    let mut session = null_mut();
    // SAFETY: all pointers are valid.
    let status = unsafe { ansc_session_new(model, &raw const options, &raw mut session) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    session
}

/// An input of the shape that the sample has.
fn input(name: &CStr, dtype: u32, data: &[f32]) -> AnscInput {
    static SHAPE: [usize; 2] = [2, 4];
    AnscInput {
        name: name.as_ptr(),
        dtype,
        shape: SHAPE.as_ptr(),
        rank: 2,
        data: data.as_ptr().cast(),
        bytes: size_of_val(data),
    }
}

fn output(name: &CStr, data: &mut [f32]) -> AnscOutput {
    static SHAPE: [usize; 2] = [2, 4];
    AnscOutput {
        name: name.as_ptr(),
        dtype: F32,
        shape: SHAPE.as_ptr(),
        rank: 2,
        data: data.as_mut_ptr().cast(),
        bytes: size_of_val(data),
    }
}

fn run(session: *mut AnscSession, inputs: &[AnscInput], outputs: &[AnscOutput]) -> AnscStatus {
    // SAFETY: the tests give valid pointers, or null ones.
    unsafe {
        ansc_session_run(session, inputs.as_ptr(), inputs.len(), outputs.as_ptr(), outputs.len())
    }
}

#[test]
fn a_model_runs() {
    let model = loaded();
    let session = session_of(model, 3);
    let mut port =
        AnscPort { name: null(), dtype: 99, shape: null(), rank: 9, bytes: 0, is_bound: true };
    // SAFETY: all pointers are valid.
    unsafe {
        assert_eq!(CStr::from_ptr(ansc_model_name(model)), c"test");
        assert_eq!((ansc_model_input_count(model), ansc_model_output_count(model)), (1, 2));
        assert_eq!(ansc_model_input(model, 0, &raw mut port), AnscStatus::Ok);
        assert_eq!(CStr::from_ptr(port.name), c"x");
        assert_eq!(std::slice::from_raw_parts(port.shape, port.rank), [2, 4]);
        assert_eq!((port.dtype, port.bytes, port.is_bound), (F32, 32, false));
        assert_eq!(ansc_model_output(model, 1, &raw mut port), AnscStatus::Ok);
        assert_eq!((CStr::from_ptr(port.name), port.rank, port.bytes), (c"sum", 0, 4));
        assert_eq!(ansc_session_threads(session), 3);
        // Sessions do not need the handle of their model.
        ansc_model_free(model);
    }
    let (y, sum) = sample_result(&X);
    let (mut found_y, mut found_sum) = ([0f32; 8], [0f32; 1]);
    let sum_output = AnscOutput { shape: null(), rank: 0, ..output(c"sum", &mut found_sum) };
    let outputs = [sum_output, output(c"y", &mut found_y)];
    for _ in 0..3 {
        assert_eq!(run(session, &[input(c"x", F32, &X)], &outputs), AnscStatus::Ok);
        assert_eq!((&found_y[..], found_sum[0]), (&y[..], sum));
    }
    let mut shape = [0; 3];
    // SAFETY: all pointers are valid.
    unsafe {
        let status = ansc_session_output_shape(session, 0, shape.as_mut_ptr(), 3);
        assert_eq!((status, shape), (AnscStatus::Ok, [2, 4, 0]));
        assert_eq!(ansc_session_output_shape(session, 1, null_mut(), 0), AnscStatus::Ok);
        ansc_session_free(session);
    }
}

#[test]
fn models_in_memory_are_checked_copied_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(sample().build(dir.path())).unwrap();
    let mut model: *mut AnscModel = null_mut();
    let mut load = |bytes: &[u8]| {
        // SAFETY: both pointers are valid.
        unsafe { ansc_model_load_from_memory(bytes.as_ptr().cast(), bytes.len(), &raw mut model) }
    };
    assert_eq!(load(&bytes[..bytes.len() / 2]), AnscStatus::Artifact);
    assert!(message().starts_with("the artifact in memory"), "{}", message());
    assert_eq!(load(&bytes), AnscStatus::Ok, "{}", message());
    bytes.fill(0);
    let session = session_of(model, 1);
    // SAFETY: both are valid and freed once.
    unsafe {
        assert_eq!(ansc_model_input_count(model), 1);
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

#[test]
fn nulls_and_wrong_indices_are_errors() {
    let model = loaded();
    let session = session_of(model, 1);
    let mut other: *mut AnscModel = null_mut();
    let mut shape = [7; 2];
    let argument = AnscStatus::Argument;
    // SAFETY: every pointer is valid or null.
    unsafe {
        assert_eq!(ansc_model_load(null(), &raw mut other), argument);
        assert_eq!(ansc_model_load(c"x".as_ptr(), null_mut()), argument);
        assert_eq!(ansc_model_load_from_memory(null(), 0, &raw mut other), argument);
        assert_eq!(ansc_model_load_from_memory(c"x".as_ptr().cast(), 1, null_mut()), argument);
        let huge = ansc_model_load_from_memory(c"x".as_ptr().cast(), usize::MAX, &raw mut other);
        assert_eq!(huge, argument);
        assert_eq!(ansc_model_input(null(), 0, null_mut()), argument);
        assert_eq!(ansc_model_input(model, 0, null_mut()), argument);
        let mut port = std::mem::MaybeUninit::uninit();
        assert_eq!(ansc_model_input(model, 1, port.as_mut_ptr()), argument);
        assert_eq!(message(), "port 1 of 1");
        assert_eq!(ansc_session_new(null(), null(), null_mut()), argument);
        assert_eq!(ansc_session_new(model, null(), null_mut()), argument);
        assert_eq!(ansc_session_run(null_mut(), null(), 0, null(), 0), argument);
        assert_eq!(ansc_session_run(session, null(), 1, null(), 0), argument);
        assert_eq!(message(), "`inputs` is null, but its length is 1");
        assert_eq!(ansc_session_run(session, null(), 0, null(), 2), argument);
        assert_eq!(ansc_session_output_shape(null(), 0, null_mut(), 0), argument);
        assert_eq!(ansc_session_output_shape(session, 2, shape.as_mut_ptr(), 2), argument);
        assert_eq!(ansc_session_output_shape(session, 0, shape.as_mut_ptr(), 1), argument);
        assert_eq!(ansc_session_output_shape(session, 0, null_mut(), 2), argument);
        assert_eq!((ansc_model_input_count(null()), ansc_model_output_count(null())), (0, 0));
        assert!(ansc_model_name(null()).is_null());
        assert_eq!(ansc_session_threads(null()), 0);
        ansc_model_free(null_mut());
        ansc_session_free(null_mut());
        let bad = AnscSessionOptions { cores_count: 3, ..OPTIONS };
        let mut made = null_mut();
        assert_eq!(ansc_session_new(model, &raw const bad, &raw mut made), argument);
        assert!(made.is_null() && other.is_null() && shape == [7; 2]);
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

#[test]
fn what_does_not_fit_the_model_is_refused() {
    let model = loaded();
    let session = session_of(model, 1);
    let mut memory = [9f32; 16];
    let good = input(c"x", F32, &X);
    let (data, argument) = (AnscStatus::Data, AnscStatus::Argument);
    let cases: [(&[AnscInput], AnscStatus, &str); 12] = [
        (&[], data, "input `x` is missing"),
        (&[input(c"z", F32, &X)], data, "the model has no input `z`; it has x"),
        (&[good, good], data, "input `x` is given twice"),
        (&[AnscInput { dtype: 7, ..good }], data, "is of type f32, but i32 was given"),
        (&[AnscInput { dtype: 13, ..good }], argument, "`x`: there is no element type 13"),
        (&[AnscInput { rank: 1, ..good }], data, "needs 8 bytes, but 32 were given"),
        (&[AnscInput { bytes: 31, ..good }], data, "needs 32 bytes, but 31 were given"),
        (&[AnscInput { bytes: usize::MAX, ..good }], argument, "too long"),
        (&[AnscInput { name: null(), ..good }], argument, "the name of an input is null"),
        (&[AnscInput { name: c"\xff".as_ptr(), ..good }], argument, "is not UTF-8"),
        (&[AnscInput { shape: null(), ..good }], argument, "the shape of `x` is null"),
        (&[AnscInput { data: null(), ..good }], argument, "the data of `x` is null"),
    ];
    for (inputs, status, text) in cases {
        assert_eq!(run(session, inputs, &[output(c"y", &mut memory[..8])]), status, "{text}");
        assert!(message().contains(text), "{} instead of {text}", message());
    }
    let y = output(c"y", &mut memory[..8]);
    let shared = input(c"x", F32, &memory[4..12]);
    assert_eq!(run(session, &[shared], &[y]), argument);
    assert_eq!(message(), "an output overlaps an input or another output");
    assert_eq!(run(session, &[good], &[y, y]), argument);
    assert_eq!(run(session, &[good], &[AnscOutput { data: null_mut(), ..y }]), argument);
    assert_eq!(run(session, &[good], &[AnscOutput { rank: 0, bytes: 4, ..y }]), data);
    assert_eq!(memory, [9.0; 16]);
    // Inputs may share memory, and what was refused did no harm.
    assert_eq!(run(session, &[good], &[y]), AnscStatus::Ok);
    assert_eq!(memory[..8], sample_result(&X).0);
    // SAFETY: made above.
    unsafe {
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

#[test]
fn a_model_that_shares_its_weights_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(sample().build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: both pointers are valid.
    let status = unsafe { ansc_model_load_shared(path.as_ptr(), &raw mut model) };
    assert_eq!(status, AnscStatus::Ok, "{}", message());
    let session = session_of(model, 1);
    let (y, sum) = sample_result(&X);
    let (mut found, mut found_sum) = ([0f32; 8], [0f32]);
    let sum_output = AnscOutput { shape: null(), rank: 0, ..output(c"sum", &mut found_sum) };
    let outputs = [output(c"y", &mut found), sum_output];
    assert_eq!(run(session, &[input(c"x", F32, &X)], &outputs), AnscStatus::Ok, "{}", message());
    assert_eq!((&found[..], found_sum[0]), (&y[..], sum));
    // SAFETY: both were made above, and nothing uses them any more.
    unsafe {
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

#[test]
fn files_that_are_no_artifacts_are_refused() {
    let mut model: *mut AnscModel = null_mut();
    let mut load = |path: &CStr| {
        // SAFETY: both pointers are valid.
        let status = unsafe { ansc_model_load(path.as_ptr(), &raw mut model) };
        (status, message().to_owned())
    };
    let (status, text) = load(c"/nonexistent.ansc");
    assert_eq!(status, AnscStatus::Artifact);
    assert!(text.starts_with("/nonexistent.ansc: cannot be read"), "{text}");
    assert_eq!(load(c"/proc/self/exe").0, AnscStatus::Artifact);

    let dir = tempfile::tempdir().unwrap();
    let mut foreign = sample();
    foreign.manifest.target.features.push("+no-such-feature".to_owned());
    let path = CString::new(foreign.build(dir.path()).to_str().unwrap()).unwrap();
    let (status, text) = load(&path);
    assert_eq!(status, AnscStatus::Machine);
    assert!(text.contains("lacks no-such-feature"), "{text}");
    assert!(model.is_null());
}

#[test]
fn denormal_numbers_are_zeros_unless_they_are_kept() {
    let model = loaded();
    // Its second element is `2 x + x`.
    let tiny = f32::MIN_POSITIVE / 4.0;
    let values = [tiny; 8];
    for (keep_denormals, expected) in [(0, 0.0), (1, tiny * 3.0), (255, tiny * 3.0)] {
        let options = AnscSessionOptions { keep_denormals, ..OPTIONS };
        let (mut session, mut y) = (null_mut(), [9f32; 8]);
        // SAFETY: all pointers are valid.
        let made = unsafe { ansc_session_new(model, &raw const options, &raw mut session) };
        assert_eq!(made, AnscStatus::Ok, "{}", message());
        let (x, y_out) = (input(c"x", F32, &values), output(c"y", &mut y));
        assert_eq!(run(session, &[x], &[y_out]), AnscStatus::Ok, "{}", message());
        assert_eq!(y[1], expected);
        // SAFETY: made above.
        unsafe { ansc_session_free(session) };
    }
    // SAFETY: made above.
    unsafe { ansc_model_free(model) };
}

#[test]
fn an_index_out_of_range_is_bad_data() {
    let mut b = common::Builder::new();
    let x = b.input("x", DType::I32, &[2, 4]);
    let y = b.output("y", DType::I32, &[2, 4]);
    let check = HostOp::CheckIndices { extents: vec![100] };
    let (name, inputs, outputs) = ("/embed/Gather".to_owned(), vec![x], vec![]);
    b.plan().plan.steps.push(Step::Host { name, call: check, inputs, outputs });
    b.plan().plan.steps.push(Step::Copy { from: x, to: y });
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(b.build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { ansc_model_load(path.as_ptr(), &raw mut model) }, AnscStatus::Ok);
    let session = session_of(model, 1);
    let i32 = AnscDtype::I32 as u32;
    let mut y = [0f32; 8];
    for (index, status) in [(99, AnscStatus::Ok), (100, AnscStatus::Data), (-100, AnscStatus::Ok)] {
        let mut ids = [0f32; 8];
        ids[6] = f32::from_bits(index as u32);
        let y_out = AnscOutput { dtype: i32, ..output(c"y", &mut y) };
        assert_eq!(run(session, &[input(c"x", i32, &ids)], &[y_out]), status, "{index}");
        if status == AnscStatus::Data {
            let said = "node `/embed/Gather`: index 100 at [1, 2] of input `x` is out of range; \
                        it must be from -100 to 99";
            assert_eq!(message(), said);
        }
    }
    // SAFETY: made above.
    unsafe {
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

#[test]
fn a_session_that_runs_is_busy() {
    let mut b = common::Builder::new();
    let (x, y) = (b.input("x", DType::F32, &[2, 4]), b.output("y", DType::F32, &[2, 4]));
    // Ends when the caller's input changes.
    b.step("wait", 1, &[x, y], "while (*(volatile float *)b[0] == 1.0f) {}");
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(b.build(dir.path()).to_str().unwrap()).unwrap();
    let mut model = null_mut();
    // SAFETY: both pointers are valid.
    assert_eq!(unsafe { ansc_model_load(path.as_ptr(), &raw mut model) }, AnscStatus::Ok);
    let session = session_of(model, 1);
    let address = session as usize;
    let flag: &'static [std::sync::atomic::AtomicU32; 8] = Box::leak(Box::default());
    flag[0].store(1f32.to_bits(), std::sync::atomic::Ordering::SeqCst);
    let data = flag.as_ptr() as usize;
    let runner = std::thread::spawn(move || {
        let mut y = [0f32; 8];
        let x = AnscInput { data: data as *const _, ..input(c"x", F32, &X) };
        // The main thread's questions keep the session busy for moments, too.
        let mut attempt = || run(address as *mut AnscSession, &[x], &[output(c"y", &mut y)]);
        std::iter::repeat_with(&mut attempt).find(|status| *status != AnscStatus::Busy)
    });
    let mut shape = [0; 2];
    let busy = || {
        // SAFETY: all pointers are valid.
        unsafe { ansc_session_output_shape(session, 0, shape.as_mut_ptr(), 2) }
    };
    let seen = std::iter::repeat_with(busy).find(|status| *status != AnscStatus::Ok);
    assert_eq!(seen, Some(AnscStatus::Busy));
    flag[0].store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(runner.join().unwrap(), Some(AnscStatus::Ok));
    // SAFETY: made above.
    unsafe {
        ansc_session_free(session);
        ansc_model_free(model);
    }
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo put the libraries for C programs: beside this test.
fn library_dir() -> PathBuf {
    let dir = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(dir.join("libansc_runtime.so").exists(), "no library in {}", dir.display());
    dir
}

fn cc(args: &[&str]) {
    let warnings = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let output = Command::new("cc").args(warnings).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_c_example_builds_and_runs() {
    let dir = tempfile::tempdir().unwrap();
    let artifact = sample().build(dir.path());
    let (libraries, example) = (library_dir(), source("examples/c/run.c"));
    let include = format!("-I{}", source("include").display());
    let shared = format!("-L{}", libraries.display());
    let archive = libraries.join("libansc_runtime.a");
    let links: [&[&str]; 2] = [
        &[&shared, "-lansc_runtime"],
        &[archive.to_str().unwrap(), "-lm", "-lpthread", "-ldl", "-lgcc_s"],
    ];
    for link in links {
        let program = dir.path().join("program");
        let start = [example.to_str().unwrap(), &include, "-o", program.to_str().unwrap()];
        cc(&[&start[..], link].concat());
        let run = |model: &Path| {
            let mut command = Command::new(&program);
            command.arg(model).arg("2").env("LD_LIBRARY_PATH", &libraries).output().unwrap()
        };
        let output = run(&artifact);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let x: Vec<f32> = [0.5, 0.25].into_iter().cycle().take(8).collect();
        let (y, sum) = sample_result(&x);
        let y: String = y.iter().map(|v| format!(" {v}")).collect();
        let expected =
            format!("input x: f32[2, 4]\noutput y: f32[2, 4]\n{y}\noutput sum: f32[]\n {sum}\n");
        assert!(text.ends_with(&expected), "{text}instead of\n{expected}");
        let missing = run(Path::new("/nonexistent"));
        assert_eq!(missing.status.code(), Some(1));
        let text = String::from_utf8(missing.stderr).unwrap();
        assert!(text.starts_with("load: bad artifact: /nonexistent: cannot be read"), "{text}");
    }
}

#[test]
fn a_session_of_too_many_threads_is_refused() {
    let model = loaded();
    for threads in [4097, 1 << 62, usize::MAX] {
        let options = AnscSessionOptions { threads, ..OPTIONS };
        let mut session = null_mut();
        // SAFETY: all pointers are valid.
        let status = unsafe { ansc_session_new(model, &raw const options, &raw mut session) };
        assert_eq!(status, AnscStatus::Argument, "{}", message());
        assert!(session.is_null() && message().contains("4096 at most"), "{}", message());
    }
    // SAFETY: it was not freed.
    unsafe { ansc_model_free(model) };
}

#[test]
fn the_header_is_current_and_complete() {
    let files = ["status", "port", "model", "session", "state"];
    let texts = files.map(|name| std::fs::read_to_string(source(&format!("src/c/{name}.rs"))));
    let sources: String = texts.into_iter().map(Result::unwrap).collect();
    let header = std::fs::read_to_string(source("include/ansc.h")).unwrap();
    let hash = xxhash_rust::xxh3::xxh3_128(sources.as_bytes());
    assert!(
        header.ends_with(&format!("/* sources: {hash:032x} */\n")),
        "src/c was changed: run runtime/header/generate"
    );
    let functions: Vec<&str> = sources
        .split("extern \"C\" fn ")
        .skip(1)
        .map(|rest| rest.split('(').next().unwrap())
        .collect();
    assert!(functions.len() > 15);
    let library = std::fs::read(library_dir().join("libansc_runtime.so")).unwrap();
    let elf = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*library).unwrap();
    let mut exported: Vec<&str> = {
        use object::{Object, ObjectSymbol};
        elf.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect()
    };
    exported.sort_unstable();
    for function in functions {
        assert!(header.contains(&format!("{function}(")), "{function} is not in the header");
        assert!(exported.binary_search(&function).is_ok(), "{function} is not exported");
    }
}

#[test]
fn cpp_accepts_the_header() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("use.cpp");
    std::fs::write(
        &file,
        "#include \"ansc.h\"\nint main() { return ansc_version() == nullptr; }\n",
    )
    .unwrap();
    let include = format!("-I{}", source("include").display());
    let args = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", &include];
    let output = Command::new("c++").args(args).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
