//! The shared object exports what libibverbs exports, under the same versions, and nothing else.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use support::{Symbol, library, skipped, symbols};

/// Where distributions put shared objects.
const PLACES: [&str; 4] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Binaries of others that import from libibverbs: the program or library, relative to `/usr/bin` or one of `PLACES`.
const CONSUMERS: [&str; 14] = [
    "ib_write_bw",
    "ib_send_lat",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "rping",
    "libmlx4.so.1",
    "libmlx5.so.1",
    "libefa.so.1",
    "librdmacm.so.1",
    "libfabric.so.1",
    "ucx/libuct_ib.so.0",
    "ucx/libuct_rdmacm.so.0",
    "libibverbs/libmlx5-rdmav34.so",
    "libibverbs/librxe-rdmav34.so",
];

/// What the shared object that was just built exports.
fn exported() -> Option<BTreeSet<Symbol>> {
    Some(symbols(&library())?.into_iter().filter(|s| s.defined).collect())
}

/// A library of the system, by its name.
fn installed(name: &str) -> Option<PathBuf> {
    PLACES.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists())
}

fn spell(symbol: &Symbol) -> String {
    format!("{}{}{}", symbol.name, if symbol.default { "@@" } else { "@" }, symbol.version)
}

/// Which of the names and versions in `wanted` have no match in `offered`.
fn missing<'a>(offered: &BTreeSet<Symbol>, wanted: impl Iterator<Item = &'a Symbol>) -> Vec<String> {
    wanted
        .filter(|w| !offered.iter().any(|o| o.name == w.name && o.version == w.version))
        .map(|w| format!("{}@{}", w.name, w.version))
        .collect()
}

#[test]
fn exports_are_those_of_the_list() {
    let Some(exported) = exported() else { return };
    let exported: BTreeSet<String> = exported.iter().map(spell).collect();
    let list: BTreeSet<String> =
        include_str!("../../fixtures/abi/libibverbs-symbols.txt").lines().map(str::to_owned).collect();
    // librdmacm's nodes are of the same object and not of this list.
    let of_verbs: BTreeSet<String> = exported.iter().filter(|s| !s.contains("@RDMACM_")).cloned().collect();
    let missing: Vec<_> = list.difference(&of_verbs).collect();
    let unknown: Vec<_> = of_verbs.difference(&list).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, not in the list {unknown:?}");
}

#[test]
fn nothing_is_exported_without_a_version() {
    let Some(exported) = exported() else { return };
    let plain: Vec<_> = exported.iter().filter(|s| s.version.is_empty()).map(|s| &s.name).collect();
    assert!(plain.is_empty(), "{plain:?}");
}

#[test]
fn the_installed_libibverbs_has_nothing_that_is_missing() {
    let Some(exported) = exported() else { return };
    let Some(theirs) = installed("libibverbs.so.1") else {
        skipped::<()>("libibverbs.so.1 is not installed");
        return;
    };
    let Some(theirs) = symbols(&theirs) else { return };
    let theirs: Vec<Symbol> = theirs.into_iter().filter(|s| s.defined && s.version.starts_with("IBVERBS_")).collect();
    assert!(theirs.len() > 100, "{} symbols", theirs.len());
    let missing = missing(&exported, theirs.iter());
    assert!(missing.is_empty(), "{missing:?}");
    let public = theirs.iter().filter(|s| !s.version.starts_with("IBVERBS_PRIVATE_"));
    let other_default: Vec<_> = public.filter(|s| !exported.contains(s)).map(spell).collect();
    assert!(other_default.is_empty(), "the default differs: {other_default:?}");
}

#[test]
fn what_installed_programs_and_libraries_import_is_exported() {
    let Some(exported) = exported() else { return };
    for name in CONSUMERS {
        let program = Path::new("/usr/bin").join(name);
        let Some(file) = Some(program).filter(|p| p.exists()).or_else(|| installed(name)) else {
            skipped::<()>(&format!("{name} is not installed"));
            continue;
        };
        let Some(all) = symbols(&file) else { return };
        let imports: Vec<_> = all.into_iter().filter(|s| !s.defined && s.version.starts_with("IBVERBS_")).collect();
        assert!(!imports.is_empty(), "{} imports nothing from libibverbs", file.display());
        let missing = missing(&exported, imports.iter());
        assert!(missing.is_empty(), "{} imports {missing:?}", file.display());
    }
}
