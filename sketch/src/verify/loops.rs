//! Where loops of each kind may stand, and which loops private buffers may cross.

use ansc_graph::BufId;

use super::{Fault, Site, Subject, serves};
use crate::program::{ForKind, IterKind};

pub(super) fn check(subject: &Subject<'_>) -> Result<(), Fault> {
    subject.sites.iter().try_for_each(|site| kinds(subject, site))?;
    (0..subject.program.buffers.len()).map(BufId::new).try_for_each(|b| lifetime(subject, b))
}

fn kinds(subject: &Subject<'_>, site: &Site<'_>) -> Result<(), Fault> {
    for (depth, l) in site.loops.iter().enumerate() {
        let var = || subject.var_name(l.var);
        match l.kind {
            ForKind::Parallel if depth > 0 => return Err(Fault::InnerParallel { var: var() }),
            ForKind::Vectorized if serves(site.block, l.var, IterKind::Reduce) => {
                let block = site.block.name.clone();
                return Err(Fault::VectorOfTerms { block, var: var() });
            }
            _ => {}
        }
    }
    Ok(())
}

/// No two threads share a buffer that is private to one.
fn lifetime(subject: &Subject<'_>, buffer: BufId) -> Result<(), Fault> {
    if !subject.program.buffer(buffer).scope.is_private() {
        return Ok(());
    }
    let home = subject.home(buffer).len();
    for touch in subject.touches.iter().filter(|t| t.buffer == buffer) {
        let beyond = &subject.sites[touch.site].loops[home..];
        if let Some(l) = beyond.iter().find(|l| l.kind == ForKind::Parallel) {
            let (buffer, var) = (subject.buffer_name(buffer), subject.var_name(l.var));
            return Err(Fault::Lifetime { buffer, var });
        }
    }
    Ok(())
}
