//! Findings of checks.

use serde::Serialize;

/// Severity of a finding.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It may matter.
    Note,
    /// Applications fail, or run on something else.
    Wrong,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// Subject of the check.
    pub about: &'static str,
    pub found: String,
    /// Remedy; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    pub fn ok(about: &'static str, found: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Ok, about, found: found.into(), remedy: String::new() }
    }

    pub fn note(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Note, about, found: found.into(), remedy: remedy.into() }
    }

    pub fn wrong(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Wrong, about, found: found.into(), remedy: remedy.into() }
    }

    pub fn line(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Wrong => "wrong",
        };
        let remedy = if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        format!("{verdict:<6}{:<14}{}{remedy}\n", self.about, self.found)
    }
}
