//! Looks of lines: a transport has one colour and one mark in all pages and pictures.
//!
//! Colours differ for people who see no red or green (ΔE 76 above 20 in simulations of deuteranopia and protanopia),
//! and from their background by a contrast of 3 and more (WCAG 1.4.11). Marks differ without colour.

/// Number of colours, each with a mark.
pub const COLOURS: usize = 8;
/// Colours on white.
pub const LIGHT: [&str; COLOURS] =
    ["#322e9a", "#ea6316", "#29a361", "#7b15e7", "#9f340f", "#009cbb", "#ca0f7e", "#203736"];
/// Colours on black.
pub const DARK: [&str; COLOURS] =
    ["#3dbeff", "#e26e1a", "#35f188", "#9d5aff", "#ffe73c", "#67f6f6", "#c03ba1", "#bd898d"];
/// Dashes of lines with the same colour, as in SVG's `stroke-dasharray`.
pub const DASHES: [&str; 3] = ["none", "8 3", "2 3"];
/// Marks: paths around 0, as in SVG's `d`.
pub const MARKS: [&str; COLOURS] = [
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "M-2.7-2.7h5.4v5.4h-5.4z",
    "M0-3.8L3.5 2.4h-7z",
    "M0-4L4 0 0 4-4 0z",
    "M0 3.8L3.5-2.4h-7z",
    "M-3.2-1.2h6.4v2.4h-6.4z",
    "M-1.2-3.6h2.4v7.2h-2.4z",
    "M-3.4-3.4L3.4 0-3.4 3.4z",
];

/// The transports, in the order of their colours.
const TRANSPORTS: [&str; COLOURS] =
    ["irn", "roce", "irn-go-back-n", "ndp", "auto", "iwarp", "irn-no-bdp", "irn-no-sack"];

/// The look of a line.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Index of the colour and the mark, below [`COLOURS`].
    pub colour: usize,
    /// Index of the dashes, below the length of [`DASHES`].
    pub dash: usize,
}

impl Look {
    /// Returns the look of the `n`th line among those that no transport tells apart.
    pub fn nth(n: usize) -> Look {
        Look { colour: n % COLOURS, dash: n / COLOURS % DASHES.len() }
    }
}

/// Returns the looks of lines by their names, or by the transports of what they show. Lines of a transport have its
/// colour, and differ by dashes; others have colours that no transport among them has. Where lines of a transport are
/// more than dashes can tell apart, colours are assigned in order.
pub fn looks<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Look> {
    let transports: Vec<Option<usize>> = names.into_iter().map(transport).collect();
    let of = |transport: usize| transports.iter().filter(|of| **of == Some(transport)).count();
    if (0..COLOURS).any(|transport| of(transport) > DASHES.len()) {
        return (0..transports.len()).map(Look::nth).collect();
    }
    let free: Vec<usize> = (0..COLOURS).filter(|colour| of(*colour) == 0).collect();
    let (mut seen, mut others) = ([0; COLOURS], 0);
    let look = |transport: &Option<usize>| match transport {
        Some(colour) => {
            seen[*colour] += 1;
            Look { colour: *colour, dash: seen[*colour] - 1 }
        }
        None => {
            let n = others;
            others += 1;
            Look {
                colour: free.get(n % free.len().max(1)).copied().unwrap_or(0),
                dash: n / free.len().max(1) % DASHES.len(),
            }
        }
    };
    transports.iter().map(look).collect()
}

/// Returns the transport that a name has as a word: `RoCE` in `RoCE, PFC`.
fn transport(name: &str) -> Option<usize> {
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.find_map(|word| TRANSPORTS.iter().position(|transport| word.eq_ignore_ascii_case(transport)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<(usize, usize)> {
        looks(names.iter().copied()).into_iter().map(|look| (look.colour, look.dash)).collect()
    }

    #[test]
    fn a_transport_has_its_colour_wherever_it_stands() {
        assert_eq!(of(&["roce", "irn-go-back-n", "irn"]), [(1, 0), (2, 0), (0, 0)]);
        assert_eq!(of(&["IRN", "RoCE with PFC", "RoCE"]), [(0, 0), (1, 0), (1, 1)]);
        assert_eq!(of(&["irn", "other", "roce,cap=9", "load=0.5"]), [(0, 0), (2, 0), (1, 0), (3, 0)]);
        // Too many of one: by order.
        assert_eq!(of(&["irn 1", "irn 2", "irn 3", "irn 4"]), [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert_eq!(of(&["a"; 9])[8], (0, 1));
        assert_eq!(of(&["chairn", "h0 to s0"]), [(0, 0), (1, 0)]);
    }

    /// A colour in linear light.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let share = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal")) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn times(matrix: [[f64; 3]; 3], [x, y, z]: [f64; 3]) -> [f64; 3] {
        matrix.map(|[a, b, c]| a * x + b * y + c * z)
    }

    const TO_XYZ: [[f64; 3]; 3] =
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]];

    fn lab(linear: [f64; 3]) -> [f64; 3] {
        let [x, y, z] = times(TO_XYZ, linear.map(|v| v.clamp(0.0, 1.0)));
        let f = |v: f64| if v > 0.008856 { v.cbrt() } else { 7.787 * v + 16.0 / 116.0 };
        let (x, y, z) = (f(x / 0.95047), f(y), f(z / 1.08883));
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// What eyes see: those of most people, without the cones for green, without those for red (Machado, Oliveira and
    /// Fernandes 2009).
    const EYES: [[[f64; 3]; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ];

    #[test]
    fn colours_differ_for_all_eyes_and_from_the_page() {
        for (colours, page) in [(LIGHT, "#f7f8fa"), (DARK, "#1b1f25")] {
            for eyes in EYES {
                for (n, a) in colours.iter().enumerate() {
                    for b in &colours[..n] {
                        let [a, b] = [a, b].map(|colour| lab(times(eyes, linear(colour))));
                        let apart = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                        assert!(apart > 20.0, "{a:?} {b:?}: {apart}");
                    }
                }
            }
            let bright = |colour: &str| times(TO_XYZ, linear(colour))[1] + 0.05;
            for colour in colours {
                let (a, b) = (bright(colour), bright(page));
                assert!(a.max(b) / a.min(b) >= 3.0, "{colour} on {page}");
            }
        }
    }

    #[test]
    fn the_style_sheet_has_these_colours() {
        let sheet = include_str!("html/page.css");
        for colours in [LIGHT, DARK] {
            for (n, colour) in colours.iter().enumerate() {
                assert!(sheet.contains(&format!("--c{n}: {colour};")), "{n}: {colour}");
            }
        }
    }
}
