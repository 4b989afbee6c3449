//! Text that a user types: descriptions of impairments and of transports.

use irnic_ports::impair::Impairments;
use irnic_transports::config::TransportConfig;

/// Any text is understood, and prints as something that reads back the same, or is refused in one line.
pub fn impairment_grammar(text: &str) {
    match text.parse::<Impairments>() {
        Ok(impairments) => {
            let printed = impairments.to_string();
            assert_eq!(printed.parse(), Ok(impairments), "{text:?} prints as {printed:?}");
        }
        Err(error) => {
            assert!(error.column <= text.chars().count() + 1, "{text:?}: {error}");
            one_line(&error.to_string());
        }
    }
    for real_time in [false, true] {
        match TransportConfig::parse(text, real_time) {
            Ok(config) => one_line(&config.to_string()),
            Err(error) => _ = error.to_string(),
        }
    }
}

fn one_line(text: &str) {
    assert!(!text.contains('\n'), "{text:?} has several lines");
}
