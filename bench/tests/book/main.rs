//! The book, `docs/SUMMARY.md` and what it lists, and README.md: every command is run as it stands, or says beside its
//! block why it is not; links lead somewhere; each page is in the contents.
//!
//! `cargo test -p irnic --test book lab` reads pages with `lab` in their names. CONTRIBUTING.md has the words that may
//! follow ```` ```sh ````.

mod html;
mod listen;
mod pages;
mod run;
mod shell;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use irnic_testkit::retry::{PREMISES, attempts};
use libtest_mimic::{Arguments, Failed, Trial};
use pages::{Class, Page};
use run::{Reader, tell};
use support::{Folder, irnic, text};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if let (Some(listen::ARGUMENT), Some(seconds)) = (args.next().as_deref(), args.next()) {
        listen::until_it_listens(&seconds);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    if !run::isolated() {
        // Servers of two pages would meet.
        arguments.test_threads = Some(1);
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository");
    let book = Arc::new(pages::book(&repository));
    let mut trials: Vec<Trial> = (0..book.len())
        // Of the long form alone those with blocks that the short one leaves out.
        .filter(|page| book[*page].blocks.iter().any(|block| is_run(&block.class)))
        .map(|page| {
            let (book, repository) = (Arc::clone(&book), repository.clone());
            Trial::test(book[page].name.clone(), move || {
                commands_run(&book[page], &book, &repository).map_err(Failed::from)
            })
        })
        .collect();
    let mut add = |name: &str, check: fn(&[Page], &Path) -> Vec<String>| {
        let (book, repository) = (Arc::clone(&book), repository.clone());
        trials.push(Trial::test(name, move || match check(&book, &repository) {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(wrong.join("\n").into()),
        }));
    };
    add("every_block_says_what_it_is", |book, _| unclassified(book));
    add("nine_commands_of_ten_are_run_or_read", |book, _| counted(book));
    add("commands_in_sentences_exist", |book, _| book.iter().flat_map(named_in_sentences).collect());
    add("pages_with_premises_are_listed", |book, _| premises_not_listed(book));
    add("links_lead_somewhere", |_, repository| broken_links(repository));
    add("sources_that_are_named_exist", unknown_sources);
    add("links_of_the_book_lead_somewhere", |_, repository| html::broken_links(repository));
    add("each_page_is_in_the_contents", left_out);
    add("docs_stay_short", |_, repository| too_long(repository));
    add("lines_and_commands_are_told_apart", |_, _| misread());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Pages with a program that depends on a premise, and that are not listed among those that do.
fn premises_not_listed(book: &[Page]) -> Vec<String> {
    let of_programs =
        [("rping", "rdma_get_cm_event: Bad file descriptor\n"), ("--program-time", "Correlation coefficient r^2")];
    let runs = |page: &Page, word: &str| {
        page.blocks.iter().any(|block| is_run(&block.class) && block.text.split_whitespace().any(|one| one == word))
    };
    let listed = |page: &Page, sign: &str| {
        PREMISES
            .iter()
            .filter(|premise| premise.signs.iter().any(|words| words.contains(&sign)))
            .any(|premise| premise.tests.contains(&page.name.as_str()))
    };
    let missing = |page: &Page, (word, sign): (&str, &str)| {
        (runs(page, word) && !listed(page, sign))
            .then(|| format!("{} runs {word}: testkit/src/retry.rs lists such tests", page.name))
    };
    book.iter().flat_map(|page| of_programs.into_iter().filter_map(|of| missing(page, of))).collect()
}

fn is_run(class: &Result<Class, String>) -> bool {
    match class {
        Ok(Class::Long) => true,
        Ok(Class::Run | Class::Stop | Class::Parse(_)) => form().as_deref() != Some("long"),
        _ => false,
    }
}

/// `long`, what the short form leaves out, or `all`.
fn form() -> Option<String> {
    std::env::var("IRNIC_APPLICATIONS").ok()
}

fn commands_run(page: &Page, book: &[Page], repository: &Path) -> Result<(), String> {
    let long = form().is_some_and(|form| ["all", "long"].contains(&form.as_str()));
    attempts(&page.name, || {
        let mut reader = Reader::new(page, book, repository, long);
        page.blocks.iter().try_for_each(|block| reader.read(block)).map(|()| String::new())
    })
    .map(drop)
}

/// Blocks that the test does not know what to do with, and files that two blocks write.
fn unclassified(book: &[Page]) -> Vec<String> {
    let mut wrong: Vec<String> = book.iter().flat_map(Page::unclassified).collect();
    let mut files = Vec::new();
    for (page, block) in book.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block))) {
        if let Ok(Class::File(name)) = &block.class {
            if files.contains(name) {
                wrong.push(format!("{}:{}: another block of the book writes {name} as well", page.name, block.line));
            }
            files.push(name.clone());
        }
    }
    wrong
}

