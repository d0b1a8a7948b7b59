//! Which of the sizes that an artifact was compiled for is meant.

use ansc_runtime::Model;
use ansc_runtime::manifest::Specialisation;

use super::once;
use crate::Error;
use crate::cli::Size;

/// The one that the options choose; the first, if several are left.
pub(super) fn chosen<'a>(model: &'a Model, size: &Size) -> Result<&'a Specialisation, Error> {
    let shapes = once("--shape", size.shapes.iter().cloned())?;
    let named: Vec<_> = shapes.iter().map(|(n, s)| (n.as_str(), s.as_slice())).collect();
    // The error of shapes that none has lists them all.
    let first = model.specialisation(&named)?;
    let mut dims = vec![];
    for (name, sizes) in once("--dim", size.dims.iter().cloned())? {
        let [one] = sizes.0[..] else {
            return Err(Error::Usage(format!(
                "`--dim {name}` has several sizes; one is wanted here"
            )));
        };
        dims.push(format!("{name}={one}"));
    }
    if dims.is_empty() {
        return Ok(first);
    }
    let all = model.specialisations();
    let fits = |one: &&Specialisation| {
        dims.iter().all(|dim| has(one, dim)) && shapes.iter().all(|s| takes(one, s.0, s.1))
    };
    all.iter().find(fits).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let known = match &names[..] {
            [""] => "for one size only".to_owned(),
            names => format!("for {}", names.join("; ")),
        };
        Error::Data(format!("the model was not compiled for {}, but {known}", dims.join(" ")))
    })
}

/// Names are sizes of dimensions, as in `batch=4 length=16`.
fn has(one: &Specialisation, dim: &str) -> bool {
    format!(" {} ", one.name).contains(&format!(" {dim} "))
}

fn takes(one: &Specialisation, input: &str, shape: &[usize]) -> bool {
    one.inputs.iter().any(|port| port.name == input && port.shape == shape)
}

/// A note on the size that is used, if there are several and nobody chose one.
pub(super) fn which(model: &Model, one: &Specialisation, size: &Size) -> Option<String> {
    let n = model.specialisations().len();
    let free = size.shapes.is_empty() && size.dims.is_empty();
    (n > 1 && free)
        .then(|| format!("{} is one of {n} sizes; --dim or --shape chooses another", one.name))
}
