//! Names of other devices in a program's arguments and variables: it looks for them in the list of devices, does not
//! find them, and says at best that they do not exist.

use std::ffi::OsString;

/// Beginnings of the names that Linux's drivers give devices, which end with a number.
const PREFIXES: [&str; 19] = [
    "bnxt_re", "cxgb4_", "efa_", "erdma_", "hfi1_", "hns_", "ionic_", "irdma", "irnic", "mana_", "mlx4_", "mlx5_",
    "mthca", "ocrdma", "qedr", "qib", "rxe", "siw", "usnic_",
];
/// Beginnings of the names that udev gives them after their place: `rocep1s0f0`.
const BY_PLACE: [&str; 2] = ["rocep", "ibp"];

/// Returns what a program asks for by this process's arguments and variables, in a line, if no device has that name.
pub(crate) fn asked(devices: &[&str]) -> Option<String> {
    let arguments = std::env::args_os().skip(1);
    let variables = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("IRNIC_"));
    asked_by(devices, arguments, variables)
}

fn asked_by(
    devices: &[&str],
    arguments: impl Iterator<Item = OsString>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Option<String> {
    let of_arguments = arguments.map(|text| ("its arguments".to_owned(), text));
    let of_variables = variables.map(|(name, text)| (name.to_string_lossy().into_owned(), text));
    let (place, name) = of_arguments.chain(of_variables).find_map(|(place, text)| {
        let text = text.to_string_lossy();
        let name = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').find(|word| is_device(word))?;
        (!devices.contains(&name)).then(|| (place, name.to_owned()))
    })?;
    let there = devices.join(", ");
    let first = devices.first()?;
    Some(format!(
        "the program asks for device {name} ({place}), and there is {there}: name {first} instead, or give it that name by \
         [[device]] name = \"{name}\" in irnic.toml"
    ))
}

/// Whether a word is the name of a device as Linux knows them.
fn is_device(word: &str) -> bool {
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit());
    let by_place = |rest: &str| {
        rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.contains('s')
            && rest.bytes().all(|c| c.is_ascii_alphanumeric())
    };
    PREFIXES.iter().any(|prefix| word.strip_prefix(prefix).is_some_and(is_number))
        || BY_PLACE.iter().any(|prefix| word.strip_prefix(prefix).is_some_and(by_place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_found_where_programs_take_them() {
        let found = |arguments: &[&str], variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, text)| ((*name).into(), (*text).into()));
            asked_by(&["irnic0", "fast"], arguments.iter().map(Into::into), variables)
        };
        for arguments in [&["-d", "mlx5_0"][..], &["--ib-dev=mlx5_0"], &["-x", "UCX_NET_DEVICES=mlx5_0:1"]] {
            let line = found(arguments, &[]).expect("a name");
            assert!(
                line.starts_with("the program asks for device mlx5_0 (its arguments), and there is irnic0, fast: "),
                "{line}"
            );
            assert!(line.contains("[[device]] name = \"mlx5_0\""), "{line}");
        }
        let line = found(&[], &[("NCCL_IB_HCA", "=mlx5_1:1,mlx5_2:1")]).expect("a name");
        assert!(line.contains("device mlx5_1 (NCCL_IB_HCA)"), "{line}");
        assert!(found(&["-d", "rocep1s0f0"], &[]).is_some());
        for arguments in
            [&["-d", "irnic0"][..], &["-d", "fast"], &["--mlx5"], &["mlx5_x"], &["ibps"], &["rxe"], &["a/mlx5_0b"]]
        {
            assert_eq!(found(arguments, &[]), None, "{arguments:?}");
        }
        assert_eq!(asked_by(&[], ["mlx5_0".into()].into_iter(), std::iter::empty()), None);
    }
}
