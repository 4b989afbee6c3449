//! Output files of a lab.

use std::path::PathBuf;

use irnic_report::junit;
use irnic_report::output::OutFile;

use crate::args::LabArgs;
use crate::error::LabError;
use crate::html;
use crate::report::Report;

/// Output files.
pub struct Files {
    json: Option<OutFile>,
    csv: Option<OutFile>,
    junit: Option<junit::File>,
    series: Option<OutFile>,
    port_series: Option<OutFile>,
    html: Option<OutFile>,
}

impl Files {
    /// Opens the files, which detects those that cannot be written.
    pub fn open(args: &LabArgs) -> Result<Files, LabError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutFile::open).transpose().map_err(LabError::Usage);
        Ok(Files {
            json: open(&args.json)?,
            csv: open(&args.csv)?,
            junit: args.junit.as_deref().map(junit::File::open).transpose().map_err(LabError::Usage)?,
            series: open(&args.series)?,
            port_series: open(&args.port_series)?,
            html: open(&args.html)?,
        })
    }

    /// Returns whether the network must be sampled.
    pub fn need_samples(&self) -> bool {
        self.series.is_some() || self.port_series.is_some() || self.html.is_some()
    }

    /// Writes all files, with how to get them again. An error in one does not affect the others.
    pub fn write(self, report: &Report<'_>) -> Result<(), LabError> {
        let Files { json, csv, junit, series, port_series, html } = self;
        let (lab, topology, origin) = (report.view.lab, report.topology, report.origin);
        let mut written = vec![json.map(|file| file.write(|out| report.write(out)))];
        written.push(csv.map(|file| file.write(|out| report.write_csv(out))));
        written.push(junit.map(|file| file.write("irnic lab", report.cases())));
        if let Some(samples) = report.view.samples {
            written.extend([
                series.map(|file| file.write(|out| samples.write(out, origin))),
                port_series.map(|file| file.write(|out| samples.write_ports(out, origin, lab, topology))),
                html.map(|file| file.write(|out| html::write(out, report, samples))),
            ]);
        }
        let failed: Vec<String> = written.into_iter().flatten().filter_map(Result::err).collect();
        if failed.is_empty() { Ok(()) } else { Err(LabError::Failed(failed.join("\n"))) }
    }
}
