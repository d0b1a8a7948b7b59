//! Resolves references to attributes while the body of a function is imported.
//!
//! ```text
//! f<alpha>(x) { y = LeakyRelu<alpha: @alpha>(x) }   called as f<alpha: 0.1>(x)   ->   alpha: 0.1
//! ```
//!
//! Nodes are never copied to put attributes in: a function may be called a hundred thousand times,
//! and an attribute may be as large as the file.

use std::collections::HashMap;

use tract_onnx::pb::{AttributeProto, FunctionProto, NodeProto};

/// The attributes of the call that is being inlined; none outside of functions.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    given: HashMap<&'a str, &'a AttributeProto>,
    /// Those that a call may leave out.
    declared: &'a [String],
}

impl<'a> Attributes<'a> {
    /// Those of `call`, which itself may refer to `outer` ones.
    pub(super) fn of_call(
        call: &'a NodeProto,
        function: &'a FunctionProto,
        outer: &Attributes<'a>,
    ) -> Result<Attributes<'a>, String> {
        let mut given = HashMap::with_capacity(call.attribute.len());
        for attribute in &call.attribute {
            if let Some(attribute_given) = outer.resolve(attribute)? {
                given.insert(attribute.name.as_str(), attribute_given);
            }
        }
        Ok(Attributes { given, declared: &function.attribute })
    }

    /// The attribute itself, or the one that it refers to; none where the call leaves an optional
    /// one out.
    pub(super) fn resolve(
        &self,
        attribute: &'a AttributeProto,
    ) -> Result<Option<&'a AttributeProto>, String> {
        let wanted = attribute.ref_attr_name.as_str();
        if wanted.is_empty() {
            return Ok(Some(attribute));
        }
        match self.given.get(wanted) {
            Some(given) => Ok(Some(given)),
            None if self.declared.iter().any(|name| name == wanted) => Ok(None),
            None => Err(format!(
                "attribute `{}` refers to `{wanted}`, which the call does not give; \
                 defaults of function attributes are not supported",
                attribute.name
            )),
        }
    }
}
