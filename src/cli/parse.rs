//! Parsing of `NAME=VALUE` arguments, shares and times.

use std::time::Duration;

use ansc_runtime::Precision;
use ansc_runtime::pool::MOST_THREADS;
use ansc_tuner::scheduler::{Objective, Policy};
use ansc_tuner::{model, strategy};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{Extent, Given, InputFile, PrecisionOf, Sizes, Wanted};
use crate::literal::Literal;
use crate::quantize::Calibration;
use crate::sizes::Span;

fn split_pair(text: &str) -> Result<(&str, &str), String> {
    // Names of ONNX values may themselves hold `=`; sizes and file names rarely do.
    text.rsplit_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not NAME=VALUE"))
}

pub(super) fn parse_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, shape) = split_pair(text)?;
    if shape.is_empty() {
        return Ok((name.into(), Vec::new()));
    }
    let dims =
        shape.split('x').map(|d| d.parse().map_err(|_| format!("`{d}` in `{text}` is not a size")));
    Ok((name.into(), dims.collect::<Result<_, _>>()?))
}

pub(super) fn parse_dim(text: &str) -> Result<(String, Sizes), String> {
    if let Some(flags) = several_dims(text) {
        return Err(format!("each dimension takes an option of its own: {flags}"));
    }
    let (name, sizes) = split_pair(text)?;
    let spans = sizes.split(',').map(parse_span).collect::<Result<Vec<Span>, _>>()?;
    let ends = |span: &Span| match *span {
        Span::One(size) => (size, size),
        Span::Range(low, high) => (low, high),
    };
    let meet = |a: (usize, usize), b: (usize, usize)| a.0 <= b.1 && b.0 <= a.1;
    for (i, span) in spans.iter().enumerate() {
        if let Some(other) = spans[..i].iter().find(|other| meet(ends(span), ends(other))) {
            return Err(format!("`{text}` has {} twice", ends(span).0.max(ends(other).0)));
        }
    }
    Ok((name.into(), Sizes(spans)))
}

/// Sizes, or what a dimension follows from.
pub(super) fn parse_extent(text: &str) -> Result<(String, Extent), String> {
    let follows = |(name, value): &(&str, &str)| {
        let is_of_names = |c: char| c.is_alphanumeric() || "_.: ()+-*/".contains(c);
        name != value && value.contains(char::is_alphabetic) && value.chars().all(is_of_names)
    };
    match split_pair(text).ok().filter(follows) {
        Some((name, value)) => Ok((name.into(), Extent::Follows(value.into()))),
        None => parse_dim(text).map(|(name, sizes)| (name, Extent::Sizes(sizes))),
    }
}

pub(super) fn parse_most(text: &str) -> Result<(String, usize), String> {
    let (name, most) = split_pair(text)?;
    Ok((name.into(), parse_count(most)?))
}

/// `16`, or `1..512`, which has both ends.
fn parse_span(text: &str) -> Result<Span, String> {
    let size = |size: &str| size.parse().map_err(|_| format!("`{size}` is not a size"));
    let Some((low, high)) = text.split_once("..") else { return Ok(Span::One(size(text)?)) };
    let (low, high) = (size(low)?, size(high)?);
    if low > high {
        return Err(format!("`{text}` is no range: it begins above its end"));
    }
    Ok(Span::Range(low, high))
}

/// `a=1,b=2` as `--dim a=1 --dim b=2`.
fn several_dims(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split(',').collect();
    let is_dim = |part: &&str| {
        part.split_once('=').is_some_and(|(name, n)| !name.is_empty() && n.parse::<usize>().is_ok())
    };
    let flags = parts.iter().map(|part| format!("--dim {part}"));
    (parts.len() > 1 && parts.iter().all(is_dim)).then(|| flags.collect::<Vec<_>>().join(" "))
}

pub(super) fn parse_threads(text: &str) -> Result<usize, String> {
    let number = || format!("`{text}` is not a number of threads");
    match text.parse().map_err(|_| number())? {
        threads if threads > MOST_THREADS => {
            Err(format!("{threads} threads are too many: {MOST_THREADS} at most"))
        }
        threads => Ok(threads),
    }
}

pub(super) fn parse_precision(text: &str) -> Result<PrecisionOf, String> {
    let (node, name) = match text.contains('=') {
        true => split_pair(text).map(|(node, name)| (Some(node.to_owned()), name))?,
        false => (None, text),
    };
    let precision = match name {
        "auto" => Wanted::Auto,
        name => Wanted::Is(name.parse::<Precision>().map_err(|e| format!("{e}, auto"))?),
    };
    Ok(PrecisionOf { node, precision })
}

