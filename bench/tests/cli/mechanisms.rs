//! Mechanisms are named in as many files as `docs/architecture.md` says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::circles::modules;

/// A source's code, without tests, comments and strings.
fn code(source: &str) -> String {
    let tests = ["#[cfg(test)]", "#[cfg(all(test"].into_iter().filter_map(|mark| source.find(mark)).min();
    let source = source[..tests.unwrap_or(source.len())].replace("'\"'", "''").replace("'\\\"'", "''");
    let (mut kept, mut from) = (String::new(), 0);
    for (at, pair) in source.as_bytes().windows(2).enumerate() {
        let comment = pair == b"//";
        if at < from || !comment && pair[0] != b'"' {
            continue;
        }
        let (before, rest) = (&source[from..at], &source[at..]);
        kept += before;
        let end = if comment { rest.find('\n') } else { end_of_string(before, rest) };
        from = at + end.unwrap_or(rest.len());
    }
    kept + &source[from..]
}

/// Where the string ends that `text` begins with; raw ones have `r` or `r#` before them.
fn end_of_string(before: &str, text: &str) -> Option<usize> {
    let prefix = before.trim_end_matches('#');
    if prefix.ends_with('r') {
        let close = format!("\"{}", &before[prefix.len()..]);
        return text[1..].find(&close).map(|at| at + 1 + close.len());
    }
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

/// Whether a word is part of an identifier: `tlt` of `tlt_window` and `TltConfig`.
fn names(code: &str, word: &str) -> bool {
    let camel = word[..1].to_uppercase() + &word[1..];
    let ends = |at: usize| !code[at + word.len()..].starts_with(|c: char| c.is_ascii_lowercase());
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_ascii_alphabetic());
    let whole = [word.to_owned(), camel.clone(), word.to_uppercase()];
    whole.iter().any(|form| code.match_indices(form.as_str()).any(|(at, _)| ends(at) && begins(at)))
        || code.match_indices(&camel).any(|(at, _)| ends(at))
}

/// The code of all production files.
fn sources(root: &Path) -> BTreeMap<PathBuf, String> {
    let folders = ["", "bench", "verbs"].map(|folder| root.join(folder));
    let crates = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("crates"));
    let roots = crates.map(|entry| entry.expect("an entry").path().join("src"));
    let aside = ["reproduce", "testkit", "examples", "fuzz"];
    let counted = |root: &PathBuf| root.is_dir() && !aside.iter().any(|folder| root.ends_with(format!("{folder}/src")));
    let all = roots.filter(counted).flat_map(|root| {
        let sources = modules(&root).into_iter();
        sources.map(move |(module, source)| (root.join(module.join("/")), code(&source)))
    });
    all.collect()
}

#[test]
fn as_many_files_name_a_mechanism_as_the_page_says() {
    let bench = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = bench.parent().expect("the workspace");
    let sources = sources(root);
    assert!(sources.len() > 500, "{} files", sources.len());
    let page = fs::read_to_string(root.join("docs/architecture.md")).expect("the page");
    let table = page.split("| mechanism | names | files |\n").nth(1).expect("the table");
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 5, "{rows:?}");
    for row in rows {
        let [mechanism, words, count] = row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let words: Vec<&str> = words.split([',', ' ', '`']).filter(|word| !word.is_empty()).collect();
        let named = sources.iter().filter(|(_, code)| words.iter().any(|word| names(code, word)));
        let named: Vec<_> = named.map(|(path, _)| path.strip_prefix(root).expect("inside")).collect();
        assert_eq!(named.len().to_string(), count, "{mechanism}: {named:#?}");
    }
}

#[test]
fn strings_comments_and_parts_of_words_are_no_names() {
    let source = "a(\"x\\\"//y\", r#\"q\"q\"#, '\"'); // c \"\nb\n#[cfg(test)] d";
    assert_eq!(code(source), "a(, r#, ''); \nb\n");
    for (code, named) in [
        ("tlt_window", true),
        ("NoTlt", true),
        ("TLT_MODES", true),
        ("subtlty", false),
        ("tlts", false),
        ("Tlts", false),
    ] {
        assert_eq!(names(code, "tlt"), named, "{code}");
    }
}
