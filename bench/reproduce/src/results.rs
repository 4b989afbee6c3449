//! Recorded results of the papers, `fixtures/results/`, against the ranges of `fixtures/reference/`, and the parts of
//! docs that come from both. `IRNIC_BLESS=1` writes those anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use irnic_testkit::skip::skipped;
use serde::Deserialize;

use crate::claims::{Answer, Answers, Distances, Judged as _, Tally, sentences};
use crate::compared::{Compared, Said};

/// A page of a paper.
struct Page {
    /// The subcommand.
    paper: &'static str,
    path: &'static str,
    title: &'static str,
    /// Whether it is about a cell.
    about: fn(&str) -> bool,
}

impl Page {
    const fn new(paper: &'static str, path: &'static str, title: &'static str) -> Page {
        Page { paper, path, title, about: |_| true }
    }

    /// Returns the paper's results, if one is of a cell that the page is about.
    fn results(&self) -> Option<Results> {
        results_of(self.paper).filter(|results| results.cells.iter().any(|value| (self.about)(&value.id)))
    }
}

/// Whether a cell of universal packet scheduling is of §5.1, about replays.
fn is_replay(id: &str) -> bool {
    ["congestion/", "table5.1/", "figure5.1/"].iter().any(|of| id.starts_with(of))
}

const PAGES: [Page; 10] = [
    Page::new("irn", "reproduction.md#irn", "IRN"),
    Page::new("timely", "reproduction-timely.md", "TIMELY"),
    Page::new("ndp", "reproduction-ndp.md", "NDP"),
    Page::new("tlt", "reproduction-tlt.md", "TLT"),
    Page::new("rc3", "reproduction-rc3.md", "RC3"),
    Page { about: is_replay, ..Page::new("ups", "reproduction-ups.md", "Universal packet scheduling") },
    Page { about: |id| !is_replay(id), ..Page::new("ups", "reproduction-ups-objectives.md", "its objectives") },
    Page::new("rocc", "reproduction-rocc.md", "RoCC"),
    Page::new("escape", "reproduction-escape.md", "Escape"),
    Page::new("openqueue", "reproduction-openqueue.md", "OpenQueue"),
];

/// Papers, each once.
const PAPERS: [&str; 9] = ["irn", "timely", "ndp", "tlt", "rc3", "ups", "rocc", "escape", "openqueue"];

/// Marks around what is generated.
const BEGIN: &str = "<!-- made from fixtures/results -->\n";
const END: &str = "<!-- end of fixtures/results -->\n";

/// The results of a paper.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Results {
    /// The commit of the ranges: the last that changed `fixtures/reference/`.
    ranges: String,
    /// What was run.
    runs: Vec<Run>,
    /// The cells of these runs.
    cells: Vec<Value>,
}

/// A command of which results are recorded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    command: String,
    /// The commit that was run.
    commit: String,
    seeds: Vec<u64>,
    date: String,
}

/// A cell: the mean over seeds, and half of its 95 % confidence interval, if there are several.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Value {
    id: String,
    ours: f64,
    confidence: Option<f64>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn results_of(paper: &str) -> Option<Results> {
    let path = root().join(format!("fixtures/results/{paper}.json"));
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("fixtures/results/{paper}.json: {e}")))
}

fn said_of(paper: &str) -> Vec<(String, Said)> {
    match paper {
        "irn" => crate::irn::said(),
        "timely" => crate::timely::said(),
        "ndp" => crate::ndp::said(),
        "tlt" => crate::tlt::said(),
        "rc3" => crate::rc3::said(),
        "ups" => crate::ups::said(),
        "rocc" => crate::rocc::said(),
        "escape" => crate::escape::said(),
        _ => crate::openqueue::said(),
    }
}

/// All cells of a page, with the results that are recorded.
fn cells_of(page: &Page, results: Option<&Results>) -> Vec<Compared> {
    let of = |(id, said): (String, Said)| {
        let value = results.and_then(|results| results.cells.iter().find(|value| value.id == id));
        Compared::of(&id, &said, value.map(|value| value.ours), value.and_then(|value| value.confidence))
    };
    said_of(page.paper).into_iter().filter(|(id, _)| (page.about)(id)).map(of).collect()
}