/// `latency`, `requirement=5,20` in milliseconds, `speedup`, or `early-stopping=100`.
pub(super) fn parse_objective(text: &str) -> Result<Objective, String> {
    let wrong = || {
        format!("`{text}` is none of latency, requirement=MS,.., speedup and early-stopping=TRIALS")
    };
    match text.split_once('=') {
        None if text == "latency" => Ok(Objective::Latency),
        // Speedups over what does not matter: only their ratios do.
        None if text == "speedup" => Ok(Objective::Speedup(vec![])),
        Some(("requirement", all)) => {
            let seconds = |ms: &str| match ms.parse::<f64>() {
                Ok(ms) if ms > 0.0 && ms.is_finite() => Ok(ms * 1e-3),
                _ => Err(format!("`{ms}` in `{text}` is no number of milliseconds")),
            };
            Ok(Objective::Requirement(all.split(',').map(seconds).collect::<Result<_, _>>()?))
        }
        Some(("early-stopping", trials)) => {
            Ok(Objective::EarlyStopping(trials.parse().map_err(|_| wrong())?))
        }
        _ => Err(wrong()),
    }
}

/// `minmax`, `entropy`, `percentile` (99.999), or `percentile=99.9`.
pub(super) fn parse_calibration(text: &str) -> Result<Calibration, String> {
    let percent = match text {
        "minmax" => return Ok(Calibration::MinMax),
        "entropy" => return Ok(Calibration::Entropy),
        "percentile" => "99.999",
        other => other.strip_prefix("percentile=").ok_or_else(|| {
            format!("`{text}` is no calibration; they are minmax, entropy, percentile=99.99")
        })?,
    };
    let percent: Option<f64> = percent.parse().ok().filter(|p| (50.0..=100.0).contains(p));
    let percent = percent.ok_or_else(|| format!("`{text}` is no percentile from 50 to 100"))?;
    Ok(Calibration::Percentile(percent / 100.0))
}

/// A cost model by its name.
pub(super) fn cost_models() -> impl TypedValueParser<Value = model::Kind> {
    PossibleValuesParser::new(model::Kind::names()).try_map(|name| name.parse())
}

/// A strategy by its name.
pub(super) fn strategies() -> impl TypedValueParser<Value = strategy::Kind> {
    PossibleValuesParser::new(strategy::Kind::names()).try_map(|name| name.parse())
}

/// How trials are shared out, by its name.
pub(super) fn policies() -> impl TypedValueParser<Value = Policy> {
    let known = |name: String| {
        let found = Policy::NAMED.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| policy).ok_or("no policy")
    };
    PossibleValuesParser::new(Policy::NAMED.map(|(name, _)| name)).try_map(known)
}

/// A bound for an error.
pub(super) fn parse_error(text: &str) -> Result<f64, String> {
    let error = text.parse().ok().filter(|e: &f64| e.is_finite() && *e > 0.0);
    error.ok_or_else(|| format!("`{text}` is no error such as 0.05"))
}

/// `1%` or `0.01`. A bare `1` would be everything, and is most likely meant to be one percent.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%');
    let number: Option<f64> = percent.unwrap_or(text).trim().parse().ok();
    match (percent, number) {
        (Some(_), Some(n)) if (0.0..=100.0).contains(&n) => Ok(n / 100.0),
        (None, Some(n)) if (0.0..1.0).contains(&n) => Ok(n),
        (None, Some(n)) if (1.0..=100.0).contains(&n) => Err(format!(
            "`{text}` would be {}% of the latency; write `{text}%`, or {} for the same",
            n * 100.0,
            n / 100.0
        )),
        _ => Err(format!("`{text}` is not a share such as 1% or 0.01")),
    }
}

/// So many minutes, however few or many.
pub(super) fn minutes(count: f64) -> Duration {
    Duration::try_from_secs_f64(count.max(0.0) * 60.0).unwrap_or(Duration::MAX)
}

pub(super) fn parse_minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|m| m.is_finite() && *m >= 0.0);
    minutes.ok_or_else(|| format!("`{text}` is not a number of minutes such as 0.5 or 10"))
}

/// A number of things of which none would be nothing to do.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|n| *n > 0);
    count.ok_or_else(|| format!("`{text}` is not a whole number from 1 on"))
}

/// Each stream is a session with memory and a thread of its own.
const MOST_STREAMS: usize = 1024;

pub(super) fn parse_streams(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        streams if streams > MOST_STREAMS => {
            Err(format!("{streams} streams are too many: {MOST_STREAMS} at most"))
        }
        streams => Ok(streams),
    }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|s| !s.is_zero())
        .ok_or_else(|| format!("`{text}` is not a number of seconds such as 0.5"))
}

/// `NAME=FILE`, `NAME=FILE.npz:KEY`, or an archive by its ending.
pub(super) fn parse_input(text: &str) -> Result<InputFile, String> {
    // Keys are names of ONNX values, which may hold `=` and `:`.
    if let Some((pair, key)) = text.split_once(".npz:") {
        let (name, file) = split_pair(pair)?;
        return Ok(InputFile::Entry(name.into(), format!("{file}.npz").into(), key.into()));
    }
    if text.ends_with(".npz") && !text.contains('=') {
        return Ok(InputFile::All(text.into()));
    }
    let (name, file) = split_pair(text)
        .map_err(|e| format!("{e}; an archive with all inputs by name ends in `.npz`"))?;
    Ok(InputFile::One(name.into(), file.into()))
}

