//! `ansc verify`: an artifact against a reference, per output and per kernel.

use super::{given, import_options, print_json};
use crate::cli::Verify;
use crate::layers::Rounding;
use crate::verify::{self, Options, Outcome, Row, Verified};
use crate::{Error, precision};

pub(super) fn run(args: &Verify) -> Result<(), Error> {
    verify::same_model(&args.model, &args.artifact)?;
    let verified = verify::verify(&options(args)?)?;
    if args.json {
        print_json(&json(&verified));
    } else {
        verified.outcomes.iter().take(1).for_each(|outcome| print_precision(outcome, &verified));
        verified.outcomes.iter().for_each(print_outcome);
    }
    if verified.ok() {
        Ok(())
    } else {
        let (artifact, reference) = (args.artifact.display(), verified.against);
        Err(Error::Reported(format!("{artifact} differs from {reference}")))
    }
}

fn options(args: &Verify) -> Result<Options, Error> {
    Ok(Options {
        model: args.model.clone(),
        artifact: args.artifact.clone(),
        import: import_options(&args.model, &args.specialise)?,
        size: args.specialise.size().wanted()?,
        given: given::tensors(&args.inputs)?,
        input_dir: args.input_dir.clone(),
        against: args.against,
        python: args.python.clone(),
        dump_tensors: args.dump_tensors.clone(),
        tolerance: args.tolerance,
        layers: args.layers,
        keep_denormals: args.keep_denormals,
    })
}

fn json(verified: &Verified) -> serde_json::Value {
    let outcomes = &verified.outcomes;
    let rows: Vec<&Row> = outcomes.iter().flat_map(|o| &o.outputs).map(|c| &c.row).collect();
    let layers: Vec<&Row> = outcomes.iter().flat_map(Outcome::rows).collect();
    serde_json::json!({
        "ok": verified.ok(), "against": verified.against, "precision": verified.precision,
        "tolerance": outcomes.iter().map(|o| o.tolerance).fold(0.0, f64::max),
        "outputs": rows, "layers": layers,
        "first_divergence": outcomes.iter().find_map(Outcome::first_divergence),
    })
}

fn print_precision(outcome: &Outcome, verified: &Verified) {
    let precision = &verified.precision;
    let allowed = outcome.tolerance;
    match precision.is_full() {
        false => println!("precision {precision}: errors up to {allowed:.1e} are allowed"),
        true if outcome.rounds => {
            println!("the model computes with int8: errors up to {allowed:.1e} are allowed");
        }
        true => {}
    }
}

fn print_outcome(outcome: &Outcome) {
    outcome.outputs.iter().for_each(|c| print_row(&c.row));
    if let Some(coarsest) = outcome.coarsest() {
        outcome.rows().for_each(print_row);
        print_coarsest(coarsest);
    }
    match outcome.first_divergence() {
        Some(row) => println!(
            "first kernel that diverges: {} (relative {:.2e})",
            row.output, row.difference.max_rel
        ),
        None if outcome.layers.is_some() => println!("no kernel diverges"),
        None => {}
    }
}

fn print_row(row: &Row) {
    let mark = if row.ok { "ok  " } else { "FAIL" };
    let d = row.difference;
    let space = if row.specialisation.is_empty() { "" } else { " " };
    println!(
        "{mark} {}{space}{}: relative {:.2e}, absolute {:.2e}, non-finite {}{}",
        row.specialisation,
        row.output,
        d.max_rel,
        d.max_abs,
        d.non_finite,
        row.rounding.as_ref().map_or(String::new(), in_words)
    );
}

fn in_words(rounding: &Rounding) -> String {
    let Rounding { precision, own, .. } = rounding;
    let allowed = precision::tolerance_of_kernel(*precision);
    format!("; of its own {:.2e} of {allowed:.1e} that {precision} allows", own.max_rel)
}

/// Says which kernel spoils the result most, and what keeps it from doing so.
fn print_coarsest(row: &Row) {
    let Some(Rounding { own, product, .. }) = &row.rounding else { return };
    let remedy = product.as_ref().map_or(String::new(), |node| {
        format!("; `--precision {node}=f32` when compiling lets it read all bits")
    });
    println!("{} rounds most: relative {:.2e} of its own{remedy}", row.output, own.max_rel);
}
