//! Line plots as SVG. Colours are the style sheet's: a line belongs to a case, and has its class.

use std::fmt::Write;

/// Size in units of the drawing; the page scales it.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 320.0;
/// Room for numbers and labels: left, top, right, bottom.
const MARGIN: (f64, f64, f64, f64) = (56.0, 12.0, 16.0, 46.0);

/// How values become places.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// In proportion, from 0.
    Linear,
    /// By magnitude; values of 0 have no place.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is along it, and the unit.
    pub label: &'static str,
    /// Scale.
    pub scale: Scale,
}

/// A line of one case.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number of the case, which gives the colour.
    pub case: usize,
    /// Dashed: the second statistic of a plot that has two.
    pub dashed: bool,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Name of the element.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What one sees, in a sentence.
    pub caption: &'static str,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Lines.
    pub lines: Vec<Line>,
}

/// Values to places.
struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    fn of(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Range {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let low = usable.clone().fold(f64::INFINITY, f64::min);
        let high = usable.fold(f64::NEG_INFINITY, f64::max);
        match scale {
            _ if low > high => Range { low: if scale == Scale::Log { 1.0 } else { 0.0 }, high: 10.0, scale },
            Scale::Linear => Range { low: 0.0, high: if high > 0.0 { ceiling(high) } else { 1.0 }, scale },
            Scale::Log => {
                let (low, high) = (step_down(low), step_up(high));
                Range { low, high: if high > low { high } else { low * 10.0 }, scale }
            }
        }
    }

    /// 0 to 1.
    fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let step = nice(self.high / 8.0);
                (0..=20).map(|i| f64::from(i) * step).take_while(|v| *v <= self.high * 1.000_001).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let within: &[f64] = if decades > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = self.low.log10().floor() as i32;
                let last = self.high.log10().ceil() as i32;
                let all = (first..=last).flat_map(|e| within.iter().map(move |m| m * 10f64.powi(e)));
                all.filter(|v| *v >= self.low * 0.999_999 && *v <= self.high * 1.000_001).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `value`.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let times = value / power;
    power
        * if times <= 1.000_001 {
            1.0
        } else if times <= 2.000_001 {
            2.0
        } else if times <= 5.000_001 {
            5.0
        } else {
            10.0
        }
}

/// The end of an axis on which `high` has room.
fn ceiling(high: f64) -> f64 {
    let step = nice(high / 8.0);
    (high / step - 1e-9).ceil() * step
}

fn step_up(value: f64) -> f64 {
    nice(value)
}

fn step_down(value: f64) -> f64 {
    let up = nice(value);
    if up <= value * 1.000_001 {
        up
    } else {
        [0.5, 0.4, 0.2]
            .map(|f| up * f)
            .into_iter()
            .find(|v| *v <= value && nice(*v) <= *v * 1.000_001)
            .unwrap_or(up / 10.0)
    }
}

/// A number with few digits: 15000 is 15k, 0.002 is 2m.
pub fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 6] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m")];
    if value == 0.0 {
        return "0".into();
    }
    if (1_000.0..10_000.0).contains(&value) {
        return format!("{value:.0}");
    }
    // Down to a hundredth a plain decimal reads better.
    let (unit, name) = UNITS
        .into_iter()
        .find(|(unit, _)| value.abs() >= unit * 0.999_999)
        .map_or((1.0, ""), |found| if (0.01..1.0).contains(&value.abs()) { (1.0, "") } else { found });
    let text = format!("{:.2}", value / unit);
    let text = if value.abs() < 0.001 { format!("{value:e}") } else { text };
    let text = if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{name}")
}

