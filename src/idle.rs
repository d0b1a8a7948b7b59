//! Options that would do nothing: beside others, or without them. They are refused, so that nobody
//! believes to have said something.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::Error;
use crate::cli::Device;

/// Options of a verb that do nothing where `is_idle` says so of the whole command.
struct Rule {
    verb: &'static str,
    options: &'static [&'static str],
    is_idle: fn(&ArgMatches) -> bool,
    reason: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        verb: "compile",
        options: &[
            "per_round",
            "minutes",
            "until_gain",
            "constants",
            "strategy",
            "cost_model",
            "trained",
        ],
        is_idle: |compile| compile.get_one("trials") == Some(&0usize),
        reason: "does nothing without a search: say how long with --trials N",
    },
    Rule { verb: "compile", options: &["sms"], is_idle: is_for_a_cpu, reason: OF_GPUS },
    Rule { verb: "tune", options: &["sms"], is_idle: is_for_a_cpu, reason: OF_GPUS },
    Rule { verb: "explain", options: &["sms"], is_idle: is_for_a_cpu, reason: OF_GPUS },
    Rule { verb: "lab", options: &["sms"], is_idle: is_for_a_cpu, reason: OF_GPUS },
    Rule { verb: "sketches", options: &["sms"], is_idle: is_for_a_cpu, reason: OF_GPUS },
    Rule {
        verb: "lab",
        options: &["target"],
        is_idle: |lab| lab.get_flag("simulated"),
        reason: "does nothing with --simulated, which computes the times of a processor",
    },
    Rule {
        verb: "lab",
        options: &["run_limit", "settle"],
        is_idle: |lab| lab.get_flag("simulated"),
        reason: "does nothing with --simulated: nothing is run",
    },
    Rule {
        verb: "lab",
        options: &["no_shipped"],
        is_idle: |_| true,
        reason: "does nothing here: all methods start from untuned schedules",
    },
    Rule {
        verb: "models",
        options: &["fetch", "output_dir", "reduced"],
        is_idle: |models| models.get_many::<String>("names").is_none(),
        reason: "does nothing without the name of a model; `ansc models` lists them",
    },
];

const OF_GPUS: &str = "is for `--target cuda`";

fn is_for_a_cpu(verb: &ArgMatches) -> bool {
    verb.get_one("target") == Some(&Device::Cpu)
}

/// An error if the command has an option that does nothing.
pub fn refuse(command: &ArgMatches) -> Result<(), Error> {
    let Some((verb, given)) = command.subcommand() else { return Ok(()) };
    for rule in RULES.iter().filter(|rule| rule.verb == verb && (rule.is_idle)(given)) {
        let said = |name: &&&str| given.value_source(name) == Some(ValueSource::CommandLine);
        if let Some(name) = rule.options.iter().find(said) {
            let message = format!("{} {}", spelt(verb, name), rule.reason);
            return Err(Error::Usage(message));
        }
    }
    Ok(())
}

/// The option as the user writes it.
fn spelt(verb: &str, name: &str) -> String {
    let command = <crate::cli::Cli as clap::CommandFactory>::command();
    let long = command.find_subcommand(verb).and_then(|verb| {
        verb.get_arguments().find(|arg| arg.get_id() == name).and_then(|arg| arg.get_long())
    });
    format!("--{}", long.unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn told(words: &str) -> Option<String> {
        let command = Cli::command().try_get_matches_from(words.split(' ')).unwrap();
        refuse(&command).err().map(|error| error.to_string())
    }

    #[test]
    fn options_without_an_effect_are_refused() {
        let told = |words| told(words).unwrap_or_else(|| panic!("{words}"));
        assert!(told("ansc compile m --strategy random").starts_with("--strategy does nothing"));
        assert!(told("ansc compile m --per-round 3").starts_with("--per-round does nothing"));
        assert!(told("ansc compile m --sm 90").contains("--sm is for `--target cuda`"));
        assert!(told("ansc lab GMM --simulated --target cuda").contains("with --simulated"));
        assert!(told("ansc sketches m --sm 90").contains("--sm is for `--target cuda`"));
        assert!(told("ansc lab GMM --simulated --settle 2").contains("with --simulated"));
        assert!(told("ansc lab GMM --no-shipped").starts_with("--no-shipped does nothing"));
        assert!(told("ansc models --fetch").starts_with("--fetch does nothing"));
        assert!(told("ansc models --reduced").starts_with("--reduced does nothing"));
    }

    #[test]
    fn options_with_an_effect_are_taken() {
        let taken = [
            "ansc compile m --trials 8 --strategy random --per-round 3 --seed 1",
            "ansc compile m --threads 2",
            "ansc compile m --target cuda --sm 90",
            // Scripts may always say the threads and the seed.
            "ansc compile m --untuned --threads 2 --seed 1",
            "ansc lab GMM --simulated --trials 8",
            "ansc lab GMM --target cpu --settle 2 --run-limit 3",
            "ansc lab GMM --target cuda --sm 80",
            "ansc models -o here GMM",
            "ansc tune m --strategy random",
        ];
        for words in taken {
            assert_eq!(told(words), None, "{words}");
        }
    }

    /// The names in the rules are those of options.
    #[test]
    fn rules_name_options() {
        let command = Cli::command();
        for rule in RULES {
            let verb = command.find_subcommand(rule.verb).unwrap();
            let known = |name: &&str| verb.get_arguments().any(|arg| arg.get_id() == *name);
            assert!(rule.options.iter().all(known), "{}: {:?}", rule.verb, rule.options);
        }
    }
}
