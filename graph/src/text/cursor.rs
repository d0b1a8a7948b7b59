//! A place in a list of tokens, and the small steps that grammars are made of.

use ansc_runtime::DType;
use ansc_runtime::tensor::byte_len;

use super::error::{Cause, ParseError};
use super::token::{Placed, Token, expected, tokens};
use crate::compute::TensorType;

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// Reads a text from front to back.
pub struct Cursor {
    tokens: Vec<Placed>,
    at: usize,
    /// Expressions that the reader is inside of.
    pub(super) depth: usize,
    /// Graphs that the reader is inside of.
    pub(super) bodies: usize,
}

impl Cursor {
    /// A cursor at the first token; an error if the text has a character that no token begins with.
    pub fn new(text: &str) -> Result<Cursor> {
        Ok(Cursor { tokens: tokens(text)?, at: 0, depth: 0, bodies: 0 })
    }

    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn peek_second(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].token
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// An error at the next token.
    pub fn error(&self, cause: Cause) -> ParseError {
        let Placed { line, column, .. } = self.tokens[self.at];
        ParseError { line, column, cause }
    }

    /// An error at the next token, which names it and `what` was expected there.
    pub fn expected(&self, what: impl Into<String>) -> ParseError {
        self.error(expected(what, self.peek()))
    }

    /// Whether the next token is this mark.
    pub fn at_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    /// Whether all tokens have been read.
    pub fn at_end(&self) -> bool {
        *self.peek() == Token::End
    }

    /// Whether the next token is this word.
    pub fn at_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(w) if w == word)
    }

    /// The next two tokens are this word and this mark.
    pub fn at_word_then(&self, word: &str, mark: char) -> bool {
        self.at_word(word) && *self.peek_second() == Token::Mark(mark)
    }

    /// Reads this mark if it is next, and tells whether it was.
    pub fn take_mark(&mut self, mark: char) -> bool {
        let found = self.at_mark(mark);
        if found {
            self.next();
        }
        found
    }

    /// Reads this word if it is next, and tells whether it was.
    pub fn take_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.next();
        }
        found
    }

    /// Reads this mark, which must be next.
    pub fn mark(&mut self, mark: char) -> Result<()> {
        if self.take_mark(mark) { Ok(()) } else { Err(self.expected(format!("`{mark}`"))) }
    }

    /// Reads this word, which must be next.
    pub fn keyword(&mut self, word: &str) -> Result<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.expected(format!("`{word}`"))) }
    }

    /// Reads `->`, which must be next.
    pub fn arrow(&mut self) -> Result<()> {
        self.exactly(&Token::Arrow)
    }

    /// Reads `..`, which must be next.
    pub fn range(&mut self) -> Result<()> {
        self.exactly(&Token::Range)
    }

    /// Fails unless all tokens have been read.
    pub fn end(&mut self) -> Result<()> {
        self.exactly(&Token::End)
    }

    fn exactly(&mut self, token: &Token) -> Result<()> {
        if self.peek() != token {
            return Err(self.expected(token.to_string()));
        }
        self.next();
        Ok(())
    }

    /// Reads any word; `what` says for errors which word should be there.
    pub fn word(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Token::Word(word) => {
                let word = word.clone();
                self.next();
                Ok(word)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A word, or anything between quotes.
    pub fn name(&mut self, what: &str) -> Result<String> {
        match self.take_quoted() {
            Some(text) => Ok(text),
            None => self.word(what),
        }
    }

    /// Reads a text between quotes; `what` says for errors which text should be there.
    pub fn quoted(&mut self, what: &str) -> Result<String> {
        match self.take_quoted() {
            Some(text) => Ok(text),
            None => Err(self.expected(what)),
        }
    }

    /// Reads a text between quotes if it is next.
    pub fn take_quoted(&mut self) -> Option<String> {
        let Token::Text(text) = self.peek() else { return None };
        let text = text.clone();
        self.next();
        Some(text)
    }

    /// Reads a number; `what` says for errors which number should be there.
    pub fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let parsed = match self.peek() {
            Token::Number(digits) => digits.parse().ok(),
            _ => None,
        };
        let number = parsed.ok_or_else(|| self.expected(what))?;
        self.next();
        Ok(number)
    }

    /// Items up to `close`, which is taken, with commas between them.
    pub fn list<T>(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Cursor) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.take_mark(close) {
            if !items.is_empty() {
                self.mark(',')?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `[1, 2]`
    pub fn sizes(&mut self) -> Result<Vec<usize>> {
        self.mark('[')?;
        self.list(']', |c| c.number("a size"))
    }

    /// Reads the name of an element type.
    pub fn dtype(&mut self) -> Result<DType> {
        let found = match self.peek() {
            Token::Word(word) => word.parse().ok(),
            _ => None,
        };
        let dtype = found.ok_or_else(|| self.expected("an element type"))?;
        self.next();
        Ok(dtype)
    }

    /// `f32[1, 2]`
    pub fn tensor_type(&mut self) -> Result<TensorType> {
        let start = self.at;
        let ty = TensorType::new(self.dtype()?, self.sizes()?);
        if byte_len(ty.dtype, &ty.shape).is_none() {
            self.at = start;
            return Err(self.error(Cause::TooLarge(ty)));
        }
        Ok(ty)
    }

    /// Goes back to a [`Cursor::place`].
    pub fn go_back(&mut self, place: usize) {
        self.at = place;
    }

    /// Goes back to `place` so that an error points there.
    pub fn error_at(&mut self, place: usize, cause: Cause) -> ParseError {
        self.at = place;
        self.error(cause)
    }

    /// The place of the next token, to go back to.
    pub fn place(&self) -> usize {
        self.at
    }
}