impl Plot {
    /// The drawing.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let x = Range::of(points().map(|p| p.0), self.x.scale);
        let y = Range::of(points().map(|p| p.1), self.y.scale);
        let (left, top, right, bottom) = MARGIN;
        let (inner_width, inner_height) = (WIDTH - left - right, HEIGHT - top - bottom);
        let (px, py) = (|v: f64| left + x.at(v) * inner_width, |v: f64| top + (1.0 - y.at(v)) * inner_height);
        let mut out = String::new();
        let scale = |s: Scale| if s == Scale::Log { "log" } else { "linear" };
        let _ = write!(
            out,
            "<svg id=\"{}\" class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" \
             data-xlabel=\"{}\" data-frame=\"{left} {top} {inner_width} {inner_height}\" data-x=\"{} {} {}\" data-y=\"{} {} {}\">",
            self.id,
            self.title,
            self.x.label,
            scale(x.scale),
            x.low,
            x.high,
            scale(y.scale),
            y.low,
            y.high
        );
        for v in x.ticks() {
            let at = px(v);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>",
                top + inner_height
            );
            let _ = write!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + inner_height + 16.0,
                short(v)
            );
        }
        for v in y.ticks() {
            let at = py(v);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>",
                left + inner_width
            );
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                at + 4.0,
                short(v)
            );
        }
        let _ = write!(out, "<path class=\"axis\" d=\"M{left} {top}v{inner_height}h{inner_width}\"/>");
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + inner_width / 2.0,
            HEIGHT - 8.0,
            self.x.label
        );
        let middle = top + inner_height / 2.0;
        let _ = write!(
            out,
            "<text class=\"label\" x=\"13\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 13 {middle:.1})\">{}</text>",
            self.y.label
        );
        for line in &self.lines {
            let usable = line
                .points
                .iter()
                .filter(|(a, b)| (x.scale == Scale::Linear || *a > 0.0) && (y.scale == Scale::Linear || *b > 0.0));
            let places: Vec<String> = usable.map(|&(a, b)| format!("{:.1},{:.1}", px(a), py(b))).collect();
            let class = if line.dashed { " dashed" } else { "" };
            // A line of one point is a dot.
            if let [only] = &places[..] {
                let (cx, cy) = only.split_once(',').unwrap_or_default();
                let _ = write!(out, "<circle class=\"series s{}{class}\" cx=\"{cx}\" cy=\"{cy}\" r=\"3\"/>", line.case);
            } else {
                let _ =
                    write!(out, "<polyline class=\"series s{}{class}\" points=\"{}\"/>", line.case, places.join(" "));
            }
        }
        out.push_str("</svg>");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_and_are_divided_at_round_numbers() {
        let linear = Range::of([3.0, 87.0].into_iter(), Scale::Linear);
        assert_eq!((linear.low, linear.high, linear.ticks()), (0.0, 100.0, vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0]));
        let log = Range::of([0.03, 70.0].into_iter(), Scale::Log);
        assert!((log.low - 0.02).abs() < 1e-9 && (log.high - 100.0).abs() < 1e-9, "{} {}", log.low, log.high);
        assert_eq!(log.ticks().len(), 4);
        let narrow = Range::of([3.0, 4.0].into_iter(), Scale::Log);
        assert_eq!((narrow.low, narrow.high, narrow.ticks()), (2.0, 5.0, vec![2.0, 5.0]));
        // Nothing to show, or only what has no place.
        assert_eq!(Range::of([].into_iter(), Scale::Linear).high, 10.0);
        assert_eq!(Range::of([0.0].into_iter(), Scale::Log).low, 1.0);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1500.0, "1500"),
            (15_000.0, "15k"),
            (2e6, "2M"),
            (0.5, "0.5"),
            (0.02, "0.02"),
            (0.002, "2m"),
            (100.0, "100"),
            (3e10, "30G"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn corners_of_the_data_are_corners_of_the_frame() {
        let axis = |scale| Axis { label: "x", scale };
        let line = Line { case: 3, dashed: false, points: vec![(0.0, 0.0), (1.0, 10.0)] };
        let plot = Plot {
            id: "p",
            title: "t",
            caption: "c",
            x: axis(Scale::Linear),
            y: axis(Scale::Linear),
            lines: vec![line],
        };
        let svg = plot.svg();
        assert!(svg.contains("<polyline class=\"series s3\" points=\"56.0,274.0 504.0,12.0\"/>"), "{svg}");
    }
}
