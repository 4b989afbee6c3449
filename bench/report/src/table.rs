//! Text tables.

use std::fmt::Write as _;

/// Writes cells in columns, the first left-aligned, the others right-aligned.
pub fn align(out: &mut String, lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |at: usize| lines.iter().map(|l| l[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let mut text = String::new();
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if at == 0 {
                let _ = write!(text, "{cell:<width$}");
            } else {
                let _ = write!(text, "  {cell:>width$}");
            }
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        let mut out = String::new();
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        align(&mut out, &[line(["", "a", "long name"]), line(["sizes", "", ""]), line(["x", "12", "3"])]);
        assert_eq!(out, "        a  long name\nsizes\nx      12          3\n");
    }
}
