pub struct Request { pub bytes: usize, pub first: usize, pub last: usize }
pub struct Plan { pub offsets: Vec<usize>, pub peak: usize, pub sum: usize }
pub fn plan(r: &[Request], align: usize) -> Plan {
    let mut offsets = vec![]; let mut at = 0usize;
    for q in r { let _ = (q.first, q.last); offsets.push(at); at = (at + q.bytes).next_multiple_of(align); }
    Plan { offsets, peak: at, sum: at }
}
