//! Pages in Markdown: their blocks, headings, links, and the commands that sentences name.

use std::path::{Path, PathBuf};

/// What a block between fences is for, by what follows ``` on its first line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Class {
    /// `sh`: the test runs it.
    Run,
    /// `sh long`: the test runs it in its long form, and else starts each command and stops it.
    Long,
    /// `sh stop`: the test starts each command and stops it by Ctrl-C.
    Stop,
    /// `sh parse: WHY`: irnic reads the arguments.
    Parse(String),
    /// `sh norun: WHY`: nothing is run.
    NoRun(String),
    /// `LANGUAGE file=NAME`: commands of any page find it in a file.
    File(String),
    /// `text output`: lines that the commands before it print, but for numbers.
    Output,
    /// Any other language: no command.
    Other,
}

/// What stands between two fences.
pub struct Block {
    /// The line of the first fence, from 1 on.
    pub line: usize,
    /// Or what is wrong with that line, and what its author may write instead.
    pub class: Result<Class, String>,
    pub text: String,
}

/// A page of the repository.
pub struct Page {
    /// From the repository's root on, such as `docs/lab.md`.
    pub name: String,
    pub blocks: Vec<Block>,
    /// Lines outside blocks, by their numbers from 1 on.
    pub prose: Vec<(usize, String)>,
}

const CLASSES: &str = "commands begin with ```sh, which the test runs where the page's earlier blocks have run, beside \
    the repository's bench and fixtures and the files of all pages; or with `sh stop` (started, stopped by Ctrl-C), `sh long` (run by \
    IRNIC_APPLICATIONS=long, else as stop), `sh parse: WHY` (irnic reads the arguments) or `sh norun: WHY`. What is printed or \
    drawn begins with ```text, or with `text output` if the commands above it print these lines; a file with its language, as in \
    `toml file=clos.toml`, which writes it. CONTRIBUTING.md, Documents, has the same";

fn class(info: &str) -> Result<Class, String> {
    let (language, rest) = info.split_once(' ').unwrap_or((info, ""));
    let unknown = || Err(format!("```{info}: {CLASSES}"));
    Ok(match (language, rest.split_once(": ")) {
        ("sh", Some(("parse", why))) => Class::Parse(why.to_owned()),
        ("sh", Some(("norun", why))) => Class::NoRun(why.to_owned()),
        ("sh", _) => match rest {
            "" => Class::Run,
            "long" => Class::Long,
            "stop" => Class::Stop,
            _ => return unknown(),
        },
        ("" | "console" | "bash" | "shell", _) => return unknown(),
        ("text", _) if rest == "output" => Class::Output,
        _ if rest.is_empty() => Class::Other,
        _ => match rest.strip_prefix("file=") {
            Some(name) if !name.is_empty() && !name.contains(['/', ' ']) => Class::File(name.to_owned()),
            _ => return unknown(),
        },
    })
}

/// Whether a line is a command, as shells have it.
fn is_command(line: &str) -> bool {
    let mut words = line.trim_start().trim_start_matches("$ ").split_whitespace();
    match words.next() {
        Some("irnic") => words.next().is_some_and(|word| word.bytes().all(|c| c.is_ascii_lowercase())),
        Some("cargo" | "make") => words.next().is_some(),
        _ => false,
    }
}