/// Counts sentences for a table: those that hold, fail, are not decided, and have no result.
fn counts(answers: Answers) -> String {
    if answers.all() == 0 {
        return "-".to_owned();
    }
    let Answers { hold, fail, undecided, missing } = answers;
    format!("{hold}, {fail}, {undecided}, {missing}")
}

fn near(distances: Distances) -> String {
    let Distances { near, within, all } = distances;
    if all == 0 { "-".to_owned() } else { format!("{near}, {within} of {all}") }
}

/// The table of all papers.
fn table(prefix: &str) -> String {
    let mut table = "| paper | sentences | ranges of ours | fitted | numbers | fitted | seeds | date |\n".to_owned();
    table += "|---|---|---|---|---|---|---|---|\n";
    for page in &PAGES {
        let results = page.results();
        let tally = Tally::of(&cells_of(page, results.as_ref()));
        let path =
            if prefix.is_empty() { page.path.strip_prefix("reproduction.md").unwrap_or(page.path) } else { page.path };
        let runs = results.iter().flat_map(|results| &results.runs);
        let (mut seeds, mut dates): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
        for run in runs {
            seeds.push(run.seeds.len().to_string());
            dates.push(&run.date);
        }
        seeds.dedup();
        dates.dedup();
        let [numbers, fitted] = tally.numbers.map(near);
        let or_not = |some: String| if some.is_empty() { "not run".to_owned() } else { some };
        let cells = [
            format!("[{}]({path})", page.title),
            counts(tally.sentences),
            counts(tally.ours),
            counts(tally.fitted),
            numbers,
            fitted,
            or_not(seeds.join(", ")),
            or_not(dates.join(", ")),
        ];
        writeln!(table, "| {} |", cells.join(" | ")).expect("a string");
    }
    table
}

/// The head of a paper's page: what was run, what is counted, and which sentences fail.
fn head(page: &Page) -> String {
    let results = page.results();
    let cells = cells_of(page, results.as_ref());
    let tally = Tally::of(&cells);
    let Some(results) = results else {
        let all = tally.sentences.all();
        return format!(
            "None of the text's {all} sentences has a recorded result since ranges are those of the\n\
             [text's words](reproduction.md#what-counts). Numbers below are of earlier runs.\n"
        );
    };
    let mut head = "Recorded results ([what counts](reproduction.md#what-counts)):\n\n".to_owned();
    for (what, answers) in [
        ("sentences", tally.sentences),
        ("sentences with ranges of ours", tally.ours),
        ("fitted sentences", tally.fitted),
    ] {
        if answers.all() > 0 {
            writeln!(head, "- {} {what}: {answers}", answers.all()).expect("a string");
        }
    }
    for (what, Distances { near, within, all }) in ["printed numbers", "fitted numbers"].into_iter().zip(tally.numbers)
    {
        if all > 0 {
            writeln!(head, "- {all} {what}: {near} within 5 %, {within} within 25 %").expect("a string");
        }
    }
    head += "\n| run | seeds | commit | date |\n|---|---|---|---|\n";
    for Run { command, commit, seeds, date } in &results.runs {
        writeln!(head, "| `{command}` | {} | {} | {date} |", seeds.len(), &commit[..8]).expect("a string");
    }
    head += &contradicted(&cells);
    head
}

/// Lists the sentences that fail.
fn contradicted(cells: &[Compared]) -> String {
    let mut list = String::new();
    for (claimed, fitted, answer) in sentences(cells) {
        if answer != Some(Answer::Fails) || fitted || claimed.source == crate::claims::Source::Ours {
            continue;
        }
        let worst = cells.iter().find(|cell| cell.claimed() == Some(claimed) && cell.answer == Some(Answer::Fails));
        let Some(cell) = worst else { continue };
        let (ours, theirs) = (crate::table::ours(cell), crate::table::paper(cell.paper));
        let place = claimed.place.as_deref().unwrap_or_default();
        writeln!(list, "| {} | {place} | {theirs} | {ours} | `{}` |", claimed.text, cell.id).expect("a string");
    }
    if list.is_empty() {
        return String::new();
    }
    format!(
        "\nContradicted, by the first cell that fails:\n\n| sentence | place | range | ours | cell |\n|---|---|---|---|---|\n{list}"
    )
}

