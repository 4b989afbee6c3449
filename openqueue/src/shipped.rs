//! The policies shipped with irnic.

/// A policy shipped with irnic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name: that of its file without `.oq`.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../policies/", $name, ".oq")) }),+]
    };
}

/// All policies shipped with irnic.
pub const SHIPPED: &[Shipped] = shipped![
    "buffered-crossbar",
    "input-queued",
    "least-slack",
    "least-value-drop",
    "most-value-first",
    "random-early-drop",
    "shared-buffer",
    "shared-lqd",
    "static-partition",
    "strict-push-out",
    "tail-drop",
    "trimming",
    "weighted-round-robin",
];

impl Shipped {
    /// The shipped policy with this name.
    pub fn named(name: &str) -> Option<&'static Shipped> {
        SHIPPED.iter().find(|shipped| shipped.name == name)
    }

    /// A one-line description: the first sentence of its text.
    pub fn about(&self) -> String {
        let comment = self.text.lines().map_while(|line| line.strip_prefix("//")).map(str::trim);
        let text = comment.collect::<Vec<_>>().join(" ");
        let end = [": ", ". ", " ("].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
        text[..end].trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    #[test]
    fn all_can_be_read_with_all_switches_on_and_off() {
        for shipped in SHIPPED {
            let policy: Policy = shipped.text.parse().unwrap_or_else(|error| panic!("{}.oq:{error}", shipped.name));
            for parameter in policy.parameters().iter().filter(|p| ["on", "off"].contains(&p.value.as_str())) {
                let mut changed = policy.clone();
                let other = if parameter.value == "on" { "off" } else { "on" };
                changed.set(&parameter.name, other).expect("a parameter");
                for ports in [1, 2, 5, 64] {
                    let plan = changed.plan(ports).unwrap_or_else(|e| panic!("{} {ports}: {e}", shipped.name));
                    assert_eq!(plan.ports(), ports);
                }
            }
            assert!(!shipped.about().is_empty() && shipped.about().len() < 130, "{}", shipped.about());
        }
    }
}
