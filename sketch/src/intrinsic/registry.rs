//! Intrinsics by name: those that come with the compiler, and those that a user adds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use super::{Intrinsic, IntrinsicError, amx, built_in, mma};
use crate::program::IntrinsicName;

type Table = BTreeMap<String, Arc<Intrinsic>>;

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let all = built_in::all().into_iter();
    RwLock::new(all.map(|i| (i.name().as_str().to_owned(), Arc::new(i))).collect())
});

/// Names live as long as the process, each of them once.
static NAMES: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);

/// Lets traces name the intrinsic. A name is given once.
pub fn register(intrinsic: Intrinsic) -> Result<(), IntrinsicError> {
    let name = intrinsic.name().as_str().to_owned();
    if find(&name).is_some() {
        return Err(IntrinsicError::Registered(name));
    }
    // A table is whole after every insertion, whatever panicked beside it.
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table.insert(name, Arc::new(intrinsic));
    Ok(())
}

/// The intrinsic of that name. Those of families with many members are made when they are asked
/// for.
pub fn find(name: &str) -> Option<Arc<Intrinsic>> {
    if let Some(known) = TABLE.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return Some(known.clone());
    }
    let made = amx::named(name).or_else(|| mma::named(name));
    let made = Arc::new(made?.ok()?);
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    Some(table.entry(name.to_owned()).or_insert(made).clone())
}

/// The names of all that were asked for or come as single ones, in order.
pub fn names() -> Vec<String> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
}

pub(super) fn interned(name: &str) -> IntrinsicName {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return IntrinsicName(known);
    }
    let kept: &'static str = String::leak(name.to_owned());
    names.insert(kept);
    IntrinsicName(kept)
}
