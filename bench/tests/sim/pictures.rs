//! What the pages of `irnic sim` show: pictures that say something, in looks that tell cases apart, at three widths.

use crate::support::{Folder, irnic, needs, text};
use serde_json::Value;

/// Runs `irnic sim` with a page. Returns the page, and what is printed.
fn page(folder: &Folder, args: &[&str]) -> (String, String) {
    let made = irnic(folder).arg("sim").args(args).args(["--html", "r.html"]).output().expect("irnic runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    (std::fs::read_to_string(folder.path().join("r.html")).expect("a page"), text(&made.stdout))
}

/// The data of a page's plots.
fn plots(page: &str) -> Vec<Value> {
    let data = page.split("<script id=\"plots\" type=\"application/json\">").nth(1).expect("plots");
    serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON")
}

fn plot<'a>(plots: &'a [Value], id: &str) -> Option<&'a Value> {
    plots.iter().find(|plot| plot["id"] == id)
}

/// The text of the cells of a table's rows.
fn rows(page: &str, class: &str) -> Vec<Vec<String>> {
    let begin = format!("<table class=\"{class}\">");
    let tables = page.split(&begin).skip(1);
    let rows = tables.flat_map(|table| table.split("</table>").next().expect("an end").split("<tr").skip(1));
    let cell =
        |part: &str| part.split_once('>').map_or("", |(_, rest)| rest).split('<').next().unwrap_or("").to_owned();
    rows.map(|row| row.split('<').filter(|p| p.starts_with("th") || p.starts_with("td")).map(cell).collect()).collect()
}

const INCAST: [&str; 4] = ["--topology", "star:hosts=4,rate=10G", "--workload", "incast:senders=3,each=400KB"];

#[test]
fn curves_reach_their_end_and_pictures_without_news_are_left_out() {
    let folder = Folder::new();
    let (page, out) = page(&folder, &[&INCAST[..], &["--transport", "irn"]].concat());
    let plots = plots(&page);
    let active =
        plot(&plots, "active").expect("flows under way")["lines"][0]["points"].as_array().expect("points").clone();
    let ended: f64 =
        out.lines().find_map(|line| line.strip_prefix("ended at [ms]")).expect("a time").trim().parse().expect("ms");
    let last = active.last().expect("a point");
    assert_eq!(last[1], 0.0, "no flow is under way at the end");
    let goodput = plot(&plots, "goodput").expect("goodput")["lines"][0]["points"].as_array().expect("points").clone();
    for curve in [&active, &goodput] {
        let at = curve.last().expect("a point")[0].as_f64().expect("ms");
        assert!((at - ended).abs() < 0.001 * ended.max(1.0), "{at} ms, and the run ended at {ended} ms");
    }
    // One size, and one port with a queue.
    assert!(plot(&plots, "slowdown").is_none() && plot(&plots, "buffered").is_none());
    let queue = plot(&plots, "longest").expect("the queue");
    assert_eq!(queue["y"]["label"], "KB");
    assert!(page.contains("<h3>Queue</h3>"), "it is called what it is");
    // There is no load to be set, and 1.2 MB are one goodput, whatever was sent twice.
    let settings = rows(&page, "settings");
    let names: Vec<&str> = settings.iter().map(|row| row[0].as_str()).collect();
    assert!(names.contains(&"workload") && !names.contains(&"load"), "{names:?}");
    let bits: f64 = goodput
        .windows(2)
        .map(|two| {
            let [a, b] = [&two[0], &two[1]].map(|p| [0, 1].map(|n| p[n].as_f64().expect("a number")));
            (b[0] - a[0]) * 1e6 * (a[1] + b[1]) / 2.0
        })
        .sum();
    assert!((0.9..1.1).contains(&(bits / 8.0 / 1.2e6)), "{bits} bits under the curve");
}

