use std::path::Path;
use std::process::Command;

use ansc_graph::{Compute, Expr, Stage, TensorType, UnOp};
use ansc_runtime::DType;

use super::*;

/// A kernel that calls a function of the C library, or one with constants.
fn object_of(target: &Target, op: UnOp, symbol: &str) -> Vec<u8> {
    let dtype = if op == UnOp::Sin { DType::F64 } else { DType::F32 };
    let ty = TensorType::new(dtype, [64]);
    let body = Expr::unary(op, Expr::load(0, vec![Expr::var(0)]));
    let compute = Compute::single(vec![ty.clone()], Stage::map("e", ty, body));
    let program = ansc_sketch::finish(ansc_sketch::lower("e", &compute));
    crate::compile_program(&program, symbol, target).unwrap().object
}

fn linked(target: &Target, objects: &[Vec<u8>]) -> Vec<u8> {
    let objects: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
    let extra = NewSection { name: ".extra", align: 4096, len: 5 };
    let layout = shared_library(&objects, target, &[extra]).unwrap();
    let mut file = layout.front;
    file.resize(layout.offsets[0] as usize, 0);
    file.extend(b"extra");
    file.resize(layout.back_at as usize, 0);
    file.extend(layout.back);
    file
}

fn stdout(program: &str, args: &[&str], file: &Path) -> String {
    let out = Command::new(program).args(args).arg(file).output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && complaints.is_empty(), "{program}: {complaints}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn readelf_has_no_complaint_and_finds_everything() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["native", "x86-64-v4", "aarch64"] {
        let target = Target::parse(name).unwrap();
        let sets = [
            vec![],
            vec![object_of(&target, UnOp::Exp, "a")],
            vec![object_of(&target, UnOp::Sin, "a"), object_of(&target, UnOp::Erf, "b")],
        ];
        for objects in sets {
            let path = dir.path().join("out.so");
            std::fs::write(&path, linked(&target, &objects)).unwrap();
            let all = stdout("readelf", &["-aW"], &path);
            assert!(all.contains(".extra") && !all.to_lowercase().contains("warning"), "{all}");
            assert_eq!(all.contains("libm.so.6"), objects.len() == 2, "{name}: {all}");
            assert_eq!(all.contains(" a_0"), !objects.is_empty(), "{name}: {all}");
            assert_eq!(all.contains(" sin"), objects.len() == 2, "{name}: {all}");
        }
    }
}

/// The code that `ld` makes of the same objects, as far as it does not depend on where things are.
#[test]
fn code_is_that_of_another_linker() {
    let target = Target::native().unwrap();
    let objects = [object_of(&target, UnOp::Sin, "a"), object_of(&target, UnOp::Exp, "b")];
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("ours.so"), linked(&target, &objects)).unwrap();
    let mut ld = Command::new("ld");
    ld.current_dir(&dir).args(["-shared", "-o", "theirs.so"]);
    for (index, object) in objects.iter().enumerate() {
        std::fs::write(file(&format!("{index}.o")), object).unwrap();
        ld.arg(format!("{index}.o"));
    }
    assert!(ld.status().unwrap().success());
    let code = |name: &str| {
        let text = stdout("objdump", &["-d", "--no-show-raw-insn", "--no-addresses"], &file(name));
        let lines = text.lines().skip_while(|l| !l.starts_with("<a_0>"));
        let kept: Vec<String> = lines.map(without_addresses).filter(|l| !is_padding(l)).collect();
        kept
    };
    let (ours, theirs) = (code("ours.so"), code("theirs.so"));
    assert!(ours.iter().any(|l| l.contains("call")), "{ours:#?}");
    let end = theirs.iter().position(|l| l.starts_with("Disassembly")).unwrap_or(theirs.len());
    let same = ours.iter().zip(&theirs[..end]).take_while(|(a, b)| a == b).count();
    // Behind our code come the stubs.
    assert!(same + 1 >= end, "line {same} of {end}: {:?}, not {:?}", ours[same], theirs[same]);
}

/// Instructions that do nothing: linkers choose them as they like between functions.
fn is_padding(line: &str) -> bool {
    let words = line.trim_start().trim_start_matches("data16 ").trim_start_matches("cs ");
    words == "int3" || words.starts_with("nop") || words.replace(' ', "") == "xchg%ax,%ax"
}

/// `\tcall   <sin@plt>` without the name, constants without their distance.
fn without_addresses(line: &str) -> String {
    let line = line.split(['#', '<']).next().unwrap_or_default().trim_end();
    match line.find("(%rip)") {
        Some(at) => {
            let start = line[..at].rfind([' ', ',', '\t', '*']).map_or(0, |i| i + 1);
            format!("{}{}", &line[..start], &line[at..])
        }
        None => line.to_owned(),
    }
}

#[test]
fn a_library_loads_and_calls_the_c_library() {
    use ansc_runtime::manifest::KernelFn;
    let target = Target::native().unwrap();
    let objects = [object_of(&target, UnOp::Erf, "a"), object_of(&target, UnOp::Sin, "b")];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.so");
    std::fs::write(&path, linked(&target, &objects)).unwrap();
    // SAFETY: the library was just made and has no initialisers.
    let library = unsafe { libloading::Library::new(&path) }.unwrap();
    // SAFETY: the type is that of every kernel.
    let sin = unsafe { library.get::<KernelFn>(b"b_0") }.unwrap();
    let x: Vec<f64> = (0..64).map(|i| f64::from(i) * 0.3 - 9.0).collect();
    let mut y = vec![0.0_f64; 64];
    let buffers = [x.as_ptr().cast_mut().cast(), y.as_mut_ptr().cast()];
    // SAFETY: the kernel has two buffers of 64 numbers, no scratch, and 64 iterations at most.
    unsafe { sin(buffers.as_ptr(), std::ptr::null_mut(), 0, 1) };
    for (x, y) in x.iter().zip(&y) {
        assert!((x.sin() - y).abs() < 1e-12, "sin {x} is not {y}");
    }
    // SAFETY: as above.
    assert!(unsafe { library.get::<KernelFn>(b"a_0") }.is_ok());
    // SAFETY: as above.
    assert!(unsafe { library.get::<KernelFn>(b"c_0") }.is_err());
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let target = Target::native().unwrap();
    let a = object_of(&target, UnOp::Exp, "a");
    let refused = |objects: &[&[u8]]| {
        let error = shared_library(objects, &target, &[]).err().expect("it is refused");
        error.to_string()
    };
    assert!(refused(&[b"not an object"]).contains("object 0"));
    assert!(refused(&[&a, &a]).contains("`a_0` is defined twice"));
    for len in (0..a.len()).step_by(7) {
        // Whatever is left of an object, linking it does not panic.
        let _ = shared_library(&[&a[..len]], &target, &[]);
    }
    let unknown = {
        let mut changed = object_of(&target, UnOp::Sin, "a");
        let at = changed.windows(5).position(|w| w == b"\0sin\0").expect("its name is there");
        changed[at + 1..at + 4].copy_from_slice(b"foo");
        changed
    };
    assert!(refused(&[&unknown]).contains("`foo` is not defined"));
}
