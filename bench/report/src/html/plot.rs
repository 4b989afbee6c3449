//! Line plots as data, drawn by the page, which fits the axes to the visible cases. Colours are defined by the style
//! sheet: a line has the class of its case.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::picture::Axis;

/// A line of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Number of the case, which determines the colour.
    pub case: usize,
    /// Whether the line is dashed: the second statistic of a plot that has two.
    pub dashed: bool,
    /// Points, x and y.
    #[serde(serialize_with = "short")]
    pub points: Vec<(f64, f64)>,
    /// Range of y at each point; empty if there is none.
    #[serde(serialize_with = "short", skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<(f64, f64)>,
}

/// Something that happened at a time, shown as a vertical line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Where on the horizontal axis.
    pub at: f64,
    /// What happened.
    pub text: String,
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Id of the element.
    pub id: Cow<'static, str>,
    /// Heading.
    #[serde(skip)]
    pub title: Cow<'static, str>,
    /// Caption, one sentence.
    #[serde(skip)]
    pub caption: Cow<'static, str>,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines.
    pub lines: Vec<Line>,
    /// Events, if x is a time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// Rounds to five digits, more than a screen shows.
fn short<S: Serializer>(points: &[(f64, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    let round = |value: f64| format!("{value:.4e}").parse::<f64>().unwrap_or(value);
    serializer.collect_seq(points.iter().map(|(x, y)| (round(*x), round(*y))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Scale;

    #[test]
    fn points_are_written_short() {
        let axis = |label, scale| Axis { label, scale };
        let line = Line {
            case: 3,
            dashed: true,
            points: vec![(0.0, 1.0 / 3.0), (15_000.0, 123_456_789.0)],
            spread: Vec::new(),
        };
        let (x, y) = (axis("a", Scale::Linear), axis("b", Scale::Log));
        let (id, title, caption) = ("p".into(), "t".into(), "c".into());
        let plot = Plot { id, title, caption, x, y, lines: vec![line], events: Vec::new() };
        assert_eq!(
            serde_json::to_string(&plot).expect("JSON"),
            "{\"id\":\"p\",\"x\":{\"label\":\"a\",\"scale\":\"linear\"},\"y\":{\"label\":\"b\",\"scale\":\"log\"},\
             \"lines\":[{\"case\":3,\"dashed\":true,\"points\":[[0.0,0.33333],[15000.0,123460000.0]]}]}"
        );
    }
}
