//! Figures: the scenarios of each, and their files.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use irnic_report::CommandError;
use irnic_report::origin::Origin;
use irnic_report::output::{OutFile, check_folder};
use irnic_report::picture::{Plot, described, draw};

/// Scenarios by the names of the rows of cells.
pub struct Rows<'a, S>(Vec<(&'a str, &'a S)>);

impl<'a, S> Rows<'a, S> {
    /// Collects rows from the ids of cells, `figure14/432/ndp/mean`, and scenarios. Cells of one row must be adjacent.
    pub fn new(cells: impl Iterator<Item = (&'a str, &'a S)>) -> Rows<'a, S> {
        let mut rows: Vec<(&str, &S)> = Vec::new();
        for (id, scenario) in cells {
            let name = id.rsplit_once('/').map_or(id, |(name, _)| name);
            if rows.last().is_none_or(|(last, _)| *last != name) {
                rows.push((name, scenario));
            }
        }
        Rows(rows)
    }

    /// Returns the rows of a figure, by the rest of their names.
    pub fn of(&self, figure: impl Display) -> Vec<(&'a str, &'a S)> {
        self.below(&format!("figure{figure}"))
    }

    /// Returns the rows of a figure or a table, such as `table5.2`, by the rest of their names.
    pub fn below(&self, of: &str) -> Vec<(&'a str, &'a S)> {
        let rest = |name: &'a str| name.strip_prefix(of)?.strip_prefix('/');
        self.0.iter().filter_map(|(name, scenario)| Some((rest(name)?, *scenario))).collect()
    }
}

/// Returns a line for each name that `place` derives from the rows' names: x is from `place`, y from `value`. Rows
/// without either are skipped.
pub fn swept<S>(
    rows: &[(&str, &S)],
    place: impl Fn(&str) -> Option<(String, f64)>,
    value: impl Fn(&S) -> Option<f64>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for (name, scenario) in rows {
        let Some(((line, x), y)) = place(name).zip(value(scenario)) else { continue };
        match lines.iter_mut().find(|(of, _)| *of == line) {
            Some((_, points)) => points.push((x, y)),
            None => lines.push((line, vec![(x, y)])),
        }
    }
    lines
}

/// Returns the mean, if there is a value.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

/// A figure: its number, title, and plots.
pub type Picture<F> = (F, &'static str, Vec<Plot>);

/// Returns names and contents of the files. Figures with a plot without lines are skipped.
pub fn files<F: Display>(pictures: Vec<Picture<F>>) -> Vec<(String, String)> {
    let drawn = pictures.into_iter().filter(|(.., plots)| plots.iter().all(|p| !p.series.is_empty()));
    let file = |(figure, title, plots): Picture<F>| {
        (format!("figure{figure}.svg"), draw(&format!("Figure {figure}: {title}"), &plots))
    };
    drawn.map(file).collect()
}

/// Checks before anything runs that the folder of `--svg` exists or can be created.
pub fn prepare(folder: Option<&Path>) -> Result<(), CommandError> {
    let Some(folder) = folder else { return Ok(()) };
    check_folder(folder).map_err(|e| CommandError::Usage(format!("--svg {e}")))?;
    let is_new = !folder.exists();
    create(folder).map_err(CommandError::Usage)?;
    if is_new {
        // There may be nothing to draw.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(())
}

fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("--svg {}: {e}", folder.display()))
}

/// Writes files into the folder, with how to get them again.
pub fn write(folder: &Path, origin: &Origin, files: Vec<(String, String)>) -> Result<(), CommandError> {
    if !files.is_empty() {
        create(folder).map_err(CommandError::Failed)?;
    }
    for (name, svg) in files {
        let (path, svg) = (folder.join(name), described(&svg, &origin.to_string()));
        let written = OutFile::open(&path).and_then(|file| file.write(|to| to.write_all(svg.as_bytes())));
        written.map_err(|e| CommandError::Failed(format!("--svg {e}")))?;
    }
    Ok(())
}
