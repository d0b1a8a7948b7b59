//! Metadata that tell LLVM about accesses to memory. They are looked up once for a module, since
//! each access has some.

use inkwell::context::Context;
use inkwell::values::MetadataValue;

/// Kinds by LLVM's numbers, and what goes with them.
pub(crate) struct Marks<'c> {
    pub(crate) alias_scope: u32,
    pub(crate) noalias: u32,
    pub(crate) invariant_load: u32,
    pub(crate) tbaa: u32,
    pub(crate) nontemporal: u32,
    pub(crate) nothing: MetadataValue<'c>,
    /// The number one, as LLVM wants it beside `nontemporal`.
    pub(crate) one: MetadataValue<'c>,
    /// Says that nothing writes what a load reads. No store is ordered with the load then. The
    /// selection of instructions would find that out by itself, but among hundreds of accesses in a
    /// long time.
    pub(crate) constant: MetadataValue<'c>,
}

impl<'c> Marks<'c> {
    pub(crate) fn new(context: &'c Context) -> Marks<'c> {
        let names = ["alias.scope", "noalias", "invariant.load", "tbaa", "nontemporal"];
        let [alias_scope, noalias, invariant_load, tbaa, nontemporal] =
            names.map(|k| context.get_kind_id(k));
        let word = |s: &str| context.metadata_string(s).into();
        let [offset, is_constant] = [0, 1].map(|n| context.i64_type().const_int(n, false).into());
        let root = context.metadata_node(&[word("ansc")]);
        let ty = context.metadata_node(&[word("constant"), root.into(), offset]);
        let constant = context.metadata_node(&[ty.into(), ty.into(), offset, is_constant]);
        let nothing = context.metadata_node(&[]);
        let one = context.metadata_node(&[context.i32_type().const_int(1, false).into()]);
        Marks { alias_scope, noalias, invariant_load, tbaa, nontemporal, nothing, one, constant }
    }
}
