//! Line plots as SVG. `irnic sim --html` draws its own in the page.

use std::fmt::Write;

use serde::Serialize;

use crate::looks::{DARK, DASHES, LIGHT, Look, MARKS, looks};

/// Scale of an axis.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic; values of 0 are omitted.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// Quantity and unit.
    pub label: &'static str,
    /// Scale.
    pub scale: Scale,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Number of what it is of, which has one colour, that of the transport that its name has or another, and one mark.
    pub of: usize,
    /// Whether the line is dashed: the second of two of the same.
    pub dashed: bool,
    /// Points, x and y, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Range of y at each point; empty if there is none.
    pub spread: Vec<(f64, f64)>,
}

/// A plot of a picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines.
    pub series: Vec<Series>,
}

/// Size of the picture and positions in it, in its units; a plot including axes has height `STEP`. The picture is wider
/// if names are long.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 550.0;
const TOP: f64 = 44.0;
const HIGH: f64 = 230.0;
const STEP: f64 = 300.0;
/// Position of names, and maximum width of a letter.
const NAMES: f64 = RIGHT + 46.0;
const LETTER: f64 = 8.5;
/// Lines with at most this many points have marks there; others have [`SPARSE`] of them.
const MARKED: usize = 30;
const SPARSE: usize = 5;

/// Draws plots below each other, under a title.
pub fn draw(title: &str, plots: &[Plot]) -> String {
    draw_all(title, &plots.iter().map(|plot| ("", plot)).collect::<Vec<_>>())
}

/// Draws plots below each other, under a common title and one for each.
pub fn draw_titled(title: &str, plots: &[(String, Plot)]) -> String {
    draw_all(title, &plots.iter().map(|(title, plot)| (title.as_str(), plot)).collect::<Vec<_>>())
}

fn draw_all(title: &str, plots: &[(&str, &Plot)]) -> String {
    let longest = plots.iter().flat_map(|(_, plot)| &plot.series).map(|series| series.name.chars().count()).max();
    let width =
        WIDTH.max(NAMES + LETTER * longest.unwrap_or(0) as f64).max(LEFT + LETTER * title.chars().count() as f64);
    let height = TOP + plots.iter().map(|(title, _)| STEP + title_height(title)).sum::<f64>();
    let title = escaped(title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{title}</title>\n<style>{}</style>\n\
         <rect class=\"back\" width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n",
        dark()
    );
    let mut top = TOP;
    for (title, plot) in plots {
        if !title.is_empty() {
            let _ =
                writeln!(out, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>", top + 12.0, escaped(title));
        }
        top += title_height(title);
        plot.draw(&mut out, top);
        top += STEP;
    }
    out.push_str("</svg>\n");
    out
}

/// Adds a description to a picture, for readers of its file and of screens.
pub fn described(svg: &str, text: &str) -> String {
    // XML has no control characters.
    let text = escaped(&text.replace(|c: char| c.is_control() && c != '\n', "?"));
    svg.replacen("</title>\n", &format!("</title>\n<desc>{text}</desc>\n"), 1)
}

/// Height of the title of a plot.
fn title_height(title: &str) -> f64 {
    if title.is_empty() { 0.0 } else { 24.0 }
}

/// Styles for dark mode: style sheets override the attributes of elements.
fn dark() -> String {
    let mut style = String::from("@media (prefers-color-scheme: dark) { .back { fill: #14171b } ");
    style.push_str("text { fill: #e6e9ed } .rule { stroke: #2d333b } ");
    for (n, colour) in DARK.iter().enumerate() {
        let _ = write!(style, ".c{n} {{ stroke: {colour} }} .f{n} {{ fill: {colour} }} ");
    }
    style.push_str(".mark { stroke: #14171b } .hollow { fill: #14171b } ");
    for (n, colour) in DARK.iter().enumerate() {
        let _ = write!(style, ".c{n}.hollow {{ stroke: {colour} }} ");
    }
    style + "}"
}

/// Escapes text for XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot {
    /// Draws the plot; `top` is its upper edge.
    fn draw(&self, out: &mut String, top: f64) {
        let bottom = top + HIGH;
        let all = || self.series.iter().flat_map(|s| &s.points);
        let spread = self.series.iter().flat_map(|s| &s.spread).flat_map(|(from, to)| [*from, *to]);
        let across = Ruler::new(self.x.scale, all().map(|p| p.0));
        let up = Ruler::new(self.y.scale, all().map(|p| p.1).chain(spread));
        let x = |value: f64| LEFT + across.place(value) * (RIGHT - LEFT);
        let y = |value: f64| bottom - up.place(value) * HIGH;
        for &tick in &across.ticks {
            let at = x(tick);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\" class=\"rule\" stroke=\"#ddd\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                label(tick)
            );
        }
        for &tick in &up.ticks {
            let at = y(tick);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"rule\" stroke=\"#ddd\"/>\
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
        let looks = self.looks();
        for (n, series) in self.series.iter().enumerate() {
            let look = looks.get(series.of).copied().unwrap_or_default();
            let colour = look.colour;
            let dash = match (series.dashed, look.dash) {
                (true, _) => " stroke-dasharray=\"6 4\"".to_owned(),
                (false, 0) => String::new(),
                (false, dash) => format!(" stroke-dasharray=\"{}\"", DASHES[dash]),
            };
            let stroke = format!("stroke=\"{}\" stroke-width=\"1.5\"", LIGHT[colour]);
            let places: Vec<(f64, f64)> = series.points.iter().map(|p| (x(p.0), y(p.1))).collect();
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline class=\"c{colour}\" fill=\"none\" {stroke}{dash} points=\"{}\"/>",
                points.join(" ")
            );
            for ((at, _), (from, to)) in places.iter().zip(&series.spread) {
                let (top, bottom) = (y(*to), y(*from));
                let _ = writeln!(
                    out,
                    "<path class=\"c{colour} spread\" fill=\"none\" {stroke} d=\"M{:.1} {top:.1}h8m-4 0V{bottom:.1}m-4 0h8\"/>",
                    at - 4.0
                );
            }
            for place in marked(&places, series.of) {
                mark(out, place, look, series.dashed);
            }
            let at = top + 12.0 + 20.0 * n as f64;
            let _ = writeln!(
                out,
                "<line class=\"c{colour}\" x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" {stroke}{dash}/><text x=\"{}\" y=\"{}\">{}</text>",
                RIGHT + 14.0,
                RIGHT + 40.0,
                NAMES,
                at + 4.0,
                escaped(&series.name)
            );
            mark(out, (RIGHT + 27.0, at), look, series.dashed);
        }
    }

    /// Returns the looks of what lines are of, by its number.
    fn looks(&self) -> Vec<Look> {
        let count = self.series.iter().map(|series| series.of + 1).max().unwrap_or(0);
        let name = |of: usize| self.series.iter().find(|series| series.of == of).map_or("", |series| &series.name);
        looks((0..count).map(name))
    }
}