/// Replaces what is between the marks of a page, or compares it.
fn bless(page: &str, right: &str) {
    let path = format!("docs/{page}");
    let text = read(&path);
    let (before, rest) = text.split_once(BEGIN).unwrap_or_else(|| panic!("{path}: no mark"));
    let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("{path}: no mark of the end"));
    let whole = format!("{before}{BEGIN}{right}{END}{after}");
    if std::env::var_os("IRNIC_BLESS").is_some() {
        std::fs::write(root().join(&path), &whole).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    assert_eq!(read(&path), whole, "run with IRNIC_BLESS=1 to write it anew");
}

#[test]
fn pages_have_the_tables_and_heads_of_the_recorded_results() {
    bless("reproduction.md", &table(""));
    bless("seeds.md", &table("seeds"));
    for page in PAGES.iter().filter(|page| !page.path.contains('#')) {
        bless(page.path, &head(page));
    }
}

#[test]
fn results_are_of_cells_that_there_are() {
    for paper in PAPERS {
        let Some(results) = results_of(paper) else { continue };
        let said = said_of(paper);
        let mut ids: Vec<&str> = results.cells.iter().map(|value| value.id.as_str()).collect();
        assert!(!ids.is_empty() && !results.runs.is_empty(), "{paper}");
        for id in &ids {
            assert!(said.iter().any(|(known, _)| known == id), "{paper}: {id}");
        }
        ids.sort_unstable();
        assert!(ids.windows(2).all(|w| w[0] != w[1]), "{paper}: a cell is twice there");
        for Run { command, commit, seeds, date } in &results.runs {
            assert!(command.starts_with(&format!("irnic reproduce {paper}")) && !seeds.is_empty(), "{command}");
            assert!(!command.contains("--quick"), "{command}: its numbers are not comparable with the paper's");
            assert!(commit.len() == 40 && date.len() == 10, "{commit} {date}");
        }
    }
}

/// Runs git in the repository; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A range is not changed together with results, which name the commit of the ranges that they are of: an earlier one.
/// When ranges change, the next commit has results by them.
#[test]
fn ranges_are_older_than_the_results_that_are_held_against_them() {
    if git(&["rev-parse", "--is-shallow-repository"]).as_deref() != Some("false") {
        return skipped("no history of this repository");
    }
    for paper in PAPERS {
        let Some(Results { ranges, .. }) = results_of(paper) else { continue };
        let (reference, results) =
            (format!("fixtures/reference/{paper}.toml"), format!("fixtures/results/{paper}.json"));
        let ancestor = git(&["merge-base", "--is-ancestor", &ranges, "HEAD"]);
        assert!(ancestor.is_some(), "{results} names {ranges}, which is no commit before this one");
        let same = git(&["diff", "--quiet", &ranges, "--", &reference]);
        let last = git(&["log", "-1", "--format=%H", "--", &reference]);
        let just_now = last.is_some() && last == git(&["rev-parse", "HEAD"]);
        assert!(same.is_some() || just_now, "{reference} has changed since {ranges}, of which {results} has results");
        let files =
            |commit: &str| git(&["diff-tree", "--no-commit-id", "--name-only", "-r", commit]).unwrap_or_default();
        let both = |commit: &str| {
            let files = files(commit);
            files.lines().any(|file| file == reference) && files.lines().any(|file| file == results)
        };
        let commits = git(&["log", "--format=%H", "--", &results]).unwrap_or_default();
        let bad = commits.lines().find(|commit| both(commit));
        assert_eq!(bad, None, "changes {reference} and {results} together");
    }
}

/// A document: its letter in docs/seeds.md, its figures and tables, and the papers that have cells of it.
struct Document {
    letter: &'static str,
    /// Chapters, each with its last figure and table; 0 if they are not numbered by chapter.
    chapters: &'static [(u32, u32, u32)],
    papers: &'static [&'static str],
}

