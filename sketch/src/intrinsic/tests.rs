use super::*;
use crate::schedule::Schedule;

#[test]
fn built_in_intrinsics_are_what_they_are_described_as() {
    // Making them compares them; this makes them all.
    let all = names();
    assert!(all.contains(&"dot_16x4_u8i8i32".to_owned()), "{all:?}");
    let dot = find("dot_16x4_u8i8i32").unwrap();
    assert_ne!(dot.description(), dot.implementation());
    assert_eq!(find("nothing"), None);
}

#[test]
fn another_function_is_refused() {
    let outer = find("outer_4x8_f32").unwrap();
    let mut wrong = outer.implementation().to_string();
    wrong = wrong.replace("sum= mul", "sum= sub");
    let wrong = Program::parse(&wrong).unwrap();
    let made = Intrinsic::new("wrong", outer.description().clone(), wrong);
    assert_eq!(made, Err(IntrinsicError::Different));
    let dot = find("dot_16x4_u8i8i32").unwrap();
    let made = Intrinsic::new("x", outer.description().clone(), dot.implementation().clone());
    assert_eq!(made, Err(IntrinsicError::Parameters));
}

#[test]
fn a_description_is_a_plain_nest() {
    let outer = find("outer_4x8_f32").unwrap();
    let made = Intrinsic::new("x", outer.implementation().clone(), outer.description().clone());
    assert_eq!(made, Err(IntrinsicError::Description));
    let mut s = Schedule::new(outer.description().clone());
    let l = s.loops("step").unwrap();
    s.split(l[0], &[0, 3]).unwrap();
    let made = Intrinsic::new("x", s.into_program(), outer.description().clone());
    assert_eq!(made, Err(IntrinsicError::Description));
}

#[test]
fn a_name_is_given_once() {
    let again = (*find("outer_4x8_f32").unwrap()).clone();
    assert_eq!(register(again), Err(IntrinsicError::Registered("outer_4x8_f32".into())));
}
