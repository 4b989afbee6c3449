//! Names that were probably meant.

/// Returns the one of `names` that `word` is a misspelling of, regardless of case: no more than a letter and a quarter
/// of the name differ, where two letters in the wrong order count as one.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distance = |name: &'a str| (strsim::damerau_levenshtein(&word, &name.to_lowercase()), name);
    let (differ, name) = names.into_iter().map(distance).min()?;
    (differ <= 1 + name.len() / 4).then_some(name)
}

/// Returns `; did you mean "NAME"?` with the [nearest] of `names`, for the end of an error; empty if there is none.
pub fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_unless_all_are_far() {
        let names = ["transport", "impair", "mtu", "irn"];
        for (word, meant) in [
            ("tranpsort", Some("transport")),
            ("MTU", Some("mtu")),
            ("irm", Some("irn")),
            ("tcp", None),
            ("colour", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
        assert_eq!(did_you_mean("imapir", names), "; did you mean \"impair\"?");
        assert_eq!(did_you_mean("colour", names), "");
        assert_eq!(nearest("irn", []), None);
    }
}
