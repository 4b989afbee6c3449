//! Utilization of the host's processors, by /proc/stat (proc_stat(5)).

use std::fs;

/// Time of all processors together since boot, in kernel ticks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    busy: u64,
    idle: u64,
}

impl Ticks {
    /// Reads the current values. Zero if not available.
    pub fn now() -> Ticks {
        fs::read_to_string("/proc/stat").ok().and_then(|text| Ticks::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Ticks> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; guest time is included in user and nice.
        let all: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = all.get(3)? + all.get(4).unwrap_or(&0);
        Some(Ticks { busy: all.iter().sum::<u64>() - idle, idle })
    }

    /// The share of busy time since `then`, %; 0 if no tick has passed.
    pub fn busy_since(self, then: Ticks) -> f64 {
        let (busy, idle) = (self.busy.saturating_sub(then.busy), self.idle.saturating_sub(then.idle));
        if busy + idle == 0 { 0.0 } else { 100.0 * busy as f64 / (busy + idle) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_what_waits() {
        let parse = |text| Ticks::parse(text).expect("a line");
        let then = parse("cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3 4\n");
        assert_eq!(then, Ticks { busy: 150, idle: 850 });
        let now = parse("cpu  160 0 60 820 60 0 0 0 7 0\n");
        assert_eq!(now.busy_since(then), 70.0);
        assert_eq!(then.busy_since(then), 0.0);
        assert_eq!((Ticks::parse("intr 5\n"), Ticks::parse("cpu  1 2 x 4\n")), (None, None));
    }
}
