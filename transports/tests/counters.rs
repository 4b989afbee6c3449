//! `docs/counters.md` lists the counters as the code documents them. `IRNIC_BLESS=1` writes it anew.

use irnic_transports::qp::Counters;

#[test]
fn the_document_lists_every_counter() {
    let mut text = String::from(
        "# Counters\n\nA device counts these; all start at 0. `irnic perf --out_json` prints them, `Counters::iter` names \
         them. In\nparentheses: where the name comes from, or what a driver calls the same thing.\n\n| counter | meaning |\n|---|---|\n",
    );
    for (name, _, meaning) in Counters::default().iter() {
        text += &format!("| `{name}` | {meaning} |\n");
    }
    // The drivers' names follow, which are not generated from the code.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/counters.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (table, rest) = document.split_once("\n## ").expect("a section behind the table");
    if std::env::var_os("IRNIC_BLESS").is_some() {
        std::fs::write(path, format!("{text}\n## {rest}")).unwrap();
    }
    assert_eq!(table, text, "run with IRNIC_BLESS=1 to write it anew");
}
