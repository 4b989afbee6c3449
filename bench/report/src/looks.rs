//! Looks of lines: a transport has one colour in all pages and pictures.
//!
//! Colours differ for people who see no red or green (ΔE 76 above 20 in simulations of deuteranopia and protanopia),
//! and from their background by a contrast of 3 and more (WCAG 1.4.11). Marks and dashes tell lines apart without
//! colour: no two of up to [`COLOURS`] lines have the same mark, no two of up to [`DISTINCT`] both in common.

/// Number of colours, and of marks.
pub const COLOURS: usize = 8;
/// Colours on white.
pub const LIGHT: [&str; COLOURS] =
    ["#322e9a", "#ea6316", "#29a361", "#7b15e7", "#9f340f", "#009cbb", "#ca0f7e", "#203736"];
/// Colours on black.
pub const DARK: [&str; COLOURS] =
    ["#3dbeff", "#e26e1a", "#35f188", "#9d5aff", "#ffe73c", "#67f6f6", "#c03ba1", "#bd898d"];
/// Dashes, as in SVG's `stroke-dasharray`.
pub const DASHES: [&str; 5] = ["none", "8 3", "2 3", "9 3 2 3", "9 3 2 3 2 3"];
/// Number of looks that differ without colour.
pub const DISTINCT: usize = COLOURS * DASHES.len();
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

/// The transports, in the order of their colours. The mark of a transport's first line is in the same order.
const TRANSPORTS: [&str; COLOURS] =
    ["irn", "roce", "irn-go-back-n", "ndp", "auto", "iwarp", "irn-no-bdp", "irn-no-sack"];

/// The look of a line.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Index of the colour, below [`COLOURS`].
    pub colour: usize,
    /// Index of the mark, below [`COLOURS`].
    pub mark: usize,
    /// Index of the dashes, below the length of [`DASHES`].
    pub dash: usize,
}

impl Look {
    /// Returns the look of the `n`th line among those that no transport tells apart.
    pub fn nth(n: usize) -> Look {
        Look { colour: n % COLOURS, mark: n % COLOURS, dash: n / COLOURS % DASHES.len() }
    }
}

/// Returns the looks of lines by their names, or by the transports of what they show. Lines of a transport have its
/// colour; others take turns with the colours that no transport among them has. The first line of a colour has the
/// colour's mark and no dashes; further ones have the next dashes, and a mark that no other line has, if there is one.
pub fn looks<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Look> {
    let transports: Vec<Option<usize>> = names.into_iter().map(transport).collect();
    let mut free: Vec<usize> = (0..COLOURS).filter(|colour| !transports.contains(&Some(*colour))).collect();
    if free.is_empty() {
        free.extend(0..COLOURS);
    }
    let mut others = free.iter().copied().cycle();
    let colours: Vec<usize> =
        transports.iter().map(|transport| transport.or_else(|| others.next()).unwrap_or_default()).collect();
    let mut looks: Vec<Look> = Vec::with_capacity(colours.len());
    for (n, &colour) in colours.iter().enumerate() {
        let nth = colours[..n].iter().filter(|before| **before == colour).count();
        let dash = nth % DASHES.len();
        let first = Look { colour, mark: colour, dash };
        looks.push(if nth == 0 { first } else { unlike(&looks, &colours, first).unwrap_or(first) });
    }
    looks
}

/// Returns a look of this colour that differs from all others by its mark, or else by mark and dashes, and leaves the
/// first line of each of `colours` its look; `None` if there is none. The dashes are those of `wanted`, if possible.
fn unlike(others: &[Look], colours: &[usize], wanted: Look) -> Option<Look> {
    let Look { colour, dash, .. } = wanted;
    let is_owned = |mark: usize| colours.contains(&mark);
    let alone = (0..COLOURS).find(|mark| !is_owned(*mark) && others.iter().all(|other| other.mark != *mark));
    if let Some(mark) = alone {
        return Some(Look { mark, ..wanted });
    }
    let marks = || std::iter::once(colour).chain(0..COLOURS);
    let dashes = (0..DASHES.len()).map(|more| (dash + more) % DASHES.len());
    let mut looks = dashes.flat_map(|dash| marks().map(move |mark| Look { colour, mark, dash }));
    looks.find(|look| {
        let differs = |other: &Look| (other.mark, other.dash) != (look.mark, look.dash);
        (look.dash != 0 || !is_owned(look.mark)) && others.iter().all(differs)
    })
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
        assert_eq!(of(&["a"; 9])[8], (0, 1));
        assert_eq!(of(&["chairn", "h0 to s0"]), [(0, 0), (1, 0)]);
    }

    #[test]
    fn many_cases_of_a_transport_keep_its_colour_and_differ_without_it() {
        let names = |of: &[(&str, usize)]| -> Vec<String> {
            of.iter().flat_map(|(name, n)| (0..*n).map(move |at| format!("{name} load={at}"))).collect()
        };
        for (mix, colours) in [
            (&[("irn", 4)][..], &[0][..]),
            (&[("irn", DISTINCT)][..], &[0][..]),
            (&[("roce", 12), ("irn", 12)][..], &[1, 0][..]),
            (&[("irn", 3), ("roce", 2), ("ndp", 3)][..], &[0, 1, 3][..]),
            (&[("irn", 30), ("other", 10)][..], &[0, 1, 2, 3, 4, 5, 6, 7][..]),
        ] {
            let names = names(mix);
            let looks = looks(names.iter().map(String::as_str));
            for (name, look) in names.iter().zip(&looks) {
                assert!(colours.contains(&look.colour), "{mix:?}: {name}: {look:?}");
                assert!(transport(name).is_none_or(|transport| transport == look.colour), "{mix:?}: {name}: {look:?}");
            }
            for (n, look) in looks.iter().enumerate() {
                let alike =
                    |other: &&Look| other.mark == look.mark && (looks.len() <= COLOURS || other.dash == look.dash);
                assert_eq!(looks[..n].iter().find(alike), None, "{mix:?}: {look:?}");
            }
        }
        // More than there are looks still have their colour.
        assert!(looks(std::iter::repeat_n("irn", 2 * DISTINCT)).iter().all(|look| look.colour == 0));
        // The first of each transport has its mark wherever it stands.
        let of = |names: &[&str]| looks(names.iter().copied()).iter().map(|look| look.mark).collect::<Vec<_>>();
        assert_eq!(of(&["irn 1", "irn 2", "roce"])[2], 1);
        assert_eq!(of(&["irn 1", "irn 2", "irn 3", "roce 1", "roce 2"]), [0, 2, 3, 1, 4]);
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