const DOCUMENTS: [Document; 5] = [
    Document {
        letter: "M",
        chapters: &[(2, 18, 1), (3, 21, 1), (4, 12, 9), (5, 9, 4)],
        papers: &["rc3", "irn", "ups"],
    },
    Document { letter: "N", chapters: &[(0, 23, 0)], papers: &["ndp"] },
    Document { letter: "T", chapters: &[(0, 23, 1)], papers: &["timely"] },
    Document { letter: "D", chapters: &[(2, 19, 0), (3, 15, 3), (4, 17, 1)], papers: &["openqueue", "rocc", "escape"] },
    Document { letter: "L", chapters: &[(0, 18, 1)], papers: &["tlt"] },
];

impl Document {
    /// Returns all figures and tables: `figure2.1`, `table1`.
    fn all(&self) -> Vec<String> {
        let mut all = Vec::new();
        for &(chapter, figures, tables) in self.chapters {
            let of = |kind: &str, n| if chapter == 0 { format!("{kind}{n}") } else { format!("{kind}{chapter}.{n}") };
            all.extend((1..=figures).map(|n| of("figure", n)).chain((1..=tables).map(|n| of("table", n))));
        }
        all
    }

    /// Returns those that cells show.
    fn shown(&self) -> Vec<String> {
        let ids = self.papers.iter().flat_map(|paper| said_of(paper)).map(|(id, _)| id);
        let figure = |id: String| {
            id.split('/').next().unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_lowercase()).to_owned()
        };
        ids.map(figure).collect()
    }
}

/// Parses `Figures 1, 3, 5 to 9, Table 2` into `figure1`, ….
fn listed(text: &str) -> Vec<String> {
    let mut kind = "";
    let mut all = Vec::new();
    for part in text.split(", ") {
        if part.starts_with("Figure") {
            kind = "figure";
        } else if part.starts_with("Table") {
            kind = "table";
        }
        all.extend(numbers(kind, part));
    }
    all
}

/// Numbers of a part: `Figures 5 to 9`, `2.1`.
fn numbers(kind: &str, part: &str) -> Vec<String> {
    let bare = part.trim_start_matches(|c: char| !c.is_ascii_digit());
    let Some((first, last)) = bare.split_once(" to ") else { return vec![format!("{kind}{bare}")] };
    let split = |number: &str| match number.rsplit_once('.') {
        Some((chapter, n)) => (format!("{chapter}."), n.parse::<u32>().expect("a number")),
        None => (String::new(), number.parse().expect("a number")),
    };
    let ((chapter, from), (_, to)) = (split(first), split(last));
    (from..=to).map(|n| format!("{kind}{chapter}{n}")).collect()
}

/// Every figure and table of the five documents is a cell, or is listed under "left out" with the reason.
#[test]
fn every_figure_is_a_cell_or_left_out_by_its_number() {
    let page = read("docs/seeds.md");
    let (_, left_out) = page.split_once("## What is left out\n").expect("the section");
    let left_out = left_out.split("\n## ").next().unwrap_or_default();
    for document in &DOCUMENTS {
        let shown = document.shown();
        let mut out = Vec::new();
        for line in left_out.lines().filter_map(|line| line.strip_prefix(&format!("- {} ", document.letter))) {
            let (figures, why) = line.split_once(": ").unwrap_or_else(|| panic!("{line}: no reason"));
            assert!(!why.is_empty(), "{line}");
            if figures.starts_with(['F', 'T']) {
                out.extend(listed(figures));
            }
        }
        let all = document.all();
        for figure in &all {
            let (cell, line) = (shown.contains(figure), out.contains(figure));
            assert!(cell || line, "{} {figure} is neither a cell nor left out", document.letter);
        }
        let unknown: Vec<&String> = out.iter().filter(|figure| !all.contains(figure)).collect();
        assert!(unknown.is_empty(), "{} has no {unknown:?}", document.letter);
    }
}

#[test]
fn figures_are_listed_by_ranges() {
    assert_eq!(listed("Figures 1, 3 to 5, Table 2"), ["figure1", "figure3", "figure4", "figure5", "table2"]);
    assert_eq!(listed("Tables 2.1, 2.9 to 2.10, Figure 4.1"), ["table2.1", "table2.9", "table2.10", "figure4.1"]);
}
