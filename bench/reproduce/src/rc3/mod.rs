//! `irnic reproduce rc3`: RC3's evaluation (Mittal's dissertation, §2.4 and §2.5), compared with our results.
//!
//! [`networks`] and [`scenario`] define what is run, [`measure`] runs it, [`cells`] lists the results, [`theory`] needs
//! no runs.

mod cells;
mod measure;
mod networks;
mod scenario;
mod theory;

use clap::Args;
use irnic_report::CommandError;
use serde::Serialize;

use crate::evaluation::Evaluation;
use crate::shared::Common;
use crate::table;

/// RC3's evaluation: completion times with a second loop at low priority, compared with TCP's.
///
/// Compares irnic with Table 2.1, Figures 2.7 to 2.10 and 2.13 and the datacenter of §2.5 of the dissertation, as far
/// as the text describes them in numbers or words, and adds a table of its own: which of IRN, TCP and TCP with RC3 is
/// fastest in a datacenter. See docs/reproduction-rc3.md for what the text leaves open and the choices made.
#[derive(Args)]
#[command(after_help = "Examples:
  irnic reproduce rc3 --theory                       only the model, without any run
  irnic reproduce rc3 --only table2.1 --quick        the first row of Table 2.1, shorter
  irnic reproduce rc3 --only which                   IRN, TCP and RC3 in a datacenter
  irnic reproduce rc3 --seeds 3 --json rc3.json      everything, with confidence intervals, also as JSON")]
pub struct Rc3Args {
    /// Run only cells whose id starts with ID, such as table2.1 or figure2.13a; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Shorten runs: 2.2 of 5 s of the backbone
    #[arg(long)]
    quick: bool,
    /// Print the model of §2.2 for the evaluation's sizes and run nothing
    #[arg(long)]
    theory: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Settings that results depend on.
#[derive(Serialize)]
struct Settings {
    quick: bool,
}

impl Rc3Args {
    /// Runs what the arguments ask for.
    pub fn run(&self) -> Result<(), CommandError> {
        if self.theory {
            print_theory();
            return Ok(());
        }
        let quick = self.quick;
        let evaluation = Evaluation {
            paper: "rc3",
            cells: cells::rc3(&cells::reference()),
            only: &self.only,
            svg: None,
            common: &self.common,
            settings: Settings { quick },
            estimate: &|scenario| scenario.weight(quick),
            check: &|_| Ok(()),
            make: &|scenario, seed, watch| measure::one(scenario, quick, seed, watch),
        };
        let units = "Completion times in s, other numbers in %.";
        evaluation.run(|results, seeds| table::all(results, seeds, quick, units), |_, _| Vec::new())
    }
}

/// Prints the model next to the authors' line.
fn print_theory() {
    let path = theory::Path::INTERNET2;
    println!("Internet-2, 1 Gbit/s, 30 % load: completion times in ms, and by how much RC3's are shorter, %");
    println!("  {:>7} {:>9} {:>9} {:>7} {:>9}", "packets", "TCP", "RC3", "model", "authors'");
    for ((packets, _), authors) in theory::SIZES.into_iter().zip(theory::AUTHORS) {
        let (tcp, rc3, less) = (path.tcp(packets) * 1e3, path.rc3(packets) * 1e3, path.reduction(packets));
        println!("  {packets:>7} {tcp:>9.1} {rc3:>9.1} {less:>7.2} {authors:>9.2}");
    }
    let (tcp, rc3) = (theory::means(|n| path.tcp(n)), theory::means(|n| path.rc3(n)));
    for (name, at) in [("flows", 0), ("bytes", 1)] {
        let less = 100.0 * (1.0 - rc3[at] / tcp[at]);
        println!("  {name:>7} {:>9.1} {:>9.1} {less:>7.2}", tcp[at] * 1e3, rc3[at] * 1e3);
    }
}

/// What the paper says of all cells, by their ids.
#[cfg(test)]
pub fn said() -> Vec<(String, crate::compared::Said)> {
    crate::points::said(cells::rc3(&cells::reference()))
}