impl Page {
    pub fn read(repository: &Path, name: &str) -> Page {
        let text = std::fs::read_to_string(repository.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut page = Page { name: name.to_owned(), blocks: Vec::new(), prose: Vec::new() };
        let mut open: Option<(Block, usize)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            let indent = line.len() - line.trim_start().len();
            let info = line.trim_start().strip_prefix("```");
            match (&mut open, info) {
                (None, Some(info)) => {
                    open = Some((Block { line: number, class: class(info.trim()), text: String::new() }, indent))
                }
                (None, None) => page.prose.push((number, line.to_owned())),
                (Some(_), Some("")) => page.blocks.push(open.take().expect("a block").0),
                (Some((block, indent)), _) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{name}: the last block has no end");
        page
    }

    /// Every command stands in a block that says so. Returns what is wrong, a line each.
    pub fn unclassified(&self) -> Vec<String> {
        let at = |line: usize, what: &str| format!("{}:{line}: {what}", self.name);
        let mut wrong: Vec<String> = Vec::new();
        let mut commands = false;
        for block in &self.blocks {
            commands |= matches!(block.class, Ok(Class::Run | Class::Long));
            match &block.class {
                Ok(Class::Output) if !commands => {
                    wrong.push(at(block.line, "output of no command: none is run above it"))
                }
                Err(why) => wrong.push(at(block.line, why)),
                Ok(Class::Other | Class::Output) if block.text.lines().any(is_command) => {
                    wrong.push(at(block.line, &format!("commands in a block that is not ```sh: {CLASSES}")));
                }
                Ok(_) => {}
            }
        }
        let indented = self.prose.iter().filter(|(_, line)| line.starts_with("    ") && is_command(line));
        wrong.extend(indented.map(|(line, _)| at(*line, &format!("a command outside a block: {CLASSES}"))));
        wrong
    }

    /// Returns what stands in backquotes, and the line where the paragraph of each begins.
    pub fn code_spans(&self) -> Vec<(usize, String)> {
        let mut spans = Vec::new();
        // One may go on in the next line of a paragraph.
        for paragraph in self.prose.chunk_by(|(_, above), (_, below)| !above.is_empty() && !below.is_empty()) {
            let lines: Vec<&str> = paragraph.iter().map(|(_, line)| line.as_str()).collect();
            let text = lines.join(" ");
            spans.extend(text.split('`').skip(1).step_by(2).map(|code| (paragraph[0].0, code.to_owned())));
        }
        spans
    }

    /// Returns where headings may be linked to, as GitHub and mdbook name them.
    pub fn anchors(&self) -> Vec<String> {
        let headings = self.prose.iter().filter_map(|(_, line)| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten()
        });
        let mut anchors: Vec<String> = Vec::new();
        for heading in headings {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let anchor: String = without_links(heading).trim().to_lowercase().chars().filter(kept).collect();
            let anchor = anchor.replace(' ', "-");
            let again = (1..).map(|n| format!("{anchor}-{n}"));
            let mut names = std::iter::once(anchor.clone()).chain(again);
            anchors.push(names.find(|name| !anchors.contains(name)).expect("a name"));
        }
        anchors
    }

    /// Returns the links of the page, the line of each.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (line, text) in &self.prose {
            // What stands in backquotes is no link.
            let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
            for rest in outside.split("](").skip(1) {
                let target = rest.split([')', ' ']).next().unwrap_or_default();
                links.push((*line, target.to_owned()));
            }
        }
        links
    }
}

/// A text as it reads: `[words](target)` is words.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut read = parts.next().unwrap_or_default().replace('[', "");
    for part in parts {
        read += &part.split_once(')').map_or(part, |(_, after)| after).replace('[', "");
    }
    read
}

/// Returns the pages of the book, from `docs/SUMMARY.md`, and the front page.
pub fn book(repository: &Path) -> Vec<Page> {
    let contents = Page::read(repository, "docs/SUMMARY.md");
    let chapters = contents.links().into_iter().map(|(_, target)| format!("docs/{target}"));
    std::iter::once("README.md".to_owned()).chain(chapters).map(|name| Page::read(repository, &name)).collect()
}

/// Returns all files below a directory whose names end so, from the repository's root on.
pub fn files(repository: &Path, below: &str, end: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(repository.join(below)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = PathBuf::from(below).join(entry.file_name()).to_string_lossy().into_owned();
        if entry.file_type().expect("a type").is_dir() {
            names.extend(files(repository, &name, end));
        } else if name.ends_with(end) {
            names.push(name);
        }
    }
    names.sort();
    names
}
