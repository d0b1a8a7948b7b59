//! Printing GPU programs.
//!
//! ```text
//! kernel y: grid 64, block 32, 128 bytes shared
//!   s[thread_x] = x[block_x, thread_x]
//!   barrier
//! ```

use std::fmt::{self, Display, Formatter};

use super::{Axis, GpuProgram, Step};
use crate::program::{Program, Scope, Stmt};
use crate::text::render;

impl Display for GpuProgram {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for kernel in &self.kernels {
            let (grid, block) = (extents(&kernel.grid), extents(&kernel.block));
            let shared = self.bytes(kernel, Scope::Shared);
            writeln!(
                f,
                "kernel {}: grid {grid}, block {block}, {shared} bytes shared",
                kernel.name
            )?;
            steps(self, &kernel.body, 1, f)?;
        }
        Ok(())
    }
}

/// `64 x 2`, without the axes of one element at the end.
fn extents(axes: &[Axis; 3]) -> String {
    let last = axes.iter().rposition(|a| a.extent > 1).unwrap_or(0);
    axes[..=last].iter().map(|a| a.extent.to_string()).collect::<Vec<_>>().join(" x ")
}

fn steps(gpu: &GpuProgram, all: &[Step], depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
    let indent = 2 * depth;
    for step in all {
        match step {
            Step::Barrier => writeln!(f, "{:indent$}barrier", "")?,
            Step::Loop(l) => {
                let var = &gpu.program.vars[l.var.index()];
                writeln!(f, "{:indent$}for {var} in 0..{} {{", "", l.extent)?;
                steps(gpu, &l.body, depth + 1, f)?;
                writeln!(f, "{:indent$}}}", "")?;
            }
            Step::Commit => writeln!(f, "{:indent$}a group of copies", "")?,
            Step::Arrive(0) => writeln!(f, "{:indent$}copies arrive", "")?,
            Step::Arrive(n) => writeln!(f, "{:indent$}copies arrive but for {n} groups", "")?,
            Step::Run(stmt) => lines(gpu, stmt, indent, f)?,
            Step::Fetch(stmt) => {
                writeln!(f, "{:indent$}fetch", "")?;
                lines(gpu, stmt, indent + 2, f)?;
            }
        }
    }
    Ok(())
}

fn lines(gpu: &GpuProgram, stmt: &Stmt, indent: usize, f: &mut Formatter<'_>) -> fmt::Result {
    statement(gpu, stmt).lines().try_for_each(|line| writeln!(f, "{:indent$}{line}", ""))
}

/// The text of one statement alone.
fn statement(gpu: &GpuProgram, stmt: &Stmt) -> String {
    let alone = Program { body: vec![stmt.clone()], ..gpu.program.clone() };
    let text = render(&alone, None);
    // The header: the program's name, its buffers, its parameters.
    text.lines().skip(gpu.program.buffers.len() + 2).map(|l| format!("{l}\n")).collect()
}