#[test]
fn results_are_the_matrix_of_the_terminal() {
    let folder = Folder::new();
    let sizes = "fixed:1KB,load=0.1+fixed:200KB,load=0.3";
    let network = ["--topology", "star:hosts=4", "--duration", "300us", "--workload", sizes];
    let args = [&network[..], &["--transport", "irn", "--transport", "roce"]].concat();
    let (page, out) = page(&folder, &args);
    for class in ["results", "parts"] {
        for row in rows(&page, class) {
            let words: Vec<&str> = row.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
            let printed = out.lines().any(|line| {
                let mut rest = line;
                words.iter().all(|word| rest.find(word).map(|at| rest = &rest[at + word.len()..]).is_some())
            });
            assert!(printed || words.len() <= 2, "{words:?} of {class} is not printed:\n{out}");
        }
    }
    assert_eq!(rows(&page, "parts")[0][1..4], ["flows", "slowdown", "average"]);
    // Two of a kind differ by dashes, transports by colours and marks.
    let twice = ["--transport", "roce", "--pfc", "on", "--pfc", "off"];
    let (page, _) = self::page(&folder, &[&INCAST[..], &twice].concat());
    assert!(page.contains(".s0 { color: var(--c1); stroke-dasharray: none; }"), "RoCE has its colour");
    assert!(page.contains(".s1 { color: var(--c1); stroke-dasharray: 8 3; }"), "and dashes the second time");
}

#[test]
fn many_cases_of_a_transport_have_its_colour_and_other_marks() {
    let folder = Folder::new();
    let buffers: Vec<&str> =
        ["20KB", "30KB", "40KB", "50KB", "60KB"].into_iter().flat_map(|b| ["--buffer", b]).collect();
    let (page, _) = page(&folder, &[&INCAST[..], &["--transport", "roce", "--transport", "irn"], &buffers].concat());
    let mut looks = std::collections::BTreeSet::new();
    for case in 0..10 {
        let after = |mark: &str, end: &str| {
            let rest = page.split_once(mark).unwrap_or_else(|| panic!("{mark}")).1;
            rest.split_once(end).expect("an end").0.to_owned()
        };
        let name = after(&format!("data-case=\"{case}\""), "</button>");
        let colour = after(&format!(".s{case} {{ color: var("), ")");
        assert_eq!(colour, if name.contains("roce") { "--c1" } else { "--c0" }, "{name}");
        let mark = after(&format!("data-case=\"{case}\" data-mark=\""), "\"");
        looks.insert((mark, after(&format!(".s{case} {{ color: var({colour}); stroke-dasharray: "), ";")));
    }
    assert_eq!(looks.len(), 10, "no two look the same without colour: {looks:?}");
}

#[test]
fn what_happens_to_links_is_marked() {
    let folder = Folder::new();
    let events = ["--link-event", "down:h0-s0@100us,up:0@150us,rate:0=5G@300us", "--sample", "1us"];
    let (page, _) = page(&folder, &[&INCAST[..], &events].concat());
    let plots = plots(&page);
    for id in ["goodput", "longest", "active"] {
        let events = plot(&plots, id).expect(id)["events"].as_array().expect("events").clone();
        let said: Vec<&str> = events.iter().map(|event| event["text"].as_str().expect("a text")).collect();
        assert_eq!(said, ["down h0-s0", "up h0-s0", "h0-s0 at 5G"], "{id}");
        assert!((events[0]["at"].as_f64().expect("ms") - 0.1).abs() < 0.01, "{events:?}");
    }
    assert!(plot(&plots, "fct-cdf").expect("a distribution")["events"].is_null(), "its x is no time of the run");
    for line in plots.iter().flat_map(|plot| plot["lines"].as_array().expect("lines")) {
        assert!(line["points"].as_array().expect("points").len() <= 201, "more points than there is room for");
    }
}