/// A text that is no number, no truth value and no list is the name of a file.
pub(super) fn parse_value(text: &str) -> Result<(String, Given), String> {
    let (name, value) = split_pair(text)?;
    let literal = Literal::parse(value).map(Given::Literal);
    Ok((name.into(), literal.unwrap_or_else(|| Given::File(value.into()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives() {
        assert_eq!(parse_objective("latency"), Ok(Objective::Latency));
        assert_eq!(parse_objective("speedup"), Ok(Objective::Speedup(vec![])));
        let limits = Objective::Requirement(vec![0.005, 0.0205]);
        assert_eq!(parse_objective("requirement=5,20.5"), Ok(limits));
        assert_eq!(parse_objective("early-stopping=100"), Ok(Objective::EarlyStopping(100)));
        let bad = ["", "latency=1", "requirement", "requirement=5,x", "requirement=-1", "speedup="];
        assert!(bad.iter().all(|text| parse_objective(text).is_err()));
    }

    #[test]
    fn arguments() {
        assert_eq!(parse_shape("x=1x3"), Ok(("x".into(), vec![1, 3])));
        assert_eq!(parse_shape("x="), Ok(("x".into(), vec![])));
        assert_eq!((parse_threads("0"), parse_threads("4096")), (Ok(0), Ok(4096)));
        assert!(parse_threads("4097").is_err() && parse_threads("-1").is_err());
        assert_eq!((parse_share("1%"), parse_share("0.01")), (Ok(0.01), Ok(0.01)));
        assert_eq!(parse_share("100%"), Ok(1.0));
        assert!(["101%", "x", "-1", "nan", "300"].iter().all(|text| parse_share(text).is_err()));
        assert!(parse_share("1").unwrap_err().contains("100% of the latency; write `1%`"));
        assert_eq!(parse_minutes("0.5"), Ok(0.5));
        assert!(["-1", "inf", "m"].iter().all(|text| parse_minutes(text).is_err()));
        assert_eq!(parse_count("1"), Ok(1));
        assert!(["0", "-1", "x"].iter().all(|text| parse_count(text).is_err()));
        assert_eq!((parse_streams("1"), parse_streams("1024")), (Ok(1), Ok(1024)));
        assert!(["0", "1025", "99999999999999999999"].iter().all(|t| parse_streams(t).is_err()));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["0", "-1", "nan", "1e300", "s"].iter().all(|text| parse_seconds(text).is_err()));
        let sizes = |all: &[Span]| Sizes(all.to_vec());
        assert_eq!(parse_dim("a=b=4"), Ok(("a=b".into(), sizes(&[Span::One(4)]))));
        assert_eq!(parse_dim("a=1,16"), Ok(("a".into(), sizes(&[Span::One(1), Span::One(16)]))));
        let range = sizes(&[Span::One(1), Span::Range(4, 9)]);
        assert_eq!(parse_dim("a=1,4..9"), Ok(("a".into(), range)));
        let follows = Extent::Follows("past + 1".into());
        assert_eq!(parse_extent("total=past + 1"), Ok(("total".into(), follows)));
        let seven = Extent::Sizes(sizes(&[Span::One(7)]));
        assert_eq!(parse_extent("a=7"), Ok(("a".into(), seven)));
        assert!(parse_extent("a=1,b=2").is_err() && parse_extent("a=-1").is_err());
        assert!(parse_dim("a=4..9,9").is_err() && parse_dim("a=5..2").is_err());
        assert!(parse_dim("a=1,2,1").is_err() && parse_dim("a=1,").is_err());
        assert!(parse_dim("a=1,b=2").unwrap_err().contains("--dim a=1 --dim b=2"));
        assert!(parse_shape("x=1x-3").is_err() && parse_dim("=4").is_err());
    }

    #[test]
    fn inputs_are_arrays_or_archives() {
        assert_eq!(parse_input("x=a.npy"), Ok(InputFile::One("x".into(), "a.npy".into())));
        assert_eq!(parse_input("all.npz"), Ok(InputFile::All("all.npz".into())));
        let entry =
            |name: &str, key: &str| Ok(InputFile::Entry(name.into(), "a.npz".into(), key.into()));
        assert_eq!(parse_input("x=a.npz:y"), entry("x", "y"));
        assert_eq!(parse_input("x=1=a.npz:y=2:z"), entry("x=1", "y=2:z"));
        assert!(parse_input("a.npz:y").is_err());
        assert!(parse_input("a.npy").unwrap_err().contains(".npz"));
    }

    #[test]
    fn values_are_literals_or_files() {
        let literal = |text: &str| Given::Literal(Literal::parse(text).expect("a literal"));
        assert_eq!(parse_value("sr=16000"), Ok(("sr".into(), literal("16000"))));
        assert_eq!(parse_value("x=-1"), Ok(("x".into(), literal("-1"))));
        assert_eq!(parse_value("x=[1,2]"), Ok(("x".into(), literal("[1, 2]"))));
        assert_eq!(parse_value("n=n.npy"), Ok(("n".into(), Given::File("n.npy".into()))));
        assert!(parse_value("n").is_err());
    }
}