/// Words of all pages under docs/, except tables made from results. What has no letter and no digit, such as a bar of a
/// table, is none.
fn too_long(repository: &Path) -> Vec<String> {
    const MOST: usize = 48_245;
    let pages = std::fs::read_dir(repository.join("docs")).expect("docs").map(|page| page.expect("a page").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|ext| ext == "md"));
    let words = |page: PathBuf| {
        let text = std::fs::read_to_string(page).expect("a page");
        let mut parts = text.split("<!-- made from ");
        let written = parts.next().into_iter().chain(parts.filter_map(|part| Some(part.split_once("<!-- end of ")?.1)));
        written.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_alphanumeric)).count()
    };
    let all: usize = pages.map(words).sum();
    if all > MOST { vec![format!("docs/ has {all} words, {MOST} at most")] } else { Vec::new() }
}

/// Says how many commands are run, started or read. Those of irnic that are not are a tenth at most.
fn counted(book: &[Page]) -> Vec<String> {
    let (mut run, mut long, mut stop, mut parse, mut norun) = (0, 0, 0, 0, 0);
    let (mut of_irnic, mut missed) = (0, 0);
    for (page, block) in book.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block))) {
        let Ok(class) = &block.class else { continue };
        let named = shell::named(&block.text);
        let ours = named.iter().filter(|named| named.program == "irnic").count();
        let count = match class {
            Class::Run => &mut run,
            Class::Long => &mut long,
            Class::Stop => &mut stop,
            Class::Parse(_) => &mut parse,
            Class::NoRun(_) => &mut norun,
            Class::File(_) | Class::Output | Class::Other => continue,
        };
        *count += named.len();
        of_irnic += ours;
        if let Class::Parse(why) | Class::NoRun(why) = class {
            let how = if matches!(class, Class::Parse(_)) { "read only" } else { "not run" };
            tell(&format!("book: {}:{}: {} {how}: {why}", page.name, block.line, named.len()));
        }
        missed += if matches!(class, Class::NoRun(_)) { ours } else { 0 };
    }
    tell(&format!(
        "book: {} commands: {run} run, {long} run in the long form and else started, {stop} started and stopped, {parse} read, \
         {norun} not; of irnic's {of_irnic}, {missed} not",
        run + long + stop + parse + norun
    ));
    if of_irnic >= 10 * missed {
        Vec::new()
    } else {
        vec![format!("of irnic's {of_irnic} commands {missed} are neither run nor read")]
    }
}

/// Commands of irnic between backquotes in sentences and tables have options that exist.
fn named_in_sentences(page: &Page) -> Vec<String> {
    let folder = Folder::new();
    let help = |command: &[&str]| {
        let output = irnic(&folder).args(command).arg("--help").output().expect("irnic runs");
        output.status.success().then(|| text(&output.stdout))
    };
    let mut wrong = Vec::new();
    for (line, code) in page.code_spans().into_iter().filter(|(_, code)| code.starts_with("irnic ")) {
        let words: Vec<&str> = code.split_whitespace().skip(1).take_while(|word| *word != "--").collect();
        let at = |what: String| format!("{}:{line}: `{code}`: {what}", page.name);
        let command = if words[0].starts_with('-') { &[][..] } else { &words[..1] };
        let Some(mut said) = help(command) else {
            wrong.push(at("no such command".into()));
            continue;
        };
        // A paper's own options.
        if words[0] == "reproduce" {
            said += &words.get(1).and_then(|paper| help(&["reproduce", paper])).unwrap_or_default();
        }
        let known: Vec<&str> = said.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_')).collect();
        for option in words.iter().filter(|word| word.starts_with('-')) {
            let name = option.split(['=', '[']).next().unwrap_or_default();
            if !known.contains(&name) {
                wrong.push(at(format!("no option {name}")));
            }
        }
    }
    wrong
}

