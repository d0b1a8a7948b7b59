//! Intrinsics by name: those that come with the compiler, and those that a user adds.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::{Intrinsic, IntrinsicError, built_in};

type Table = BTreeMap<String, Arc<Intrinsic>>;

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let all = built_in::all().into_iter();
    RwLock::new(all.map(|i| (i.name().to_owned(), Arc::new(i))).collect())
});

/// Lets traces name the intrinsic. A name is given once.
pub fn register(intrinsic: Intrinsic) -> Result<(), IntrinsicError> {
    // A table is whole after every insertion, whatever panicked beside it.
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let name = intrinsic.name().to_owned();
    if table.contains_key(&name) {
        return Err(IntrinsicError::Registered(name));
    }
    table.insert(name, Arc::new(intrinsic));
    Ok(())
}

pub fn find(name: &str) -> Option<Arc<Intrinsic>> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// The names of all, in order.
pub fn names() -> Vec<String> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
}
