//! Self-contained HTML pages with plots and tables, without network access.

pub mod plot;

use std::fmt::Write as _;
use std::io;

use crate::looks::{DASHES, Look, MARKS};
use crate::origin::Origin;
use crate::picture::escaped;
use plot::Plot;

/// Maximum number of points of a line, about as many as a plot has room for.
pub const POINTS: usize = 200;
/// Characters of a cell of a table from which it has several lines, as commands have.
const LONG: usize = 40;
/// The style sheet, and the script that draws plots.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the elements in which plots are drawn.
pub fn figures(page: &mut String, plots: &[Plot]) {
    page.push_str("<section class=\"plots\">\n");
    for Plot { id, title, caption, .. } in plots {
        let _ = writeln!(
            page,
            "<figure><figcaption><h3>{title}</h3><p>{caption}</p></figcaption>\
             <svg id=\"{id}\" class=\"plot\" role=\"img\" aria-label=\"{title}\"></svg></figure>"
        );
    }
    page.push_str(
        "</section>\n<noscript><p class=\"bad\">The plots are drawn by JavaScript, which is off.</p></noscript>\n",
    );
}

/// Writes how to get the results again, the data of plots, the script, and the end of the page.
pub fn end(page: &mut String, origin: &Origin, plots: &[Plot]) -> io::Result<()> {
    let _ = writeln!(page, "<p class=\"origin\">{}</p>", escaped(&origin.to_string()));
    // Texts of events may contain anything.
    let data = serde_json::to_string(plots).map_err(io::Error::other)?.replace("</", "<\\/");
    let marks = serde_json::to_string(&MARKS).map_err(io::Error::other)?;
    let _ = writeln!(page, "<script id=\"marks\" type=\"application/json\">{marks}</script>");
    let _ = writeln!(page, "<script id=\"plots\" type=\"application/json\">{data}</script>");
    let _ = writeln!(page, "<script>\n{SCRIPT}</script>\n</body>\n</html>");
    Ok(())
}

/// Writes the beginning of a page, up to its heading, with the looks of the lines of cases.
pub fn begin(page: &mut String, title: &str, looks: &[Look]) {
    let title = escaped(title);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}"
    );
    colours(page, looks);
    let _ = writeln!(page, "</style>\n</head>\n<body>\n<h1>{title}</h1>");
}

/// Writes the names of cases as buttons that hide and show their lines.
pub fn buttons(page: &mut String, names: impl IntoIterator<Item = String>, looks: &[Look]) {
    page.push_str("<div class=\"legend\">");
    for ((case, name), Look { mark, .. }) in names.into_iter().enumerate().zip(looks) {
        let name = escaped(&name);
        let _ = write!(
            page,
            "<button class=\"s{case}\" data-case=\"{case}\" data-mark=\"{mark}\" aria-pressed=\"true\">\
             <svg class=\"key\" viewBox=\"-15 -6 30 12\" aria-hidden=\"true\"><path class=\"series s{case}\" d=\"M-15 0h30\"/>\
             <path class=\"series s{case} mark\" d=\"{}\"/></svg><span>{name}</span></button>",
            MARKS[*mark]
        );
    }
    page.push_str("</div>\n");
}

/// Writes a table under a heading, if it has rows. The first cell of a row is its name.
pub fn table(page: &mut String, heading: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return;
    }
    let cells = |element, cells: &mut dyn Iterator<Item = &str>| {
        let class = |cell: &str| if cell.chars().count() > LONG { " class=\"long\"" } else { "" };
        let one = |cell: &str| format!("<{element}{}>{}</{element}>", class(cell), escaped(cell));
        cells.map(one).collect::<String>()
    };
    let head = cells("th", &mut head.iter().copied());
    let _ = writeln!(page, "<h2>{heading}</h2>\n<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>");
    for row in rows {
        let first = cells("th", &mut row.iter().take(1).map(String::as_str));
        let rest = cells("td", &mut row.iter().skip(1).map(String::as_str));
        let _ = writeln!(page, "<tr>{first}{rest}</tr>");
    }
    page.push_str("</tbody></table></div>\n");
}

/// Writes the colours and dashes of cases.
fn colours(page: &mut String, looks: &[Look]) {
    for (case, Look { colour, dash, .. }) in looks.iter().enumerate() {
        let _ = writeln!(page, ".s{case} {{ color: var(--c{colour}); stroke-dasharray: {}; }}", DASHES[*dash]);
    }
}

/// Reduces points to as many as a screen shows: the highest of each interval, so that no peak is lost, and the last,
/// where a line ends.
pub fn peaks(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(POINTS - 1).max(1);
    let highest = points.chunks(stretch).filter_map(|c| c.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)));
    let mut shown: Vec<(f64, f64)> = highest.collect();
    if let Some(last) = points.last()
        && shown.last() != Some(last)
    {
        shown.push(*last);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_cells_of_a_table_are_wrapped() {
        let mut page = String::new();
        let row = |first: String| vec![first, "0".to_owned()];
        table(&mut page, "Commands", &["command", "status"], ["sh".to_owned(), "x".repeat(41)].map(row).into_iter());
        assert!(page.contains("<tr><th>sh</th><td>0</td></tr>") && page.contains("<th class=\"long\">xxx"), "{page}");
    }

    #[test]
    fn no_peak_is_lost() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        points[7_654].1 = 9.0;
        points[9_999].1 = 0.0;
        let shown = peaks(points);
        assert!(shown.len() <= POINTS && shown.contains(&(7_654.0, 9.0)));
        assert_eq!(shown.last(), Some(&(9_999.0, 0.0)), "a line ends where its last point is");
        assert_eq!(peaks(vec![(0.0, 1.0), (1.0, 0.0)]), [(0.0, 1.0), (1.0, 0.0)]);
    }
}
