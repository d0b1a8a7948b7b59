//! Text to tokens.

use std::fmt::{self, Display, Formatter, Write};

use super::error::{Cause, ParseError};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A word: a letter or underscore, then letters, digits and underscores.
    Word(String),
    /// Starts with a digit, or a sign: `3`, `-1.5e-7_f32`, `-inf_f16`, `0x1f`.
    Number(String),
    Text(String),
    Mark(char),
    /// `->`
    Arrow,
    /// `..`
    Range,
    End,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// As it is shown in errors.
impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Number(text) => write!(f, "`{text}`"),
            Token::Text(text) => write!(f, "{}", Quoted(text)),
            Token::Mark(c) => write!(f, "`{c}`"),
            Token::Arrow => f.write_str("`->`"),
            Token::Range => f.write_str("`..`"),
            Token::End => f.write_str("the end"),
        }
    }
}

/// A name between quotes, with quotes, backslashes and control characters escaped.
pub struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A name as it is, if it is a word; otherwise between quotes.
pub struct Label<'a>(pub &'a str);

impl Display for Label<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_word(self.0) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

pub(super) fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(starts_word) && chars.all(continues_word)
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut lexer = Lexer { rest: text, line: 1, column: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let (line, column) = (lexer.line, lexer.column);
        let token = lexer.token().map_err(|cause| ParseError { line, column, cause })?;
        let done = token == Token::End;
        tokens.push(Placed { token, line, column });
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    column: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn second(&self) -> Option<char> {
        self.rest.chars().nth(1)
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        (self.line, self.column) =
            if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        Some(c)
    }

    /// Blanks, and comments: from `//` to the end of the line.
    fn skip_blank(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) || self.rest.starts_with("//") {
            if self.peek() == Some('/') {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else {
                self.next();
            }
        }
    }

    fn token(&mut self) -> Result<Token, Cause> {
        let Some(c) = self.peek() else { return Ok(Token::End) };
        match c {
            '"' => self.quoted().map(Token::Text),
            '-' if self.second() == Some('>') => Ok(self.pair(Token::Arrow)),
            '.' if self.second() == Some('.') => Ok(self.pair(Token::Range)),
            '-' if self.second().is_some_and(char::is_alphanumeric) => Ok(self.number()),
            c if c.is_ascii_digit() => Ok(self.number()),
            c if starts_word(c) => Ok(Token::Word(self.word())),
            c => {
                self.next();
                Ok(Token::Mark(c))
            }
        }
    }

    fn pair(&mut self, token: Token) -> Token {
        self.next();
        self.next();
        token
    }

    fn word(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| continues_word(*c)) {
            text.push(c);
            self.next();
        }
        text
    }

    /// A sign, then letters, digits, underscores and points (but no `..`), and the signs of decimal
    /// exponents.
    fn number(&mut self) -> Token {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            let sign = match text.chars().last() {
                None => c == '-',
                Some(last) => last == 'e' && matches!(c, '-' | '+'),
            };
            let point = c == '.' && self.second() != Some('.');
            if !(sign || point || continues_word(c)) {
                break;
            }
            text.push(c);
            self.next();
        }
        Token::Number(text)
    }

    fn quoted(&mut self) -> Result<String, Cause> {
        let mut text = String::new();
        self.next();
        loop {
            match self.next().ok_or_else(|| expected("a closing quote", &Token::End))? {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Cause> {
        match self.next() {
            Some('n') => Ok('\n'),
            Some('u') => self.code_point(),
            Some(c @ ('"' | '\\')) => Ok(c),
            other => Err(expected("an escape", &other.map_or(Token::End, Token::Mark))),
        }
    }

    /// `{1f}`
    fn code_point(&mut self) -> Result<char, Cause> {
        let closed = self.rest.strip_prefix('{').and_then(|r| r.split_once('}'));
        let code = closed.map(|(digits, _)| digits.to_owned()).unwrap_or_default();
        let c = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
        let c = c.ok_or_else(|| expected("a code point in braces", &Token::Word(code.clone())))?;
        (0..code.chars().count() + 2).for_each(|_| {
            self.next();
        });
        Ok(c)
    }
}

pub(super) fn expected(what: impl Into<String>, found: &Token) -> Cause {
    Cause::Expected { expected: what.into(), found: found.to_string() }
}
