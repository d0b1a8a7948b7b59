//! Reading programs.

use std::collections::BTreeMap;

use ansc_graph::text::{Cause, Cursor, ParseError, Scope as Declared, read_expr};
use ansc_graph::{BufId, Combiner, Expr, VarId};

use crate::program::{
    Access, Ahead, Align, Block, Body, Buffer, For, ForKind, Iter, IterKind, Program, Scope,
    Shared, Stmt, ThreadAxis,
};

type Result<T> = std::result::Result<T, ParseError>;

/// Loops inside of each other.
const MAX_DEPTH: usize = 200;

const SCOPES: [Scope; 6] =
    [Scope::Input, Scope::Output, Scope::Global, Scope::Local, Scope::Shared, Scope::Fragment];

const KINDS: [ForKind; 14] = [
    ForKind::Parallel,
    ForKind::Vectorized,
    ForKind::Unrolled,
    ForKind::Pipelined(Ahead::ALL[0]),
    ForKind::Pipelined(Ahead::ALL[1]),
    ForKind::Pipelined(Ahead::ALL[2]),
    ForKind::Pipelined(Ahead::ALL[3]),
    ForKind::Bound(ThreadAxis::BlockX),
    ForKind::Bound(ThreadAxis::BlockY),
    ForKind::Bound(ThreadAxis::BlockZ),
    ForKind::Bound(ThreadAxis::ThreadX),
    ForKind::Bound(ThreadAxis::ThreadY),
    ForKind::Bound(ThreadAxis::ThreadZ),
    ForKind::Bound(ThreadAxis::Virtual),
];

impl Program {
    /// Reads what `Display` writes. Variables get numbers in the order in which they appear.
    pub fn parse(text: &str) -> Result<Program> {
        let mut reader = Reader {
            cursor: Cursor::new(text)?,
            names: Names::default(),
            program: Program::new(""),
            depth: 0,
        };
        reader.head()?;
        while !reader.cursor.at_end() {
            let stmt = reader.stmt()?;
            reader.program.body.push(stmt);
        }
        Ok(reader.program)
    }
}

#[derive(Default)]
struct Names {
    vars: BTreeMap<String, VarId>,
    buffers: BTreeMap<String, BufId>,
}

impl Declared for Names {
    fn var(&self, name: &str) -> Option<VarId> {
        self.vars.get(name).copied()
    }

    fn buffer(&self, name: &str) -> Option<BufId> {
        self.buffers.get(name).copied()
    }
}

struct Reader {
    cursor: Cursor,
    names: Names,
    program: Program,
    depth: usize,
}

impl Reader {
    /// The name, the buffers, and which of them are parameters.
    fn head(&mut self) -> Result<()> {
        self.cursor.keyword("program")?;
        self.program.name = self.cursor.name("the name of the program")?;
        while !self.cursor.take_word("params") {
            self.buffer()?;
        }
        // A statement may begin right after an empty list.
        while let Some(param) = self.next_param()? {
            self.program.params.push(param);
            if !self.cursor.take_mark(',') {
                break;
            }
        }
        Ok(())
    }

    fn buffer(&mut self) -> Result<()> {
        let place = self.cursor.place();
        let name = self.cursor.word("a buffer, or `params`")?;
        self.cursor.mark(':')?;
        let ty = self.cursor.tensor_type()?;
        let scope = SCOPES.into_iter().find(|s| self.cursor.take_word(&s.to_string()));
        let scope = scope.ok_or_else(|| self.cursor.expected("the scope of the buffer"))?;
        let id = BufId::new(self.program.buffers.len());
        if self.names.buffers.insert(name.clone(), id).is_some() {
            let cause = Cause::Duplicate { what: "buffer", name };
            return Err(self.cursor.error_at(place, cause));
        }
        let align = self.align()?;
        self.program.buffers.push(Buffer { name, ty, scope, align });
        Ok(())
    }

    /// `align(0, 32, 8)`, or nothing.
    fn align(&mut self) -> Result<Option<Align>> {
        if !self.cursor.at_word_then("align", '(') {
            return Ok(None);
        }
        self.cursor.keyword("align")?;
        self.cursor.mark('(')?;
        let numbers = self.cursor.list(')', |c| c.number("a number"))?;
        match numbers[..] {
            [axis, factor, offset] => Ok(Some(Align { axis, factor, offset })),
            _ => Err(self.cursor.expected("an axis, a factor and an offset")),
        }
    }

    fn next_param(&mut self) -> Result<Option<BufId>> {
        let is_first = self.program.params.is_empty();
        if is_first && (self.cursor.at_end() || self.at_stmt()) {
            return Ok(None);
        }
        let place = self.cursor.place();
        let name = self.cursor.word("the name of a buffer")?;
        match self.names.buffer(&name) {
            Some(buffer) => Ok(Some(buffer)),
            None => {
                let cause = Cause::Unknown { what: "buffer", name };
                Err(self.cursor.error_at(place, cause))
            }
        }
    }

    fn at_stmt(&self) -> bool {
        self.cursor.at_word("for") || self.cursor.at_word("block")
    }

    fn declare(&mut self) -> Result<VarId> {
        let place = self.cursor.place();
        let name = self.cursor.word("the name of a variable")?;
        let var = self.program.add_var(name.clone());
        if self.names.vars.insert(name.clone(), var).is_some() {
            let cause = Cause::Duplicate { what: "variable", name };
            return Err(self.cursor.error_at(place, cause));
        }
        Ok(var)
    }

