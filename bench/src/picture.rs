//! Line plots as SVG: text, which every browser shows. `irnic sim --html` draws its own in the page.

use std::fmt::Write;

use serde::Serialize;

/// How values become places.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// In proportion, from 0.
    Linear,
    /// By magnitude; values of 0 have no place.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What is along it, and the unit.
    pub label: &'static str,
    /// Scale.
    pub scale: Scale,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    /// Dashed: the second of two of a colour.
    pub dashed: bool,
    /// x and y, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A plot of a picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
}

/// Size of the picture and places in it, in its units; a plot is as high as `STEP`, with its axes.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 550.0;
const TOP: f64 = 44.0;
const HIGH: f64 = 230.0;
const STEP: f64 = 300.0;
/// Beyond the last they begin again.
const COLOURS: [&str; 6] = ["#0b6e4f", "#1f5fb4", "#b3261e", "#8a5a00", "#6a3fa0", "#555555"];
/// Lines with so few points have marks there.
const MARKED: usize = 30;

/// The plots below each other, under a title.
pub fn draw(title: &str, plots: &[Plot]) -> String {
    let height = TOP + STEP * plots.len() as f64;
    let title = escaped(title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    for (n, plot) in plots.iter().enumerate() {
        plot.draw(&mut out, TOP + STEP * n as f64);
    }
    out.push_str("</svg>\n");
    out
}

/// Text that cannot be taken for markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot {
    /// `top`: where the plot begins.
    fn draw(&self, out: &mut String, top: f64) {
        let bottom = top + HIGH;
        let all = || self.series.iter().flat_map(|s| &s.points);
        let across = Ruler::new(self.x.scale, all().map(|p| p.0));
        let up = Ruler::new(self.y.scale, all().map(|p| p.1));
        let x = |value: f64| LEFT + across.place(value) * (RIGHT - LEFT);
        let y = |value: f64| bottom - up.place(value) * HIGH;
        for &tick in &across.ticks {
            let at = x(tick);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                label(tick)
            );
        }
        for &tick in &up.ticks {
            let at = y(tick);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        let middle = (top + bottom) / 2.0;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">{}</text>",
            (LEFT + RIGHT) / 2.0,
            bottom + 40.0,
            escaped(self.x.label),
            escaped(self.y.label)
        );
        for (n, series) in self.series.iter().enumerate() {
            let dash = if series.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            let stroke = format!("stroke=\"{}\"{dash} stroke-width=\"1.5\"", COLOURS[series.colour % COLOURS.len()]);
            let places: Vec<(f64, f64)> = series.points.iter().map(|p| (x(p.0), y(p.1))).collect();
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(out, "<polyline fill=\"none\" {stroke} points=\"{}\"/>", points.join(" "));
            if places.len() <= MARKED {
                for (x, y) in &places {
                    let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"white\" {stroke}/>");
                }
            }
            let at = top + 12.0 + 20.0 * n as f64;
            let _ = writeln!(
                out,
                "<line x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" {stroke}/><text x=\"{}\" y=\"{}\">{}</text>",
                RIGHT + 14.0,
                RIGHT + 40.0,
                RIGHT + 46.0,
                at + 4.0,
                escaped(&series.name)
            );
        }
    }
}

/// What an axis shows, and where its lines are.
struct Ruler {
    scale: Scale,
    first: f64,
    last: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    /// Room for all values, from 0, or from a power of ten.
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Ruler {
        match scale {
            Scale::Linear => {
                let most = values.fold(0.0, f64::max);
                let most = if most > 0.0 { most } else { 1.0 };
                let power = 10f64.powf((most / 5.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| most / s <= 5.0);
                let step = step.unwrap_or(most);
                let count = (most / step - 1e-9).ceil();
                let ticks = (0..=count as u32).map(|n| f64::from(n) * step).collect();
                Ruler { scale, first: 0.0, last: count * step, ticks }
            }
            Scale::Log => {
                let (least, most) = values.filter(|v| *v > 0.0).fold((f64::MAX, 0.0), |(l, m), v| (v.min(l), v.max(m)));
                let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 10.0) };
                // Within two decades 1, 2 and 5 of each.
                let between: &[f64] = if most / least < 100.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = least.log10().floor() as i32..=most.log10().ceil() as i32 + 1;
                let mut ticks: Vec<f64> =
                    decades.flat_map(|d| between.iter().map(move |n| n * 10f64.powi(d))).collect();
                let (low, high) = (least * (1.0 + 1e-9), most * (1.0 - 1e-9));
                let from = ticks.iter().rposition(|t| *t <= low).unwrap_or(0);
                let to = ticks.iter().position(|t| *t >= high).unwrap_or(ticks.len() - 1).max(from + 1);
                ticks.truncate(to + 1);
                ticks.drain(..from);
                Ruler { scale, first: ticks[0].log10(), last: ticks[ticks.len() - 1].log10(), ticks }
            }
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((value - self.first) / (self.last - self.first)).clamp(0.0, 1.0)
    }
}

/// As short as it can be said.
fn label(tick: f64) -> String {
    format!("{tick:.3e}").parse::<f64>().unwrap_or(tick).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: &[f64]) -> Vec<String> {
        Ruler::new(scale, values.iter().copied()).ticks.into_iter().map(label).collect()
    }

    #[test]
    fn axes_have_round_numbers_and_room_for_all() {
        assert_eq!(ticks(Scale::Linear, &[3.0, 19.4]), ["0", "5", "10", "15", "20"]);
        assert_eq!(ticks(Scale::Linear, &[0.31]), ["0", "0.1", "0.2", "0.3", "0.4"]);
        assert_eq!(ticks(Scale::Linear, &[1000.0]), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(ticks(Scale::Linear, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(ticks(Scale::Log, &[0.5, 10.0]), ["0.5", "1", "2", "5", "10"]);
        assert_eq!(ticks(Scale::Log, &[17.0, 2_000.0]), ["10", "100", "1000", "10000"]);
        assert_eq!(ticks(Scale::Log, &[10.0, 10.0]), ["10", "20"]);
        assert_eq!(ticks(Scale::Log, &[0.0]), ["1", "2", "5", "10"]);
    }

    #[test]
    fn values_have_their_places() {
        let linear = Ruler::new(Scale::Linear, [20.0].into_iter());
        assert_eq!([0.0, 5.0, 20.0, 30.0].map(|v| linear.place(v)), [0.0, 0.25, 1.0, 1.0]);
        let log = Ruler::new(Scale::Log, [1.0, 1_000.0].into_iter());
        assert!((log.place(10.0) - 1.0 / 3.0).abs() < 1e-12 && log.place(0.0) == 0.0);
    }

    #[test]
    fn a_picture_has_a_line_for_each_series_and_names_them() {
        let axis = |label, scale| Axis { label, scale };
        let series =
            |name: &str, dashed| Series { name: name.into(), colour: 0, dashed, points: vec![(1.0, 2.0), (3.0, 4.0)] };
        let plot = || Plot {
            x: axis("time [ms]", Scale::Linear),
            y: axis("<rate>", Scale::Log),
            series: vec![series("a & b", false), series("c", true)],
        };
        let svg = draw("Figure 1: this & that", &[plot(), plot()]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("stroke-dasharray").count()), (4, 8));
        for part in ["Figure 1: this &amp; that", "time [ms]", "&lt;rate&gt;", "a &amp; b", "viewBox=\"0 0 760 644\""] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
