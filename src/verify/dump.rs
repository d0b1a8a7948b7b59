//! Writes the tensors that were compared to files.

use std::path::Path;

use ansc_runtime::{Tensor, npy};
use serde_json::{Value, json};

use super::Row;
use crate::Error;
use crate::files::file_names;

/// Tensors that were compared.
pub struct Compared {
    pub row: Row,
    pub actual: Tensor,
    pub reference: Tensor,
}

/// Two files for each tensor, and `index.json` that says which is which.
pub(super) fn write<'a>(
    folder: &Path,
    all: impl Iterator<Item = &'a Compared>,
) -> Result<(), Error> {
    let all: Vec<&Compared> = all.collect();
    std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
    let title = |c: &Compared| match c.row.specialisation.as_str() {
        "" => c.row.output.clone(),
        sizes => format!("{sizes} {}", c.row.output),
    };
    let titles: Vec<String> = all.iter().map(|c| title(c)).collect();
    // No two of these are alike, and none has a dot: the reference's name is nobody else's.
    let plain: Vec<String> = titles.iter().map(|title| title.replace('.', "_")).collect();
    let names = file_names(plain.iter().map(String::as_str));
    let mut index: Vec<Value> = vec![];
    for (compared, name) in all.iter().zip(names) {
        let (file, reference) = (format!("{name}.npy"), format!("{name}.reference.npy"));
        npy::write(folder.join(&file), &compared.actual)?;
        npy::write(folder.join(&reference), &compared.reference)?;
        index.push(json!({
            "tensor": compared.row.output,
            "specialisation": compared.row.specialisation,
            "dtype": compared.actual.dtype(),
            "shape": compared.actual.shape(),
            "file": file,
            "reference": reference,
            "difference": compared.row.difference,
            "ok": compared.row.ok,
        }));
    }
    let path = folder.join("index.json");
    let text = serde_json::to_string_pretty(&index).expect("an index serialises");
    std::fs::write(&path, text).map_err(|e| Error::file(&path, e))
}
