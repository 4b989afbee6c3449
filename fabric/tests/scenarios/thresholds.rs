//! Dynamic thresholds of a shared buffer (Choudhury and Hahne).

use crate::kit::*;

/// Hosts 2 to 5 send to hosts 0 and 1, whose links are too slow to matter: the most that waited for either.
fn peaks(alpha: f64, buffer: u64, destinations: u32) -> Vec<u64> {
    let topology = star(&[1_000_000, 1_000_000, 40 * G, 40 * G, 40 * G, 40 * G]);
    let flows = (2..6).map(|host| flow(host, host % destinations, 400)).collect();
    let mut c = config(topology, flows, shared(buffer, alpha, None), "roce");
    c.until = 100_000;
    let outcome = run(c);
    assert!(outcome.dropped.0 > 0);
    (0..destinations).map(|host| port(&outcome, 6, host).peak).collect()
}

#[test]
fn a_queue_gets_alpha_of_what_is_left() {
    let buffer = 300 * WIRE;
    for alpha in [0.125, 0.5, 1.0, 2.0, 8.0] {
        for queues in [1u32, 2] {
            // q = α (B − n·q), so q = B α / (1 + n·α).
            let expected = buffer as f64 * alpha / (1.0 + f64::from(queues) * alpha);
            for peak in peaks(alpha, buffer, queues) {
                let off = (peak as f64 - expected).abs();
                assert!(off <= WIRE as f64, "α {alpha}, {queues} queues: {peak} of {buffer}, expected {expected}");
            }
        }
    }
}
