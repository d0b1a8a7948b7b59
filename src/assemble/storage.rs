//! Which memory every buffer gets.
//!
//! Buffers that share memory form a class; a class is fixed (caller's memory, weights) or planned
//! into the arena by its lifetime: from the first step that touches it to the last. A buffer that
//! lives outside a loop and is touched inside lives until the loop ends, since the next iteration
//! touches it again.

use ansc_graph::memory::{self, Request};
use ansc_runtime::manifest::{BufferId, BufferInfo, LoopStep, Plan, Step, Storage};
use ansc_runtime::tensor::{ALIGN, byte_len};

use super::Draft;

/// Union-find over buffers; the root of a class carries its fixed storage.
#[derive(Default)]
pub struct Classes {
    parent: Vec<u32>,
    storage: Vec<Option<Storage>>,
}

impl Classes {
    pub(super) fn add(&mut self) {
        self.parent.push(self.parent.len() as u32);
        self.storage.push(None);
    }

    fn root(&self, buffer: BufferId) -> usize {
        let mut at = buffer.0;
        while self.parent[at as usize] != at {
            at = self.parent[at as usize];
        }
        at as usize
    }

    /// Puts `view`, a class of its own without storage, into the class of `of`.
    pub(super) fn join(&mut self, view: BufferId, of: BufferId) {
        let (view, of) = (self.root(view), self.root(of));
        self.parent[view] = of as u32;
    }

    pub(super) fn same(&self, a: BufferId, b: BufferId) -> bool {
        self.root(a) == self.root(b)
    }

    pub(super) fn fix(&mut self, buffer: BufferId, storage: Storage) {
        let root = self.root(buffer);
        self.storage[root] = Some(storage);
    }

    pub(super) fn fixed(&self, buffer: BufferId) -> Option<Storage> {
        self.storage[self.root(buffer)]
    }

    /// All fixed storage, and what is fixed in its place.
    pub(super) fn all_fixed(&mut self) -> impl Iterator<Item = &mut Option<Storage>> {
        self.storage.iter_mut().filter(|storage| storage.is_some())
    }
}

/// Bytes of the planned arena, and what it would be without reuse.
struct Arena {
    bytes: usize,
    without_reuse: usize,
}

/// Decides `storage` of every buffer, and with it the size of the arena.
pub fn place(draft: &mut Draft) {
    let Draft { specialisation: s, classes } = draft;
    let arena = place_buffers(&mut s.buffers, classes, &s.plan);
    (s.arena_bytes, s.arena_bytes_without_reuse) = (arena.bytes, arena.without_reuse);
}

fn place_buffers(buffers: &mut [BufferInfo], classes: &Classes, plan: &Plan) -> Arena {
    let lives = Lives::of(plan, classes, buffers.len());
    let mut requests = Vec::new();
    let mut request_of = vec![None; buffers.len()];
    for (root, life) in lives.spans.iter().enumerate() {
        if let (Some((first, last)), None) = (life, classes.storage[root]) {
            request_of[root] = Some(requests.len());
            requests.push(Request {
                bytes: class_bytes(buffers, classes, root),
                first: *first,
                last: *last,
            });
        }
    }
    let planned = memory::plan(&requests, ALIGN);
    for (i, buffer) in buffers.iter_mut().enumerate() {
        let root = classes.root(BufferId(i as u32));
        let offset = request_of[root].map_or(0, |r| planned.offsets[r]);
        buffer.storage = classes.storage[root].unwrap_or(Storage::Arena { offset });
    }
    Arena { bytes: planned.peak, without_reuse: planned.sum }
}

fn class_bytes(buffers: &[BufferInfo], classes: &Classes, root: usize) -> usize {
    let members = (0..buffers.len()).filter(|&i| classes.root(BufferId(i as u32)) == root);
    let bytes = members.map(|i| {
        byte_len(buffers[i].dtype, &buffers[i].shape).expect("sizes were checked at import")
    });
    bytes.max().unwrap_or(0)
}

/// First and last touch of each class, in a numbering of all steps, nested ones too.
struct Lives<'a> {
    classes: &'a Classes,
    spans: Vec<Option<(usize, usize)>>,
    clock: usize,
}

