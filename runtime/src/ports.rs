//! Ports by name, and whether what is given for one is right.

use crate::dtype::DType;
use crate::manifest::Port;
use crate::run_error::{PortKind, RunError};

pub(crate) fn find(kind: PortKind, ports: &[Port], name: &str) -> Result<usize, RunError> {
    ports.iter().position(|port| port.name == name).ok_or_else(|| RunError::Unknown {
        kind,
        name: name.to_owned(),
        known: ports.iter().map(|port| port.name.clone()).collect(),
    })
}

pub(crate) fn check_type(kind: PortKind, port: &Port, found: DType) -> Result<(), RunError> {
    if port.dtype == found {
        return Ok(());
    }
    Err(RunError::Type { kind, name: port.name.clone(), expected: port.dtype, found })
}

pub(crate) fn wrong_shape(
    kind: PortKind,
    port: &Port,
    expected: &[usize],
    found: &[usize],
) -> RunError {
    let (expected, found) = (expected.to_vec(), found.to_vec());
    RunError::Shape { kind, name: port.name.clone(), expected, found }
}