/// Looks at a page at three widths: texts that lie over others or are cut off, lines of events, marks, and heads of
/// tables.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body><pre id="found"></pre><script>
const report = REPORT;
const look = (width) => new Promise((done) => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.onload = () => {
    const page = frame.contentDocument;
    const seen = (e) => page.defaultView.getComputedStyle(e).display !== "none";
    const boxes = (root, what) => [...root.querySelectorAll(what)].filter(seen).map((t) => ({ said: t.textContent, box: t.getBoundingClientRect() }));
    const meet = ({ box: a }, { box: b }) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const over = [...page.querySelectorAll("svg.plot")].flatMap((svg) => {
      const all = boxes(svg, "text");
      return all.flatMap((a, n) => all.slice(n + 1).filter((b) => meet(a, b)).map((b) => svg.id + ": " + a.said + " / " + b.said));
    });
    const cut = [...page.querySelectorAll("svg.plot")].flatMap((svg) => {
      const room = svg.getBoundingClientRect();
      const out = ({ box }) => box.left < room.left - 1 || box.right > room.right + 1 || box.top < room.top - 1 || box.bottom > room.bottom + 1;
      return boxes(svg, "text").filter(out).map((t) => svg.id + ": " + t.said);
    });
    const tall = boxes(page, "h1, thead th").filter(({ box }) => box.height > 100).map((t) => t.said);
    const marks = [...page.querySelectorAll("svg.plot path.mark")].filter(seen);
    const shapes = new Set(marks.map((m) => m.getAttribute("d"))).size;
    const events = [...page.querySelectorAll("line.event")].filter(seen).length;
    done({ width, over, cut, tall, shapes, events, scroll: page.documentElement.scrollWidth,
      dark: matchMedia("(prefers-color-scheme: dark)").matches, back: page.defaultView.getComputedStyle(page.body).backgroundColor });
  };
  frame.srcdoc = report;
});
(async () => {
  const found = [await look(390), await look(600), await look(1300)];
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"#;

#[test]
fn pages_are_legible_at_three_widths_in_light_and_dark() {
    if needs(&["chromium"]).is_none() {
        return;
    }
    let folder = Folder::new();
    let several = ["--topology", "star:hosts=8", "--duration", "300us", "--transport", "irn", "--transport", "roce"];
    let more = ["--pfc", "on", "--pfc", "off", "--link-event", "down:1-8@100us,up:1-8@150us,rate:1-8=5G@152us"];
    // A heading that is one long word, and a fault that takes many.
    let workload = ["--workload", "irn-heavy+incast:senders=3,share=0.1"];
    let (report, _) = page(&folder, &[&several[..], &more, &workload].concat());
    let fault = "\"text\":\"drop ack from 1 to 0 qp 0x004000 nth 3 count all, and link ";
    assert!(report.contains("\"text\":\"down "), "{report}");
    let report = report.replace("\"text\":\"down ", &format!("{fault}down "));
    let quoted = serde_json::to_string(&report).expect("JSON").replace("</", "<\\/");
    let probe = folder.write("probe.html", &PROBE.replace("REPORT", &quoted));
    let address = format!("file://{}", probe.display());
    for (dark, options) in
        [(false, &["--dump-dom"][..]), (true, &["--dump-dom", "--blink-settings=preferredColorScheme=0"])]
    {
        let dom = text(&irnic_testkit::browser::open(folder.path(), &address, 10_000, options));
        let found = dom.split("<pre id=\"found\">").nth(1).unwrap_or_else(|| panic!("no page: {dom}"));
        let found = found.split("</pre>").next().expect("an end").replace("&lt;", "<").replace("&gt;", ">");
        let found: Value = serde_json::from_str(&found.replace("&quot;", "\"").replace("&amp;", "&")).expect("JSON");
        for frame in found.as_array().expect("frames") {
            assert_eq!(frame["dark"], dark, "{frame}");
            for what in ["over", "cut", "tall"] {
                assert_eq!(frame[what].to_string(), "[]", "{what}: {frame}");
            }
            assert!(frame["scroll"].as_f64() <= frame["width"].as_f64(), "the page is wider than the screen: {frame}");
            assert_eq!(frame["shapes"], 4, "a mark for each case: {frame}");
            assert!(frame["events"].as_u64() >= Some(9), "a line at each event: {frame}");
        }
    }
}
