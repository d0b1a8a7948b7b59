//! A fleet with a real server: what is killed, what does harm, what is hostile, and who gets what.
//!
//! CI runs short forms. `ANSC_FLEET_ALL=1 cargo test --release --test fleet -- --nocapture` runs
//! all of it and says what it measured; with the name of a test behind it, that one.

#![cfg(feature = "fleet")]

mod harm;
mod hostile;
mod kills;
mod roles;
mod server;
mod shares;
mod speed;
mod verbs;

/// Whether whole measurements are asked for, and not the short forms of CI.
fn whole() -> bool {
    std::env::var_os("ANSC_FLEET_ALL").is_some()
}

/// A worker or a tuner that another test has started, and may kill.
#[test]
#[ignore = "a process of the other tests"]
fn role() {
    roles::play();
}
