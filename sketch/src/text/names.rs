//! Names of variables and buffers that are unique in the text of a program.

use std::collections::{BTreeMap, BTreeSet};

use ansc_graph::text::unique;
use ansc_graph::{BufId, VarId};

use crate::program::{Program, Stmt};

pub(crate) struct Names {
    vars: BTreeMap<VarId, String>,
    buffers: Vec<String>,
}

impl Names {
    pub(crate) fn of(program: &Program) -> Names {
        // The word that ends the list of buffers.
        let mut taken = BTreeSet::from(["params".to_owned()]);
        let buffers = program.buffers.iter().map(|b| unique(&mut taken, &b.name)).collect();
        let mut names = Names { vars: BTreeMap::new(), buffers };
        program.body.iter().for_each(|s| names.collect(program, &mut taken, s));
        names
    }

    fn collect(&mut self, program: &Program, taken: &mut BTreeSet<String>, stmt: &Stmt) {
        match stmt {
            Stmt::For(l) => {
                self.var_name(program, taken, l.var);
                l.body.iter().for_each(|s| self.collect(program, taken, s));
            }
            Stmt::Block(b) => b.iters.iter().for_each(|i| self.var_name(program, taken, i.var)),
        }
    }

    fn var_name(&mut self, program: &Program, taken: &mut BTreeSet<String>, var: VarId) {
        let base = program.vars.get(var.index()).map_or("v", String::as_str);
        self.vars.entry(var).or_insert_with(|| unique(taken, base));
    }

    /// A variable that nothing declares is shown by its number.
    pub(crate) fn var(&self, var: VarId) -> String {
        self.vars.get(&var).cloned().unwrap_or_else(|| format!("?{var}"))
    }

    pub(crate) fn buffer(&self, buffer: BufId) -> String {
        self.buffers.get(buffer.index()).cloned().unwrap_or_else(|| format!("?{buffer}"))
    }
}

impl ansc_graph::text::Names for Names {
    fn var(&self, var: VarId) -> String {
        Names::var(self, var)
    }

    fn buffer(&self, buffer: BufId) -> String {
        Names::buffer(self, buffer)
    }
}