    fn stmt(&mut self) -> Result<Stmt> {
        if self.depth == MAX_DEPTH {
            return Err(self.cursor.error(Cause::TooDeep));
        }
        self.depth += 1;
        let stmt = if self.cursor.take_word("for") {
            self.for_loop().map(|l| Stmt::For(Shared::new(l)))
        } else if self.cursor.take_word("block") {
            self.block().map(|b| Stmt::Block(Shared::new(b)))
        } else {
            Err(self.cursor.expected("`for` or `block`"))
        };
        self.depth -= 1;
        stmt
    }

    /// `i in 0..4 parallel { .. }`
    fn for_loop(&mut self) -> Result<For> {
        let var = self.declare()?;
        self.cursor.keyword("in")?;
        if self.cursor.number::<usize>("`0`")? != 0 {
            return Err(self.cursor.expected("a range from 0"));
        }
        self.cursor.range()?;
        let extent = self.cursor.number("an extent")?;
        let kind = match self.tensor()? {
            None => KINDS.into_iter().find(|k| self.cursor.take_word(&k.to_string())),
            tensor => tensor,
        };
        if self.cursor.take_word("while") {
            let condition = self.expr()?;
            self.program.needs.push((var, condition));
        }
        self.cursor.mark('{')?;
        let mut body = vec![];
        while !self.cursor.take_mark('}') {
            body.push(self.stmt()?);
        }
        Ok(For { var, extent, kind: kind.unwrap_or(ForKind::Serial), body })
    }

    /// `tensor(amx_zero_16)`, or nothing.
    fn tensor(&mut self) -> Result<Option<ForKind>> {
        if !self.cursor.at_word_then("tensor", '(') {
            return Ok(None);
        }
        self.cursor.keyword("tensor")?;
        self.cursor.mark('(')?;
        let place = self.cursor.place();
        let name = self.cursor.word("the name of an intrinsic")?;
        let Some(intrinsic) = crate::intrinsic::find(&name) else {
            return Err(self.cursor.error_at(place, Cause::Unknown { what: "intrinsic", name }));
        };
        self.cursor.mark(')')?;
        Ok(Some(ForKind::Tensor(intrinsic.name())))
    }

    /// `mm (vi: spatial 4 = i) { where .. body }`
    fn block(&mut self) -> Result<Block> {
        let name = self.cursor.name("the name of the block")?;
        self.cursor.mark('(')?;
        let mut iters = vec![];
        while !self.cursor.take_mark(')') {
            if !iters.is_empty() {
                self.cursor.mark(',')?;
            }
            iters.push(self.iter()?);
        }
        self.cursor.mark('{')?;
        let guarded = !self.cursor.at_word_then("where", '[') && self.cursor.take_word("where");
        let predicate = if guarded { Some(self.expr()?) } else { None };
        let body = self.body()?;
        self.cursor.mark('}')?;
        Ok(Block { name, iters, predicate, body })
    }

    fn iter(&mut self) -> Result<Iter> {
        let var = self.declare()?;
        self.cursor.mark(':')?;
        let kind = if self.cursor.take_word("spatial") {
            IterKind::Spatial
        } else {
            self.cursor.keyword("reduce")?;
            IterKind::Reduce
        };
        let extent = self.cursor.number("an extent")?;
        self.cursor.mark('=')?;
        Ok(Iter { var, extent, kind, binding: self.expr()? })
    }

    fn body(&mut self) -> Result<Body> {
        let init = !self.cursor.at_word_then("init", '[') && self.cursor.take_word("init");
        if self.cursor.take_mark('(') {
            return self.arg_reduce(init);
        }
        let dst = self.access()?;
        let combiner = self.combiner();
        self.cursor.mark('=')?;
        let value = self.expr()?;
        match combiner {
            Some(combiner) => Ok(Body::Reduce { combiner, dst, value, init }),
            None if !init => Ok(Body::Assign { dst, value }),
            None => Err(self.cursor.expected("a reduction after `init`")),
        }
    }

    /// `best[i], position[i]) argmax= (value, term)`
    fn arg_reduce(&mut self, init: bool) -> Result<Body> {
        let best = self.access()?;
        self.cursor.mark(',')?;
        let position = self.access()?;
        self.cursor.mark(')')?;
        let combiner = self.combiner();
        let combiner = combiner.ok_or_else(|| self.cursor.expected("a combiner"))?;
        self.cursor.mark('=')?;
        self.cursor.mark('(')?;
        let value = self.expr()?;
        self.cursor.mark(',')?;
        let term = self.expr()?;
        self.cursor.mark(')')?;
        Ok(Body::ArgReduce { combiner, best, position, value, term, init })
    }

    fn combiner(&mut self) -> Option<Combiner> {
        Combiner::ALL.into_iter().find(|c| self.cursor.take_word(c.name()))
    }

    fn access(&mut self) -> Result<Access> {
        let place = self.cursor.place();
        match self.expr()? {
            Expr::Load(buffer, indices) => Ok(Access { buffer, indices }),
            _ => {
                self.cursor.go_back(place);
                Err(self.cursor.expected("an element of a buffer"))
            }
        }
    }

    fn expr(&mut self) -> Result<Expr> {
        read_expr(&mut self.cursor, &self.names)
    }
}