impl Lives<'_> {
    fn of<'a>(plan: &Plan, classes: &'a Classes, buffers: usize) -> Lives<'a> {
        let mut lives = Lives { classes, spans: vec![None; buffers], clock: 0 };
        lives.plan(plan);
        lives
    }

    fn touch(&mut self, buffer: BufferId) {
        let now = self.clock;
        let span = &mut self.spans[self.classes.root(buffer)];
        *span = Some(span.map_or((now, now), |(first, _)| (first, now)));
    }

    fn touch_all<'b>(&mut self, buffers: impl IntoIterator<Item = &'b BufferId>) {
        buffers.into_iter().for_each(|b| self.touch(*b));
    }

    fn plan(&mut self, plan: &Plan) {
        for step in &plan.steps {
            self.clock += 1;
            match step {
                Step::Kernel { args, .. } => self.touch_all(args),
                Step::Host { inputs, outputs, .. } => self.touch_all(inputs.iter().chain(outputs)),
                Step::Copy { from, to } => self.touch_all([from, to]),
                Step::If { condition, then_plan, else_plan, .. } => {
                    self.touch(*condition);
                    self.plan(then_plan);
                    self.plan(else_plan);
                }
                Step::Loop(l) => self.repeat(l),
            }
        }
    }

    fn repeat(&mut self, l: &LoopStep) {
        let start = self.clock;
        self.touch_loop(l);
        self.plan(&l.body);
        self.clock += 1;
        self.touch_loop(l);
        self.touch_all(&l.carried_out);
        self.touch_all(&l.condition_out);
        self.touch_all(l.scan_outputs.iter().map(|s| &s.slice));
        let end = self.clock;
        for (first, last) in self.spans.iter_mut().flatten() {
            if *first <= start && *last > start {
                *last = end;
            }
        }
    }

    /// Touches the buffers that the loop itself reads and writes between iterations.
    fn touch_loop(&mut self, l: &LoopStep) {
        self.touch_all(
            l.trip.iter().chain(&l.condition).chain(&l.iteration).chain(&l.condition_in),
        );
        self.touch_all(l.initial.iter().chain(&l.carried_in).chain(&l.results));
        self.touch_all(l.scan_inputs.iter().flat_map(|s| [&s.whole, &s.slice]));
        self.touch_all(l.scan_outputs.iter().map(|s| &s.whole));
    }
}

#[cfg(test)]
mod tests {
    use ansc_runtime::DType;

    use super::*;

    fn buffer(bytes: usize) -> BufferInfo {
        let storage = Storage::Arena { offset: usize::MAX };
        BufferInfo { name: String::new(), dtype: DType::U8, shape: vec![bytes], storage }
    }

    fn copy(from: u32, to: u32) -> Step {
        Step::Copy { from: BufferId(from), to: BufferId(to) }
    }

    fn classes(n: usize) -> Classes {
        let mut classes = Classes::default();
        (0..n).for_each(|_| classes.add());
        classes
    }

    fn offset(b: &BufferInfo) -> usize {
        let Storage::Arena { offset } = b.storage else { panic!("in the arena") };
        offset
    }

    #[test]
    fn dead_buffers_give_their_memory_back() {
        let mut buffers: Vec<_> = (0..4).map(|_| buffer(64)).collect();
        let plan = Plan { steps: vec![copy(0, 1), copy(1, 2), copy(2, 3)] };
        let arena = place_buffers(&mut buffers, &classes(4), &plan);
        assert_eq!((arena.bytes, arena.without_reuse), (128, 256));
        assert_ne!(offset(&buffers[1]), offset(&buffers[2]));
    }

    #[test]
    fn captured_buffers_live_as_long_as_the_loop() {
        let mut buffers: Vec<_> = (0..3).map(|_| buffer(64)).collect();
        let body = Plan { steps: vec![copy(0, 1), copy(1, 2)] };
        let step = LoopStep {
            name: String::new(),
            max_trip: 2,
            trip: None,
            condition: None,
            iteration: None,
            condition_in: None,
            condition_out: None,
            initial: vec![],
            carried_in: vec![],
            carried_out: vec![],
            results: vec![],
            scan_inputs: vec![],
            scan_outputs: vec![],
            body,
        };
        let plan = Plan { steps: vec![copy(0, 0), Step::Loop(Box::new(step))] };
        place_buffers(&mut buffers, &classes(3), &plan);
        // Without the loop, buffer 2 could take the memory of buffer 0 after its last read.
        assert!(
            offset(&buffers[2]) != offset(&buffers[0])
                && offset(&buffers[1]) != offset(&buffers[0])
        );
    }
}
