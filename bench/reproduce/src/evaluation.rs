//! What the commands of papers have in common: cells are chosen, what they need is run, and the results are printed,
//! written and drawn.

use std::fmt::Debug;
use std::path::Path;

use irnic_report::CommandError;
use irnic_report::junit;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::pictures;
use crate::runs::{Make, Runs, Scenarios, once};
use crate::shared::{Common, choose, list};

/// A number of the results: what has to be run for it, and what is made of that.
pub trait Entry {
    /// What is run.
    type Scenario: Clone + Debug + PartialEq + Sync;
    /// What comes of a run.
    type Run: Serialize + DeserializeOwned + Send;
    /// The number beside the paper's.
    type Result: Serialize;

    /// Where it stands: `table1/timely/avg_rtt`.
    fn id(&self) -> &str;

    /// Returns what has to be run for it.
    fn needed(&self) -> impl Iterator<Item = &Self::Scenario>;

    /// The result, from the runs of a scenario: one for each seed, or nothing where it failed.
    fn result<'a>(&self, runs: impl Fn(&Self::Scenario) -> Vec<Option<&'a Self::Run>>) -> Self::Result
    where
        Self::Run: 'a;
}

/// The runs of a paper's scenarios.
pub type RunsOf<'a, E> = Runs<'a, <E as Entry>::Scenario, <E as Entry>::Run>;

/// A paper's evaluation, of which a command runs some.
pub struct Evaluation<'a, E: Entry, S> {
    /// The subcommand: `timely`.
    pub paper: &'static str,
    /// All cells.
    pub cells: Vec<E>,
    /// How the ids of those begin that are wanted; of all, if there are none.
    pub only: &'a [String],
    /// The folder for pictures.
    pub svg: Option<&'a Path>,
    /// What all papers' runs can be told.
    pub common: &'a Common,
    /// What results depend on besides scenarios and seeds; files of results have it, too.
    pub settings: S,
    /// How long a run may take beside the others, as [`irnic_sweep::Sweep::estimate`].
    pub estimate: &'a (dyn Fn(&E::Scenario) -> f64 + Sync),
    /// Finds what makes no sense before anything is run.
    pub check: &'a (dyn Fn(&E::Scenario) -> Result<(), CommandError> + Sync),
    /// Makes a run.
    pub make: &'a Make<'a, E::Scenario, E::Run>,
}

impl<E: Entry, S: Serialize> Evaluation<'_, E, S>
where
    for<'r> junit::Case: From<&'r E::Result>,
{
    /// Runs it: `print` says on the terminal what came out, by seeds; `draw` returns names and contents of pictures.
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
        print(&results, &seeds);
        if runs.any() {
            files.write(paper, &settings, &seeds, &results)?;
            if let Some(folder) = svg {
                pictures::write(folder, draw(&cells, &runs))?;
            }
        }
        runs.conclude()
    }
}
