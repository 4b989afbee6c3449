//! What tests with Linux's rxe driver learn from its counters.

/// Says that [`requester_is_idle`].
pub const REQUESTER_IDLE: &str = "rxe has sent nothing for three seconds, with a request unanswered";

/// Returns whether the driver's requester has stopped. `said` has the driver's counters, and `/proc/PID/stat` of the
/// program, which as the requester polls for nothing but the completion of a request, twice, at an interval of three
/// seconds: nothing was sent meanwhile, and the program used a core. Its timeout is 268 ms, of which a requester may
/// take four before it repeats a request, and an RNR NAK may delay that by 655 ms.
pub fn requester_is_idle(program: &str, said: &str) -> bool {
    let sent: Vec<&str> = said.lines().filter(|line| line.contains("hw_counters/sent_pkts:")).collect();
    let name = format!("({program}) ");
    // The fourteenth field: processor time in user mode, in hundredths of a second.
    let used = |line: &str| line.split_once(&name)?.1.split(' ').nth(11)?.parse::<u64>().ok();
    let used: Vec<u64> = said.lines().filter_map(used).collect();
    matches!((&*sent, &*used), ([a, b], [c, d]) if a == b && d.saturating_sub(*c) > 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_requester_sends_nothing_while_its_program_polls() {
        let said = |sent: [u32; 2], used: [u32; 2]| {
            let read = |i: usize| {
                let (sent, used) = (sent[i], used[i]);
                format!(
                    "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts:{sent}\n0\n\
                     356 (integrity) R 355 0 0 0 -1 4194304 1242 2 0 0 {used} 24 0 0 20 0 1 0 1271\n"
                )
            };
            requester_is_idle("integrity", &(read(0) + &read(1)))
        };
        assert!(said([7, 7], [12_000, 12_300]));
        assert!(!said([7, 8], [12_000, 12_300]), "it repeats its request");
        assert!(!said([7, 7], [12_000, 12_002]), "its program waits for something else, or has no core");
        assert!(!requester_is_idle("integrity", "nothing was read"));
    }
}