/// Links within the repository, of every page there.
fn broken_links(repository: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut names = pages::files(repository, "docs", ".md");
    names.extend(
        [
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
            "tools/rxe/README.md",
            "fixtures/workloads/README.md",
        ]
        .map(String::from),
    );
    for name in names {
        let page = Page::read(repository, &name);
        for (line, target) in
            page.links().into_iter().filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"))
        {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { PathBuf::from(&name) } else { Path::new(&name).with_file_name(file) };
            let at = |what: &str| format!("{name}:{line}: {target}: {what}");
            let Ok(found) = repository.join(&path).canonicalize() else {
                wrong.push(at("there is no such file"));
                continue;
            };
            let Ok(within) = found.strip_prefix(repository) else {
                wrong.push(at("is outside the repository"));
                continue;
            };
            if !anchor.is_empty() && found.extension().is_some_and(|kind| kind == "md") {
                let anchors = Page::read(repository, &within.to_string_lossy()).anchors();
                if !anchors.iter().any(|there| there == anchor) {
                    wrong.push(at(&format!("there is no such heading; there are {}", anchors.join(", "))));
                }
            }
        }
    }
    wrong
}

/// Files in Rust that a page names and nobody has, each with its folders from some crate's on: `rc/rc3.rs`.
fn unknown_sources(_: &[Page], repository: &Path) -> Vec<String> {
    let mut names = pages::files(repository, "docs", ".md");
    names.extend(["README.md", "CONTRIBUTING.md"].map(String::from));
    let folders = std::fs::read_dir(repository).expect("the repository").map(|entry| entry.expect("an entry"));
    let folders = folders.filter(|entry| entry.path().is_dir() && entry.file_name() != "target");
    let sources: Vec<String> =
        folders.flat_map(|entry| pages::files(repository, &entry.file_name().to_string_lossy(), ".rs")).collect();
    let is_there = |named: &str| {
        sources.iter().any(|path| path.strip_suffix(named).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')))
    };
    let mut wrong = Vec::new();
    for name in names {
        for (line, named) in Page::read(repository, &name).code_spans() {
            if named.ends_with(".rs") && named.contains('/') && !is_there(&named) {
                wrong.push(format!("{name}:{line}: {named}: there is no such file"));
            }
        }
    }
    wrong
}

/// Pages that docs/SUMMARY.md lacks.
fn left_out(book: &[Page], repository: &Path) -> Vec<String> {
    let all = pages::files(repository, "docs", ".md").into_iter().filter(|name| name != "docs/SUMMARY.md");
    let left = all.filter(|name| !book.iter().any(|page| page.name == *name));
    left.map(|name| format!("{name} is not in docs/SUMMARY.md, from which the book is made")).collect()
}

/// What shell.rs makes of a script that has everything.
fn misread() -> Vec<String> {
    let script = "irnic perf -s 1 & sleep 1 # irnic top\nIRNIC_A=1 irnic lab \\\n  --pfc on -- sh -c '\n  irnic ctl drop ack\n  wait' 2>&1 | cat\n\
                  chrt -r 1 irnic sim > out; cargo run --release -- config # comment\n";
    let named: Vec<String> = shell::named(script)
        .iter()
        .map(|named| format!("{} {}", named.program, named.arguments.join(" ")).trim().to_owned())
        .collect();
    let expected = [
        "irnic perf -s 1",
        "sleep",
        "irnic lab --pfc on",
        "irnic ctl drop ack",
        "wait",
        "cat",
        "chrt",
        "irnic sim",
        "irnic config",
    ];
    if named == expected && shell::lines(script).len() == 3 { Vec::new() } else { vec![format!("{named:?}")] }
}
