//! Options that are keys of experiments.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use irnic_fabric::experiment::{CATEGORIES, Category, Key, Values, Written};
use irnic_report::words::words;

/// Selects keys.
pub trait Selection {
    /// Returns whether a key of a category is selected.
    fn has(category: &Category, key: &Key) -> bool;
}

/// The keys of `irnic sim` and `irnic lab`: the network and its ends.
#[derive(Clone, Debug)]
pub struct Network;

/// The keys that only `irnic sim` has, but for those of [`Run`].
#[derive(Clone, Debug)]
pub struct Simulation;

/// The keys that say how a simulation runs.
#[derive(Clone, Debug)]
pub struct Run;

impl Run {
    const HEADING: &str = "Run";
}

impl Selection for Network {
    fn has(_: &Category, key: &Key) -> bool {
        key.in_lab
    }
}

impl Network {
    /// Returns the names of these keys.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KeyArgs::<Network>::keys().map(|(_, key)| key.name())
    }
}

impl Selection for Simulation {
    fn has(category: &Category, key: &Key) -> bool {
        !key.in_lab && category.name != Run::HEADING
    }
}

impl Selection for Run {
    fn has(category: &Category, key: &Key) -> bool {
        !key.in_lab && category.name == Run::HEADING
    }
}

/// The selected keys as options, each in the group of its category. They may be repeated: where several values make a
/// grid, for a grid.
#[derive(Clone, Debug)]
pub struct KeyArgs<S> {
    values: Values,
    selection: PhantomData<S>,
}

impl<S: Selection> KeyArgs<S> {
    /// Returns the given values.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Returns the keys with their categories.
    fn keys() -> impl Iterator<Item = (&'static Category, &'static Key)> {
        let all = CATEGORIES.iter().flat_map(|category| category.keys.iter().map(move |key| (category, key)));
        all.filter(|(category, key)| S::has(category, key))
    }
}

impl<S: Selection> Args for KeyArgs<S> {
    fn augment_args(command: Command) -> Command {
        Self::keys().fold(command, |command, (category, key)| command.arg(option(category, key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Selection> FromArgMatches for KeyArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = Self::keys().filter_map(|(_, key)| Some((key.name(), given(key, matches)?)));
        Ok(KeyArgs { values: given.collect(), selection: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.values.extend(Self::from_arg_matches(matches)?.values);
        Ok(())
    }
}

/// Returns the option of a key.
fn option(category: &Category, key: &Key) -> Arg {
    let option = Arg::new(key.name()).long(key.name()).help(key.help()).help_heading(category.name);
    let Some(value_name) = key.value_name else { return option.action(ArgAction::SetTrue) };
    let option = option.value_name(value_name).action(ArgAction::Append);
    match key.completions() {
        none if none.is_empty() => option,
        some => option.value_parser(words(some)).hide_possible_values(true),
    }
}

/// Returns the values of a key, if its option is given.
fn given(key: &'static Key, matches: &ArgMatches) -> Option<Vec<Written>> {
    if key.value_name.is_none() {
        return matches.get_flag(key.name()).then(|| vec![Written::flag(key.name(), "on")]);
    }
    let texts: Vec<String> = matches.get_many::<String>(key.name())?.cloned().collect();
    let texts = if key.joined { vec![texts.join(",")] } else { texts };
    Some(texts.iter().map(|text| Written::flag(key.name(), text)).collect())
}
