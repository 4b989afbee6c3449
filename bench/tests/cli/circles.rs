//! Files of a crate do not import each other in circles of more than two.
//!
//! A folder's `mod.rs` declares and runs; what its files share is in a file of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path from the crate's root on.
pub type Module = Vec<String>;

/// All production files of a crate by their modules.
pub fn modules(root: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("sources").map(|entry| entry.expect("an entry").path());
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let inside = path.strip_prefix(root).expect("inside").with_extension("");
                let mut module: Module = inside.iter().map(|part| part.to_str().expect("UTF-8").to_owned()).collect();
                if matches!(module.last().map(String::as_str), Some("lib" | "main" | "mod")) {
                    module.pop();
                }
                if !module.iter().any(|part| part.ends_with("tests")) {
                    found.insert(module, fs::read_to_string(&path).expect("a source"));
                }
            }
        }
    }
    found
}

/// The code without comments and tests.
fn production(source: &str) -> String {
    let tests = ["#[cfg(test)]", "#[cfg(all(test"].into_iter().filter_map(|mark| source.find(mark)).min();
    let code = &source[..tests.unwrap_or(source.len())];
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths of a tree of `use`.
fn expand(prefix: &[&str], tree: &str, paths: &mut Vec<Module>) {
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[from..]);
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        let (head, rest) = part.split_once('{').map_or((part, None), |(head, rest)| (head, rest.rsplit_once('}')));
        let head = head.split(" as ").next().unwrap_or_default().split("::").map(str::trim).filter(|p| !p.is_empty());
        let path: Vec<&str> = prefix.iter().copied().chain(head).collect();
        match rest {
            Some((inner, _)) => expand(&path, inner, paths),
            None => paths.push(path.into_iter().map(str::to_owned).collect()),
        }
    }
}

/// Paths that the code imports, and those that it hands on by `pub use`.
fn imports(code: &str) -> (Vec<Module>, Vec<Module>) {
    let (mut taken, mut handed_on) = (Vec::new(), Vec::new());
    for item in code.split(';') {
        let Some((before, tree)) = item.rsplit_once("use ") else { continue };
        let before = before.rsplit('\n').next().unwrap_or_default().trim();
        match before {
            "" => expand(&[], tree, &mut taken),
            _ if before.starts_with("pub") => expand(&[], tree, &mut handed_on),
            _ => {}
        }
    }
    // Visibility is no import.
    for rest in code.replace("(in crate::", "(in ").split("crate::").skip(1) {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        if rest[end..].starts_with('{') {
            // A `use`, above.
            continue;
        }
        let path = std::iter::once("crate").chain(rest[..end].split("::")).filter(|part| !part.is_empty());
        taken.push(path.map(str::to_owned).collect());
    }
    (taken, handed_on)
}

/// Files of a crate, and what each imports of the others.
struct Crate {
    taken: BTreeMap<Module, Vec<Module>>,
    handed_on: BTreeMap<Module, Vec<Module>>,
}

impl Crate {
    fn read(root: &Path) -> Crate {
        let (mut taken, mut handed_on) = (BTreeMap::new(), BTreeMap::new());
        for (module, source) in modules(root) {
            let (uses, publics) = imports(&production(&source));
            taken.insert(module.clone(), uses);
            handed_on.insert(module, publics);
        }
        Crate { taken, handed_on }
    }

    /// The file that defines what `path` names in `module`; nothing if it is of another crate.
    fn resolve(&self, module: &Module, path: &[String], depth: u32) -> Option<Module> {
        let mut path = path.to_vec();
        let mut at = module.clone();
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                path.remove(0);
            }
            "self" | "super" => {
                while let Some("self" | "super") = path.first().map(String::as_str) {
                    if path.remove(0) == "super" {
                        at.pop();
                    }
                }
            }
            first => {
                let child: Module = at.iter().cloned().chain([first.to_owned()]).collect();
                self.taken.get(&child)?;
            }
        }
        while let Some(next) = path.first() {
            let child: Module = at.iter().cloned().chain([next.clone()]).collect();
            if !self.taken.contains_key(&child) {
                break;
            }
            at = child;
            path.remove(0);
        }
        let name = path.first();
        let further = self.handed_on.get(&at)?.iter().find(|public| public.last() == name && depth < 8);
        match further {
            Some(public) => self.resolve(&at, public, depth + 1).or(Some(at)),
            None => Some(at),
        }
    }

    /// Files that each file imports, directly or not.
    fn reach(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let mut reach: BTreeMap<&Module, BTreeSet<Module>> = self
            .taken
            .iter()
            .map(|(module, uses)| {
                let files = uses.iter().filter_map(|path| self.resolve(module, path, 0));
                (module, files.filter(|file| file != module).collect())
            })
            .collect();
        loop {
            let before: usize = reach.values().map(BTreeSet::len).sum();
            for module in self.taken.keys() {
                let more: BTreeSet<Module> =
                    reach[module].iter().flat_map(|file| reach[file].iter().cloned()).collect();
                reach.get_mut(module).expect("a file").extend(more);
            }
            if reach.values().map(BTreeSet::len).sum::<usize>() == before {
                return reach;
            }
        }
    }
}

#[test]
fn files_form_no_circle_of_more_than_two() {
    let bench = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = bench.parent().expect("the workspace");
    let folders = [root, &bench].into_iter().flat_map(|folder| fs::read_dir(folder).expect("crates"));
    let crates = folders.map(|entry| entry.expect("an entry").path().join("src"));
    let mut circles = BTreeSet::new();
    let mut files = 0;
    for root in crates.filter(|root| root.is_dir() && !root.ends_with("src/src")) {
        let sources = Crate::read(&root);
        let reach = sources.reach();
        files += reach.len();
        for (module, reached) in &reach {
            let circle: Vec<&Module> = reached.iter().filter(|file| reach[file].contains(*module)).collect();
            // C structures, which point to each other as those of verbs.h do.
            let of_the_abi = circle.iter().all(|file| file.join("/").starts_with("abi/structs/"));
            if circle.len() > 2 && !of_the_abi {
                circles.insert(format!("{}: {circle:?}", root.display()));
            }
        }
    }
    assert!(files > 300, "{files} files were found");
    assert!(circles.is_empty(), "{circles:#?}");
}
