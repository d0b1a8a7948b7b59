//! Kinds of computes, as the first word of their nodes.
//!
//! ```text
//! map    transpose[1, 0]    reduce[1] keep    other["Gelu"]
//! conv[channels first, kernel [3, 3], strides [1, 1], dilations [1, 1], pads [1, 1] [1, 1], groups 1]
//! ```

use std::fmt::{self, Write};

use super::cursor::{Cursor, Result};
use super::token::Quoted;
use crate::op::{Channels, ConvAttrs, Kind, PoolAttrs, PoolMode};

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self)
    }
}

pub(super) fn print(out: &mut dyn Write, kind: &Kind) -> fmt::Result {
    match kind {
        Kind::Map => out.write_str("map"),
        Kind::Reshape => out.write_str("reshape"),
        Kind::Transpose(perm) => write!(out, "transpose{perm:?}"),
        Kind::Conv(a) => {
            let window = Window {
                channels: a.channels,
                kernel: &a.kernel,
                strides: &a.strides,
                dilations: &a.dilations,
                pads_begin: &a.pads_begin,
                pads_end: &a.pads_end,
            };
            write!(out, "conv[{window}, groups {}", a.groups)?;
            if a.input != a.channels {
                write!(out, ", input {}", name_of(a.input))?;
            }
            out.write_str("]")
        }
        Kind::MatMul => out.write_str("matmul"),
        Kind::Pool(a) => {
            let window = Window {
                channels: a.channels,
                kernel: &a.kernel,
                strides: &a.strides,
                dilations: &a.dilations,
                pads_begin: &a.pads_begin,
                pads_end: &a.pads_end,
            };
            write!(out, "pool[{window}, {}]", mode_name(a.mode))
        }
        Kind::Reduce { axes, keep } => {
            write!(out, "reduce{axes:?}{}", if *keep { " keep" } else { "" })
        }
        Kind::Concat { axis } => write!(out, "concat[{axis}]"),
        Kind::Pad => out.write_str("pad"),
        Kind::Slice => out.write_str("slice"),
        Kind::Softmax { axis } => write!(out, "softmax[{axis}]"),
        Kind::Other(name) => write!(out, "other[{}]", Quoted(name)),
    }
}

/// The attributes that convolutions and pools have in common.
struct Window<'a> {
    channels: Channels,
    kernel: &'a [usize],
    strides: &'a [usize],
    dilations: &'a [usize],
    pads_begin: &'a [usize],
    pads_end: &'a [usize],
}

impl fmt::Display for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = name_of(self.channels);
        write!(f, "channels {channels}, kernel {:?}, strides {:?}, ", self.kernel, self.strides)?;
        write!(f, "dilations {:?}, pads {:?} {:?}", self.dilations, self.pads_begin, self.pads_end)
    }
}

fn name_of(channels: Channels) -> &'static str {
    match channels {
        Channels::First => "first",
        Channels::Last => "last",
    }
}

const MODES: [PoolMode; 3] = [
    PoolMode::Max,
    PoolMode::Average { count_padding: false },
    PoolMode::Average { count_padding: true },
];

fn mode_name(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Max => "max",
        PoolMode::Average { count_padding: false } => "average",
        PoolMode::Average { count_padding: true } => "average_with_padding",
    }
}

/// `None` where the next word is no kind; nothing is taken then.
pub(super) fn read(cursor: &mut Cursor) -> Result<Option<Kind>> {
    let simple = [
        ("map", Kind::Map),
        ("reshape", Kind::Reshape),
        ("matmul", Kind::MatMul),
        ("pad", Kind::Pad),
        ("slice", Kind::Slice),
    ];
    for (word, kind) in simple {
        if cursor.take_word(word) {
            return Ok(Some(kind));
        }
    }
    with_attributes(cursor)
}

fn with_attributes(cursor: &mut Cursor) -> Result<Option<Kind>> {
    let kind = if cursor.take_word("transpose") {
        Kind::Transpose(cursor.sizes()?)
    } else if cursor.take_word("conv") {
        conv(cursor)?
    } else if cursor.take_word("pool") {
        pool(cursor)?
    } else if cursor.take_word("reduce") {
        Kind::Reduce { axes: cursor.sizes()?, keep: cursor.take_word("keep") }
    } else if cursor.take_word("concat") {
        Kind::Concat { axis: axis(cursor)? }
    } else if cursor.take_word("softmax") {
        Kind::Softmax { axis: axis(cursor)? }
    } else if cursor.take_word("other") {
        cursor.mark('[')?;
        let name = cursor.quoted("a name between quotes")?;
        cursor.mark(']')?;
        Kind::Other(name)
    } else {
        return Ok(None);
    };
    Ok(Some(kind))
}

fn axis(cursor: &mut Cursor) -> Result<usize> {
    cursor.mark('[')?;
    let axis = cursor.number("an axis")?;
    cursor.mark(']')?;
    Ok(axis)
}

fn conv(cursor: &mut Cursor) -> Result<Kind> {
    cursor.mark('[')?;
    let (channels, [kernel, strides, dilations, pads_begin, pads_end]) = window(cursor)?;
    cursor.keyword("groups")?;
    let groups = cursor.number("a number of groups")?;
    let input = match cursor.take_mark(',') {
        true => {
            cursor.keyword("input")?;
            layout(cursor)?
        }
        false => channels,
    };
    cursor.mark(']')?;
    Ok(Kind::Conv(ConvAttrs {
        channels,
        input,
        kernel,
        strides,
        dilations,
        pads_begin,
        pads_end,
        groups,
    }))
}

fn pool(cursor: &mut Cursor) -> Result<Kind> {
    cursor.mark('[')?;
    let (channels, [kernel, strides, dilations, pads_begin, pads_end]) = window(cursor)?;
    let mode = MODES.into_iter().find(|mode| cursor.take_word(mode_name(*mode)));
    let mode = mode.ok_or_else(|| cursor.expected("`max`, `average` or `average_with_padding`"))?;
    cursor.mark(']')?;
    Ok(Kind::Pool(PoolAttrs { channels, mode, kernel, strides, dilations, pads_begin, pads_end }))
}

fn layout(cursor: &mut Cursor) -> Result<Channels> {
    if cursor.take_word("first") {
        return Ok(Channels::First);
    }
    cursor.keyword("last")?;
    Ok(Channels::Last)
}

/// Up to and with the comma after the pads.
fn window(cursor: &mut Cursor) -> Result<(Channels, [Vec<usize>; 5])> {
    cursor.keyword("channels")?;
    let channels = layout(cursor)?;
    cursor.mark(',')?;
    let mut list = |word: &str| {
        cursor.keyword(word)?;
        let sizes = cursor.sizes()?;
        if word != "pads" {
            cursor.mark(',')?;
        }
        Ok(sizes)
    };
    let [kernel, strides, dilations, pads_begin] =
        [list("kernel")?, list("strides")?, list("dilations")?, list("pads")?];
    let pads_end = cursor.sizes()?;
    cursor.mark(',')?;
    Ok((channels, [kernel, strides, dilations, pads_begin, pads_end]))
}
