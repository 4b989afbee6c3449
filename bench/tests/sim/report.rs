//! The report of `irnic sim`, opened in a browser.

use crate::support::{Folder, irnic, needs, text};
use serde_json::Value;

/// Opens the report in frames as wide as a phone and as a desktop, looks at every plot, points at one, hides a case and
/// shows it.
const PROBE: &str = r#"<!doctype html><meta charset="utf-8"><body><pre id="found"></pre><script>
const report = REPORT;
const look = (width) => new Promise((done) => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.onload = () => {
    const page = frame.contentDocument;
    const look = () => [...page.querySelectorAll("svg.plot")].map((svg) => {
      const axis = svg.querySelector("path.axis").getBBox();
      const box = svg.getBoundingClientRect();
      const shown = [...svg.querySelectorAll("polyline.series")].filter((line) => line.style.display !== "none");
      const series = shown.map((line) => {
        const { x, y, width, height } = line.getBBox();
        return {
          wide: width,
          high: height,
          inside: x >= axis.x - 1 && y >= axis.y - 1 && x + width <= axis.x + axis.width + 1 && y + height <= axis.y + axis.height + 1,
          colour: page.defaultView.getComputedStyle(line).stroke,
        };
      });
      const numbers = [...svg.querySelectorAll("text")].map((text) => text.textContent).filter((text) => /^[0-9]/.test(text));
      const marks = [...svg.querySelectorAll("path.mark:not(.sparse)")].filter((mark) => mark.style.display !== "none");
      const seen = (mark) => mark.getBBox().width > 2 && page.defaultView.getComputedStyle(mark).stroke !== "none";
      const points = shown.flatMap((line) => line.getAttribute("points").split(" ")).length;
      return { id: svg.id, width: box.width, height: box.height, right: box.right, series, numbers, points, marks: marks.filter(seen).length };
    });
    const plots = look();
    const first = page.querySelector("svg.plot");
    const at = first.getBoundingClientRect();
    const middle = { clientX: at.left + at.width / 2, clientY: at.top + at.height / 2, bubbles: true };
    first.dispatchEvent(new frame.contentWindow.PointerEvent("pointermove", middle));
    const tip = page.querySelector(".tip").innerText;
    const first_case = page.querySelector(".legend button");
    first_case.click();
    const without = look();
    const hidden = page.querySelectorAll(".plot .s0").length;
    const visible = [...page.querySelectorAll(".plot .s0")].filter((line) => line.style.display !== "none").length;
    first_case.click();
    const again = JSON.stringify(look()) === JSON.stringify(plots);
    const heading = page.querySelector("h1").innerText;
    done({ heading, without, again, width, scroll: page.documentElement.scrollWidth, plots, tip, hidden, visible, rows: page.querySelectorAll(".results tbody tr").length });
  };
  frame.srcdoc = report;
});
(async () => {
  const found = [await look(390), await look(1200)];
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"#;

/// What a browser finds in the report of a small grid.
fn found() -> Option<Value> {
    needs(&["chromium"])?;
    let folder = Folder::new();
    folder.write(
        "e.toml",
        "topology = \"star:hosts=8\"\n[[run]]\nname = \"IRN\"\nduration = \"1ms\"\n[[run]]\nname = \"RoCE, </script> \
         and \\\"PFC\\\"\"\ntransport = \"roce\"\npfc = true\nduration = \"200us\"\n",
    );
    let made = irnic(&folder).args(["sim", "--experiment", "e.toml", "--html", "r.html"]).output().expect("irnic runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let report = std::fs::read_to_string(folder.path().join("r.html")).expect("a report");
    // The name space of SVG is the only address in it, and nothing is loaded.
    assert_eq!(report.matches("http").count(), report.matches("http://www.w3.org/2000/svg").count());
    assert!(!report.contains("src=") && !report.contains("url(") && !report.contains("@import"));
    let quoted = serde_json::to_string(&report).expect("JSON").replace("</", "<\\/");
    let page = folder.write("probe.html", &PROBE.replace("REPORT", &quoted));
    let dom =
        irnic_testkit::browser::open(folder.path(), &format!("file://{}", page.display()), 10_000, &["--dump-dom"]);
    let dom = text(&dom);
    let begin = dom.find("<pre id=\"found\">").unwrap_or_else(|| panic!("no page: {dom}")) + 16;
    let json = dom[begin..].split("</pre>").next().expect("an end").replace("&lt;", "<").replace("&gt;", ">");
    let json = json.replace("&quot;", "\"").replace("&amp;", "&");
    Some(serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}")))
}

#[test]
fn a_browser_shows_all_plots_on_a_phone_and_on_a_desktop() {
    let Some(found) = found() else { return };
    let frames = found.as_array().expect("two frames");
    assert_eq!(frames.len(), 2);
    for frame in frames {
        let width = frame["width"].as_f64().unwrap();
        assert!(frame["scroll"].as_f64().unwrap() <= width, "the page is wider than the screen: {frame}");
        assert_eq!(frame["heading"], "star:hosts=8, irn-heavy, load 0.7");
        let plots = frame["plots"].as_array().unwrap();
        assert!(plots[1]["marks"].as_u64() > Some(4) && plots[1]["marks"] == plots[1]["points"], "{}", plots[1]);
        let alone = &frame["without"][1];
        assert!(alone["marks"].as_u64() < plots[1]["marks"].as_u64() && alone["marks"] == alone["points"], "{alone}");
        let ids: Vec<&str> = plots.iter().map(|p| p["id"].as_str().unwrap()).collect();
        assert_eq!(ids[..6], ["fct-cdf", "slowdown", "goodput", "longest", "buffered", "active"]);
        for plot in plots {
            assert!(plot["width"].as_f64() > Some(200.0) && plot["height"].as_f64() > Some(100.0), "{plot}");
            assert!(plot["right"].as_f64() <= Some(width), "{plot}");
            let series = plot["series"].as_array().unwrap();
            assert!(series.len() >= 2, "a line for each case: {plot}");
            assert!(series.iter().all(|s| s["inside"] == true && s["wide"].as_f64() > Some(50.0)), "{plot}");
            assert!(series.iter().any(|s| s["high"].as_f64() > Some(50.0)), "all lines are flat: {plot}");
            assert!(plot["numbers"].as_array().unwrap().len() >= 4, "{plot}");
            assert_ne!(series[0]["colour"], series[1]["colour"], "{plot}");
        }
        // RoCE's flows start during a fifth of the time: alone it has the whole width, and other numbers below.
        let of = |plots: &Value, what: &str| {
            let mut all = plots.as_array().unwrap().iter();
            let plot = all.find(|p| p["id"] == "goodput").unwrap();
            plot["series"].as_array().unwrap().last().unwrap()[what].clone()
        };
        let (both, alone) =
            (of(&frame["plots"], "wide").as_f64().unwrap(), of(&frame["without"], "wide").as_f64().unwrap());
        assert!(alone > 1.5 * both, "{both}, and {alone} when the longer one is hidden");
        assert!(frame["without"].as_array().unwrap().iter().all(|p| p["series"][0]["inside"] == true), "{frame}");
        assert_eq!(frame["again"], true, "a case that is shown again brings the axes back");
        let tip = frame["tip"].as_str().unwrap();
        assert!(
            tip.contains("FCT [ms]: ") && tip.contains("IRN: ") && tip.contains("RoCE, </script> and \"PFC\": "),
            "{tip}"
        );
        assert!(frame["hidden"].as_u64() > Some(5) && frame["visible"] == 0, "the legend hides a case: {frame}");
        assert!(frame["rows"].as_u64() > Some(20), "{frame}");
    }
}

#[test]
fn slowdown_has_one_point_for_each_of_a_few_sizes() {
    let folder = Folder::new();
    let sizes = "fixed:1KB,load=0.1+fixed:30KB,load=0.3+fixed:200KB,load=0.2";
    let args = ["sim", "--topology", "star:hosts=4", "--duration", "500us", "--workload", sizes, "--seeds", "2"];
    let made = irnic(&folder).args(args).args(["--html", "r.html"]).output().expect("irnic runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let report = std::fs::read_to_string(folder.path().join("r.html")).expect("a report");
    assert!(report.contains(&format!("<h1>star:hosts=4, {sizes}</h1>")), "what was simulated");
    assert!(report.contains("1 case, 2 seeds; plots over time are of seed 1"), "which seed is shown");
    let data = report.split("<script id=\"plots\" type=\"application/json\">").nth(1).expect("plots");
    let plots: Value = serde_json::from_str(data.split("</script>").next().expect("an end")).expect("JSON");
    // Mean, and 99th percentile.
    let lines = plots[1]["lines"].as_array().expect("lines");
    assert_eq!(lines.len(), 2);
    for line in lines {
        let points = line["points"].as_array().expect("points").iter();
        let sizes: Vec<f64> = points.map(|point| point[0].as_f64().expect("a size")).collect();
        assert_eq!(sizes, [1_000.0, 30_000.0, 200_000.0]);
    }
}