/// Returns where a line has marks: at its points if they are few; else at some, which are others for each line.
fn marked(places: &[(f64, f64)], of: usize) -> Vec<(f64, f64)> {
    if places.len() <= MARKED {
        return places.to_vec();
    }
    let step = (RIGHT - LEFT) / SPARSE as f64;
    let aims = (0..SPARSE).map(|n| LEFT + step * (n as f64 + (of as f64 * 0.37).fract()));
    let near = |aim: f64| {
        let nearest = places.iter().copied().min_by(|a, b| (a.0 - aim).abs().total_cmp(&(b.0 - aim).abs()));
        nearest.filter(|(x, _)| (x - aim).abs() <= step / 2.0)
    };
    aims.filter_map(near).collect()
}

/// Draws a mark: hollow on dashed lines.
fn mark(out: &mut String, (x, y): (f64, f64), Look { colour, mark, .. }: Look, hollow: bool) {
    let (path, ink) = (MARKS[mark], LIGHT[colour]);
    let style = match hollow {
        true => format!("class=\"c{colour} mark hollow\" fill=\"white\" stroke=\"{ink}\" stroke-width=\"1.3\""),
        false => format!("class=\"f{colour} mark\" fill=\"{ink}\" stroke=\"white\" stroke-width=\"0.8\""),
    };
    let _ = writeln!(out, "<path {style} d=\"{path}\" transform=\"translate({x:.1} {y:.1})\"/>");
}

/// Range and ticks of an axis.
struct Ruler {
    scale: Scale,
    first: f64,
    last: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    /// A range that includes all values, from 0, or from a power of ten.
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
                // Within two decades: 1, 2 and 5 of each.
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

    /// Relative position of a value, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.scale == Scale::Log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((value - self.first) / (self.last - self.first)).clamp(0.0, 1.0)
    }
}

/// Formats a tick compactly.
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
        let series = |name: &str, dashed| Series {
            name: name.into(),
            of: 0,
            dashed,
            points: vec![(1.0, 2.0), (3.0, 4.0)],
            spread: if dashed { vec![(1.0, 2.5), (3.5, 4.0)] } else { Vec::new() },
        };
        let plot = || Plot {
            x: axis("time [ms]", Scale::Linear),
            y: axis("<rate>", Scale::Log),
            series: vec![series("a & b", false), series("c", true)],
        };
        let svg = draw("Figure 1: this & that", &[plot(), plot()]);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("stroke-dasharray").count()), (4, 4));
        assert_eq!((svg.matches(" mark\"").count(), svg.matches(" mark hollow\"").count()), (6, 6));
        assert_eq!(svg.matches("<path class=\"c0 spread\"").count(), 4, "an interval at each point of one line");
        for part in ["Figure 1: this &amp; that", "time [ms]", "&lt;rate&gt;", "a &amp; b", "viewBox=\"0 0 760 644\""] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let mut long = plot();
        long.series[0].name = "n".repeat(40);
        assert!(draw("", &[long]).contains("viewBox=\"0 0 936 344\""), "long names widen the picture");
        let said = described(&svg, "again: a <b> & \u{1b}[0m\nMtu: 1024");
        assert!(said.contains("</title>\n<desc>again: a &lt;b&gt; &amp; ?[0m\nMtu: 1024</desc>\n"), "{said}");
    }
}
