//! Line plots as data, which the page draws: it fits the axes to the cases that are shown. Colours are the style
//! sheet's: a line belongs to a case, and has its class.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::picture::Axis;

/// A line of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Number of the case, which gives the colour.
    pub case: usize,
    /// Dashed: the second statistic of a plot that has two.
    pub dashed: bool,
    /// x and y.
    #[serde(serialize_with = "short")]
    pub points: Vec<(f64, f64)>,
    /// From where to where y goes at each point; empty if nowhere.
    #[serde(serialize_with = "short", skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// Name of the element.
    pub id: Cow<'static, str>,
    /// Heading.
    #[serde(skip)]
    pub title: Cow<'static, str>,
    /// What one sees, in a sentence.
    #[serde(skip)]
    pub caption: Cow<'static, str>,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Lines.
    pub lines: Vec<Line>,
}

/// Five digits are more than a screen shows.
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
        let plot = Plot { id: "p".into(), title: "t".into(), caption: "c".into(), x, y, lines: vec![line] };
        assert_eq!(
            serde_json::to_string(&plot).expect("JSON"),
            "{\"id\":\"p\",\"x\":{\"label\":\"a\",\"scale\":\"linear\"},\"y\":{\"label\":\"b\",\"scale\":\"log\"},\
             \"lines\":[{\"case\":3,\"dashed\":true,\"points\":[[0.0,0.33333],[15000.0,123460000.0]]}]}"
        );
    }
}
