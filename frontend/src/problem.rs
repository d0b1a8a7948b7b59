//! The problems that stand between a model and its compilation, worded so that the user can act on
//! them.

use std::fmt;

use serde::Serialize;

/// One reason why a model cannot be compiled: where, why and what to do about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Problem {
    /// The ONNX node's name, or its first output where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opset: Option<i64>,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The consequence of a problem that was already recorded: never shown.
    #[serde(skip)]
    silent: bool,
}

impl Problem {
    /// A problem of the model as a whole.
    pub fn new(reason: impl Into<String>) -> Problem {
        Problem {
            node: None,
            op: None,
            domain: None,
            opset: None,
            reason: reason.into(),
            remedy: None,
            silent: false,
        }
    }

    /// A problem of one node.
    pub fn at(
        node: &str,
        op: &str,
        domain: &str,
        opset: i64,
        reason: impl Into<String>,
    ) -> Problem {
        Problem {
            node: Some(node.into()),
            op: Some(op.into()),
            domain: (!domain.is_empty()).then(|| domain.into()),
            opset: Some(opset),
            ..Problem::new(reason)
        }
    }

    /// Stops the import of a node for a reason that is recorded elsewhere.
    pub(crate) fn silent() -> Problem {
        Problem { silent: true, ..Problem::new("follows from another problem") }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn remedy(self, text: impl Into<String>) -> Problem {
        Problem { remedy: Some(text.into()), ..self }
    }
}

/// Bytes of the longest name that is shown, or carried along.
const MAX_NAME: usize = 1024;

/// A name without its middle if it is very long: the path of nested calls may be far longer than
/// the file.
pub(crate) fn shortened(name: String) -> String {
    if name.len() <= MAX_NAME {
        return name;
    }
    let half = MAX_NAME / 2 - 8;
    let boundary = |at: &usize| name.is_char_boundary(*at);
    let head = (0..=half).rev().find(boundary).unwrap_or(0);
    let tail = (name.len() - half..name.len()).find(boundary).unwrap_or(name.len());
    format!("{}[..]{}", &name[..head], &name[tail..])
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "node `{node}`")?;
            if let Some(op) = &self.op {
                let domain = self.domain.as_ref().map(|d| format!("{d}.")).unwrap_or_default();
                write!(f, " ({domain}{op}")?;
                if let Some(opset) = self.opset {
                    write!(f, ", opset {opset}")?;
                }
                f.write_str(")")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n      remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Why a model could not be imported: all problems, in the order of the model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
pub struct ImportError {
    pub file: String,
    pub problems: Vec<Problem>,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => write!(f, "{}: cannot be imported", self.file)?,
            n => write!(f, "{}: cannot be imported, for {n} reasons", self.file)?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_very_long_names_are_shortened() {
        assert_eq!(shortened("a".repeat(MAX_NAME)), "a".repeat(MAX_NAME));
        let name = shortened(format!("first{}last", "\u{e4}".repeat(MAX_NAME)));
        assert!(name.len() <= MAX_NAME && name.contains("[..]"), "{name}");
        assert!(name.starts_with("first") && name.ends_with("last"), "{name}");
    }

    #[test]
    fn names_file_node_and_remedy() {
        let problem =
            Problem::at("n1", "Foo", "my.domain", 1, "no such operator").remedy("drop it");
        let error = ImportError { file: "m.onnx".into(), problems: vec![problem] };
        assert_eq!(
            error.to_string(),
            "m.onnx: cannot be imported\n  node `n1` (my.domain.Foo, opset 1): no such operator\
             \n      remedy: drop it"
        );
        let json = serde_json::to_value(&error.problems[0]).unwrap();
        assert_eq!(json["remedy"], "drop it");
        assert!(json.get("silent").is_none());
    }
}
