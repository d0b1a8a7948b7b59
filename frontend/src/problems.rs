//! The problems of an import: each once, and no more than anyone reads.

use std::collections::HashSet;

use crate::problem::Problem;

/// More are not listed, and what comes after them is not imported.
const MAX_PROBLEMS: usize = 1000;

#[derive(Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    seen: HashSet<Problem>,
    /// Why the whole import ended early. No attempt takes it back.
    stop: Option<Problem>,
}

impl Problems {
    /// Records a problem, but one that follows from another.
    pub(crate) fn push(&mut self, problem: Problem) {
        if problem.is_silent() || self.list.len() >= MAX_PROBLEMS {
            return;
        }
        if self.seen.insert(problem.clone()) {
            self.list.push(problem);
        }
    }

    /// Ends the import: nothing that is still to be done can succeed.
    pub(crate) fn stop(&mut self, problem: Problem) {
        self.stop.get_or_insert(problem);
    }

    /// Whether to import nothing more.
    pub(crate) fn ended(&self) -> bool {
        self.stop.is_some() || self.list.len() >= MAX_PROBLEMS
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes back all but the first `len`.
    pub(crate) fn split_off(&mut self, len: usize) -> Vec<Problem> {
        let taken = self.list.split_off(len);
        taken.iter().for_each(|problem| _ = self.seen.remove(problem));
        taken
    }

    pub(crate) fn into_list(self) -> Vec<Problem> {
        let mut list = self.list;
        if list.len() >= MAX_PROBLEMS {
            list.push(Problem::new(format!("there are more than {MAX_PROBLEMS} problems")));
        }
        list.extend(self.stop);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_once_until_there_are_too_many() {
        let mut problems = Problems::default();
        for i in 0..2 * MAX_PROBLEMS {
            problems.push(Problem::new((i / 2).to_string()));
            problems.push(Problem::silent());
        }
        assert!(problems.ended() && problems.len() == MAX_PROBLEMS);
        assert_eq!(problems.split_off(1).len(), MAX_PROBLEMS - 1);
        problems.push(Problem::new("1"));
        problems.stop(Problem::new("no more"));
        let texts: Vec<String> = problems.into_list().into_iter().map(|p| p.reason).collect();
        assert_eq!(texts, ["0", "1", "no more"]);
    }
}
