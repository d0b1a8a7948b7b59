//! The standard networks as ONNX files.
//!
//! Every network is built from real operators, as exporters write them (`BatchNormalization` nodes,
//! `Gemm`, attention by `MatMul` and `Softmax`), with weights from a seed, scaled so that
//! activations stay finite and of order one through the whole depth. The same name gives the same
//! bytes everywhere. [`real`] lists trained models that ship inside packages.
//!
//! ```
//! let model = ansc_models::find("mlp").unwrap().build();
//! assert!(model.to_bytes().len() > 4 * 1024 * 1024);
//! ```

pub mod builder;
mod networks;
mod papers;
mod products;
pub mod proto;
pub mod real;
mod workloads;

pub use builder::{Builder, Model, Scale};

/// A generator of one model.
pub struct Generator {
    pub name: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    make: fn(&mut Builder),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Network,
    /// A single layer or operator.
    Operator,
}

impl Generator {
    pub fn build(&self) -> Model {
        self.build_at(Scale::Full)
    }

    /// Networks whose family knows fewer layers or smaller pictures get them; others are the same.
    pub fn build_at(&self, scale: Scale) -> Model {
        let mut builder = Builder::new(self.name).scale(scale);
        (self.make)(&mut builder);
        builder.finish()
    }
}

/// All generators, networks first.
pub fn all() -> impl Iterator<Item = &'static Generator> {
    let workloads = workloads::WORKLOADS.iter().chain(products::PRODUCTS).chain(papers::PAPERS);
    networks::NETWORKS.iter().chain(workloads)
}

pub fn find(name: &str) -> Option<&'static Generator> {
    all().find(|g| g.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = all().map(|g| g.name.to_lowercase()).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn the_same_name_gives_the_same_bytes() {
        let bytes = || find("dcgan").expect("a generator").build().to_bytes();
        assert!(bytes() == bytes());
    }
}
