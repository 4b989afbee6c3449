//! The book as mdbook makes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{long_form, text};

/// Values of an attribute in a page.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    html.split(begin.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn pages(directory: &Path, found: &mut HashMap<PathBuf, String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "html") {
            found.insert(path.clone(), std::fs::read_to_string(path).expect("a page"));
        }
    }
}

/// Makes the book, where `make doc` has once installed mdbook. Returns links between its pages that lead nowhere.
pub fn broken_links(repository: &Path) -> Vec<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
    if !target.join("book/bin/mdbook").exists() {
        long_form("the links of the book as mdbook makes it, which make doc installs");
        return Vec::new();
    }
    let made =
        Command::new(repository.join("tools/book.sh")).env("CARGO_TARGET_DIR", target).output().expect("bash starts");
    if !made.status.success() {
        return vec![text(&made.stderr)];
    }
    let mut book = HashMap::new();
    pages(&target.join("book/html"), &mut book);
    let mut wrong = Vec::new();
    // print.html is all pages in one; 404.html has links from the site's root.
    let read = book.iter().filter(|(path, _)| !path.ends_with("print.html") && !path.ends_with("404.html"));
    for (path, html) in read {
        let links = values(html, "href").into_iter().chain(values(html, "src"));
        for link in links.filter(|link| !link.contains(':')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let there = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let Ok(there) = there.canonicalize() else {
                wrong.push(format!("{}: {link}: there is no such file", path.display()));
                continue;
            };
            let lacks = |html: &String| !anchor.is_empty() && !values(html, "id").contains(&anchor);
            if book.get(&there).is_some_and(lacks) {
                wrong.push(format!("{}: {link}: there is no such heading", path.display()));
            }
        }
    }
    if book.len() < 30 {
        wrong.push(format!("{} pages", book.len()));
    }
    wrong
}
