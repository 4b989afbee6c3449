//! Shared parts of the commands for papers: selecting cells, performing the runs that they need, printing, writing and
//! drawing the results.

use std::fmt::Debug;
use std::path::Path;

use irnic_report::CommandError;
use irnic_report::junit;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pictures;
use crate::runs::{Make, Runs, Scenarios, once};
use crate::shared::{Common, choose, list};

/// A cell of the results: the scenarios it needs, and how it is computed from their runs.
pub trait Entry {
    /// A scenario.
    type Scenario: Clone + Debug + PartialEq + Sync;
    /// Results of a run.
    type Run: Serialize + DeserializeOwned + Send;
    /// The value, with that of the paper.
    type Result: Serialize;

    /// Its id: `table1/timely/avg_rtt`.
    fn id(&self) -> &str;

    /// Returns the scenarios that it needs.
    fn needed(&self) -> impl Iterator<Item = &Self::Scenario>;

    /// Computes the value from the runs of a scenario: one per seed, `None` where it failed.
    fn result<'a>(&self, runs: impl Fn(&Self::Scenario) -> Vec<Option<&'a Self::Run>>) -> Self::Result
    where
        Self::Run: 'a;
}

/// The runs of a paper's scenarios.
pub type RunsOf<'a, E> = Runs<'a, <E as Entry>::Scenario, <E as Entry>::Run>;

/// A paper's evaluation, of which a command performs a part.
pub struct Evaluation<'a, E: Entry, S> {
    /// The subcommand: `timely`.
    pub paper: &'static str,
    /// All cells.
    pub cells: Vec<E>,
    /// Prefixes of the ids that are selected; empty: all.
    pub only: &'a [String],
    /// The folder for pictures.
    pub svg: Option<&'a Path>,
    /// Options shared by all papers.
    pub common: &'a Common,
    /// Settings, other than scenarios and seeds, that results depend on; they are stored in result files.
    pub settings: S,
    /// Estimated relative run time, as [`irnic_sweep::Sweep::estimate`].
    pub estimate: &'a (dyn Fn(&E::Scenario) -> f64 + Sync),
    /// Rejects invalid scenarios before anything is run.
    pub check: &'a (dyn Fn(&E::Scenario) -> Result<(), CommandError> + Sync),
    /// Performs a run.
    pub make: &'a Make<'a, E::Scenario, E::Run>,
}

impl<E: Entry, S: Serialize> Evaluation<'_, E, S>
where
    for<'r> junit::Case: From<&'r E::Result>,
{
    /// Runs it: `print` prints the results, by seeds; `draw` returns names and contents of pictures.
    pub fn run(
        mut self,
        print: impl FnOnce(&[E::Result], &[u64]),
        draw: impl FnOnce(&[E], &RunsOf<'_, E>) -> Vec<(String, String)>,
    ) -> Result<(), CommandError> {
        choose(&mut self.cells, self.only, E::id)?;
        if self.common.list {
            list(self.cells.iter().map(E::id));
            return Ok(());
        }
        let Evaluation { paper, cells, svg, common, settings, .. } = self;
        let files = common.open(svg.is_some())?;
        pictures::prepare(svg)?;
        let seeds = common.seeds();
        let needed: Vec<E::Scenario> = once(cells.iter().flat_map(E::needed).cloned());
        let needs = |scenario: &E::Scenario| cells.iter().find(|cell| cell.needed().any(|s| s == scenario));
        let ids: Vec<&str> = needed.iter().map(|scenario| needs(scenario).map_or("", E::id)).collect();
        let scenarios = Scenarios {
            command: &format!("reproduce {paper}"),
            scenarios: &needed,
            cells: &ids,
            seeds: &seeds,
            settings: serde_json::to_string(&settings).map_err(|e| CommandError::Failed(e.to_string()))?,
            estimate: self.estimate,
            check: self.check,
            make: self.make,
        };
        let Some(runs) = scenarios.perform(&common.how())? else { return Ok(()) };
        let results: Vec<E::Result> = cells.iter().map(|cell| cell.result(|scenario| runs.of(scenario))).collect();
        let origin = &common.sweep.origin(runs.irnic());
        println!("{}\nirnic {}\n", origin.command, origin.irnic);
        print(&results, &seeds);
        if runs.any() {
            files.write(paper, origin, &settings, &seeds, &results)?;
            if let Some(folder) = svg {
                pictures::write(folder, origin, draw(&cells, &runs))?;
            }
        }
        runs.conclude()
    }
}
